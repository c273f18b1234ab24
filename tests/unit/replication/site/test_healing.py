"""Healing: replay or copy, from whom, and how far it is."""

from __future__ import annotations

import pytest

from brokerha.model.wire.messages import Progress
from brokerha.replication.site.config import FeedConfig, Standing, WorkerFeed
from brokerha.replication.site.healing import behind, progress_of, should_copy, sources_for

RULE = FeedConfig(replay_factor=1.3, replay_s=600.0, net_bytes_per_s=50e6)


@pytest.mark.parametrize(
    ("lag", "per_s", "items", "expected"),
    [
        (1000, 1.0, 0, True),
        # Not longer than the least replay that a copy is worth.
        (600, 1.0, 0, False),
        (601, 1.0, 0, True),
        # A copy of 300 million items takes 900 s: a replay of up to 1.3 times that is better.
        (1170, 1.0, 300_000_000, False),
        (1171, 1.0, 300_000_000, True),
        # Without a measured rate five thousand a second are assumed.
        (3_000_000, 0.0, 0, False),
        (3_000_001, 0.0, 0, True),
        (0, 1.0, 0, False),
    ],
)
def test_a_copy_only_when_the_replay_takes_long_and_much_longer(lag: int, per_s: float, items: int, expected: bool) -> None:
    assert should_copy(RULE, lag, per_s, items) is expected


def worker(node: str, standing: Standing = Standing.ON, **said: object) -> WorkerFeed:
    fields: dict[str, object] = {"journal": "j", "applied_lsn": 5, "fingerprint": "", "items": 0, "state": "on", **said}
    found = WorkerFeed(node, standing=standing, progress=Progress(**fields))  # type: ignore[arg-type]
    found.applied = 5
    return found


def test_sources_are_the_others_in_sync_those_with_the_least_to_do_first() -> None:
    workers = [
        worker("w1"),
        worker("w2", running_reads=3),
        worker("w3", state="replication-server"),
        worker("w4", Standing.OUT_OF_SYNC),
        worker("w5", running_reads=1),
        worker("w6", state="writing-copy", running_reads=9),
        worker("w7", running_reads=1),
        WorkerFeed("w8", standing=Standing.ON),
    ]
    assert sources_for("w1", workers) == ("w8", "w5", "w7", "w2", "w3", "w6")


def test_the_probe_gives_its_copy_only_when_nobody_else_can() -> None:
    probe, other, giving = worker("w1"), worker("w2", running_reads=9), worker("w3", state="writing-copy")
    probe.is_probe = True
    assert sources_for("w4", [probe, other, giving]) == ("w2", "w1", "w3")


def test_how_far_behind_is_never_negative() -> None:
    assert (behind(9, 4), behind(4, 9)) == (5, 0)


def test_a_load_is_told_with_rate_and_time_left() -> None:
    loading = worker("w1", Standing.LOADING, follows="load", done_bytes=25_000_000, total_bytes=100_000_000)
    loading.load_begun_ms = 0
    assert progress_of(loading, 9, 5000) == "25.0 of 100.0 MB at 5.0 MB/s, 15 s left"
    assert progress_of(loading, 9, 0) == "25.0 of 100.0 MB at 0.0 MB/s"


def test_a_replay_is_told_with_rate_and_time_left() -> None:
    replaying = worker("w1", Standing.OUT_OF_SYNC, follows="basic")
    assert progress_of(replaying, 105, 0) == "100 transactions to go at 0/s"
    replaying.replay_per_s = 25.0
    assert progress_of(replaying, 105, 0) == "100 transactions to go at 25/s, 4 s left"


def test_there_is_nothing_to_tell_of_others() -> None:
    assert progress_of(worker("w1"), 9, 0) == ""
    assert progress_of(WorkerFeed("w1", standing=Standing.LOADING), 9, 0) == ""
    assert progress_of(worker("w1", Standing.OUT_OF_SYNC, follows="idle"), 9, 0) == ""
    assert progress_of(worker("w1", Standing.OUT_OF_SYNC, follows="basic"), 5, 0) == ""
