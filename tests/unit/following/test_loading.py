"""Loading: a window of chunks, in any order, each until it is right; sources one after the other; nothing thrown away.

3 files of 25, 0 and 10 bytes in chunks of 10:    0: 10   1: 10   2: 5   3: 10
"""

from __future__ import annotations

import dataclasses
import random

import pytest

from brokerha.following.loading import LoadConfig, Loading, Phase, chunk_sizes, new_request
from brokerha.model.ids import Instant
from brokerha.model.ready import AbandonLoad, BeginLoad, ChunkKept, CopyDecision, KeepChunk, LoadBegun, OpenLoad
from brokerha.model.wire.messages import Chunk, ChunksWanted, Message, SnapshotDone, SnapshotOffered, SnapshotWanted

FILES = (("data/a", 25, b"s" * 96), ("data/empty", 0, b""), ("data/b", 10, b"s" * 32))


class Bench:
    """One load with its clock, and a source that answers when the test says so."""

    def __init__(
        self,
        sources: tuple[str, ...] = ("w2", "w3"),
        files: tuple[tuple[str, int, bytes], ...] = FILES,
        least_lsn: int = 0,
        **settings: int,
    ) -> None:
        self.ms = 1000
        self.files = files
        self.swallowed: list[tuple[str, Message]] = []
        self.load = Loading(LoadConfig(**settings), sources, "w1-7", self.now(), least_lsn)

    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def take(self) -> tuple[list[tuple[str, Message]], list[CopyDecision]]:
        messages, decisions = self.load.take(self.now())
        return [(out.to, out.message) for out in messages], decisions

    def sent(self) -> list[tuple[str, Message]]:
        return self.take()[0]

    def decided(self) -> list[CopyDecision]:
        return self.take()[1]

    def offer(self, source: str = "w2", reason: str = "", *, is_made: bool = True) -> SnapshotOffered:
        request = self.load.request
        offer = SnapshotOffered(request, request if is_made else "", 40, "1:ff", 9, 10, self.files, reason)
        self.load.on_offered(source, offer, self.now())
        return offer

    def begin(self, held: tuple[int, ...] = ()) -> None:
        """As far as fetching the chunks."""
        self.offer(self.load.source)
        self.decided()
        self.load.on_begun(LoadBegun(self.load.request, held), self.now())

    def wanted(self) -> list[int]:
        sent, self.swallowed = self.swallowed + self.sent(), []
        return [number for _, message in sent if isinstance(message, ChunksWanted) for number in message.numbers]

    def chunk(self, number: int, *, is_good: bool = True, source: str = "") -> list[CopyDecision]:
        """A chunk comes and is kept; returns what was decided."""
        chunk = Chunk(self.load.request, number, b"d")
        self.load.on_chunk(source or self.load.source, chunk, self.now())
        messages, decided = self.take()
        self.swallowed += messages
        if KeepChunk(number, b"d") in decided:
            self.load.on_kept(ChunkKept(number, is_good), self.now())
        return decided


def many(count: int) -> tuple[tuple[str, int, bytes], ...]:
    return (("data", 10 * count, b"s" * 32 * count),)


def test_chunks_are_numbered_over_all_files_and_the_last_of_a_file_may_be_short() -> None:
    assert chunk_sizes(Bench().offer()) == [10, 10, 5, 10]


def test_an_offer_that_contradicts_itself_is_left_to_the_disk_which_refuses_it() -> None:
    bench = Bench()
    offer = dataclasses.replace(bench.offer(is_made=False), snapshot=bench.load.request, chunk_bytes=0)
    bench.load.on_offered("w2", offer, bench.now())
    assert bench.decided() == [BeginLoad(offer)]
    bench.load.on_failed("the snapshot has chunks of 0 bytes", bench.now())
    assert bench.load.source == "w3"


def test_from_the_question_to_the_open_copy() -> None:
    bench = Bench()
    assert bench.sent() == [("w2", SnapshotWanted("w1-7"))]
    offer = bench.offer()
    assert bench.take() == ([], [BeginLoad(offer)])
    bench.load.on_begun(LoadBegun("w1-7", ()), bench.now())
    assert bench.sent() == [("w2", ChunksWanted("w1-7", (0, 1, 2, 3)))]
    assert (bench.load.done_bytes, bench.load.total_bytes, bench.load.lsn) == (0, 35, 40)
    for number in range(4):
        assert bench.chunk(number) == [KeepChunk(number, b"d")]
    assert (bench.load.done_bytes, bench.load.phase) == (35, Phase.OPENING)
    assert bench.decided() == [OpenLoad()]
    assert [(out.to, out.message) for out in bench.load.farewell()] == [("w2", SnapshotDone("w1-7"))]
    assert bench.load.deadline_ms() is None


def test_a_snapshot_without_a_chunk_is_opened_at_once() -> None:
    bench = Bench(files=(("data/empty", 0, b""),))
    bench.begin()
    assert bench.decided() == [OpenLoad()]


@pytest.mark.parametrize("seed", range(5))
def test_chunks_may_come_in_any_order_and_more_than_once(seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench(files=many(30), window=8)
    bench.begin()
    under_way: list[int] = []
    kept: list[int] = []
    for _ in range(1000):
        under_way += bench.wanted()
        assert len(under_way) <= 8
        if not under_way:
            break
        number = under_way.pop(rng.randrange(len(under_way)))
        for _ in range(rng.randint(1, 2)):
            kept += [d.number for d in bench.chunk(number) if isinstance(d, KeepChunk)]
    assert sorted(kept) == list(range(30))
    assert bench.load.phase is Phase.OPENING


def test_never_more_chunks_than_the_window_are_in_flight_or_wait_for_the_disk() -> None:
    bench = Bench(files=many(30), window=4)
    bench.begin()
    assert bench.wanted() == [0, 1, 2, 3]
    # They have come, and the disk has not answered yet: that is no room.
    for number in range(4):
        bench.load.on_chunk("w2", Chunk("w1-7", number, b"d"), bench.now())
    assert bench.wanted() == []
    bench.load.on_kept(ChunkKept(0, is_good=True), bench.now())
    # Half a window at a time.
    assert bench.wanted() == []
    bench.load.on_kept(ChunkKept(1, is_good=True), bench.now())
    assert bench.wanted() == [4, 5]


def test_a_lost_chunk_is_asked_for_again_and_the_load_is_not_begun_anew() -> None:
    bench = Bench(chunk_wait_ms=500)
    bench.begin()
    assert bench.wanted() == [0, 1, 2, 3]
    for number in (0, 1, 3):
        bench.chunk(number)
    assert bench.load.deadline_ms() == bench.ms + 500
    bench.ms += 500
    assert bench.sent() == [("w2", ChunksWanted("w1-7", (2,)))]
    bench.chunk(2)
    assert bench.decided() == [OpenLoad()]
    assert bench.load.request == "w1-7"


def test_a_chunk_that_is_not_what_its_digest_says_is_asked_for_again() -> None:
    bench = Bench()
    bench.begin()
    bench.wanted()
    bench.chunk(0, is_good=False)
    assert bench.load.done_bytes == 0
    assert bench.wanted() == [0]
    bench.chunk(0)
    assert bench.load.done_bytes == 10


def test_a_source_of_wrong_chunks_is_given_up() -> None:
    bench = Bench(bad_chunks=3)
    bench.begin()
    bench.wanted()
    for _ in range(3):
        bench.chunk(0, is_good=False)
        bench.wanted()
    assert bench.load.source == "w3"
    assert bench.load.failures == ["w2: 3 chunks were not what their SHA-256 says"]


def test_a_source_that_lost_its_snapshot_is_asked_once_more_and_then_given_up() -> None:
    bench = Bench()
    for source in ("w2", "w2", "w3"):
        assert bench.load.source == source
        bench.begin()
        request = bench.load.request
        bench.ms += 1
        bench.load.on_chunk(source, Chunk(request, 0, b"", is_gone=True), bench.now())
        # What was loaded of the old snapshot is worth nothing; the new one has another name.
        assert (bench.load.phase, bench.load.done_bytes) == (Phase.ASKING, 0)
        assert bench.load.request != request
    assert bench.load.source == "w3"
    assert bench.load.failures == ["w2: lost its snapshot twice"]


def test_a_source_that_refuses_is_followed_by_the_next_one() -> None:
    bench = Bench()
    bench.sent()
    bench.ms += 1
    bench.offer("w2", "its own copy is in trouble")
    assert bench.sent() == [("w3", SnapshotWanted(bench.load.request))]
    assert bench.load.failures == ["w2: its own copy is in trouble"]


def test_a_snapshot_of_less_than_is_wanted_is_followed_by_the_next_source() -> None:
    bench = Bench(least_lsn=41)
    assert bench.sent() == [("w2", SnapshotWanted("w1-7", 41))]
    bench.ms += 1
    bench.offer("w2")
    assert bench.take() == ([("w3", SnapshotWanted(bench.load.request, 41))], [])
    assert bench.load.failures == ["w2: it is at LSN 40, the log goes on after 41"]


def test_a_source_that_is_still_making_the_snapshot_is_waited_for() -> None:
    bench = Bench(ask_ms=1000, patience_ms=3000)
    for _ in range(10):
        bench.sent()
        bench.ms += 1000
        bench.offer("w2", is_made=False)
    assert bench.load.source == "w2"
    assert bench.load.phase is Phase.ASKING


def test_a_silent_source_is_asked_again_and_then_given_up() -> None:
    bench = Bench(ask_ms=1000, patience_ms=3000)
    for _ in range(3):
        assert bench.sent() == [("w2", SnapshotWanted("w1-7"))]
        assert bench.load.deadline_ms() == bench.ms + 1000
        bench.ms += 1000
    assert bench.sent() == [("w3", SnapshotWanted(bench.load.request))]
    assert bench.load.failures == ["w2: silent for 3 s"]


def test_a_source_that_falls_silent_between_chunks_is_given_up() -> None:
    bench = Bench(chunk_wait_ms=1000, patience_ms=2500)
    bench.begin()
    bench.wanted()
    bench.chunk(0)
    for _ in range(2):
        bench.ms += 1000
        assert sorted(bench.wanted()) == [1, 2, 3]
    bench.ms += 500
    assert bench.load.deadline_ms() == bench.ms
    bench.sent()
    assert bench.load.source == "w3"


def test_a_slow_disk_is_not_the_silence_of_the_source() -> None:
    bench = Bench(window=4, files=many(12), chunk_wait_ms=1000, patience_ms=2500)
    bench.begin()
    bench.wanted()
    for number in range(4):
        bench.load.on_chunk("w2", Chunk("w1-7", number, b"d"), bench.now())
    bench.decided()
    # Nothing is due while only the disk is waited for.
    assert bench.load.deadline_ms() is None
    bench.ms += 60_000
    assert bench.sent() == []
    assert bench.load.source == "w2"
    for number in range(4):
        bench.load.on_kept(ChunkKept(number, is_good=True), bench.now())
    assert bench.wanted() == [4, 5, 6, 7]
    assert bench.load.source == "w2"


def test_without_any_source_left_what_was_loaded_is_given_up() -> None:
    bench = Bench(sources=("w2",))
    bench.begin()
    bench.load.on_failed("no space", bench.now())
    assert bench.load.phase is Phase.FAILED
    assert bench.take() == ([], [AbandonLoad()])
    assert bench.load.failures == ["w2: no space"]
    assert bench.load.source == ""
    assert bench.load.deadline_ms() is None


def test_without_any_source_from_the_beginning_nothing_is_begun() -> None:
    bench = Bench(sources=())
    assert bench.load.phase is Phase.FAILED
    assert bench.take() == ([], [])


def test_many_chunks_that_fail_at_the_disk_cost_one_source_only() -> None:
    bench = Bench(sources=("w2", "w3", "w4"))
    bench.begin()
    bench.wanted()
    for _ in range(4):
        bench.load.on_failed("disk full", bench.now())
    assert bench.load.source == "w3"
    assert bench.load.failures == ["w2: disk full"]


def test_a_copy_that_cannot_be_opened_is_loaded_from_the_next_source() -> None:
    bench = Bench()
    bench.begin((0, 1, 2, 3))
    assert bench.decided() == [OpenLoad()]
    bench.load.on_failed("its fingerprint is another", bench.now())
    assert bench.load.source == "w3"
    assert bench.load.phase is Phase.ASKING


def test_what_is_on_disk_from_before_a_crash_is_not_asked_for_again() -> None:
    bench = Bench()
    bench.begin(held=(0, 2, 77))
    assert bench.load.done_bytes == 15
    assert bench.wanted() == [1, 3]


def test_what_others_say_and_what_is_not_of_this_snapshot_changes_nothing() -> None:
    bench = Bench()
    bench.sent()
    bench.offer("w3")
    bench.load.on_offered("w2", SnapshotOffered("w1-1", "w1-1", 1, "", 0, 10, FILES), bench.now())
    bench.load.on_begun(LoadBegun("w1-7", ()), bench.now())
    bench.load.on_chunk("w2", Chunk("w1-7", 0, b"d"), bench.now())
    bench.load.on_failed("nothing was begun", bench.now())
    assert bench.decided() == []
    assert bench.load.source == "w2"
    bench.offer()
    bench.load.on_begun(LoadBegun("w1-1", ()), bench.now())
    assert bench.load.phase is Phase.MAKING_ROOM
    bench.load.on_begun(LoadBegun("w1-7", ()), bench.now())
    bench.decided()
    for source, chunk in (("w3", Chunk("w1-7", 0, b"d")), ("w2", Chunk("w1-1", 0, b"d")), ("w2", Chunk("w1-7", 99, b"d"))):
        bench.load.on_chunk(source, chunk, bench.now())
    bench.load.on_kept(ChunkKept(3, is_good=True), bench.now())
    assert bench.decided() == []
    assert bench.load.done_bytes == 0


def test_names_of_snapshots_say_whose_they_are_and_are_never_used_twice() -> None:
    assert new_request("w1", Instant(5, 77)) == "w1-77"
    bench = Bench(sources=("site-a-w2", "w3"))
    bench.ms += 1
    bench.load.on_offered("site-a-w2", SnapshotOffered("w1-7", "", 0, "", 0, 0, (), "no"), bench.now())
    assert bench.load.request == f"w1-{bench.ms * 1000}"
