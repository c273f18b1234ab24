"""What a door makes from files, made anew when they were replaced: no restart, and no moment without it.

Looked at when it is asked for, once a second at most. Files that are gone, wrong, or do not fit together (yet) leave it as it was, with a line in
the log, and are tried again: a slip of the pen must neither lock everybody out nor let anybody in.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

import structlog

from brokerha.model.errors import ConfigurationError

log = structlog.get_logger()
LOOK_EVERY_S: Final = 1.0
Made = TypeVar("Made")


class Replaced(Generic[Made]):
    """Calling it gives what the files say now; ``make`` reads them and raises ConfigurationError."""

    def __init__(self, what: str, files: tuple[Path, ...], make: Callable[[], Made], mono_s: Callable[[], float]) -> None:
        """Make it for the first time. Raises ConfigurationError."""
        self._what = what
        self._files = files
        self._make = make
        self._mono_s = mono_s
        self._looked_s = mono_s()
        self._seen = self._state()
        self._made = make()
        self._problem = ""
        """Why the files that are there now are not in force; empty when they are."""

    def __call__(self) -> Made:
        """What there is now."""
        now_s = self._mono_s()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            seen = self._state()
            if seen != self._seen or self._problem:
                self._seen = seen
                try:
                    self._made = self._make()
                    self._problem = ""
                    log.info("read again by the HTTP door", what=self._what, file=str(self._files[0]))
                except ConfigurationError as error:
                    if str(error) != self._problem:
                        log.warning("stays as it was at the HTTP door until its files are right", what=self._what, reason=str(error))
                    self._problem = str(error)
        return self._made

    def _state(self) -> list[tuple[int, int, int]]:
        """What changes when a file is replaced as a whole."""
        found = []
        for file in self._files:
            try:
                stat = file.stat()
                found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
            except OSError:
                found.append((0, 0, 0))
        return found
