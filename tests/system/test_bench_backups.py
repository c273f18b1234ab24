"""``brokerha bench sync``, ``tx`` and ``fail-over`` measure real processes, shortly here: their figures add up."""

from __future__ import annotations

from brokerha.cli.bench import fail_over as bench_fail_over
from brokerha.cli.bench import sync as bench_sync
from brokerha.cli.bench import tx as bench_tx


def quiet(_: str) -> None:
    """Nobody watches."""


def test_writes_that_backups_hold_are_measured_for_one_and_two_of_them(vhost_url: str) -> None:
    rows = bench_sync.sync(vhost_url, (1, 20), 0.5, quiet)["writes"]

    assert [(row["sync_n"], row["window"]) for row in rows] == [(1, 1), (1, 20), (2, 1), (2, 20)]
    assert all(row["to_seed"] == row["writes_per_s"] / row["seed_per_s"] > 0 for row in rows)


def test_transactions_are_measured_beside_what_their_queues_cost_alone(vhost_url: str) -> None:
    rows = bench_tx.transactions(vhost_url, 0.5, quiet)["transactions"]

    assert [(row["backups"], row["clients"]) for row in rows] == [(1, 1), (1, 8), (0, 1), (0, 8)]
    assert all(row["of_raw"] == row["per_s"] / row["raw_per_s"] > 0 for row in rows)


def test_a_fail_over_is_measured_from_the_kill_to_the_next_answers_of_each_client(vhost_url: str) -> None:
    answer = bench_fail_over.fail_over(vhost_url, 1, quiet)

    (row,) = answer["runs"]
    assert row["primary"] != row["killed"]
    assert len(row["clients_s"]) == bench_fail_over.CLIENTS
    assert 0 < answer["median_s"] <= answer["worst_s"]
