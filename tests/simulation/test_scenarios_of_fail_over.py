"""Fail-over: a primary dies, is frozen, cut off, or asked to leave; what was told before stays, and one process acts in the end."""

from __future__ import annotations

import pytest

from brokerha.model.records import Accepted, TxDecided, TxPrepared, ViewStarted
from brokerha.model.wire.process_messages import Confirmed
from tests.simulation.group_scene import FAIL_OVER_MS, GroupScene
from tests.simulator.network import both_ways


@pytest.mark.parametrize("backups", [1, 2, 3])
def test_the_first_process_acts_and_nobody_ever_disturbs_it_a_backup_that_was_stopped_for_long_neither(backups: int):
    scene = GroupScene(backups=backups)
    scene.ready()
    view = scene.primary.view
    scene.process("m1-b").freeze(30 * FAIL_OVER_MS * 1000)
    scene.run(60 * FAIL_OVER_MS)
    assert [(process.node, process.view) for process in scene.group.acting] == [("m1", view)]
    scene.agree()


def test_a_write_that_was_acknowledged_survives_its_primary():
    scene = GroupScene(backups=1)
    scene.ready()
    write = scene.world.clients.new_write("t1", [("put", "t", b"k", b"v")])
    scene.world.clients.submit(scene.group, write)
    scene.until(lambda: write.is_done)
    scene.fail_over()
    assert scene.primary.node == "m1-b"
    assert scene.primary.journal.lsn_of("t1") == 1
    scene.start("m1")
    scene.agree()


def test_nothing_is_told_that_no_backup_holds():
    scene = GroupScene(backups=1)
    scene.ready()
    scene.world.network.cut_for_ever(both_ways([("m1", "m1-b")]))
    write = scene.world.clients.new_write("t1", [("put", "t", b"k", b"v")], "accepted")
    scene.world.clients.submit(scene.group, write)
    scene.run(FAIL_OVER_MS // 2)
    assert scene.process("m1").journal.body("m1", "t1") is not None
    assert not write.acknowledged
    scene.heal()
    scene.until(lambda: write.is_done, 20_000)
    scene.agree(60_000)


def test_a_frozen_primary_that_wakes_shows_nothing_and_follows():
    # Given a primary that is frozen with a write that nobody else has
    scene = GroupScene(backups=2)
    scene.ready()
    old = scene.primary
    scene.lose(Confirmed, "m1-b")
    old.freeze(5 * FAIL_OVER_MS * 1000)
    scene.until(lambda: any(process is not old for process in scene.group.acting), 20_000)
    scene.lose_nothing()

    # When another process acts, and the old one wakes
    new = scene.primary
    assert new is not old
    scene.until(lambda: scene.group.acting == [new], 20_000)

    # Then it follows
    scene.agree(60_000)
    assert old.master is None


def test_a_primary_that_is_cut_off_from_its_backups_is_outvoted_and_gives_up_its_tail():
    scene = GroupScene(backups=2)
    scene.ready()
    old = scene.primary
    scene.world.network.cut_for_ever(both_ways((old.node, each) for each in ("m1-b", "m1-c") if each != old.node))
    write = scene.world.clients.new_write("t1", [("put", "t", b"k", b"v")], "accepted")
    scene.world.clients.submit(scene.group, write)
    scene.until(lambda: len(scene.group.acting) == 2, 20_000)
    scene.heal()
    scene.agree(60_000)
    assert scene.world.faults_seen["journal loaded"] > 0
    assert scene.primary is not old


@pytest.mark.parametrize("point", ["append absent", "append there", "view started", "written, nothing sent"])
def test_a_process_that_dies_while_it_becomes_primary_does_no_harm(point: str):
    scene = GroupScene(backups=2)
    scene.ready()
    scene.write_many_to_group(3)
    for node in ("m1-b", "m1-c"):
        scene.aim(scene.process(node), point, None if point == "view started" else ViewStarted)
    scene.process("m1").die()
    scene.until(lambda: scene.world.faults_seen["aimed crash"] > 0 and scene.group.is_up, 30_000)
    scene.start("m1")
    scene.agree(60_000)


def test_a_backup_that_lost_its_directory_loads_and_becomes_ready():
    scene = GroupScene(backups=2)
    scene.ready()
    scene.write_many_to_group(5)
    backup = scene.process("m1-c")
    assert scene.world.checkers.journals.may_be_emptied(backup)
    backup.die()
    backup.empty()
    backup.start()
    scene.agree(60_000)
    assert backup.journal.last_number == scene.primary.journal.last_number


def test_a_primary_hands_over_when_an_operator_says_so():
    scene = GroupScene(backups=2)
    scene.ready()
    assert scene.primary.promote("m1-c")
    scene.until(lambda: [process.node for process in scene.group.acting] == ["m1-c"], 20_000)
    scene.agree(60_000)


@pytest.mark.parametrize("who", ["primary", "backup", "joining"])
@pytest.mark.parametrize("kind", [TxPrepared, TxDecided, Accepted])
@pytest.mark.parametrize("point", ["append absent", "append there", "written, nothing sent", "half sent", "sent, not answered"])
def test_a_transaction_is_whole_or_absent_wherever_somebody_dies(who: str, kind: type, point: str):
    """The design note's own crash: A, B and C on one queue, and whoever takes over has all of them or none."""
    # Given a transaction of three messages, and a backup that joins in the middle of it
    scene = GroupScene(backups=2)
    scene.ready()
    joining = scene.process("m1-c")
    joining.die()
    tx = scene.begin()
    tx.operations(*(("publish", "q", "text/plain", name) for name in (b"A", b"B", b"C")))
    joining.start()

    # When somebody dies at a point of its commit, and the primary after it
    victim = {"primary": scene.primary, "backup": scene.process("m1-b"), "joining": joining}[who]
    scene.aim(victim, point, None if point == "half sent" else kind)
    ticket = tx.send("commit")
    scene.run(1_000)
    if scene.process("m1").is_up:
        scene.process("m1").die()
    scene.until(lambda: scene.group.is_up, 30_000)

    # Then what its client was told is true, and all have the same, whole or not at all
    outcome = tx.outcome
    for process in scene.group.processes:
        if not process.is_up:
            process.start()
    scene.agree(60_000)
    assert scene.queue("q") in ([], [b"A", b"B", b"C"])
    assert tx.outcome in ("applied", "aborted")
    reply = scene.replies.get(ticket)
    if reply is not None and not reply.error:
        assert scene.queue("q") == [b"A", b"B", b"C"]
    if outcome == "aborted":
        assert scene.queue("q") == []
