"""What nodes said of themselves: kept by day, read in order, and whole again after a line that was cut off."""

from __future__ import annotations

from pathlib import Path

from brokerha.pipeline.observations import Observation, append, observed, read

DAY_US = 86_400_000_000
MAY_US = 1_777_593_600_000_000


def seen(time_us: int, node: str = "w1") -> Observation:
    return Observation(time_us, node, "worker", "m1", "running", 5, 0, 0.0, 3, None, 0)


def test_observations_come_back_in_the_order_of_their_days(tmp_path: Path) -> None:
    later, sooner = seen(MAY_US + DAY_US), seen(MAY_US)
    append(tmp_path, [later])
    append(tmp_path, [sooner, seen(MAY_US + 1, "w2")])
    assert list(read(tmp_path)) == [sooner, seen(MAY_US + 1, "w2"), later]
    assert sorted(path.name for path in (tmp_path / "observations").iterdir()) == [
        "2026-05-01.jsonl",
        "2026-05-02.jsonl",
    ]


def test_a_line_that_was_cut_off_is_passed_over_and_the_next_one_is_whole(tmp_path: Path) -> None:
    append(tmp_path, [seen(MAY_US)])
    path = next((tmp_path / "observations").iterdir())
    path.write_bytes(path.read_bytes() + b'{"time_us": 17')
    append(tmp_path, [seen(MAY_US + 1)])
    assert list(read(tmp_path)) == [seen(MAY_US), seen(MAY_US + 1)]


def test_fields_that_a_node_does_not_say_are_none(tmp_path: Path) -> None:
    row = {"id": "m1", "role": "master", "master": "m1", "state": "unreachable"}
    (only,) = observed({"nodes": [row]}, MAY_US)
    assert (only.state, only.applied_lsn, only.lag_s, only.epoch) == ("unreachable", None, None, None)
    append(tmp_path, [only])
    assert list(read(tmp_path)) == [only]


def test_a_node_that_says_no_epoch_is_in_that_of_the_cluster(tmp_path: Path) -> None:
    rows = [
        {"id": "m1", "role": "master", "master": "m1", "state": "excluded", "epoch": 1},
        {"id": "w1", "role": "worker", "master": "m1", "state": "on", "epoch": None},
    ]
    assert [each.epoch for each in observed({"epoch": 3, "nodes": rows}, MAY_US)] == [1, 3]


def test_a_folder_without_any_has_none(tmp_path: Path) -> None:
    assert list(read(tmp_path)) == []
