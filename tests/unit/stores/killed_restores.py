"""A restore in a process of its own that dies at a place: python -m tests.unit.stores.killed_restores BACKUP INTO PLACE.

Not forked, because the engine's threads do not live on in a fork.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from brokerha.stores.backup.directory import BackupDirectory
from brokerha.stores.backup.restore_target import choose_target
from brokerha.stores.backup.restoring import Restore, check_backup
from tests.unit.stores.known_history import killer

ROOT = Path(__file__).resolve().parents[3]


def main(backup_path: str, into: str, place: str) -> None:
    backup = BackupDirectory(Path(backup_path))
    manifest = backup.manifest()
    target = choose_target(backup, manifest)
    crash_point = killer(place, 1)
    work = Restore(backup, manifest, target, Path(into), cluster="elsewhere", node="w9", crash_point=crash_point)
    work.prepare(check_backup(backup, manifest))
    work.placing.place(is_forced=True)


def killed_restore(backup: Path, into: Path, place: str) -> int:
    """Run it; returns the status of the process."""
    command = [sys.executable, "-m", "tests.unit.stores.killed_restores", str(backup), str(into), place]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=60).returncode


if __name__ == "__main__":
    main(*sys.argv[1:])
