"""Steps that tests of the follower's paper share: what a heartbeat says, and a load as far as the test wants it."""

from __future__ import annotations

from brokerha.model.ready import ChunkKept, LoadBegun, Ready
from brokerha.model.wire.messages import Chunk, LoadFrom, Progress, SnapshotOffered
from tests.unit.replication.benches import WorkerBench, text, told

FILES = (("data", 25, b"s" * 96),)


def progress_in(ready: Ready) -> Progress:
    """The heartbeat among the messages of a Ready."""
    return next(message for message in told(ready) if isinstance(message, Progress))


def offered(bench: WorkerBench, reason: str = "") -> SnapshotOffered:
    """The answer of the source that is asked: a snapshot of three chunks at LSN 40, or a refusal."""
    assert bench.core.replacing.loading is not None
    name = bench.core.replacing.loading.request
    return SnapshotOffered(name, "" if reason else name, 40, text(40), 40, 10, FILES, reason)


def loading(bench: WorkerBench) -> str:
    """Bring a follower to where it has asked for all chunks; returns the name of the snapshot."""
    bench.take(LoadFrom(1, ("w2", "w3"), "because"))
    offer = offered(bench)
    bench.take(offer, sender="w2")
    bench.answer(LoadBegun(offer.snapshot, ()))
    return offer.snapshot


def chunks_come(bench: WorkerBench, name: str, *numbers: int) -> Ready:
    """These chunks come from w2 and are kept; returns what follows from the last."""
    ready = Ready()
    for number in numbers:
        bench.take(Chunk(name, number, b"d"), sender="w2")
        ready = bench.answer(ChunkKept(number, is_good=True))
    return ready
