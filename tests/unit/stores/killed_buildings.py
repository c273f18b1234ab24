"""A building in a process of its own that dies at a place: python -m tests.unit.stores.killed_buildings KIND HOME PLACE.

Not forked, because the engine's threads do not live on in a fork.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from brokerha.stores.backup.building_places import build_backup, build_worker
from brokerha.stores.backup.directory import BackupFolder
from brokerha.stores.backup.manifest import Manifest
from brokerha.stores.backup.writing import About, Work
from tests.unit.stores.built_copies import history, plan_of
from tests.unit.stores.known_history import killer

ROOT = Path(__file__).resolve().parents[3]
COUNT = 120
LINES = history(7, 200)


def nothing(_place: str) -> None:
    """Nobody is killed."""


def build_a_backup(
    home: Path, crash_point: Callable[[str], None] = nothing, *, replace: bool = False, history_too: bool = True
) -> Manifest:
    """The backup ``built`` in the folder ``backups``."""
    work = Work(About("orders", "archive", ("m1",)), 1, crash_point=crash_point)
    lines = LINES[:COUNT]
    rows = ((lsn, tuple(line)) for lsn, line in enumerate(lines, 1)) if history_too else None
    folder = BackupFolder(home / "backups")
    return build_backup(folder, "built", plan_of(lines), work, history=rows, replace=replace)  # type: ignore[arg-type]


def build_a_worker(home: Path, crash_point: Callable[[str], None] = nothing, *, is_forced: bool = False) -> None:
    """The directory ``w9``."""
    plan = plan_of(LINES[:COUNT])
    build_worker(home / "w9", plan, cluster="orders", node="w9", is_forced=is_forced, crash_point=crash_point)


def main(kind: str, home: str, place: str) -> None:
    if kind == "backup":
        build_a_backup(Path(home), killer(place, 1), replace=True)
    else:
        build_a_worker(Path(home), killer(place, 1), is_forced=True)


def killed_building(kind: str, home: Path, place: str) -> int:
    """Run it; returns the status of the process."""
    command = [sys.executable, "-m", "tests.unit.stores.killed_buildings", kind, str(home), place]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=120).returncode


if __name__ == "__main__":
    main(*sys.argv[1:])
