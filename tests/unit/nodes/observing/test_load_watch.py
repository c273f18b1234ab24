"""The load watch: seconds of each phase, and whether a load was opened."""

from __future__ import annotations

from brokerha.following.loading import LoadConfig, Loading, Phase
from brokerha.model.ids import Instant
from brokerha.model.wire.messages import SnapshotOffered
from brokerha.nodes.observing.worker_view import LoadWatch


def loading_of(total_bytes: int) -> Loading:
    loading = Loading(LoadConfig(), ("w2",), "w1-7", Instant(0, 0))
    loading.offer = SnapshotOffered("w1-7", "w1-7", 40, "1:ff", 9, 10, ())
    loading.total_bytes = total_bytes
    return loading


def test_each_phase_is_timed_until_the_load_is_open() -> None:
    watch, loading = LoadWatch(), loading_of(3_000_000)
    told = []
    for phase, at_ms in ((Phase.ASKING, 1000), (Phase.MAKING_ROOM, 1500), (Phase.FETCHING, 1600), (Phase.OPENING, 4600)):
        loading.phase = phase
        told.append(watch.note(loading, at_ms))
    assert told == [False] * 4
    assert watch.note(None, 4900)
    assert watch.last is not None
    assert (watch.last.lsn, watch.last.total_bytes) == (40, 3_000_000)
    assert watch.metrics() == {
        "loads_total": 1,
        "load_last_bytes": 3_000_000,
        ("load_last_seconds", "asking"): 0.5,
        ("load_last_seconds", "making room"): 0.1,
        ("load_last_seconds", "fetching"): 3.0,
        ("load_last_seconds", "opening"): 0.3,
    }
    assert not watch.note(None, 5000)


def test_a_load_that_failed_is_none() -> None:
    watch, loading = LoadWatch(), loading_of(10)
    loading.phase = Phase.OPENING
    watch.note(loading, 0)
    loading.phase = Phase.FAILED
    assert not watch.note(None, 10)
    assert watch.metrics() == {"loads_total": 0}


def test_a_source_that_begins_anew_adds_to_the_same_phases() -> None:
    watch, loading = LoadWatch(), loading_of(10)
    for phase, at_ms in (
        (Phase.ASKING, 0),
        (Phase.FETCHING, 100),
        (Phase.ASKING, 200),
        (Phase.FETCHING, 500),
        (Phase.OPENING, 600),
    ):
        loading.phase = phase
        watch.note(loading, at_ms)
    assert watch.note(None, 700)
    assert watch.last is not None
    assert watch.last.seconds == {"asking": 0.4, "fetching": 0.2, "opening": 0.1}
