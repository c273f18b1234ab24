"""``python -m tests.bench sync``, ``tx`` and ``fail-over`` measure real processes, shortly here: their figures add up."""

from __future__ import annotations

import pytest

from tests.bench import backups
from tests.bench.options import BenchOptions


@pytest.mark.campaign
def test_writes_that_backups_hold_are_measured_for_one_and_two_of_them(vhost_url: str) -> None:
    rows = backups.sync(BenchOptions(vhost_url, windows="1,20", seconds=0.5)).data["writes"]

    assert [(row["sync_n"], row["window"]) for row in rows] == [(1, 1), (1, 20), (2, 1), (2, 20)]
    assert all(row["to_seed"] == row["writes_per_s"] / row["seed_per_s"] > 0 for row in rows)


@pytest.mark.campaign
def test_transactions_are_measured_beside_what_their_queues_cost_alone(vhost_url: str) -> None:
    rows = backups.transactions(BenchOptions(vhost_url, seconds=0.5)).data["transactions"]

    assert [(row["backups"], row["clients"]) for row in rows] == [(1, 1), (1, 8), (0, 1), (0, 8)]
    assert all(row["of_raw"] == row["per_s"] / row["raw_per_s"] > 0 for row in rows)


@pytest.mark.campaign
def test_a_fail_over_is_measured_from_the_end_of_a_process_to_the_next_answers_of_each_client(vhost_url: str) -> None:
    (case,) = [case for case in backups.CASES if "primary" in case.what]
    answer = backups.fail_over(BenchOptions(vhost_url, runs=1), [case]).data

    stopped, killed = answer["runs"]
    assert (stopped["how"], killed["how"]) == ("stopped", "killed")
    assert stopped["node"] != killed["node"]
    for run, row in zip(answer["runs"], answer["cases"], strict=True):
        assert len(run["clients_s"]) == backups.CLIENTS
        assert 0 < row["median_s"] <= row["worst_s"] == run["worst_s"]
