"""``brokerha bench copy`` and ``replay`` measure a real site, a small one here: their figures add up."""

from __future__ import annotations

from brokerha.cli.bench import healing as bench_healing


def test_a_copy_is_measured_beside_the_raw_rate(vhost_url: str) -> None:
    answer = bench_healing.copy(vhost_url, 3000, 20, 1, lambda _: None)
    (found,) = answer["rounds"]
    assert found["mb"] > 0
    assert found["copy_mb_s"] > 0
    assert found["of_raw"] == found["copy_mb_s"] / found["raw_busy_mb_s"]
    assert answer["median"] == found


def test_a_replay_is_measured_beside_the_writing(vhost_url: str) -> None:
    answer = bench_healing.replay(vhost_url, 2000, 100, 1, lambda _: None)
    assert [each["what"] for each in answer["median"]] == ["key-value put", "INSERT DATA"]
    for found in answer["median"]:
        assert found["behind"] >= 2000
        assert found["to_live"] == found["replay_per_s"] / found["live_per_s"]
