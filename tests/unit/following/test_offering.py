"""Offering: a source gives snapshots to a few at a time, chunks as fast as its disk reads them, and forgets what nobody wants."""

from __future__ import annotations

from brokerha.following.offering import OfferConfig, Offering
from brokerha.model.ids import Instant
from brokerha.model.ready import ChunksRead, CopyDecision, DropSnapshot, MakeSnapshot, ReadChunks, SnapshotMade
from brokerha.model.wire.messages import Chunk, ChunksWanted, Message, SnapshotOffered, SnapshotWanted

FILES = (("data", 25, b"s" * 96),)
MADE = SnapshotMade("w1-7", 40, "1:ff", 9, 10, FILES)
OFFERED = SnapshotOffered("w1-7", "w1-7", 40, "1:ff", 9, 10, FILES)
IN_THE_MAKING = SnapshotOffered("w1-7", "", 0, "", 0, 0, ())


class Bench:
    """The offers of one copy, with a clock."""

    def __init__(self, **settings: int) -> None:
        self.offering = Offering(OfferConfig(**settings))
        self.ms = 1000

    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def take(self) -> tuple[list[tuple[str, Message]], list[CopyDecision]]:
        messages, decisions = self.offering.take(self.now())
        return [(out.to, out.message) for out in messages], decisions

    def want(self, name: str = "w1-7", refusal: str = "") -> None:
        self.offering.on_wanted(name.partition("-")[0], SnapshotWanted(name), refusal, self.now())

    def make(self) -> None:
        self.want()
        self.offering.on_made(MADE, self.now())
        self.take()

    def chunks(self, *numbers: int, name: str = "w1-7") -> None:
        self.offering.on_chunks_wanted("w1", ChunksWanted(name, numbers), self.now())


def test_a_snapshot_is_made_once_however_often_it_is_asked_for() -> None:
    bench = Bench()
    bench.want()
    assert bench.take() == ([("w1", IN_THE_MAKING)], [MakeSnapshot("w1-7")])
    bench.want()
    assert bench.take() == ([("w1", IN_THE_MAKING)], [])
    bench.offering.on_made(MADE, bench.now())
    assert bench.take() == ([("w1", OFFERED)], [])
    bench.want()
    assert bench.take() == ([("w1", OFFERED)], [])
    assert bench.offering.followers == ["w1"]


def test_a_copy_that_is_not_to_be_trusted_is_not_given_away() -> None:
    bench = Bench()
    bench.want(refusal="it is load")
    assert bench.take() == ([("w1", SnapshotOffered("w1-7", "", 0, "", 0, 0, (), "it is load"))], [])


def test_only_so_many_are_given_at_once() -> None:
    bench = Bench(snapshots=1)
    bench.want()
    bench.want("w3-1")
    messages, decisions = bench.take()
    assert decisions == [MakeSnapshot("w1-7")]
    assert messages[1] == ("w3", SnapshotOffered("w3-1", "", 0, "", 0, 0, (), "1 snapshots are being given already"))


def test_a_snapshot_that_could_not_be_made_is_refused_and_forgotten() -> None:
    bench = Bench()
    bench.want()
    bench.take()
    bench.offering.on_made(SnapshotMade("w1-7", 0, "", 0, 0, (), "disk full"), bench.now())
    assert bench.take()[0] == [("w1", SnapshotOffered("w1-7", "", 0, "", 0, 0, (), "disk full"))]
    assert bench.offering.followers == []
    bench.want()
    assert bench.take()[1] == [MakeSnapshot("w1-7")]


def test_a_snapshot_that_nobody_waits_for_any_more_is_deleted_when_it_is_made() -> None:
    bench = Bench()
    bench.want()
    bench.take()
    bench.offering.forget_all()
    bench.take()
    bench.offering.on_made(MADE, bench.now())
    assert bench.take() == ([], [DropSnapshot("w1-7")])


def test_chunks_are_read_and_sent() -> None:
    bench = Bench()
    bench.make()
    bench.chunks(2, 0)
    assert bench.take() == ([], [ReadChunks("w1", "w1-7", (2, 0))])
    bench.offering.on_read(ChunksRead("w1", "w1-7", ((2, b"two"), (0, b"null"))))
    assert bench.take()[0] == [("w1", Chunk("w1-7", 2, b"two")), ("w1", Chunk("w1-7", 0, b"null"))]


def test_only_so_many_chunks_wait_for_the_disk_and_the_rest_is_asked_for_again() -> None:
    bench = Bench(reading=3)
    bench.make()
    bench.chunks(0, 1)
    bench.chunks(2, 3)
    bench.chunks(4)
    assert bench.take()[1] == [ReadChunks("w1", "w1-7", (0, 1)), ReadChunks("w1", "w1-7", (2,))]
    bench.offering.on_read(ChunksRead("w1", "w1-7", ((0, b"a"), (1, b"b"))))
    bench.take()
    bench.chunks(3, 4)
    assert bench.take()[1] == [ReadChunks("w1", "w1-7", (3, 4))]


def test_chunks_of_what_is_gone_are_said_to_be_gone() -> None:
    bench = Bench()
    bench.chunks(5, 6)
    bench.chunks()
    gone = [("w1", Chunk("w1-7", 5, b"", is_gone=True)), ("w1", Chunk("w1-7", 0, b"", is_gone=True))]
    assert bench.take() == (gone, [])
    bench.want()
    bench.take()
    bench.chunks(5)
    assert bench.take()[0] == gone[:1]
    bench.offering.on_made(MADE, bench.now())
    bench.offering.on_read(ChunksRead("w1", "w1-7", ((5, None),)))
    assert ("w1", Chunk("w1-7", 5, b"", is_gone=True)) in bench.take()[0]


def test_what_nobody_asked_about_for_long_is_deleted() -> None:
    bench = Bench(keep_ms=5000)
    bench.make()
    assert bench.offering.deadline_ms() == bench.ms + 5000
    bench.ms += 4000
    bench.chunks(0)
    bench.take()
    assert bench.offering.deadline_ms() == bench.ms + 5000
    bench.ms += 5000
    assert bench.take()[1] == [DropSnapshot("w1-7")]
    assert bench.offering.deadline_ms() is None


def test_a_follower_that_is_done_frees_its_snapshot() -> None:
    bench = Bench()
    bench.make()
    bench.offering.on_done("w1-7")
    bench.offering.on_done("w1-7")
    bench.offering.on_done("w9-9")
    assert bench.take() == ([], [DropSnapshot("w1-7")])


def test_a_copy_in_trouble_takes_back_what_it_gave() -> None:
    bench = Bench()
    bench.make()
    bench.want("w3-1")
    bench.take()
    bench.offering.forget_all()
    assert bench.take()[1] == [DropSnapshot("w1-7"), DropSnapshot("w3-1")]
    bench.chunks(0)
    assert bench.take()[0] == [("w1", Chunk("w1-7", 0, b"", is_gone=True))]


def test_a_follower_that_begins_anew_frees_what_it_asked_for_before() -> None:
    bench = Bench(snapshots=1)
    bench.make()
    bench.want("w1-8")
    assert bench.take()[1] == [DropSnapshot("w1-7"), MakeSnapshot("w1-8")]
    assert bench.offering.followers == ["w1"]
