"""What a door makes from files, made anew when they were replaced: no restart, and no moment without it.

Looked at when it is asked for, once a second at most. Files that are gone, wrong, or do not fit together (yet) leave it as it was, with a line in
the log, and are tried again: a slip of the pen must neither lock everybody out nor let anybody in.
"""

from __future__ import annotations

import ssl
import time
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
                        log.warning(
                            "stays as it was at the HTTP door until its files are right", what=self._what, reason=str(error)
                        )
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


class Certificate:
    """The certificate of a door with its key, as PEM files: connections get the new one from the moment on when they were replaced."""

    def __init__(self, certificate: Path, key: Path, mono_s: Callable[[], float] = time.monotonic) -> None:
        """Read both. Raises ConfigurationError."""
        self._files = (certificate, key)
        self._current = Replaced("certificate", self._files, self._made, mono_s)

    def context(self) -> ssl.SSLContext:
        """What a server listens with."""
        context = self._current()
        context.sni_callback = self._on_hello
        return context

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate, key = self._files
        try:
            # A key with a password is refused, where it would be asked for at the terminal.
            context.load_cert_chain(certificate, key, password=lambda: b"")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
            raise ConfigurationError(
                f"http-certificate = {certificate}, http-key = {key}: cannot be used ({reason}): write PEM files that belong together and that this user may read"
            ) from None
        return context

    def _on_hello(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Somebody begins to connect."""
        connection.context = self._current()
