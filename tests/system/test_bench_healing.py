"""``python -m tests.bench copy`` and ``replay`` measure a real site, a small one here: their figures add up."""

from __future__ import annotations

import pytest

from tests.bench import healing
from tests.bench.options import BenchOptions


@pytest.mark.campaign
def test_a_copy_is_measured_beside_the_raw_rate(vhost_url: str) -> None:
    answer = healing.copy(BenchOptions(vhost_url, windows="20", triples=3000, rounds=1)).data
    (found,) = answer["rounds"]
    assert found["mb"] > 0
    assert found["copy_mb_s"] > 0
    assert found["of_raw"] == found["copy_mb_s"] / found["raw_busy_mb_s"]
    assert answer["median"] == found


@pytest.mark.campaign
def test_a_replay_is_measured_beside_the_writing(vhost_url: str) -> None:
    answer = healing.replay(BenchOptions(vhost_url, windows="100", transactions=2000, rounds=1)).data
    assert [each["what"] for each in answer["median"]] == ["key-value put", "INSERT DATA"]
    for found in answer["median"]:
        assert found["behind"] >= 2000
        assert found["to_live"] == found["replay_per_s"] / found["live_per_s"]
