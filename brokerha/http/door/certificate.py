"""The certificate of a door: connections from the moment on when its files were replaced get the new one."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path

from brokerha.http.replaced import Replaced
from brokerha.model.errors import ConfigurationError


class Certificate:
    """One certificate with its key, as PEM files."""

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
