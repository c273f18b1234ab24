"""Connections of a client program to HTTP doors, kept for the next request: the standard library's, a pool for each node.

A request takes an idle connection of its node, or makes one; while too many are in use it waits for one of them, within its time. A
connection that the node has closed meanwhile is not used. The one that gets an `Exchange` reads it to its end or closes it.

Costs a fourth of what a general client library does for a small read (docs/decisions/0044-*.md). Proxies of the environment are not
used, and redirects not followed: nodes send none.

As who a client speaks is told by the environment: secrets never stand among the arguments of a command.

    BROKERHA_TOKEN or BROKERHA_TOKEN_FILE                          a token
    BROKERHA_USER and BROKERHA_PASSWORD or BROKERHA_PASSWORD_FILE  a name and a password, where there is no token
    BROKERHA_CA_FILE                                               authorities that sign the certificates of doors, besides those of this machine

A secret is sent over https, or to this machine. To another one over plain HTTP it is sent only where BROKERHA_PLAIN_HTTP=allowed says that the way there is
private.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from brokerha.model.errors import ConfigurationError, InvalidRequest
from brokerha.model.outside.hosts import is_loopback

CONNECTIONS_LIMIT: Final = 64
"""Threads that ask beyond it wait for a connection, within their time."""
KEEP_ALIVE_S: Final = 60.0
"""Shorter than the server's, so that a connection is not closed just when it is used."""
_PIECE_BYTES: Final = 256 * 1024

_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""What OpenSSL, by its version, says of bytes that are no TLS."""

FAULTS: Final = (OSError, http.client.HTTPException, ValueError)
"""What an exchange may raise. A time-out is a TimeoutError, which is an OSError."""


class NotConnected(OSError):
    """No connection came about: nothing of the request was sent."""

    remedy: str | None = ""
    """As that of `Unreachable`."""


class _Base(NamedTuple):
    """A node's URL, taken apart."""

    is_tls: bool
    host: str
    port: int | None
    path: str
    headers: dict[str, str]


class Exchange:
    """One answer, its head read."""

    def __init__(self, pool: Connections, url: str, connection: http.client.HTTPConnection) -> None:
        self._pool = pool
        self._url = url
        self._connection = connection
        self._response = connection.getresponse()
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}
        """By names in lower case."""
        if self.status < 400 and self._response.length is None and not self._response.chunked:
            # The library takes a head that was cut off for one that ends there.
            self._response.close()
            raise http.client.HTTPException("the head of the answer does not say how long the body is")
        self._is_whole = False
        """Whether it was read to its end, and the connection is good for another."""

    def pieces(self, silence_s: float) -> Iterator[bytes]:
        """The body as it comes. Raises TimeoutError when nothing comes for so long, and the other `FAULTS`."""
        sock = self._connection.sock
        if sock is not None:
            sock.settimeout(silence_s)
        while piece := self._response.read1(_PIECE_BYTES):
            yield piece
        if self._response.length:
            raise http.client.IncompleteRead(b"", self._response.length)
        self._is_whole = not self._response.will_close

    def content(self, until_s: float) -> bytes:
        """The whole body, then `close`. Raises TimeoutError when it is not whole at this time of the monotonic clock."""
        pieces = []
        try:
            for piece in self.pieces(max(0.001, until_s - time.monotonic())):
                pieces.append(piece)
                # The socket's time holds for each piece; an answer that trickles in must end as well.
                if time.monotonic() > until_s:
                    raise TimeoutError("the answer was not whole in time")
        finally:
            self.close()
        return b"".join(pieces)

    def close(self) -> None:
        """Give the connection back, or close it when the answer was not read to its end. Idempotent."""
        connection = self._connection
        self._response.close()
        if self._is_whole and connection.sock is not None:
            self._pool.give_back(self._url, connection)
        else:
            self._pool.drop(connection)


class Connections:
    """All connections of one program to its nodes; callable from any thread."""

    def __init__(self, headers: Mapping[str, str], context: ssl.SSLContext | None = None) -> None:
        """``headers`` go with each request; ``context`` says whom to trust over https."""
        self._headers = dict(headers)
        self._context = context
        self._lock = threading.Lock()
        self._room = threading.Semaphore(CONNECTIONS_LIMIT)
        self._bases: dict[str, _Base] = {}
        self._idle: dict[str, list[tuple[float, http.client.HTTPConnection]]] = {}
        self._used: set[http.client.HTTPConnection] = set()
        self._is_closed = False

    def send(
        self,
        method: str,
        url: str,
        path: str,
        headers: Mapping[str, str],
        content: bytes,
        connect_s: float,
        wait_s: float,
    ) -> Exchange:
        """Send a request to the node at ``url`` and wait for the head of its answer.

        Raises NotConnected within ``connect_s`` when nothing was sent; TimeoutError when nothing comes for ``wait_s``, other `FAULTS`;
        InvalidRequest for what no header can hold.
        """
        for name, value in headers.items():
            if not value.isprintable() or max(value, default="") > "\xff":
                raise InvalidRequest(f"{value!r} cannot be sent over HTTP, as {name}: take printable characters of Latin-1")
        base = self._base(url)
        if not self._room.acquire(timeout=wait_s):
            raise NotConnected(f"all {CONNECTIONS_LIMIT} connections are in use")
        connection = self._take(url, base, connect_s)
        try:
            sock = connection.sock
            if sock is not None:
                sock.settimeout(wait_s)
            connection.request(method, base.path + path, content or None, {**self._headers, **base.headers, **headers})
            return Exchange(self, url, connection)
        except BaseException as error:
            self.drop(connection)
            if isinstance(error, ConnectionError) and not base.is_tls and _speaks_tls(base, connect_s):
                # It read no request, so nothing was sent.
                raise _not_so("it takes TLS only: write https://") from None
            raise

    def give_back(self, url: str, connection: http.client.HTTPConnection) -> None:
        """Keep a connection for the next request."""
        with self._lock:
            if connection not in self._used:
                return
            self._used.discard(connection)
            is_kept = not self._is_closed
            if is_kept:
                self._idle.setdefault(url, []).append((time.monotonic() + KEEP_ALIVE_S, connection))
        if not is_kept:
            connection.close()
        self._room.release()

    def drop(self, connection: http.client.HTTPConnection) -> None:
        """Close a connection that is in use."""
        with self._lock:
            if connection not in self._used:
                return
            self._used.discard(connection)
        connection.close()
        self._room.release()

    def close(self) -> None:
        """End what is under way with an error, and take no more. Idempotent."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
            used = list(self._used)
        for _, connection in [each for kept in idle.values() for each in kept]:
            connection.close()
        for connection in used:
            # A thread that waits at it is woken; its owner closes it.
            if (sock := connection.sock) is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _take(self, url: str, base: _Base, connect_s: float) -> http.client.HTTPConnection:
        """An idle connection that still stands, or a new one. Gives the room back when it raises."""
        try:
            return self._standing(url, base, connect_s)
        except BaseException:
            self._room.release()
            raise

    def _standing(self, url: str, base: _Base, connect_s: float) -> http.client.HTTPConnection:
        while (connection := self._idle_one(url)) is not None:
            if connection.sock is not None and not _has_ended(connection.sock):
                return connection
            self._forget(connection)
        if base.is_tls:
            connection = http.client.HTTPSConnection(base.host, base.port, timeout=connect_s, context=self._context)
        else:
            connection = http.client.HTTPConnection(base.host, base.port, timeout=connect_s)
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            connection.close()
            remedy = "name its authority with BROKERHA_CA_FILE, and the host as the certificate does"
            raise _not_so(f"its certificate is not trusted ({error.verify_message}): {remedy}") from None
        except (OSError, ValueError) as error:  # A ValueError: the host can be no name.
            connection.close()
            if getattr(error, "reason", "") in _NO_TLS:
                raise _not_so(
                    "it answers without TLS: write http://, or restart the node if its cluster file has a certificate since"
                ) from None
            raise NotConnected(str(error) or type(error).__name__) from None
        with self._lock:
            is_closed = self._is_closed
            if not is_closed:
                self._used.add(connection)
        if is_closed:
            connection.close()
            raise NotConnected("the connection is closed")
        return connection

    def _idle_one(self, url: str) -> http.client.HTTPConnection | None:
        now_s = time.monotonic()
        with self._lock:
            kept = self._idle.get(url, [])
            while kept:
                # The one used last, so that those that are not needed grow old.
                until_s, connection = kept.pop()
                if until_s > now_s:
                    self._used.add(connection)
                    return connection
                connection.close()
        return None

    def _forget(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._used.discard(connection)
        connection.close()

    def _base(self, url: str) -> _Base:
        base = self._bases.get(url)
        if base is None:
            parts = urlsplit(url)
            headers = {}
            if parts.username:
                pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
            is_tls = parts.scheme == "https"
            base = self._bases[url] = _Base(is_tls, parts.hostname or "", parts.port, parts.path, headers)
        return base


def _not_so(text: str) -> NotConnected:
    """What the caller has to write in another way; the text says how."""
    error = NotConnected(text)
    error.remedy = None
    return error


def _speaks_tls(base: _Base, within_s: float) -> bool:
    """Whether a door that hung up on plain HTTP is one with TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(base.host, base.port or http.client.HTTP_PORT, timeout=within_s, context=context)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.connect()
        return True
    return False


def _has_ended(sock: socket.socket) -> bool:
    """Whether the other side has closed it, or sent what nobody asked for."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def identity_headers(environ: Mapping[str, str], urls: Iterable[str] = ()) -> dict[str, str]:
    """The header that says who asks at these URLs; none without a user.

    Raises ConfigurationError for a file that cannot be read, and for a URL to which nobody should send a secret.
    """
    headers = _identity(environ)
    open_ones = [url for url in urls if not _is_private(url)] if headers else []
    if open_ones and environ.get("BROKERHA_PLAIN_HTTP") != "allowed":
        raise ConfigurationError(
            f"{open_ones[0]} is not https, and anyone on the way there could read the password or token: write https://…, or "
            "BROKERHA_PLAIN_HTTP=allowed if the way there is private"
        )
    return headers


def _is_private(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


def trusted(environ: Mapping[str, str]) -> ssl.SSLContext:
    """By whom certificates of doors may be signed; host names are checked. Raises ConfigurationError for a file that is none."""
    context = ssl.create_default_context()
    if path := environ.get("BROKERHA_CA_FILE", ""):
        try:
            context.load_verify_locations(path)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigurationError(
                f"BROKERHA_CA_FILE = {path}: {reason}: name a PEM file with the authority's certificate"
            ) from None
    return context


def _identity(environ: Mapping[str, str]) -> dict[str, str]:
    if token := _secret(environ, "BROKERHA_TOKEN"):
        if not (token.isascii() and token.isprintable()):
            # What refuses it further on would show it.
            raise ConfigurationError(
                "BROKERHA_TOKEN or BROKERHA_TOKEN_FILE: no token, which is one line: take the one that brokerha user add --token printed"
            )
        return {"Authorization": f"Bearer {token}"}
    if user := environ.get("BROKERHA_USER", ""):
        pair = f"{user}:{_secret(environ, 'BROKERHA_PASSWORD')}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
    return {}


def _secret(environ: Mapping[str, str], name: str) -> str:
    path = environ.get(f"{name}_FILE", "")
    if environ.get(name) or not path:
        return environ.get(name, "")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigurationError(f"{name}_FILE = {path}: cannot be read: name a file that this user may read") from None
