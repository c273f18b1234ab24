"""The certificate of a door, taken anew when its files were replaced: connections from then on get the new one, nothing is restarted.

Looked at when somebody connects, once a second at most. Files that do not fit together (yet), or cannot be read, leave the certificate
as it was, with a line in the log: whoever renews it replaces one file after the other.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path

import structlog

log = structlog.get_logger()
LOOK_EVERY_S = 1.0


class Certificate:
    """One certificate with its key, as PEM files."""

    def __init__(self, certificate: Path, key: Path, mono_s: Callable[[], float] = time.monotonic) -> None:
        self._files = (certificate, key)
        self._mono_s = mono_s
        self._looked_s = mono_s()
        self._told: object = None
        self._seen = self._state()
        self._context = self._made()

    def context(self) -> ssl.SSLContext:
        """What a server listens with. Raises OSError and ValueError for files that cannot be used."""
        context = self._made()
        context.sni_callback = self._on_hello
        return context

    def _made(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A key with a password is refused, where it would be asked for at the terminal.
        context.load_cert_chain(*self._files, password=lambda: b"")
        return context

    def _on_hello(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Somebody begins to connect."""
        now_s = self._mono_s()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._look()
        connection.context = self._context

    def _look(self) -> None:
        state = self._state()
        if state == self._seen:
            return
        try:
            self._context = self._made()
        except (OSError, ValueError) as error:
            if state != self._told:
                self._told = state
                log.warning("the certificate of the HTTP door stays as it was", file=str(self._files[0]), reason=str(error))
            return
        self._seen = state
        log.info("the certificate of the HTTP door is taken anew", file=str(self._files[0]))

    def _state(self) -> tuple[tuple[int, int, int], ...]:
        """What changes when a file is replaced."""
        found = []
        for file in self._files:
            try:
                stat = file.stat()
            except OSError:
                return ()
            found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
        return tuple(found)
