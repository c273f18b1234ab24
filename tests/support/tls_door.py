"""A TLS door in front of a plain server: takes encrypted connections on loopback and passes their bytes on.

with TlsDoor(make_certificate(tmp_path, "localhost"), "127.0.0.1", 5672) as door:
    url = f"amqps://localhost:{door.port}/"
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple, Self

import pytest


class Certificate(NamedTuple):
    """A self-signed certificate, which is its own authority."""

    certificate: Path
    key: Path


def make_certificate(folder: Path, host: str) -> Certificate:
    """A certificate for a host name; skips the test where there is no openssl command."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command to make a certificate with")
    made = Certificate(folder / f"{host}.pem", folder / f"{host}.key")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"),
            *("-keyout", str(made.key), "-out", str(made.certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return made


class TlsDoor:
    """Listens on a free port until the context ends."""

    def __init__(self, certificate: Certificate, host: str, port: int) -> None:
        self._target = (host, port)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate.certificate, certificate.key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._listener.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # A client that does not trust us, or hangs up, ends its own connection only.
        with (
            contextlib.suppress(OSError),
            self._context.wrap_socket(connection, server_side=True) as near,
            socket.create_connection(self._target) as far,
        ):
            threading.Thread(target=_copy, args=(far, near), daemon=True).start()
            _copy(near, far)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
