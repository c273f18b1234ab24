"""Behaviours of transactions over a primary with backups, at the level of cores (transactions, section 8, T1 to T13)."""

from __future__ import annotations

import pytest

from brokerha.model.records import Accepted, TxDecided, TxPrepared
from brokerha.model.requests import TxReply
from brokerha.model.wire.process_messages import TxAnswer, TxEvents, TxJoin
from brokerha.transactions.config import ParticipantConfig
from brokerha.transactions.participant import Participant
from tests.unit.transactions.bench import TxBench, word_of
from tests.unit.transactions.queue_site import accept, publish

BACKUPS = [(), ("b1",), ("b1", "b2")]


def filled(backups: tuple[str, ...] = ("b1", "b2"), **settings: object) -> TxBench:
    """A bench whose queue a holds x, y, z."""
    bench = TxBench(backups, **settings)  # type: ignore[arg-type]
    bench.submit(publish("a", "x", "y", "z"))
    return bench


@pytest.mark.parametrize("backups", BACKUPS)
def test_t1_a_commit_moves_messages_between_queues_on_every_node_at_once(backups: tuple[str, ...]) -> None:
    bench = filled(backups)
    txid = bench.begin()
    taken = bench.ask("take", txid, first=0, queue="a", candidates=bench.content.ids("a"), count=3).answer["taken"]
    bench.submit(publish("b", "0"))
    bench.ask("operations", txid, first=3, operations=publish("b", "x", "y"))
    bench.submit(publish("b", "1"))
    bench.ask("operations", txid, first=5, operations=publish("b", "z"))
    bench.submit(publish("b", "2"))
    assert len(taken) == 3
    for queues in bench.contents():
        assert (queues.texts("a"), queues.texts("b")) == (["x", "y", "z"], ["0", "1", "2"])
    assert bench.ask("commit", txid).answer["state"] == "committed"
    bench.settle()
    for queues in bench.contents():
        assert (queues.texts("a"), queues.texts("b")) == ([], ["0", "1", "2", "x", "y", "z"])
    events = [kind for out in bench.sent if isinstance(out.message, TxEvents) for kind, _ in out.message.events]
    wanted = ["begin", *["operation"] * 6, "prepare", "commit"]
    assert sorted(events) == sorted(wanted * len(backups))
    bench.check_clean()
    assert bench.submit(accept("b", *bench.content.ids("b"))).status == "applied"
    bench.settle()
    assert [queues.texts("b") for queues in bench.contents()] == [[]] * (1 + len(backups))


@pytest.mark.parametrize("backups", BACKUPS)
def test_t2_plain_and_transactional_sends_are_consumed_together_and_counted_alike(backups: tuple[str, ...]) -> None:
    bench = TxBench(backups)
    bench.submit(publish("q", "1"))
    bench.ask("commit", bench.begun(publish("q", "2")))
    bench.submit(publish("q", "3"))
    assert bench.content.texts("q") == ["1", "2", "3"]
    bench.submit(accept("q", *bench.content.ids("q")))
    bench.settle()
    counts = [(queues.texts("q"), queues.published, queues.accepted) for queues in bench.contents()]
    assert counts == [([], 3, 3)] * (1 + len(backups))


@pytest.mark.parametrize("backups", BACKUPS)
def test_t3_a_rollback_leaves_no_trace_anywhere(backups: tuple[str, ...]) -> None:
    bench = filled(backups)
    before = [len(list(bench.journal.records()))]
    txid = bench.begun(publish("b", "x"))
    assert bench.ask("take", txid, first=1, queue="a", candidates=bench.content.ids("a"), count=2).answer["taken"]
    assert bench.ask("rollback", txid).answer["state"] == "aborted"
    bench.settle()
    assert not [r for _, r in bench.journal.records(before[0]) if isinstance(r, Accepted | TxPrepared | TxDecided)][1:]
    assert [queues.texts("a") for queues in bench.contents()] == [["x", "y", "z"]] * (1 + len(backups))
    assert [queues.texts("b") for queues in bench.contents()] == [[]] * (1 + len(backups))
    assert word_of(bench.outcome(txid)) == "aborted"
    bench.check_clean()


def test_t4_the_primary_dies_before_the_commit_and_the_client_is_told_that_nothing_happened() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.fail_over()
    reply = bench.ask("commit", txid)
    assert reply.error == "Aborted"
    assert word_of(bench.outcome(txid)) == "aborted"
    bench.settle()
    assert [queues.texts("q") for queues in bench.contents()] == [[]] * 3
    bench.check_clean()


def test_t5_a_paused_backup_holds_the_prepare_up_and_the_outcome_is_known_after_the_primary_died() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.backups["b1"].is_paused = True
    assert bench.ask("commit", txid, 200).error == "OutcomeUnknown"
    bench.fail_over()
    bench.backups["b1"].is_paused = False
    bench.settle()
    assert word_of(bench.outcome(txid)) == "aborted"
    assert [queues.texts("q") for queues in bench.contents()] == [[]] * 3
    bench.check_clean()


def test_t6_without_backups_a_commit_writes_nothing_but_the_transaction() -> None:
    bench = TxBench(())
    bench.ask("commit", bench.begun(publish("q", "x")))
    records = [record for _, record in bench.journal.records()]
    assert not [record for record in records if isinstance(record, TxPrepared | TxDecided)]
    assert not bench.sent or not [out for out in bench.sent if isinstance(out.message, TxEvents)]
    assert bench.content.texts("q") == ["x"]


def test_t7_a_backup_that_refuses_ends_it_everywhere() -> None:
    bench = TxBench(part=ParticipantConfig(bytes_limit=60))
    txid = bench.begun(publish("q", "x"), publish("q", "y" * 100), publish("q", "z"))
    reply = bench.ask("commit", txid)
    assert reply.error == "Aborted"
    assert "refused" in reply.reason
    bench.settle()
    assert [queues.texts("q") for queues in bench.contents()] == [[]] * 3
    bench.check_clean()


def test_t8a_a_backup_that_is_lost_on_the_way_does_not_stop_the_commit() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.backups["b1"].is_paused, bench.backups["b1"].is_ready = True, False
    assert bench.ask("commit", txid).answer["state"] == "committed"
    bench.rejoin("b1")
    bench.settle()
    assert [queues.texts("q") for queues in bench.contents()] == [["x"]] * 3
    bench.check_clean()


def test_t8a_with_lost_backup_abort_it_is_rolled_back() -> None:
    bench = TxBench(lost_backup="abort")
    txid = bench.begun(publish("q", "x"))
    bench.backups["b1"].is_ready = False
    bench.run(100)
    reply = bench.ask("commit", txid)
    assert (reply.error, "b1 was lost" in reply.reason) == ("Aborted", True)


def test_t8b_a_backup_that_comes_before_the_close_takes_part_in_all_of_it() -> None:
    bench = TxBench()
    bench.backups["b2"].is_ready = False
    txid = bench.begun(publish("q", "x"))
    bench.run(100)
    bench.backups["b2"].is_ready = True
    bench.run(100)
    bench.ask("operations", txid, operations=publish("q", "y"))
    assert bench.ask("commit", txid).answer["state"] == "committed"
    bench.settle()
    prepared = [record for _, record in bench.journal.records() if isinstance(record, TxPrepared)]
    assert [record.participants for record in prepared] == [("b1", "b2")]
    assert _joined(bench) == {"b1": 1, "b2": 1}
    assert not [backup.fetched for backup in bench.backups.values() if backup.fetched], "its body came through its queue"
    assert [queues.texts("q") for queues in bench.contents()] == [["x", "y"]] * 3
    bench.check_clean()


def test_the_first_backup_takes_part_in_what_began_without_any() -> None:
    bench = TxBench(("b1",), sync_n=0)
    bench.backups["b1"].is_ready = False
    txid = bench.begun(publish("q", *map(str, range(40))), xid="1:aa:")
    empty = bench.begin(xid="1:bb:")
    bench.run(100)
    bench.backups["b1"].is_ready = True
    bench.run(100)
    assert _joined(bench) == {"b1": 1}, "in what has something to say"
    assert bench.ask("prepare", txid).answer["state"] == "prepared"
    assert bench.journal.state().prepared[txid].participants == ("b1",)
    bench.ask("commit", txid, one_phase=False)
    bench.ask("rollback", empty)
    bench.settle()
    assert not bench.backups["b1"].fetched
    assert [queues.texts("q") for queues in bench.contents()] == [[str(n) for n in range(40)]] * 2
    bench.check_clean()


@pytest.mark.parametrize("away_ms", [0, 10, 200])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_backup_that_was_away_for_a_while_takes_part_again(away_ms: int, is_restarted: bool) -> None:
    bench = TxBench(loss=0.1, seed=3, retry_ms=100)
    txid = bench.begun(publish("q", "x"))
    bench.run(100)
    backup = bench.backups["b2"]
    backup.is_ready = False
    if away_ms:
        bench.run(away_ms)
    else:
        # It is heard to be gone and to be there again before anything is sent.
        bench.core.transacting.set_backups(["b1"], bench.view)
        bench.core.transacting.wake(bench.now())
    if is_restarted:
        backup.participant = Participant(bench.part, bench.view)
    backup.is_ready = True
    bench.run(200)
    bench.ask("operations", txid, operations=publish("q", "y"))
    assert bench.ask("commit", txid).answer["state"] == "committed"
    bench.settle()
    prepared = [record for _, record in bench.journal.records() if isinstance(record, TxPrepared)]
    assert [set(record.participants) for record in prepared] == [{"b1", "b2"}]
    assert [queues.texts("q") for queues in bench.contents()] == [["x", "y"]] * 3
    bench.check_clean()


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_transaction_goes_on_through_other_queues_when_the_broker_node_of_its_own_is_down(loss: float) -> None:
    bench = TxBench(loss=loss, seed=4, retry_ms=100)
    txid = bench.begun(publish("q", "x"))
    bench.run(100)
    assert bench.queues
    bench.lose_broker_node()
    bench.ask("operations", txid, operations=publish("q", "y"))
    assert bench.ask("commit", txid).answer["state"] == "committed"
    bench.settle()
    prepared = [record for _, record in bench.journal.records() if isinstance(record, TxPrepared)]
    assert [set(record.participants) for record in prepared] == [{"b1", "b2"}]
    assert [queues.texts("q") for queues in bench.contents()] == [["x", "y"]] * 3
    bench.check_clean()


def test_a_participant_that_left_is_not_asked_again() -> None:
    bench = TxBench(part=ParticipantConfig(idle_ms=1_000))
    txid = bench.begun(publish("q", "x"), timeout_ms=60_000)
    # They think that their primary has forgotten it, and leave.
    bench.run(1_500)
    invitations = len([out for out in bench.sent if isinstance(out.message, TxJoin)])
    for is_ready in (False, True):
        bench.backups["b1"].is_ready = is_ready
        bench.run(500)
    bench.ask("operations", txid, operations=publish("q", "y"))
    assert bench.ask("commit", txid).answer["state"] == "committed"
    bench.settle()
    assert len([out for out in bench.sent if isinstance(out.message, TxJoin)]) == invitations
    assert [queues.texts("q") for queues in bench.contents()] == [["x", "y"]] * 3
    bench.check_clean()


def _joined(bench: TxBench) -> dict[str, int]:
    """Of each backup, in how many transactions it has taken part."""
    return {node: backup.participant.counts["joined"] for node, backup in bench.backups.items()}


def test_t9_ten_commits_wait_at_once_and_everything_else_goes_on() -> None:
    bench = TxBench()
    txids = [bench.begun(publish("q", str(number))) for number in range(10)]
    bench.backups["b1"].is_paused = True
    tickets = [bench.do("commit", txid, 60_000) for txid in txids]
    bench.run(1000)
    assert not [ticket for ticket in tickets if ticket in bench.replies]
    assert bench.submit(publish("p", "plain")).status == "applied"
    bench.backups["b1"].is_paused = False
    bench.settle()
    replies = [bench.replies[ticket] for ticket in tickets]
    assert all(isinstance(reply, TxReply) and reply.answer["state"] == "committed" for reply in replies)
    assert [queues.texts("q") for queues in bench.contents()] == [[str(number) for number in range(10)]] * 3
    bench.check_clean()


@pytest.mark.parametrize("backups", BACKUPS)
def test_t10_what_is_left_of_many_transactions_stays_in_order(backups: tuple[str, ...]) -> None:
    bench = TxBench(backups)
    for ten in range(10):
        bench.ask("commit", bench.begun(publish("q", *(str(10 * ten + one) for one in range(10)))))
    for _ in range(9):
        txid = bench.begin()
        bench.ask("take", txid, first=0, queue="q", candidates=bench.content.ids("q"), count=10)
        assert bench.ask("commit", txid).answer["state"] == "committed"
    bench.settle()
    assert [queues.texts("q") for queues in bench.contents()] == [[str(n) for n in range(90, 100)]] * (1 + len(backups))
    bench.check_clean()


@pytest.mark.parametrize("seed", range(6))
def test_t13_under_repeated_fail_over_only_whole_transactions_are_anywhere(seed: int) -> None:
    bench = TxBench(seed=seed, loss=0.1, retry_ms=100)
    told = 0
    for attempt in range(12):
        txid = bench.begin()
        if bench.has_died() or txid not in bench.core.transacting.coordinator.book.table:
            bench.fail_over()
            continue
        bench.ask("operations", txid, operations=publish("q", *"abcde"))
        ids = bench.content.ids("p")
        bench.ask("operations", txid, operations=[*publish("p", "1", "2"), *accept("p", *ids[:2])])
        bench.crash_at = bench.crash_points + bench.random.randint(1, 12) if attempt % 2 else None
        told += bench.ask("commit", txid).answer.get("state") == "committed"
        if bench.has_died():
            bench.crash_at = None
            bench.fail_over()
        for queues in bench.contents():
            assert len(queues.texts("q")) % 5 == 0
            assert (queues.published % 7, queues.accepted % 2) == (0, 0)
    bench.settle()
    assert [queues.held for queues in bench.contents()] == [bench.content.held] * 3
    assert len(bench.content.texts("q")) >= 5 * told > 0
    bench.check_clean()


# ---- faults of the earlier implementation


def test_the_queue_of_a_transaction_is_there_while_it_is_followed() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.run(100)
    for backup in bench.backups.values():
        backup.is_paused = True
    followed = set(bench.followed)
    bench.do("rollback", txid)
    bench.run(2_000)
    assert len(followed) == 2
    assert followed < set(bench.queues)
    for backup in bench.backups.values():
        backup.is_paused = False
    bench.settle()
    bench.check_clean()


def test_an_empty_transaction_makes_no_noise() -> None:
    bench = TxBench()
    before = len(list(bench.journal.records()))
    for action in ("commit", "rollback"):
        bench.ask(action, bench.begin())
    bench.ask("prepare", bench.begin(xid="1:aa:"))
    bench.settle()
    assert not bench.sent
    new = [record for _, record in list(bench.journal.records())[before:]]
    assert not [record for record in new if isinstance(record, TxPrepared | TxDecided | Accepted)]
    bench.check_clean()


def test_a_silent_backup_is_named_and_never_counted_as_one_that_prepared() -> None:
    bench = TxBench(("b1",), sync_n=1, prepare_ms=1_000)
    txid = bench.begun(publish("q", "x"))
    bench.backups["b1"].is_paused = True
    reply = bench.ask("commit", txid, 10_000)
    assert not reply.answer
    book = bench.core.transacting.coordinator.book
    assert list(book.silent_backups) == ["b1"]
    bench.rejoin("b1")
    bench.settle()
    assert [queues.texts("q") for queues in bench.contents()] == [[], []]
    bench.check_clean()


def test_a_client_that_commits_again_after_an_unknown_outcome_makes_no_duplicate() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.do("commit", txid, 10)
    bench.run(2000)
    assert bench.ask("commit", txid).answer["state"] == "committed"
    assert bench.ask("begin", txid).error == "KeyReused"
    assert bench.content.texts("q") == ["x"]


def test_sets_of_ids_are_emptied_when_transactions_are_over() -> None:
    bench = TxBench(finished_limit=5, part=ParticipantConfig(remembered_limit=5))
    for number in range(20):
        bench.ask("commit" if number % 2 else "rollback", bench.begun(publish("q", str(number))))
    bench.settle()
    bench.check_clean()
    book = bench.core.transacting.coordinator.book
    assert len(book.finished) <= 5
    assert not book.dirty
    for backup in bench.backups.values():
        assert len(backup.participant._ended) <= 5


def test_an_answer_of_another_view_counts_for_nothing() -> None:
    bench = TxBench()
    txid = bench.begun(publish("q", "x"))
    bench.backups["b1"].is_paused = bench.backups["b2"].is_paused = True
    ticket = bench.do("commit", txid)
    bench.run(50)
    from brokerha.model.wire.messages import Envelope

    for backup in ("b1", "b2"):
        bench.core.step(Envelope("c", backup, 1, TxAnswer(txid, 7, "prepared", 3)), bench.now())
    bench.run(50)
    assert ticket not in bench.replies
    assert bench.core.transacting.coordinator.book.counts["answers_ignored"] == 2
