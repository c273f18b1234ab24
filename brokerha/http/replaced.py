"""Objects made from files, and made again when the files were replaced: no restart, and no moment without them.

The files are checked at use, once a second at most. While they are missing, wrong, or inconsistent, the object stays as it was, the
log has a line, and they are tried again: a mistake must neither lock all users out nor let strangers in.
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
    """Calling it returns the object of the present files; ``make`` reads them and raises ConfigurationError."""

    def __init__(self, what: str, files: tuple[Path, ...], make: Callable[[], Made], mono_s: Callable[[], float]) -> None:
        """Make the object for the first time. Raises ConfigurationError."""
        self._what = what
        self._files = files
        self._make = make
        self._mono_s = mono_s
        self._looked_s = mono_s()
        self._seen = self._state()
        self._made = make()
        self._problem = ""
        """Why the present files are not in force; empty when they are."""

    def __call__(self) -> Made:
        """Return the present object."""
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
        """Return the facts that change when a file is replaced as a whole."""
        found = []
        for file in self._files:
            try:
                stat = file.stat()
                found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
            except OSError:
                found.append((0, 0, 0))
        return found


class Certificate:
    """The certificate of a door with its key, as PEM files; new connections use a replaced one at once."""

    def __init__(self, certificate: Path, key: Path, mono_s: Callable[[], float] = time.monotonic) -> None:
        """Read both. Raises ConfigurationError."""
        self._files = (certificate, key)
        self._current = Replaced("certificate", self._files, self._made, mono_s)

    def context(self) -> ssl.SSLContext:
        """Return the context for a listening server."""
        context = self._current()
        context.sni_callback = self._on_hello
        return context

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate, key = self._files
        try:
            # A key with a password is refused; otherwise the terminal would ask for the password.
            context.load_cert_chain(certificate, key, password=lambda: b"")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
            raise ConfigurationError(
                f"http-certificate = {certificate}, http-key = {key}: cannot be used ({reason}): write PEM files that belong together and that this user may read"
            ) from None
        return context

    def _on_hello(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Set the present certificate for a new connection."""
        connection.context = self._current()
