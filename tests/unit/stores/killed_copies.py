"""Copies that are killed at a named place: a process that forks one child for each, which opens, loads and dies.

    python -m tests.unit.stores.killed_copies

reads one JSON list ``[scenario, place, hits, path, ...]`` a line and prints the status of the child that did it. A fork
instead of a new process for each, because importing takes much longer than everything else; nothing is open while it forks.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgpack

from brokerha.ports.copies import Snapshot
from brokerha.stores.copies.worker_copy import WorkerCopy
from brokerha.stores.execution.worker_store import StoreOptions
from tests.unit.stores.known_history import killer

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = StoreOptions(map_size_bytes=64 * 1024 * 1024)
CHUNK_BYTES = 4096


def opened(directory: Path, crash_point: Callable[[str], None] = lambda _place: None) -> WorkerCopy:
    """The copy of the node that has the directory's name."""
    return WorkerCopy(
        directory, cluster="orders", node=directory.name, options=OPTIONS, chunk_bytes=CHUNK_BYTES, crash_point=crash_point
    )


def packed_snapshot(source: WorkerCopy, path: Path) -> Path:
    """Make a snapshot of the source and put it into a file, so that it outlives the source."""
    snapshot = source.make_snapshot("n")
    chunks = list(
        itertools.takewhile(lambda data: data is not None, map(source.read_chunk, itertools.repeat("n"), itertools.count()))
    )
    path.write_bytes(msgpack.packb([list(snapshot), chunks]))
    return path


def load(follower: WorkerCopy, path: Path) -> set[int]:
    """Load a snapshot from a file, without the chunks that are there already; returns the numbers of those."""
    (lsn, fingerprint, items, chunk_bytes, files), chunks = msgpack.unpackb(path.read_bytes())
    snapshot = Snapshot(lsn, fingerprint, items, chunk_bytes, tuple(map(tuple, files)))
    there = follower.begin_load("n", snapshot)
    for number, data in enumerate(chunks):
        if number not in there:
            assert follower.keep_chunk(number, data)
    follower.open_load()
    return there


def open_scenario(crash_point: Callable[[str], None], directory: Path) -> None:
    """Open a copy and close it."""
    opened(directory, crash_point).close()


def snapshot_scenario(crash_point: Callable[[str], None], directory: Path) -> None:
    """Make a snapshot."""
    opened(directory, crash_point).make_snapshot("n")


def load_scenario(crash_point: Callable[[str], None], follower: Path, snapshot: Path) -> None:
    """Load a snapshot from a file."""
    load(opened(follower, crash_point), snapshot)


def live_scenario(crash_point: Callable[[str], None], directory: Path) -> None:
    """Have a copy open."""
    opened(directory)
    crash_point("living")


def look_scenario(crash_point: Callable[[str], None], directory: Path) -> None:
    """Look at all data before anything else."""
    copy = opened(directory)
    assert copy.lives.must_look_first

    def step(_items: int) -> None:
        copy.lives.look_goes_on()
        crash_point("look: step")

    copy.recompute(step)


def keep_scenario(crash_point: Callable[[str], None], directory: Path) -> None:
    """Keep a copy, whatever is kept already."""
    opened(directory, crash_point).keep(2)


def restore_scenario(crash_point: Callable[[str], None], directory: Path) -> None:
    """Restore what is kept."""
    opened(directory, crash_point).restore_kept()


def drop_scenario(crash_point: Callable[[str], None], directory: Path) -> None:
    """Drop what is kept."""
    opened(directory, crash_point).drop_kept()


SCENARIOS: dict[str, Callable[..., None]] = {
    "open": open_scenario,
    "snapshot": snapshot_scenario,
    "load": load_scenario,
    "keep": keep_scenario,
    "restore": restore_scenario,
    "drop": drop_scenario,
    "live": live_scenario,
    "look": look_scenario,
}


class Killed:
    """The process that forks."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.unit.stores.killed_copies"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, scenario: str, place: str, hits: int, *paths: Path) -> int:
        """Run a scenario that dies at the n-th visit to a place; returns the number of the signal that ended it."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([scenario, place, hits, *map(str, paths)]) + "\n")
        stdin.flush()
        return os.WTERMSIG(int(stdout.readline()))

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=30)


def main() -> None:
    for line in sys.stdin:
        scenario, place, hits, *paths = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                SCENARIOS[scenario](killer(place, hits), *map(Path, paths))
            finally:
                os._exit(0)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
