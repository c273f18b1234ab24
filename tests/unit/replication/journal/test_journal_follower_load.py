"""JournalFollower: when it replaces its journal, and what it gives to other backups."""

from __future__ import annotations

import pytest

from brokerha.following.loading import LoadConfig
from brokerha.following.machine import State
from brokerha.model.ready import BeginLoad, LoadBegun, LoadFailed, OpenLoad
from brokerha.model.records import ViewStarted
from brokerha.model.wire.codec import encode_record
from brokerha.model.wire.messages import Message, SnapshotDone, SnapshotOffered, SnapshotWanted
from brokerha.model.wire.process_messages import Confirmed, Records, RecordsMissing, RecordsWanted
from brokerha.replication.journal.log import Position
from tests.unit.replication.journal_benches import VIEW, FollowerBench
from tests.unit.replication.plain_log import PlainLog, filler

# ---- LOAD


def offer(bench: FollowerBench, reason: str = "") -> SnapshotOffered:
    assert bench.core.loading is not None
    name = bench.core.loading.request
    return SnapshotOffered(name, "" if reason else name, 40, "", 0, 10, (), reason)


def test_another_journal_is_replaced_by_that_of_the_primary() -> None:
    bench = FollowerBench(is_coined=False)
    bench.fillers(7, 7, journal="theirs")
    assert (bench.follows(), bench.core.reason) == (State.LOAD, "its journal was j, the primary's is theirs")
    bench.turn()
    assert [to for to, message in bench.out if isinstance(message, SnapshotWanted)] == ["p0"]


def test_a_tail_that_parted_is_named_and_replaced() -> None:
    bench = FollowerBench(is_coined=False)
    bench.records(3, ViewStarted(VIEW, "p0"), previous=(10, 2), last_number=9)
    assert bench.follows() is State.LOAD
    assert bench.core.reason == "discards records 3 to 5 of view 10, which nobody confirmed"


@pytest.mark.parametrize(
    ("previous", "last_number"), [((15, 5), 9), ((10, 3), 4), ((VIEW, 5), 5)], ids=["other view", "shorter", "as long"]
)
def test_a_tail_that_the_primary_cannot_have_is_replaced(previous: Position, last_number: int) -> None:
    bench = FollowerBench(is_coined=False)
    bench.records(0, previous=previous, last_number=last_number)
    assert bench.follows() is State.LOAD
    assert bench.core.reason == "discards its last records up to 5 of view 10, which nobody confirmed"


def test_a_primary_that_has_not_heard_where_this_one_ends_discards_nothing() -> None:
    bench = FollowerBench(is_coined=False)
    bench.records(0, previous=(0, 0), last_number=4)
    assert bench.follows() is State.BASIC
    assert bench.confirmed() == [(10, 5)]


def test_an_old_heartbeat_of_the_same_view_discards_nothing() -> None:
    bench = FollowerBench()
    bench.fillers(7, 9)
    bench.turn()
    bench.records(0, previous=(VIEW, 6), last_number=6)
    assert bench.follows() is State.BASIC


def test_the_load_opens_the_new_journal_and_following_goes_on_from_there() -> None:
    bench = FollowerBench()
    bench.core.on_damaged("record 3 is damaged", bench.now)
    bench.turn()
    bench.core.follower.loads.on_message("p0", offer(bench), bench.now)
    assert [type(each) for each in bench.turn().decisions] == [BeginLoad]
    bench.core.follower.loads.on_answer(LoadBegun(offer(bench).snapshot, ()), bench.now)
    assert bench.turn().decisions == (OpenLoad(),)
    bench.fillers(7, 8)
    assert bench.numbers() == []
    log = PlainLog("j")
    log.append([ViewStarted(VIEW, "p0"), *[filler(number) for number in range(2, 41)]])
    bench.core.on_loaded(log, log.state())
    bench.out.clear()
    assert (bench.follows(), bench.core.reason, bench.confirmed()) == (State.BASIC, "", [(VIEW, 40)])
    assert [to for to, message in bench.out if isinstance(message, SnapshotDone)] == ["p0"]
    assert bench.core.last_load == "loaded records up to 40, because: record 3 is damaged"


def test_a_load_waits_for_the_disk() -> None:
    bench = FollowerBench()
    bench.fillers(7, 7)
    bench.core.take(bench.now)
    bench.core.on_damaged("record 3 is damaged", bench.now)
    bench.turn()
    assert not [message for _, message in bench.out if isinstance(message, SnapshotWanted)]
    bench.core.followed(7)
    bench.turn()
    assert [message for _, message in bench.out if isinstance(message, SnapshotWanted)]


def test_a_backup_that_gets_no_snapshot_is_idle_says_why_and_tries_again_while_it_hears_its_primary() -> None:
    bench = FollowerBench(coin_again_ms=1000, load=LoadConfig(patience_ms=500))
    bench.core.on_damaged("record 3 is damaged", bench.now)
    bench.turn()
    bench.core.follower.loads.on_message("p0", offer(bench, "it has no room"), bench.now)
    bench.out.clear()
    bench.turn()
    word = next(message for _, message in bench.out if isinstance(message, Confirmed))
    assert (word.follows, word.last) == ("idle", (VIEW, 6))
    assert word.reason == "no source gave a snapshot (p0: it has no room); record 3 is damaged"
    bench.fillers(7, 7)
    assert bench.numbers() == []
    bench.ms += 1000
    bench.fillers(7, 7)
    assert bench.numbers() == [7]


def test_a_load_that_cannot_be_opened_leaves_the_journal_as_it_was() -> None:
    bench = FollowerBench()
    bench.core.on_damaged("record 3 is damaged", bench.now)
    bench.turn()
    bench.core.follower.loads.on_message("p0", offer(bench), bench.now)
    bench.turn()
    bench.core.follower.loads.on_answer(LoadFailed("no space"), bench.now)
    bench.turn()
    assert (bench.follows(), bench.core.last) == (State.IDLE, (VIEW, 6))


def test_only_the_primary_is_a_source_and_a_new_one_is_asked_instead() -> None:
    """Another backup may lack what this one confirmed: with its journal that could be lost everywhere."""
    bench = FollowerBench()
    bench.core.on_damaged("record 3 is damaged", bench.now)
    assert bench.core.loading is not None
    assert bench.core.loading.sources == ("p0",)
    bench.records(0, previous=(VIEW, 6), view=32, sender="b2", last_number=7)
    assert bench.core.loading.sources == ("b2",)
    bench.core.follower.loads.on_message("p0", offer(bench), bench.now)
    assert bench.turn().decisions == ()


def test_a_load_goes_on_after_a_restart_under_its_name() -> None:
    bench = FollowerBench(pending_load="b1-7")
    bench.core.on_damaged("record 3 is damaged", bench.now)
    assert bench.core.loading is not None
    assert bench.core.loading.request == "b1-7"


def test_a_paused_backup_is_idle_until_the_next_view() -> None:
    bench = FollowerBench()
    bench.core.pause("by hand")
    bench.fillers(7, 7)
    bench.ms += 10**6
    bench.fillers(7, 7)
    assert bench.numbers() == []
    assert bench.core.confirmation().reason == "by hand"
    bench.records(7, ViewStarted(32, "b2"), view=32, sender="b2")
    assert bench.numbers() == [7]


# ---- questions of other backups


def answers_to(bench: FollowerBench, wanted: RecordsWanted) -> list[Message]:
    bench.out.clear()
    bench.core.on_records_wanted("b2", wanted)
    bench.turn()
    return [message for to, message in bench.out if to == "b2"]


def test_another_backup_gets_what_is_known_to_be_the_primarys() -> None:
    bench = FollowerBench()
    bench.fillers(7, 7)
    bench.turn()
    items = ((6, encode_record(ViewStarted(VIEW, "p0"))), (7, encode_record(filler(7))))
    assert answers_to(bench, RecordsWanted(VIEW, 6, 9)) == [Records((10, 5), items)]
    assert answers_to(bench, RecordsWanted(VIEW, 8, 9)) == [RecordsMissing(8, 9, 1)]


@pytest.mark.parametrize("view", [10, 30])
def test_nobody_gets_records_for_another_view(view: int) -> None:
    assert answers_to(FollowerBench(), RecordsWanted(view, 2, 3)) == [RecordsMissing(2, 3, 1)]


def test_nobody_gets_records_that_may_not_be_the_primarys() -> None:
    bench = FollowerBench(is_coined=False)
    bench.fillers(9, 9)
    assert bench.follows() is State.REQUEST
    assert answers_to(bench, RecordsWanted(VIEW, 2, 3)) == [RecordsMissing(2, 3, 1)]
