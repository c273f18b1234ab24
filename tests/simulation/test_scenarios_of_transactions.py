"""Transactions on masters with backups: the acceptance behaviours of the design (transactions, section 8), as far as cores decide them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.model.operations import Operation
from brokerha.model.wire.process_messages import TxAnswer
from tests.simulation.group_scene import GroupScene, Tx


def send(queue: str, *bodies: bytes) -> list[Operation]:
    return [("publish", queue, "text/plain", body) for body in bodies]


def filled(scene: GroupScene, queue: str, *bodies: bytes) -> list[str]:
    """Ids of messages that a transaction put into a queue."""
    tx = scene.begin()
    tx.operations(*send(queue, *bodies))
    reply = tx.step("commit")
    assert reply is not None
    assert reply.answer["state"] == "committed"
    return [f"{tx.run.txid}.{place}" for place in range(1, len(bodies) + 1)]


@pytest.mark.parametrize("backups", [0, 1, 2])
def test_t1_a_commit_moves_messages_everywhere_at_once_and_leaves_nothing(backups: int):
    scene = GroupScene(backups=backups, sync_n=min(1, backups)) if backups else GroupScene(backups=1, sync_n=0)
    scene.ready()
    ids = filled(scene, "a", b"x", b"y", b"z")
    tx = scene.begin()
    tx.operations(*(("accept", "a", each) for each in ids))
    tx.operations(*send("b", b"x", b"y", b"z"))
    plain = scene.world.clients.new_write("plain", send("b", b"0", b"1", b"2"))
    scene.world.clients.submit(scene.group, plain)
    scene.until(lambda: plain.is_done)
    assert (scene.queue("a"), scene.queue("b")) == ([b"x", b"y", b"z"], [b"0", b"1", b"2"])
    assert scene.world.tx_queues.names

    reply = tx.step("commit")
    assert reply is not None
    assert reply.answer["state"] == "committed"
    scene.agree()
    assert (scene.queue("a"), scene.queue("b")) == ([], [b"0", b"1", b"2", b"x", b"y", b"z"])


def test_t2_plain_transactional_and_plain_sends_are_taken_in_one_order_on_every_node():
    scene = GroupScene()
    scene.ready()
    clients = scene.world.clients
    first, last = clients.new_write("first", send("b", b"0")), clients.new_write("last", send("b", b"2"))
    clients.submit(scene.group, first)
    scene.until(lambda: first.is_done)
    filled(scene, "b", b"1")
    clients.submit(scene.group, last)
    scene.until(lambda: last.is_done)
    assert scene.queue("b") == [b"0", b"1", b"2"]
    ids = [message for message, _ in scene.truth.model.queues["b"].items()]
    taking = clients.new_write("taking", [("accept", "b", each) for each in ids])
    clients.submit(scene.group, taking)
    scene.until(lambda: taking.is_done)
    scene.agree()
    assert scene.queue("b") == []


def test_t3_a_rollback_leaves_no_trace():
    scene = GroupScene()
    scene.ready()
    ids = filled(scene, "a", b"x")
    tx = scene.begin()
    tx.operations(("accept", "a", ids[0]), *send("b", b"x"))
    reply = tx.step("rollback")
    assert reply is not None
    assert reply.answer["state"] == "aborted"
    scene.agree()
    assert (scene.queue("a"), scene.queue("b")) == ([b"x"], [])


def test_t4_a_primary_that_dies_before_the_commit_takes_the_transaction_along():
    scene = GroupScene()
    scene.ready()
    tx = scene.begin()
    tx.operations(*send("b", b"x"))
    scene.fail_over()
    assert tx.outcome == "aborted"
    scene.start("m1")
    scene.agree(60_000)
    assert scene.queue("b") == []


def test_t5_a_prepare_that_hangs_while_its_primary_dies_is_unknown_and_then_told():
    scene = GroupScene()
    scene.ready()
    tx = scene.begin()
    tx.operations(*send("b", b"x"))
    scene.lose(TxAnswer, "m1-b")
    ticket = tx.send("commit")
    scene.run(300)
    scene.fail_over()
    assert ticket not in scene.replies or scene.replies[ticket].error == "OutcomeUnknown"
    scene.lose_nothing()
    assert tx.outcome == "aborted"
    scene.start("m1")
    scene.agree(60_000)


def test_t7_a_backup_that_refuses_the_second_of_three_operations_aborts_it_everywhere():
    scene = GroupScene()
    scene.ready()
    ids = filled(scene, "a", b"x")
    tx = scene.begin()
    participant = scene.process("m1-b").runner.standby.participant
    first, *others = [("accept", "a", ids[0]), *send("b", b"second " * 40, b"third")]
    participant.config = replace(participant.config, bytes_limit=100)
    tx.operations(first)
    tx.operations(*others)
    reply = tx.step("commit")
    assert reply is not None
    assert reply.error == "Aborted"
    assert "backup m1-b refused: transactions here would hold more than 100 bytes together" in reply.reason
    assert tx.outcome == "aborted"
    scene.agree()
    assert (scene.queue("a"), scene.queue("b")) == ([b"x"], [])


def test_t8a_a_backup_that_dies_in_the_middle_does_not_stop_the_commit():
    scene = GroupScene()
    scene.ready()
    tx = scene.begin()
    tx.operations(*send("b", b"x"))
    scene.kill("m1-c")
    tx.operations(*send("b", b"y"))
    reply = tx.step("commit")
    assert reply is not None
    if reply.error:
        assert reply.error == "OutcomeUnknown"
    scene.start("m1-c")
    scene.until(lambda: tx.outcome == "applied", 30_000)
    scene.agree(60_000)
    assert scene.queue("b") == [b"x", b"y"]


def test_t8b_a_backup_that_joins_in_the_middle_is_not_in_it_and_comes_to_the_same():
    scene = GroupScene()
    scene.ready()
    scene.kill("m1-c")
    scene.run(2_000)
    tx = scene.begin()
    tx.operations(*send("b", b"x"))
    scene.start("m1-c")
    scene.run(500)
    reply = tx.step("commit")
    assert reply is not None
    assert not reply.error
    scene.agree(60_000)


def test_t9_ten_commits_that_wait_hold_up_nothing_and_all_of_them_land():
    scene = GroupScene(backups=1)
    scene.ready()
    pending = [scene.begin() for _ in range(10)]
    for number, tx in enumerate(pending):
        tx.operations(*send("b", b"%d" % number))
    scene.lose(TxAnswer, "m1-b")
    for tx in pending:
        tx.send("commit")
    scene.run(500)
    assert {tx.outcome for tx in pending} == {"open"}
    other = scene.begin()
    reply = other.step("rollback")
    assert reply is not None
    assert reply.answer["state"] == "aborted"
    assert {tx.outcome for tx in pending} == {"open"}
    scene.lose_nothing()
    scene.until(lambda: all(tx.outcome == "applied" for tx in pending), 20_000)
    scene.agree(60_000)
    assert sorted(scene.queue("b")) == [b"%d" % number for number in range(10)]


def test_t10_many_small_transactions_keep_the_order():
    scene = GroupScene(backups=1)
    scene.ready()
    ids: list[str] = []
    for number in range(0, 60, 10):
        ids += filled(scene, "a", *(b"%d" % each for each in range(number, number + 10)))
    for place in range(0, 50, 10):
        tx = scene.begin()
        tx.operations(*(("accept", "a", each) for each in ids[place : place + 10]))
        assert tx.step("commit") is not None
    scene.agree(60_000)
    assert scene.queue("a") == [b"%d" % number for number in range(50, 60)]


def test_t13_under_repeated_fail_over_counts_are_multiples_of_the_size():
    scene = GroupScene(backups=2)
    for _ in range(3):
        scene.ready()
        tx = scene.begin()
        tx.operations(*send("b", b"1", b"2", b"3"))
        tx.send("commit")
        scene.run(3)
        dead = scene.primary
        scene.fail_over(30_000)
        dead.start()
    scene.agree(60_000)
    assert len(scene.queue("b")) % 3 == 0


def prepared(scene: GroupScene, xid: str, body: bytes) -> Tx:
    tx = scene.begin(xid=xid)
    tx.operations(*send("b", body))
    reply = tx.step("prepare", session="")
    assert reply is not None
    assert reply.answer["state"] == "prepared"
    return tx


def test_prepared_transactions_outlive_all_processes_and_end_either_way():
    scene = GroupScene()
    scene.ready()
    kept, undone = prepared(scene, "1:aa:", b"kept"), prepared(scene, "1:bb:", b"undone")
    scene.kill("m1", "m1-b", "m1-c")
    scene.start("m1", "m1-b", "m1-c")
    scene.until(lambda: scene.group.is_up, 30_000)
    scene.ready()

    def listed() -> list[tuple[str, str]]:
        rows = scene.group.runner.core.transacting.coordinator.rows(scene.primary.clock.now())
        return [(row["xid"], row["state"]) for row in rows]

    # What the journal had not yet of the results comes again from the worker.
    assert [xid for xid, _ in listed()] == ["1:aa:", "1:bb:"]
    scene.until(lambda: [state for _, state in listed()] == ["prepared", "prepared"], 10_000)

    committed, aborted = kept.step("commit"), undone.step("rollback", session="")
    assert committed is not None
    assert aborted is not None
    assert (committed.answer["state"], aborted.answer["state"]) == ("committed", "aborted")
    scene.agree(60_000)
    assert scene.queue("b") == [b"kept"]


def test_a_prepared_transaction_keeps_its_messages_over_a_fail_over():
    scene = GroupScene()
    scene.ready()
    ids = filled(scene, "a", b"x")
    tx = scene.begin(xid="1:cc:")
    tx.operations(("accept", "a", ids[0]))
    tx.step("prepare", session="")
    scene.fail_over(30_000)
    other = scene.begin()
    refused = other.operations(("accept", "a", ids[0]))
    assert refused is not None
    assert refused.error == "NotReady"
    scene.start("m1")
    committed = tx.step("commit")
    assert committed is not None
    assert committed.answer["state"] == "committed"
    other.step("rollback", session="")
    scene.agree(60_000)
    assert scene.queue("a") == []
