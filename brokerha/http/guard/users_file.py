"""The users file of a door as it is now: read again when it has changed, looked at once a second at most.

A file that is gone, or wrong, after it was right leaves the users as they were, with a line in the log: a slip of the pen must neither lock
everybody out nor let anybody in.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import structlog

from brokerha.http.guard.users import Users, parse_users
from brokerha.model.errors import ConfigurationError

log = structlog.get_logger()

LOOK_EVERY_S = 1.0


class UsersFile:
    """See the head of the module; calling it gives the users of now."""

    def __init__(self, path: Path, mono_s: Callable[[], float] = time.monotonic) -> None:
        """Read it. Raises ConfigurationError."""
        self._path = path
        self._mono_s = mono_s
        self._looked_s = mono_s()
        self._seen = self._state()
        self._users = self._read()

    def __call__(self) -> Users:
        """The users of now."""
        now_s = self._mono_s()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            seen = self._state()
            if seen != self._seen:
                self._seen = seen
                try:
                    self._users = self._read()
                    log.info("users of the HTTP door read again", file=str(self._path))
                except ConfigurationError as error:
                    log.warning("the users of the HTTP door stay as they were", reason=str(error))
        return self._users

    def _state(self) -> tuple[int, int, int]:
        """What changes with the file: it is replaced as a whole."""
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_mtime_ns, found.st_ino, found.st_size)

    def _read(self) -> Users:
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(f"http-users = {self._path}: cannot be read ({reason}): brokerha user add makes it") from None
        return Users(parse_users(text, str(self._path)))
