"""A store that is killed anywhere stands, when it is opened again, exactly where its applied LSN says."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brokerha.stores.execution.worker_store import WorkerStore
from tests.contracts.store_contract import lines, rows
from tests.unit.stores.known_history import OPTIONS, model_at

ROOT = Path(__file__).resolve().parents[4]
START_LIMIT_S = 60.0


def started(directory: Path, seed: int, *crash: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.unit.stores.known_history", str(directory), str(seed), *crash]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> int:
    """The last LSN that the killed process said it had."""
    output, errors = process.communicate(timeout=START_LIMIT_S)
    assert process.returncode == -signal.SIGKILL, errors
    whole_lines = output[: output.rfind("\n")].split()
    return int(whole_lines[-1])


def check(directory: Path, seed: int, said: int) -> int:
    """Open the store that was left behind and compare everything with the model; return its LSN."""
    store = WorkerStore(directory, cluster="orders", node="w1", options=OPTIONS)
    try:
        applied = store.applied()
        assert applied.lsn >= said, "what was returned from is durable"
        model = model_at(seed, applied.lsn)
        assert applied == model.applied()
        assert store.recompute() == applied
        for table in ("t", "u"):
            assert rows(store, table) == rows(model, table)
        assert lines(store) == lines(model)
        kept = store.logged(max(applied.lsn - 5, 1), applied.lsn)
        assert kept == model.logged(max(applied.lsn - 5, 1), applied.lsn)
        assert kept or not applied.lsn
        return applied.lsn
    finally:
        store.close()


def test_a_store_killed_at_random_moments_goes_on_where_it_stood(tmp_path: Path) -> None:
    seed = 7
    chance = random.Random(seed)
    lsn = 0
    for _ in range(6):
        process = started(tmp_path / "w1", seed)
        assert process.stdout is not None
        assert int(process.stdout.readline()) == lsn
        # The moment is meant to be any; nothing is waited for.
        time.sleep(chance.uniform(0.0, 0.6))
        os.kill(process.pid, signal.SIGKILL)
        output, _ = process.communicate(timeout=START_LIMIT_S)
        said = [int(line) for line in output[: output.rfind("\n") + 1].split()]
        lsn = check(tmp_path / "w1", seed, said[-1] if said else lsn)
    assert lsn > 0


@pytest.mark.parametrize(
    ("place", "hits"),
    [
        ("LMDB committed", 1),
        ("LMDB committed", 40),
        ("engine committed", 1),
        ("engine committed", 45),
        ("engines committed", 30),
        ("engines flushed", 2),
        ("draft in place", 2),
        ("draft in place", 5),
    ],
)
def test_a_store_killed_between_its_two_commits_loses_nothing(tmp_path: Path, place: str, hits: int) -> None:
    seed = 11
    said = finished(started(tmp_path / "w1", seed, place, str(hits)))
    lsn = check(tmp_path / "w1", seed, said)
    # It goes on from there as if nothing had been.
    said = finished(started(tmp_path / "w1", seed, place, str(hits)))
    assert check(tmp_path / "w1", seed, said) > lsn


def test_a_store_killed_while_it_was_made_is_made_again(tmp_path: Path) -> None:
    seed = 3
    process = started(tmp_path / "w1", seed)
    # Long enough to be somewhere between importing and the first batches.
    time.sleep(0.35)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=START_LIMIT_S)
    check(tmp_path / "w1", seed, 0)
