"""What a transaction asks for (operations), and what it really changed (its effect).

A transaction's **body** is the msgpack list of its operations. Masters carry it as opaque bytes; only admission and the
workers look inside. Each operation is a list whose first item names it; unpacked, it is a NamedTuple of that kind below:

    ["update", repository, sparql]           a SPARQL 1.1 update request (one or more operations)
    ["add", repository, nquads]              quads to add, as N-Quads text; blank node labels are kept as they are
    ["remove", repository, nquads]           quads to remove, as N-Quads text
    ["clear", repository]                    all quads of all graphs go; of a large transaction only as its beginning
    ["put", table, key, value]               key and value are bytes
    ["delete", table, key]                   one table is reserved for what is kept about repositories, one for what is prepared,
                                             one for snapshots (reserved/)
    ["snapshot", name, table, ...]           the tables as this transaction leaves them can be read by that name; all tables if none is named
    ["drop-snapshot", name]
    ["create-repository", repository]
    ["remove-repository", repository]
    ["control-add", name, kind, target, text, expected]    a check of the control suite (control.py), all text
    ["control-remove", name]
    ["publish", queue, content_type, body]   a message at the tail; its id is "<txid>.<place of the operation, from 1>"
    ["stage", transaction, part]             comes first: what follows is only staged, as a part of a large transaction (reserved/staging.py)
    ["commit-staged", transaction, parts]    alone, or after expectations: what was staged takes place here
    ["drop-staged", transaction]             alone: what was staged goes
    ["piece", data]                          only staged: a piece of the body of a message that is longer than a transaction (reserved/pieces.py)
    ["publish-pieces", queue, content_type, first, last, size]    only staged: a message whose body is the pieces of these parts
    ["accept", queue, message_id]            takes that message away; rejects the transaction when it is not there

who wrote it, as the last operation, which only the door adds that it came through (outside/authors.py):

    ["by", user]                             changes nothing, and is the last change of the effect, of a rejected transaction too

and expectations about the state before the transaction, which change nothing and reject all of it when they fail:

    ["expect-key", table, key, etag]         the key has this ETag (etags.py); "" = there is no such key
    ["expect-range", table, from, to, digest]    the keys from ``from`` to below ``to`` (empty: the last) with their values are those of the digest
    ["expect-since", kind, name, lsn]        kind graph, table or queue: it was not changed after that LSN
    ["expect-fingerprint", text]             the whole content has this fingerprint (fingerprints.py)

An **effect** is what executing it changed, at the smallest grain, so that applying it needs no evaluation:

    ["quads", repository, removed, added]    lists of N-Quads lines without the final dot, each sorted
    ["put", table, key, value] ["delete", table, key]
    ["clear", repository, quads]             all quads that were there before go, so many, which nobody names; comes before the quads that are added
    ["create-repository", repository] ["remove-repository", repository]
    ["control-add", name, kind, target, text, expected] ["control-remove", name]
    ["publish", queue, message_id, content_type, body] ["accept", queue, message_id]
    ["staged", transaction, parts, stores]   all that was staged takes place: parts are [lsn, messages before it], stores [kind, name] or [kind, name,
                                             quads that go before] (unfolding.py)
    ["by", user]

Applying an effect twice is the same as applying it once. The effect of a transaction that changes nothing, or is rejected, says at most
who wrote it; without that it is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgpack

from brokerha.model.errors import InvalidRequest, StoreError, TooLarge
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.operation_checks import OF_KEYS, key_problem, problem_of, reserved_problem, snapshot_problem
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.model.reserved import pieces, staging

BODY_LIMIT_BYTES = 8 * 1024 * 1024
"""Largest body of one transaction; larger input is split by the client (RabbitMQ refuses far larger messages)."""
EFFECT_LIMIT_BYTES = 10 * 1024 * 1024
"""Of what one transaction changes: it travels as one line of the log, in one message (wire/codec.py)."""
OPERATIONS_LIMIT = 100_000
TOO_LARGE: Final = "split it; quads of any number are loaded from a file: brokerha load, brokerha pipeline load"
"""What to do."""

NO_UTF8: Final = "a text holds half of a surrogate pair, which UTF-8 cannot write"

APPLIED = "applied"
REJECTED = "rejected"

Operation = tuple[Any, ...]
"""An operation as it was written: a row of which nothing is known yet."""


class Update(NamedTuple):
    """A SPARQL update request."""

    kind: Literal["update"]
    repository: str
    text: str


class Add(NamedTuple):
    """Quads to add."""

    kind: Literal["add"]
    repository: str
    text: str
    """N-Quads."""


class Remove(NamedTuple):
    """Quads to remove."""

    kind: Literal["remove"]
    repository: str
    text: str
    """N-Quads."""


class Clear(NamedTuple):
    """All quads of a repository go."""

    kind: Literal["clear"]
    repository: str


class Put(NamedTuple):
    """A key gets a value; also a change."""

    kind: Literal["put"]
    table: str
    key: bytes
    value: bytes

    @property
    def after(self) -> bytes | None:
        """What the key holds then."""
        return self.value


class Delete(NamedTuple):
    """A key goes; also a change."""

    kind: Literal["delete"]
    table: str
    key: bytes

    @property
    def after(self) -> bytes | None:
        """None: there is no such key then."""
        return None


class MakeSnapshot(tuple[str, ...]):
    """Tables can be read by a name; its row is as long as there are tables."""

    __slots__ = ()
    kind: Final = "snapshot"

    @property
    def name(self) -> str:
        """Of the snapshot."""
        return self[1]

    @property
    def tables(self) -> tuple[str, ...]:
        """Empty for all."""
        return self[2:]


class DropSnapshot(NamedTuple):
    """A snapshot goes."""

    kind: Literal["drop-snapshot"]
    name: str


class Stage(NamedTuple):
    """What follows in the transaction is a part of a large one."""

    kind: Literal["stage"]
    name: TxId
    part: int
    """From 1."""


class CommitStaged(NamedTuple):
    """A large transaction takes place."""

    kind: Literal["commit-staged"]
    name: TxId
    parts: int


class DropStaged(NamedTuple):
    """A large transaction goes."""

    kind: Literal["drop-staged"]
    name: TxId


class Piece(NamedTuple):
    """A piece of the body of a message."""

    kind: Literal["piece"]
    data: bytes


class PublishPieces(NamedTuple):
    """A message comes whose body is in pieces."""

    kind: Literal["publish-pieces"]
    queue: str
    content_type: str
    first: int
    last: int
    """Parts of the pieces, both ends included."""
    size_bytes: int
    """Of all of the body."""


class Staged(NamedTuple):
    """The change that a `CommitStaged` came to."""

    kind: Literal["staged"]
    name: TxId
    parts: tuple[tuple[Lsn, int], ...]
    """Where each was staged, and how many messages the parts before it publish."""
    stores: tuple[tuple[str, str] | tuple[str, str, int], ...]
    """Kind and name of those that it may change; of a repository that it empties also how many quads go."""


class Cleared(NamedTuple):
    """The change of a repository that is emptied, or goes, when it holds more than an effect should name."""

    kind: Literal["clear"]
    repository: str
    quads: int
    """How many there were."""


class CreateRepository(NamedTuple):
    """A repository comes; also a change."""

    kind: Literal["create-repository"]
    repository: str


class RemoveRepository(NamedTuple):
    """A repository goes; also a change."""

    kind: Literal["remove-repository"]
    repository: str


class ControlAdd(NamedTuple):
    """A check of the control suite comes; also a change."""

    kind: Literal["control-add"]
    name: str
    of: str
    """Kind of the check."""
    target: str
    text: str
    expected: str


class ControlRemove(NamedTuple):
    """A check of the control suite goes; also a change."""

    kind: Literal["control-remove"]
    name: str


class Publish(NamedTuple):
    """A message comes."""

    kind: Literal["publish"]
    queue: str
    content_type: str
    body: bytes


class Accept(NamedTuple):
    """A message is taken away; also a change."""

    kind: Literal["accept"]
    queue: str
    message_id: str


class By(NamedTuple):
    """Who wrote the transaction, as the door found out that it came through; also a change, which changes nothing."""

    kind: Literal["by"]
    user: str


class ExpectKey(NamedTuple):
    """A key has this ETag."""

    kind: Literal["expect-key"]
    table: str
    key: bytes
    etag: str
    """Empty: there is no such key."""


class ExpectRange(NamedTuple):
    """Keys of a range and their values are those of the digest."""

    kind: Literal["expect-range"]
    table: str
    first: bytes
    end: bytes
    digest: bytes


class ExpectSince(NamedTuple):
    """A store was not changed after an LSN."""

    kind: Literal["expect-since"]
    store: str
    """`GRAPH`, `TABLE` or `QUEUE`."""
    name: str
    lsn: Lsn


class ExpectFingerprint(NamedTuple):
    """The whole content has this fingerprint."""

    kind: Literal["expect-fingerprint"]
    fingerprint: str


class QuadsChanged(NamedTuple):
    """The change of one repository: N-Quads lines without the final dot, sorted."""

    kind: Literal["quads"]
    repository: str
    removed: tuple[str, ...]
    added: tuple[str, ...]


class Published(NamedTuple):
    """The change that a `Publish` came to."""

    kind: Literal["publish"]
    queue: str
    message_id: str
    content_type: str
    body: bytes


OnQuads = Update | Add | Remove | Clear
OnKey = Put | Delete
OfQueue = Published | Accept
OnControl = ControlAdd | ControlRemove
OnSnapshot = MakeSnapshot | DropSnapshot
OnStaged = Stage | CommitStaged | DropStaged
InPieces = Piece | PublishPieces
Expectation = ExpectKey | ExpectRange | ExpectSince | ExpectFingerprint
Checked = (
    OnQuads
    | OnKey
    | OnSnapshot
    | OnStaged
    | InPieces
    | CreateRepository
    | RemoveRepository
    | OnControl
    | Publish
    | Accept
    | By
    | Expectation
)
"""An operation whose shape was checked."""
Change = QuadsChanged | Cleared | OnKey | CreateRepository | RemoveRepository | OnControl | Published | Accept | Staged | By
"""Of an effect."""

_SHAPES: Final[dict[str, tuple[type[Checked], tuple[type, ...]]]] = {
    "update": (Update, (str, str)),
    "add": (Add, (str, str)),
    "remove": (Remove, (str, str)),
    "clear": (Clear, (str,)),
    "put": (Put, (str, bytes, bytes)),
    "delete": (Delete, (str, bytes)),
    "snapshot": (MakeSnapshot, (str,)),
    "drop-snapshot": (DropSnapshot, (str,)),
    "stage": (Stage, (str, int)),
    "commit-staged": (CommitStaged, (str, int)),
    "drop-staged": (DropStaged, (str,)),
    pieces.PIECE: (Piece, (bytes,)),
    pieces.PUBLISH: (PublishPieces, (str, str, int, int, int)),
    "create-repository": (CreateRepository, (str,)),
    "remove-repository": (RemoveRepository, (str,)),
    "control-add": (ControlAdd, (str, str, str, str, str)),
    "control-remove": (ControlRemove, (str,)),
    "publish": (Publish, (str, str, bytes)),
    "accept": (Accept, (str, str)),
    "by": (By, (str,)),
    "expect-key": (ExpectKey, (str, bytes, str)),
    "expect-range": (ExpectRange, (str, bytes, bytes, bytes)),
    "expect-since": (ExpectSince, (str, str, int)),
    "expect-fingerprint": (ExpectFingerprint, (str,)),
}
"""By name: the operation, and the types of what follows the name."""
_CHANGES: Final[dict[str, type[Change]]] = {
    "quads": QuadsChanged,
    "clear": Cleared,
    "put": Put,
    "delete": Delete,
    "create-repository": CreateRepository,
    "remove-repository": RemoveRepository,
    "control-add": ControlAdd,
    "control-remove": ControlRemove,
    "publish": Published,
    "accept": Accept,
    "staged": Staged,
    "by": By,
}
ON_KEYS: Final = (Put, Delete)
ON_SNAPSHOTS: Final = (MakeSnapshot, DropSnapshot)
ON_STAGED: Final = (Stage, CommitStaged, DropStaged)
ON_QUEUES: Final = (Publish, Accept)
EXPECTATIONS: Final = (ExpectKey, ExpectRange, ExpectSince, ExpectFingerprint)
"""For isinstance."""


class Result(NamedTuple):
    """The outcome of one transaction at its LSN: the same on every site."""

    outcome: str
    """`APPLIED` or `REJECTED`."""
    reason: str
    """Why it was rejected; empty otherwise."""
    effect: bytes
    """Packed list of changes; empty bytes when nothing changed."""
    fingerprint: bytes
    """Of the whole content after it (fingerprints.py)."""


class Logged(NamedTuple):
    """One line of the log that workers follow and keep: a result with the transaction it belongs to."""

    txid: TxId
    timestamp: Timestamp
    outcome: str
    reason: str
    effect: bytes
    fingerprint: bytes


ResultRow = tuple[str, str, bytes, bytes]
"""A `Result` on the wire and on disk."""
LoggedRow = tuple[TxId, Timestamp, str, str, bytes, bytes]
"""A `Logged` on the wire and on disk."""


def pack_operations(operations: Sequence[Operation]) -> bytes:
    """Return the body of a transaction with these operations. Raises InvalidRequest, TooLarge."""
    check_operations(operations)
    body: bytes = msgpack.packb(operations)
    if len(body) > BODY_LIMIT_BYTES:
        message = f"the transaction has {len(body)} bytes; the limit is {BODY_LIMIT_BYTES}: {TOO_LARGE}"
        raise TooLarge(message)
    return body


def unpack_operations(body: bytes) -> list[Checked]:
    """Return the operations of a body, each checked for its shape. Raises InvalidRequest, TooLarge."""
    if len(body) > BODY_LIMIT_BYTES:
        message = f"the transaction has {len(body)} bytes; the limit is {BODY_LIMIT_BYTES}: {TOO_LARGE}"
        raise TooLarge(message)
    try:
        operations = unpack_foreign(body)
    except BROKEN as error:
        message = f"the body is not a msgpack list of operations: {error}"
        raise InvalidRequest(message) from None
    if not isinstance(operations, tuple):
        message = "the body is not a msgpack list of operations"
        raise InvalidRequest(message)
    _check(operations, _problem)
    return typed_operations(operations)


NO_OPERATIONS: Final = b"\x90"
"""The body with which a master has its probe execute what its content holds already; no client can send it."""


def typed_operations(operations: Iterable[Operation]) -> list[Checked]:
    """Operations whose shape was checked, by their names."""
    return [tuple.__new__(_SHAPES[operation[0]][0], operation) for operation in operations]


def operations_to_execute(body: bytes) -> list[Checked]:
    """Like `unpack_operations`, with nothing to do for `NO_OPERATIONS`."""
    return [] if body == NO_OPERATIONS else unpack_operations(body)


def check_operations(operations: Sequence[Operation]) -> None:
    """Raise InvalidRequest or TooLarge, naming the first operation that has not the right shape."""
    _check(operations, _problem_as_written)


def _check(operations: Sequence[Operation], problem_of: Callable[[Any], str]) -> None:
    if not operations:
        message = "a transaction needs at least one operation"
        raise InvalidRequest(message)
    if len(operations) > OPERATIONS_LIMIT:
        message = f"the transaction has {len(operations)} operations; the limit is {OPERATIONS_LIMIT}: {TOO_LARGE}"
        raise TooLarge(message)
    is_staging = False
    for number, operation in enumerate(operations, 1):
        if problem := problem_of(operation):
            message = f"operation {number}: {problem}"
            raise InvalidRequest(message)
        is_staging |= operation[0] in staging.ALL_KINDS
    if is_staging and (problem := staging.order_problem([operation[0] for operation in operations], operations)):
        raise InvalidRequest(problem)


def _problem_as_written(operation: Any) -> str:
    """As `_problem`; what comes packed is UTF-8 by then."""
    try:
        return _problem(operation) or _unicode_problem(operation)
    except UnicodeEncodeError:
        return _unicode_problem(operation)


def _unicode_problem(operation: Operation) -> str:
    try:
        for item in operation:
            if isinstance(item, str):
                item.encode()
    except UnicodeEncodeError:
        return NO_UTF8
    return ""


def _problem(operation: Any) -> str:
    if not operation or not isinstance(operation, (tuple, list)) or not isinstance(operation[0], str):
        return "not a list that starts with the name of an operation"
    name, arguments = operation[0], operation[1:]
    known = _SHAPES.get(name)
    if known is None:
        return f"unknown operation {name!r}; known are {', '.join(sorted(_SHAPES))}"
    if name == "snapshot":
        return snapshot_problem(arguments)
    if tuple(map(type, arguments)) != known[1]:
        wanted = ", ".join(t.__name__ for t in known[1])
        return f"{name} takes ({wanted})"
    if name in OF_KEYS:
        # Nearly all are of these, and each call counts.
        return key_problem(arguments[0], arguments[1]) or reserved_problem(arguments)
    return problem_of(name, arguments)


def message_id(txid: TxId, number: int) -> str:
    """Id of the message that an operation publishes; ``number`` is its place in the transaction, from 1."""
    return f"{txid}.{number}"


def pack_effect(changes: Sequence[Change]) -> bytes:
    """Return the bytes of an effect; empty bytes for no change. Equal changes give equal bytes."""
    if not changes:
        return b""
    packed: bytes = msgpack.packb(changes)
    return packed


def unpack_effect(effect: bytes) -> list[Change]:
    """Return the changes of an effect that a brokerha node packed."""
    return typed_changes(msgpack.unpackb(effect, use_list=False)) if effect else []


def typed_changes(rows: Iterable[tuple[Any, ...]]) -> list[Change]:
    """Changes by the names that their rows begin with. Raises StoreError for one of a later version."""
    try:
        return [tuple.__new__(_CHANGES[row[0]], row) for row in rows]
    except KeyError as error:
        raise StoreError(f"the log has a change {error}, which this version of brokerha does not know") from None
