"""One test for each sentence of the replication paper about its master: here, the primary of a master and its backups.

As in test_follower_paper.py: docstrings name the chapter and quote a few words, and say why where this design does something else on
purpose. Its "slavesState" is our `JournalFeed`, its heartbeat the `Confirmed` message. Who is primary is told in another place.
"""

from __future__ import annotations

import pytest

from brokerha.following.machine import State
from brokerha.model.records import ViewStarted
from brokerha.model.wire.messages import Outgoing, SnapshotOffered
from brokerha.model.wire.process_messages import Confirmed, Records, RecordsMissing, RecordsWanted
from brokerha.replication.journal.feed import JournalFeedConfig
from brokerha.replication.journal.follower import JournalFollowerConfig
from tests.unit.replication.journal_benches import VIEW, FeedBench, FollowerBench
from tests.unit.replication.journal_table import JournalTable
from tests.unit.replication.plain_log import PlainLog, filler

# ---- behaviour


def test_an_entry_is_persisted_locally_before_it_is_sent_out() -> None:
    """Basic replication [2, 3]: saved "to make it locally persistent", "Subsequently this LogEntry is send out"."""
    bench = FeedBench()
    bench.join()
    records = (filler(12),)
    first = bench.log.append(records)
    assert bench.numbers() == []
    bench.feed.note(first, records)
    assert bench.numbers() == [12]


def test_replication_requests_are_equipped_with_a_position() -> None:
    """Request: "replication requests from the master are equipped with a LSN", and with that of the record before."""
    bench = FeedBench()
    bench.join()
    bench.write(filler(12))
    (message,) = bench.sent()
    assert (message.view, message.previous, message.items[0][0]) == (VIEW, (VIEW, 11), 12)


def test_the_acknowledgement_is_stalled_until_n_have_confirmed() -> None:
    """Basic replication [7]: "stalls the acknowledgement for the operation until at least N slaves have confirmed"."""
    bench = FeedBench()
    bench.join("b1")
    bench.join("b2")
    bench.write(filler(12))
    bench.feed.messages(bench.now)
    assert bench.feed.confirmations() == {"b1": 11, "b2": 11}
    bench.say((VIEW, 12), "b2")
    assert bench.feed.confirmations() == {"b1": 11, "b2": 12}
    bench.say((VIEW, 12), "b1")
    assert bench.feed.confirmations() == {"b1": 12, "b2": 12}


def test_one_confirmation_stands_for_everything_before_it() -> None:
    """Basic replication [6]: the heartbeat carries "the latest sequence number": one for many entries."""
    table = JournalTable("p0", "p1")
    table.settle(5)
    table.write(*[filler(number) for number in range(100)])
    before = len(table.sent_by("p1", Confirmed))
    table.settle(3, step_ms=1)
    assert table.feed.confirmations() == {"p1": 101}
    assert len(table.sent_by("p1", Confirmed)) - before == 1


# ---- architecture: the master


def test_spreading_costs_the_master_no_look_into_its_journal() -> None:
    """Master: "designed to produce a minimum overhead to save BabuDB's performance on insert"."""
    bench = FeedBench()
    bench.join("b1")
    bench.join("b2")

    def numbered(_first: int, _last: int, _limit_bytes: int) -> None:
        pytest.fail("the journal was read")

    bench.log.numbered = numbered  # type: ignore[assignment,method-assign]
    for number in range(12, 40):
        bench.write(filler(number))
        assert bench.numbers("b1") == [number]
        bench.say((VIEW, number), "b1")


def test_the_master_knows_which_slaves_are_available() -> None:
    """Master: "checking if enough slaves are available to satisfy the sync-N criterion"."""
    bench = FeedBench(dead_after_ms=5000)
    assert bench.feed.ready() == ()
    bench.join("b1")
    bench.ms += 3000
    bench.join("b2")
    assert bench.feed.ready() == ("b1", "b2")
    bench.ms += 2000
    bench.sent()
    assert bench.feed.ready() == ("b2",)


def test_heartbeats_are_evaluated_by_the_accounting_of_slaves() -> None:
    """Master: "any heartbeat messages are evaluated by the accountancy instance slavesState"."""
    bench = FeedBench()
    bench.say((10, 7), follows="request", free_bytes=5)
    row = bench.row()
    assert (row.confirmed, row.lag_records, row.free_bytes) == (7, 4, 5)


def test_missing_entries_are_sent_back_when_they_are_there() -> None:
    """Master: "If the missing log entries defined by a LSNRange can be retrieved successfully, they are send back"."""
    bench = FeedBench()
    bench.join()
    bench.feed.messages(bench.now)
    bench.feed.on_records_wanted("b1", RecordsWanted(VIEW, 3, 5))
    (answer,) = [out.message for out in bench.feed.messages(bench.now)]
    assert isinstance(answer, Records)
    assert [number for number, _ in answer.items] == [3, 4, 5]


def test_whoever_asks_for_what_is_gone_is_informed_about_the_failure() -> None:
    """Master: "otherwise it will be informed about the failure"."""
    bench = FeedBench()
    bench.join()
    bench.log.trim(8)
    bench.feed.messages(bench.now)
    bench.feed.on_records_wanted("b1", RecordsWanted(VIEW, 3, 5))
    assert [out.message for out in bench.feed.messages(bench.now)] == [RecordsMissing(3, 5, 8)]


def test_a_load_is_answered_with_metadata_and_goes_on_while_the_files_change() -> None:
    """Master: "complete set of database files metadata ... including the maximal chunk-size"; changed files fail there, not here."""
    table = JournalTable("p0", "p1", same_name=False)
    table.write(*[filler(number, 50) for number in range(60)])
    for number in range(60):
        table.write(filler(number))
        table.round()
    table.settle(30)
    offers = [message for message in table.sent_by("p0", SnapshotOffered) if isinstance(message, SnapshotOffered)]
    assert offers[-1].files[0][1] > 5 * offers[-1].chunk_bytes
    assert table.are_equal()
    assert table.processes["p1"].loads == 1


def test_only_participants_that_were_configured_are_served() -> None:
    """Master: "only allows requests from pre-configured participants"."""
    bench = FeedBench()
    bench.say((VIEW, 11), "stranger")
    bench.feed.on_records_wanted("stranger", RecordsWanted(VIEW, 3, 5))
    assert {out.to for out in bench.feed.messages(bench.now)} == {"b1", "b2"}


# ---- invariants


def test_successful_spreading_is_not_yet_successful_replication() -> None:
    """Invariants: "Successful spreading does not imply a successful replication": what is sent does not count."""
    bench = FeedBench()
    bench.join()
    bench.write(filler(12))
    assert bench.numbers() == [12]
    assert bench.feed.confirmations()["b1"] == 11


def test_a_backup_obeys_one_primary_and_the_other_one_counts_nothing() -> None:
    """Invariants: "A slave does obey only one master at a time": so the old one never gets its confirmations."""
    table = JournalTable("p0", "p1", "p2")
    table.settle(5)
    old = table.feed
    table.follower("p2").refuse_below(21)
    table.lead("p1", 21)

    def is_apart(sender: str, out: Outgoing) -> bool:
        return "p0" not in (sender, out.to) or "p2" in (sender, out.to)

    table.write(filler(1), by="p0")
    table.write(filler(2), by="p1")
    table.settle(20, is_apart)
    assert max(old.confirmations().values()) == 1
    assert max(table.feed.confirmations().values()) == table.feed.last_number
    table.settle(100)
    assert table.are_equal()


def test_a_tail_that_nobody_confirmed_is_replaced_and_said() -> None:
    """Invariants: a former master becomes a slave of the new one. Here what it had alone is named, and gone."""
    table = JournalTable("p0", "p1", "p2")
    table.settle(5)
    table.write(*[filler(number) for number in range(10)])
    table.lead("p1", 21)
    table.follower("p2").refuse_below(21)
    table.round(lambda sender, _out: sender != "p0")
    table.settle(100)
    assert table.follower("p0").last_load.endswith("discards records 2 to 11 of view 10, which nobody confirmed")
    assert table.processes["p0"].loads == 1
    assert table.are_equal()


def test_a_backup_that_cannot_synchronise_is_idle_and_the_primary_shows_it() -> None:
    """Invariants: "If a slave cannot synchronize with the master for any reason it will immediately change to the idle-mode"."""
    table = JournalTable("p0", "p1", same_name=False)
    table.settle(3000, lambda _sender, out: not isinstance(out.message, SnapshotOffered))
    assert table.follower("p1").state is State.IDLE
    (row,) = table.feed.rows()
    assert row.state == "joining"
    assert row.reason.startswith("it is in idle: no source gave a snapshot")


@pytest.mark.parametrize("state", ["idle", "basic", "request", "load"])
def test_at_any_time_every_backup_can_state_its_position(state: str) -> None:
    """Invariants: "At any time every participant can state a distinct LSN ... representing its progress"."""
    bench = FollowerBench(is_coined=state != "idle")
    if state == "request":
        bench.fillers(9, 9)
    elif state == "load":
        bench.on_damaged()
    word = bench.core.confirmation()
    assert (word.follows, word.last) == (state, (10, 5) if state == "idle" else (VIEW, 6))


# ---- faults of the earlier implementation


def test_an_answer_of_more_than_8_kib_arrives_whole() -> None:
    """Earlier fault: REQUEST answers over 8 KiB were cut."""
    table = JournalTable("p0", "p1")
    table.settle(5)
    for number in range(30):
        table.write(filler(number, 100_000))
    table.round(lambda _sender, out: out.to != "p1")
    assert table.numbers() == {"p0": 31, "p1": 1}
    table.write(filler(31))
    table.settle(10)
    assert table.are_equal()
    answers = [message for message in table.sent_by("p0", Records) if isinstance(message, Records)]
    assert max(len(data) for message in answers for _, data in message.items) > 8192


def test_every_chunk_of_a_load_stays_in_the_file() -> None:
    """Earlier fault: LOAD truncated the file at every chunk. Here many chunks, in any order, are one journal."""
    table = JournalTable("p0", "p1", same_name=False)
    table.write(*[filler(number, 100) for number in range(100)])
    for _ in range(300):
        table.mail.reverse()
        table.round()
    assert table.processes["p1"].loads == 1
    assert len(table.processes["p1"].loaded) > 20
    assert table.are_equal()


def test_what_was_acknowledged_in_common_never_moves_backwards() -> None:
    """Earlier fault: the common acknowledged LSN could move backwards, by a late heartbeat for instance."""
    table = JournalTable("p0", "p1", "p2")
    common = 0
    for number in range(20):
        table.write(filler(number))
        table.settle(3)
        for sender, out in [letter for letter in table.sent if isinstance(letter[1].message, Confirmed)]:
            assert isinstance(out.message, Confirmed)
            table.feed.on_confirmed(sender, out.message, table.now)
            assert min(table.feed.confirmations().values()) >= common
            common = min(table.feed.confirmations().values())
    assert common == 21


def test_a_busy_backup_is_never_skipped_and_asks_no_storms() -> None:
    """Earlier fault: a busy follower was skipped (gaps, request storms). Here it is paused, and asks at its own pace."""
    table = JournalTable("p0", "p1", feed={"window_records": 20, "resend_ms": 200})
    table.settle(5)
    for number in range(100):
        table.write(*[filler(number * 10 + each) for each in range(10)])
        table.round(lambda _sender, out: out.to != "p1", 50)
    (row,) = table.feed.rows()
    assert row.lag_records == 1000
    assert row.reason.startswith("too slow, ")
    table.settle(100)
    assert table.are_equal()
    assert table.feed.ready() == ("p1",)
    assert table.processes["p1"].loads == 0
    assert len(table.sent_by("p1", RecordsWanted)) <= 5


def test_a_write_that_a_backup_could_not_keep_is_reported_and_counts_nowhere() -> None:
    """Earlier fault: a failed write stayed in the log unreported."""
    backup, primary = FollowerBench(), FeedBench()
    backup.fillers(7, 7)
    backup.core.take(backup.now)
    word = backup.core.confirmation()
    assert word.last == (VIEW, 6)
    primary.say((10, 6), reason="the disk is full")
    primary.sent()
    assert primary.feed.confirmations()["b1"] == 6
    assert primary.row().confirmed < primary.feed.last_number


def test_after_a_simultaneous_cold_start_all_backups_are_ready_again_without_a_load() -> None:
    """Earlier fault: no primary after a simultaneous cold start with all copies required. Journals are found to be equal."""
    table = JournalTable("p0", "p1", "p2")
    table.write(filler(1), filler(2))
    table.settle(5)
    for name in table.names:
        table.crash(name)
    for name in table.names:
        table.start(name)
    table.lead("p2", 22)
    table.settle(10)
    assert table.feed.ready() == ("p0", "p1")
    assert table.are_equal()
    assert [process.loads for process in table.processes.values()] == [0, 0, 0]


def test_times_are_settings_and_none_is_fixed_in_code() -> None:
    """Earlier fault: a lease of 60 s fixed in code. Here heartbeats follow from the time after which another primary is looked for."""
    for fail_over_after_ms in (1000, 8000):
        feed = JournalFeedConfig(fail_over_after_ms=fail_over_after_ms)
        backup = JournalFollowerConfig("b1", ("p0",), fail_over_after_ms=fail_over_after_ms)
        assert feed.heartbeat_ms == backup.heartbeat_ms == fail_over_after_ms // 4


def test_a_backup_added_to_an_existing_journal_loads_once_and_follows() -> None:
    """Earlier fault: adding replicas to an existing database looped between checkpoint and LOAD, as the log was cut meanwhile."""
    table = JournalTable("p0", "p1", same_name=False)
    for number in range(200):
        table.write(filler(number, 50))
        table.round()
        log = table.processes["p0"].log
        log.trim(min([log.last_number - 2, *table.feed.needs(log.last_number).values()]))
    table.settle(20)
    assert table.processes["p1"].loads == 1
    assert table.are_equal()
    assert table.feed.ready() == ("p1",)


def test_a_journal_of_many_views_is_compared_by_them() -> None:
    """Added: the paper has one master for ever; with many, the same number may stand for two records."""
    log = PlainLog("j")
    for view in range(10, 110, 10):
        log.append([ViewStarted(view, "p0"), filler(view)])
    history = log.history
    assert [history.of(number) for number in (1, 2, 3, 20)] == [10, 10, 20, 100]
    assert history.is_prefix((20, 4), 20)
    assert not history.is_prefix((20, 5), 20)
    assert [history.common(last, 20) for last in ((20, 9), (25, 9), (100, 30))] == [4, 4, 20]
