"""Runs a node as ``python -m brokerha`` does, with a clock and a disk that somebody else may harm while it runs, without being root.

    BROKERHA_TEST_HARM=FILE python -m tests.system.nemesis.harmed node m1 -c cluster.toml

The file holds three numbers: seconds that the wall clock is ahead, seconds that each fsync takes longer, 1 when each fsync fails. What the
engines of stores do in C is not harmed.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brokerha.cli.main import main

VARIABLE = "BROKERHA_TEST_HARM"
LOOK_EVERY_S = 0.05


class Harm:
    """What the file says."""

    def __init__(self, path: Path) -> None:
        self.ahead_ns = 0
        self.slower_s = 0.0
        self.fails = False
        self._path = path
        self._read()
        threading.Thread(target=self._watch, daemon=True).start()

    def synced(self, sync: Callable[[Any], None]) -> Callable[[Any], None]:
        """An fsync of this disk."""

        def slow_or_failing(handle: Any) -> None:
            if self.slower_s:
                time.sleep(self.slower_s)
            if self.fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(handle)

        return slow_or_failing

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            self._read()

    def _read(self) -> None:
        try:
            ahead_s, self.slower_s, fails = map(float, self._path.read_text().split())
        except (OSError, ValueError):
            return
        self.ahead_ns, self.fails = int(ahead_s * 1e9), bool(fails)


def run() -> int:
    """The command."""
    harm, time_ns = Harm(Path(os.environ[VARIABLE])), time.time_ns
    time.time_ns = lambda: time_ns() + harm.ahead_ns
    time.time = lambda: time.time_ns() / 1e9
    for name in ("fsync", "fdatasync"):
        setattr(os, name, harm.synced(getattr(os, name)))
    return main()


if __name__ == "__main__":
    sys.exit(run())
