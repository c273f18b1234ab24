"""Keep-alive connections of a client program to HTTP doors: the standard library's, one pool for each node.

A request takes an idle connection of its node, or makes one. While too many are in use it waits for one, within its timeout. A
connection that the node has closed is not used again. The caller reads an `Exchange` to its end or closes it.

A small read costs less than half the time of a general client library (docs/decisions/0044-*.md). Proxies of the environment are not
used, and redirects not followed: nodes send none.

The environment holds the credentials, so that secrets never stand among the arguments of a command. A program can also give a token,
or a user in a URL, which goes before the others.

    BROKERHA_TOKEN or BROKERHA_TOKEN_FILE                          a token
    BROKERHA_USER and BROKERHA_PASSWORD or BROKERHA_PASSWORD_FILE  a name and a password, where there is no token
    BROKERHA_CA_FILE                                               authorities that sign the certificates of doors, besides those of this machine

A secret is sent over https, or to this machine. It is sent to another machine over plain HTTP only with
BROKERHA_PLAIN_HTTP=allowed, which says that the network between them is private.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import re
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
"""Further threads wait for a connection, within their timeout."""
KEEP_ALIVE_S: Final = 60.0
"""Shorter than the server's, so that the server does not close a connection just when it is used."""
_PIECE_BYTES: Final = 256 * 1024

_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})
"""OpenSSL's reasons for bytes that are not TLS; they differ by version."""

_USER: Final = re.compile(r"(?<=://)[^/?#]*@")

FAULTS: Final = (OSError, http.client.HTTPException, ValueError)
"""Errors that an exchange can raise. A timeout is a TimeoutError, which is an OSError."""


class NotConnected(OSError):
    """The connection failed, so nothing of the request was sent."""

    def __init__(self, text: str, remedy: str | None = "") -> None:
        super().__init__(text)
        self.remedy = remedy
        """The same as `Unreachable.remedy`."""


class _Base(NamedTuple):
    """The parts of a node's URL."""

    is_tls: bool
    host: str
    port: int | None
    path: str
    headers: dict[str, str]


class Exchange:
    """One answer whose head has been read."""

    def __init__(self, pool: Connections, url: str, connection: http.client.HTTPConnection) -> None:
        self._pool = pool
        self._url = url
        self._connection = connection
        self._response = connection.getresponse()
        self.status = self._response.status
        self.headers = {name.lower(): value for name, value in self._response.getheaders()}
        """By lower-case name."""
        if self.status < 400 and self._response.length is None and not self._response.chunked:
            # The library takes a truncated head for a complete one.
            self._response.close()
            raise http.client.HTTPException("the head of the answer does not say how long the body is")
        self._is_whole = False
        """True when the body was read to its end, so the connection can be used again."""

    def pieces(self, silence_s: float) -> Iterator[bytes]:
        """Yield the body as it arrives. Raises TimeoutError after ``silence_s`` without data, and the other `FAULTS`."""
        sock = self._connection.sock
        if sock is not None:
            sock.settimeout(silence_s)
        while piece := self._response.read1(_PIECE_BYTES):
            yield piece
        if self._response.length:
            raise http.client.IncompleteRead(b"", self._response.length)
        self._is_whole = not self._response.will_close

    def content(self, until_s: float) -> bytes:
        """Return the whole body and `close`. Raises TimeoutError when it is incomplete at this time of the monotonic clock."""
        pieces = []
        try:
            for piece in self.pieces(max(0.001, until_s - time.monotonic())):
                pieces.append(piece)
                # The socket's timeout holds for each piece; a slow trickle must end as well.
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
        """``headers`` go with each request; ``context`` holds the trusted authorities for https."""
        self._headers = dict(headers)
        self._context = context
        self._lock = threading.Lock()
        self._room = threading.Semaphore(CONNECTIONS_LIMIT)
        self._bases: dict[str, _Base] = {}
        self._idle: dict[str, list[tuple[float, http.client.HTTPConnection]]] = {}
        self._used: set[http.client.HTTPConnection] = set()
        self._is_closed = False

    def send(
        self, method: str, url: str, path: str, headers: Mapping[str, str], content: bytes, connect_s: float, wait_s: float
    ) -> Exchange:
        """Send a request to the node at ``url`` and wait for the head of its answer.

        Raises NotConnected within ``connect_s`` when nothing was sent; TimeoutError after ``wait_s`` without an answer, and other
        `FAULTS`; InvalidRequest for text that does not fit into a header.
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
                # A TLS door does not read plain HTTP, so nothing of the request was sent.
                raise NotConnected("it takes TLS only: write https://", None) from None
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
        """End open exchanges with an error, and refuse new ones. Idempotent."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
            used = list(self._used)
        for _, connection in [each for kept in idle.values() for each in kept]:
            connection.close()
        for connection in used:
            # This wakes a thread that waits on the connection; that thread closes it.
            if (sock := connection.sock) is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _take(self, url: str, base: _Base, connect_s: float) -> http.client.HTTPConnection:
        """Return an idle connection that is still open, or a new one. Releases the semaphore when it raises."""
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
            raise NotConnected(f"its certificate is not trusted ({error.verify_message}): {remedy}", None) from None
        except (OSError, ValueError) as error:  # A ValueError: the host is not a valid name.
            connection.close()
            if getattr(error, "reason", "") in _NO_TLS:
                raise NotConnected(
                    "it answers without TLS: write http://, or restart the node if its cluster file has a certificate since", None
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
                # The most recently used one, so that spare connections expire.
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
            base = self._bases[url] = _base_of(url)
        return base

    def log_in(self, url: str) -> None:
        """Speak to a node as the user in its URL, although requests name it without, so that no error shows a password."""
        self._bases[without_user(url)] = _base_of(url)


def without_user(url: str) -> str:
    """Return a URL without its user and password.

    >>> without_user("http://ops:secret@m1:7201/a@b")
    'http://m1:7201/a@b'
    """
    return _USER.sub("", url, count=1)


def _base_of(url: str) -> _Base:
    parts = urlsplit(url)
    headers = {}
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return _Base(parts.scheme == "https", parts.hostname or "", parts.port, parts.path, headers)


def _speaks_tls(base: _Base, within_s: float) -> bool:
    """Tell whether a door that closed a plain HTTP connection speaks TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(base.host, base.port or http.client.HTTP_PORT, timeout=within_s, context=context)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.connect()
        return True
    return False


def _has_ended(sock: socket.socket) -> bool:
    """Tell whether the other side has closed the connection, or sent unrequested data."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def identity_headers(environ: Mapping[str, str], urls: Iterable[str] = ()) -> dict[str, str]:
    """Return the header with the credentials for these URLs; empty without a user.

    Raises ConfigurationError for an unreadable file, and for a URL to which a secret must not be sent.
    """
    headers = _identity(environ)
    open_ones = [without_user(url) for url in urls if (headers or without_user(url) != url) and not _is_private(url)]
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
    """Return the trusted authorities for certificates; host names are checked. Raises ConfigurationError for a wrong file."""
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
            # A later error message would show the secret.
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
