"""One request for a handler: headers, parameters, path and body, each checked at its use.

Each client mistake raises an error of model/errors.py with one clear sentence. Percent-encoding is decoded exactly once, from the
raw path, so that a key can hold any byte, including ``/``. A body with a too large announced length is refused unread; a longer one
is refused while it is read. Of a compressed body (``Content-Encoding``) the decoded size counts.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from pyoxigraph import NamedNode

from brokerha.http.door.door import Door
from brokerha.http.users import Store, User
from brokerha.ingress.content_codings import ACCEPTED, inflater_of
from brokerha.ingress.rdf_bodies import utf8
from brokerha.model.errors import InvalidRequest, NotAcceptable, NotAllowed, NotReady, TooLarge, UnsupportedType
from brokerha.model.ids import Lsn, TxId, is_tx_id
from brokerha.model.operation_checks import GRAPH
from brokerha.model.operations import TOO_LARGE
from brokerha.model.outside.levels import parse_ack, parse_apart, parse_min_lsn
from brokerha.model.requests import APPLIED_LEVEL
from brokerha.ports.front import Front

FORM = "application/x-www-form-urlencoded"
PARAMETERS_LIMIT = 1000
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._~-]+|\[(?P<ipv6>[0-9A-Fa-f:.]+)\])(?P<port>(?::[0-9]{1,5})?)\Z")
_INFLATED_AT_ONCE_BYTES: Final = 1024 * 1024
_GRAPHS_SHOWN: Final = 5
_UTF8 = frozenset({"", "utf-8", "utf8", "us-ascii"})


class Call:
    """One request."""

    __slots__ = (
        "_headers",
        "_kept",
        "_parameters",
        "_receive",
        "door",
        "error_headers",
        "error_status",
        "front",
        "held_bytes",
        "known_parameters",
        "method",
        "scope",
        "store",
        "transaction",
        "user",
        "whole_body",
    )

    def __init__(self, door: Door, scope: dict[str, Any], receive: Any) -> None:
        self.door = door
        self.front: Front = door.front
        self.scope = scope
        self.method: str = scope["method"]
        self.held_bytes = 0
        """Share of this request in the door's limit of all bodies."""
        self.error_headers: dict[str, str | int] = {}
        """Headers of an error answer."""
        self.error_status = 0
        """Status of an error with a special meaning here; 0 for the usual one."""
        self.known_parameters: Sequence[str] = ()
        """Names; a name that ends in * stands for all with that prefix."""
        self.transaction: TxId = ""
        """The open transaction of the path, which reads show."""
        self.store: Store | None = None
        """The store of the path, if it is only one; set at a door with users."""
        self.user: User | None = None
        """The authenticated user; None at a door without users."""
        self.whole_body: bytes | None = None
        """The body, once it was read."""
        self._receive = receive
        self._kept: deque[Any] = deque()
        """What `is_longer` received, for `pieces`."""
        self._headers: dict[bytes, bytes] | None = None
        self._parameters: Parameters | None = None

    def user_name(self) -> str:
        """Return the name of the user; empty at a door without users."""
        return "" if self.user is None else self.user.name

    def address(self) -> str:
        """Return the address of the client."""
        return str((self.scope.get("client") or ("", 0))[0])

    def may(self, role: str, store: Store | None) -> bool:
        """Tell whether the caller has this role in a store; None for everything else."""
        return self.user is None or self.user.may(role, store)

    def demand(self, role: str, store: Store | None) -> None:
        """Refuse, with 403, a user without this role there."""
        if self.user is not None and not self.may(role, store):
            raise NotAllowed(lacks(self.user, role, store))

    def may_enter(self, role: str, store: Store | None) -> bool:
        """Tell whether the caller has this role in a store, or in a graph of it."""
        return self.user is None or self.user.may_enter(role, store)

    def demand_entry(self, role: str) -> None:
        """Refuse, with 403, a user with this role neither in the store of the path nor in a graph of it."""
        if self.user is not None and not self.may_enter(role, self.store):
            raise NotAllowed(lacks(self.user, role, self.store))

    # ---- headers

    def header(self, name: bytes) -> str:
        """Return a header by its name in lower case, or an empty string."""
        if self._headers is None:
            self._headers = dict(self.scope["headers"])
        return self._headers.get(name, b"").decode("latin-1")

    def headers(self, wanted: bytes) -> str:
        """Return all headers of one name, in lower case, as one list."""
        return headers_of(self.scope, wanted)

    def accept(self) -> str:
        """Return the parameter ``Accept``, which has precedence as in RDF4J, or all Accept headers as one."""
        return self.parameters().one("Accept") or self.headers(b"accept")

    def wants_json(self) -> bool:
        """Tell whether the caller wants errors in JSON."""
        return wants_json(self.headers(b"accept"))

    def media_type(self) -> str:
        """Return the content type of the body, in lower case and without parameters. Raises UnsupportedType for another charset."""
        media, *rest = self.header(b"content-type").lower().split(";")
        for parameter in rest:
            name, _, value = parameter.strip().partition("=")
            if name == "charset" and value.strip('"') not in _UTF8:
                raise UnsupportedType(f"the body is said to be in {value}: send UTF-8")
        return media.strip()

    def body_type(self, *known: str, what: str = "") -> str:
        """Return the `media_type`, which must be one of these; ``what`` names the body. Raises UnsupportedType."""
        media_type = self.media_type()
        if media_type not in known:
            named = [each for each in known if each]
            wanted = " or ".join(named) if len(named) < 3 else f"one of {', '.join(named)}"
            raise UnsupportedType(f"content type {media_type or 'none'!r}: send {what and f'{what} as '}{wanted}")
        return media_type

    def format_of(self, what: str, offers: Sequence[str]) -> str:
        """Choose the format of ``what`` that the caller prefers. Raises NotAcceptable."""
        media_type = preferred(self.accept(), offers)
        if media_type is None:
            raise NotAcceptable(f"{what} can be had as {', '.join(offers)}")
        return media_type

    def timeout_ms(self) -> int:
        """Return the time limit of this request: ``Brokerha-Timeout-Ms``, or the usual one."""
        value = self.header(b"brokerha-timeout-ms")
        return self._timeout_ms("Brokerha-Timeout-Ms", value, 1) if value else self.door.limits.timeout_ms

    def timeout_of(self, name: str, seconds: str | None) -> int:
        """Return the time limit from a parameter in seconds, or `timeout_ms`."""
        return self._timeout_ms(name, seconds, 1000) if seconds else self.timeout_ms()

    def time_of_query(self, seconds: str | None) -> int:
        """Return the time limit from RDF4J's parameter ``timeout``; -1 and 0 mean the longest time of this door."""
        return self.door.limits.timeout_limit_ms if seconds in {"-1", "0"} else self.timeout_of("timeout", seconds)

    def _timeout_ms(self, name: str, value: str, unit_ms: int) -> int:
        try:
            timeout_ms = round(float(value) * unit_ms)
        except (ValueError, OverflowError):
            timeout_ms = -1
        limit_ms = self.door.limits.timeout_limit_ms
        if not 1 <= timeout_ms <= limit_ms:
            raise InvalidRequest(f"{name} is a number above 0 and up to {limit_ms // unit_ms}, not {value!r}")
        return timeout_ms

    def ack(self) -> tuple[str, int]:
        """Return the level that a writer waits for: (level, copies)."""
        return parse_ack(self.header(b"brokerha-ack") or APPLIED_LEVEL)

    def apart(self) -> str:
        """Return what a writer wants at a master that is apart."""
        return parse_apart(self.header(b"brokerha-apart"))

    def key(self) -> TxId:
        """Return the client's idempotency key, or an empty string."""
        key = self.header(b"idempotency-key")
        if key and not is_tx_id(key):
            raise InvalidRequest("Idempotency-Key has 1 to 128 visible ASCII characters and no space")
        return key

    def min_lsn(self) -> Lsn:
        """Return the least LSN for a read; 0 for any, `LATEST_LSN` for ``latest``."""
        return parse_min_lsn(self.header(b"brokerha-min-lsn") or "0", "Brokerha-Min-Lsn")

    # ---- path and parameters

    def path_bytes(self, name: str) -> bytes:
        """Return a segment of the path, percent-decoded."""
        segment: str = self.scope["path_params"][name]
        return unquote_to_bytes(segment)

    def path_text(self, name: str) -> str:
        """Return a segment of the path as text. Raises InvalidRequest when it is not UTF-8."""
        return utf8(self.path_bytes(name), f"{name} in the path")

    def parameters(self) -> Parameters:
        """Return the query parameters. Raises InvalidRequest for unknown ones."""
        if self._parameters is None:
            self._parameters = self._known(Parameters(self.scope.get("query_string", b"")))
        return self._parameters

    def _known(self, given: Parameters) -> Parameters:
        known = self.known_parameters
        for name in sorted(given.names()):
            if not any(fnmatchcase(name, each) for each in known):
                there = ", ".join(known) or "none"
                raise InvalidRequest(f"there is no parameter {name[:100]!r} here; there are: {there}")
        return given

    # ---- body

    async def body(self) -> bytes:
        """Return the whole body, decoded. Raises TooLarge, NotReady (too many bodies), InvalidRequest (cut), UnsupportedType."""
        pieces: list[bytes] = []
        size = 0
        if (announced := self.header(b"content-length")).isdecimal():
            self._check_room(int(announced))
        async for piece in self.pieces(self.door.limits.body_limit_bytes):
            size += len(piece)
            if size > self.held_bytes:
                self._hold(size)
            pieces.append(piece)
        self.whole_body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return self.whole_body

    async def is_longer(self, size_bytes: int) -> bool:
        """Tell whether the body is longer than this. If its length is not announced (chunked), that much is read and kept. Raises as `body`."""
        if (announced := self.header(b"content-length")).isdecimal():
            return int(announced) > size_bytes
        kept, is_whole = 0, False
        while kept <= size_bytes and not is_whole:
            message = await self._next_message()
            kept, is_whole = kept + len(message.get("body", b"")), not message.get("more_body", False)
            self._hold(kept)
            self._kept.append(message)
        return kept > size_bytes

    async def pieces(self, limit_bytes: int) -> AsyncIterator[bytes]:
        """Yield the decoded body as it comes, up to a limit: a slow consumer slows the sender down. Raises as `body`."""
        try:
            inflater = inflater_of(self.headers(b"content-encoding"))
        except UnsupportedType:
            self.error_headers = {**self.error_headers, "Accept-Encoding": ACCEPTED}
            raise
        announced = self.header(b"content-length")
        if announced.isdecimal():
            check_size(int(announced), limit_bytes)
        received = decoded = 0
        while True:
            message = await self._next_message()
            if message["type"] != "http.request":
                raise InvalidRequest("the connection was closed before the whole body was sent")
            piece = message.get("body", b"")
            received += len(piece)
            check_size(max(received, decoded), limit_bytes)
            if inflater is None:
                if piece:
                    yield piece
            else:
                inflater.feed(piece)
                inline_bytes = self.door.limits.inline_limit_bytes
                most = inline_bytes if decoded <= inline_bytes else _INFLATED_AT_ONCE_BYTES
                while part := await self.door.by_size(most, inflater.step, most):
                    decoded += len(part)
                    most = inline_bytes if decoded <= inline_bytes else _INFLATED_AT_ONCE_BYTES
                    yield part
            if not message.get("more_body", False):
                break
        if inflater is not None:
            inflater.finish()

    async def _next_message(self) -> Any:
        if self._kept:
            return self._kept.popleft()
        stall_s = self.door.limits.body_stall_s
        try:
            async with asyncio.timeout(stall_s):
                return await self._receive()
        except TimeoutError:
            raise InvalidRequest(f"nothing more of the body came for {stall_s:g} s: send it again, without a pause") from None

    async def is_left(self) -> bool:
        """Tell whether the caller has closed the connection, so that no one gets the answer. Drops the unread rest of the body."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                while (await self._receive())["type"] == "http.request":
                    pass
                return True
        return False

    def _check_room(self, size_bytes: int) -> int:
        """Return how many more bytes to hold for this size. Raises TooLarge, NotReady."""
        check_size(size_bytes, self.door.limits.body_limit_bytes)
        more_bytes = size_bytes - self.held_bytes
        if self.door.bodies_bytes + more_bytes > self.door.limits.all_bodies_limit_bytes:
            raise NotReady(f"{self.front.node_id} is reading {self.door.bodies_bytes} bytes already: try again")
        return more_bytes

    def _hold(self, size_bytes: int) -> None:
        # Announced but missing bytes must not take room from other requests.
        self.door.bodies_bytes += self._check_room(size_bytes)
        self.held_bytes = size_bytes

    def release_body(self) -> None:
        """Release the body's share of the limit."""
        self.door.bodies_bytes -= self.held_bytes
        self.held_bytes = 0

    async def text(self) -> str:
        """Return the whole body as text. Raises InvalidRequest when it is not UTF-8."""
        return utf8(await self.body(), "the body")

    async def form(self) -> Parameters:
        """Return the body as a form, joined with the parameters of the URL."""
        return self._known(Parameters(await self.body())).joined(self.parameters())


def headers_of(scope: dict[str, Any], wanted: bytes) -> str:
    """Return all headers of one name, in lower case, as one list."""
    return ", ".join(value.decode("latin-1") for name, value in scope["headers"] if name == wanted)


def check_size(size_bytes: int, limit_bytes: int) -> None:
    """Raise TooLarge for a body above the limit."""
    if size_bytes > limit_bytes:
        raise TooLarge(f"the body has more than {limit_bytes} bytes: {TOO_LARGE}")


def lacks(user: User, role: str, store: Store | None, graph: str = "") -> str:
    """Explain in one sentence why a user is refused; ``graph`` is a graph of the store."""
    where, held = "", user.role_in(store)
    if store is not None:
        where = f" in {f'graph {graph} of ' if graph else ''}{'repository' if store[0] == GRAPH else store[0]} {store[1]}"
        if store[0] == GRAPH and (graphs := [f"{own} in graph {name}" for name, own in user.graphs_in(store[1]).items()]):
            more = f", and in {len(graphs) - _GRAPHS_SHOWN} more" if len(graphs) > _GRAPHS_SHOWN else ""
            held = f"{held}, and {', '.join(graphs[:_GRAPHS_SHOWN])}{more}"
    return f"this needs the role {role}{where}: user {user.name} has {held}"


class Parameters:
    """Parameters of a URL or of a form: names and values, percent-decoded once."""

    __slots__ = ("pairs",)

    def __init__(self, encoded: bytes) -> None:
        items = [item for item in encoded.split(b"&") if item] if encoded else []
        if len(items) > PARAMETERS_LIMIT:
            raise InvalidRequest(f"{len(items)} parameters; the limit is {PARAMETERS_LIMIT}")
        self.pairs: list[tuple[str, bytes]] = []
        for item in items:
            name, _, value = item.partition(b"=")
            self.pairs.append((utf8(_decoded(name), "the name of a parameter"), _decoded(value)))

    def raw(self, name: str) -> bytes | None:
        """Return the value of a parameter as bytes, or None. Raises InvalidRequest when it is repeated."""
        values = [value for known, value in self.pairs if known == name]
        if len(values) > 1:
            raise InvalidRequest(f"the parameter {name!r} is given {len(values)} times: give it once")
        return values[0] if values else None

    def one(self, name: str) -> str | None:
        """Return the value of a parameter as text, or None."""
        value = self.raw(name)
        return None if value is None else utf8(value, f"the parameter {name!r}")

    def all(self, name: str) -> tuple[str, ...]:
        """Return all values of a parameter as text, in order."""
        return tuple(utf8(value, f"the parameter {name!r}") for known, value in self.pairs if known == name)

    def number(self, name: str, default: int) -> int:
        """Return a number of 0 or more."""
        value = self.one(name)
        return default if value is None else natural(value, name)

    def flag(self, name: str) -> bool:
        """Tell whether a parameter is present and not a no. Raises InvalidRequest for anything but yes and no."""
        value = self.one(name)
        if value is None or value.lower() in {"false", "0", "no"}:
            return False
        if value.lower() not in {"", "true", "1", "yes"}:
            raise InvalidRequest(f"{name} is true or false, not {value!r}")
        return True

    def joined(self, other: Parameters) -> Parameters:
        """Join the parameters of a form with those of its URL. Equal pairs of both count once, because some clients repeat them."""
        here = Counter(self.pairs)
        found = Parameters(b"")
        found.pairs = [*self.pairs]
        for pair in other.pairs:
            if here[pair]:
                here[pair] -= 1
            else:
                found.pairs.append(pair)
        return found

    def names(self) -> set[str]:
        """Return all names."""
        return {name for name, _ in self.pairs}


def preferred(header: str, offers: Sequence[str]) -> str | None:
    """Return the offer that an Accept header (RFC 9110, section 12.5.1) prefers, the first among equals; None when it accepts none.

    >>> preferred("text/html, application/json;q=0.8", ["application/json", "text/plain"]), preferred("", ["text/plain"])
    ('application/json', 'text/plain')
    """
    if not header.strip():
        return offers[0]
    ranges = _ranges(header)
    best, best_quality = None, 0.0
    for offer in offers:
        quality = _quality(ranges, offer)
        if quality > best_quality:
            best, best_quality = offer, quality
    return best


def wants_json(header: str) -> bool:
    """Tell whether a caller prefers JSON to text; text is the default."""
    return "json" in header and preferred(header, ("text/plain", "application/json")) == "application/json"


@lru_cache(maxsize=256)
def _ranges(header: str) -> tuple[tuple[str, float], ...]:
    ranges = []
    for item in header.lower().split(","):
        media, *parameters = [part.strip() for part in item.split(";")]
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        if media:
            ranges.append((media, quality))
    return tuple(ranges)


def _quality(ranges: Sequence[tuple[str, float]], offer: str) -> float:
    """Return the quality of the most specific range that covers an offer; 0 for none."""
    kind = offer.partition("/")[0]
    for pattern in (offer, f"{kind}/*", "*/*"):
        for media, quality in ranges:
            if media == pattern:
                return quality
    return 0.0


def origin(call: Call) -> str:
    """Return scheme and host that the caller used, as the beginning of an IRI."""
    return f"{call.scope.get('scheme', 'http')}://{_checked_host(call.header(b'host'))}"


def root_of(call: Call) -> str:
    """Return the common prefix of all addresses of this door, for this caller."""
    return f"{origin(call)}{call.scope.get('root_path', '')}"


def address_of(call: Call) -> str:
    """Return the address of the request as the caller wrote it, without parameters."""
    address = f"{origin(call)}{call.scope['path']}"
    try:
        return NamedNode(address).value
    except ValueError as error:
        raise InvalidRequest(f"the address of the request is no IRI: {error}") from None


def _checked_host(host: str) -> str:
    """Return the header `Host` as a part of an IRI. Raises InvalidRequest."""
    address = _HOST.match(host or "localhost")
    try:
        if address is not None:
            return f"[{IPv6Address(address['ipv6'])}]{address['port']}" if address["ipv6"] else address[0]
    except ValueError:
        pass
    raise InvalidRequest(f"Host is a name or an address with a port, not {host[:200]!r}")


def natural(value: str, name: str) -> int:
    """Parse a number of 0 or more that fits into 63 bits. Raises InvalidRequest."""
    if not (value.isascii() and value.isdecimal() and len(value) <= 18):
        raise InvalidRequest(f"{name} is a whole number of 0 or more, not {value!r}")
    return int(value)


def _decoded(text: bytes) -> bytes:
    return unquote_to_bytes(text.replace(b"+", b" "))
