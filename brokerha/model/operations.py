"""The operations of a transaction, and its effect: what it changed.

A transaction's **body** is the msgpack list of its operations. Masters carry it as opaque bytes; only admission and the workers
look inside. Each operation is a list whose first item names it; unpacked, it is a NamedTuple of that kind below:

    ["update", repository, sparql]           a SPARQL 1.1 update request (one or more operations)
    ["add", repository, nquads]              quads to add, as N-Quads text; blank node labels are kept as they are
    ["remove", repository, nquads]           quads to remove, as N-Quads text
    ["clear", repository]                    removes all quads of all graphs; in a large transaction only as its beginning
    ["put", table, key, value]               key and value are bytes
    ["delete", table, key]                   one table is reserved for settings of repositories, one for prepared transactions, one
                                             for snapshots (reserved/)
    ["snapshot", name, table, ...]           makes a snapshot of these tables after this transaction; of all if none is named
    ["drop-snapshot", name]
    ["create-repository", repository]
    ["remove-repository", repository]
    ["control-add", name, kind, target, text, expected]    a check of the control suite (control.py), all text
    ["control-remove", name]
    ["publish", queue, content_type, body]   a message at the tail; its id is "<txid>.<place of the operation, from 1>"
    ["stage", transaction, part]             comes first: the rest is staged as a part of a large transaction (reserved/staging.py)
    ["commit-staged", transaction, parts]    alone, or after expectations: the staged operations take effect here
    ["drop-staged", transaction]             alone: the staged operations are deleted
    ["piece", data]                          only staged: a piece of the body of a long message (reserved/pieces.py)
    ["publish-pieces", queue, content_type, first, last, size]    only staged: a message whose body is the pieces of these parts
    ["accept", queue, message_id]            removes that message; rejects the transaction when it is not there

the author, as the last operation, which only the interface that received the transaction adds (outside/authors.py):

    ["by", user]                             changes nothing; the last change of the effect, even of a rejected transaction

and expectations about the state before the transaction, which change nothing and reject the whole transaction when they fail:

    ["expect-key", table, key, etag]         the key has this ETag (etags.py); "" means that there is no such key
    ["expect-range", table, from, to, digest]    keys from ``from`` to below ``to`` (empty: all) with their values have this digest
    ["expect-since", kind, name, lsn]        kind graph, table or queue: unchanged since that LSN
    ["expect-fingerprint", text]             the whole content has this fingerprint (fingerprints.py)

An **effect** is the list of changes by the execution, at the smallest grain, so that applying it needs no evaluation:

    ["quads", repository, removed, added]    lists of N-Quads lines without the final dot, each sorted
    ["put", table, key, value] ["delete", table, key]
    ["clear", repository, quads]             removes all earlier quads, this many, without naming them; comes before added quads
    ["create-repository", repository] ["remove-repository", repository]
    ["control-add", name, kind, target, text, expected] ["control-remove", name]
    ["publish", queue, message_id, content_type, body] ["accept", queue, message_id]
    ["staged", transaction, parts, stores]   all staged operations take effect: parts are [lsn, messages before it], stores
                                             [kind, name] or [kind, name, removed quads] (unfolding.py)
    ["by", user]

Applying an effect is idempotent. The effect of a transaction that changes nothing, or is rejected, contains at most the author;
without one it is empty.
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
"""Limit of the body of one transaction; clients split larger input (RabbitMQ refuses far larger messages)."""
EFFECT_LIMIT_BYTES = 10 * 1024 * 1024
"""Limit of the effect of one transaction: it travels as one line of the log, in one message (wire/codec.py)."""
OPERATIONS_LIMIT = 100_000
TOO_LARGE: Final = "split it; quads of any number are loaded from a file: brokerha load, brokerha pipeline load"
"""Advice in error texts."""
VALUE_TOO_LARGE: Final = "divide the value over several keys"

NO_UTF8: Final = "a text holds half of a surrogate pair, which UTF-8 cannot write"

APPLIED = "applied"
REJECTED = "rejected"

Operation = tuple[Any, ...]
"""An operation as it was written: an unchecked row."""


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
    """Removal of all quads of a repository."""

    kind: Literal["clear"]
    repository: str


class Put(NamedTuple):
    """A value for a key; also a change."""

    kind: Literal["put"]
    table: str
    key: bytes
    value: bytes

    @property
    def after(self) -> bytes | None:
        """The value of the key afterwards."""
        return self.value


class Delete(NamedTuple):
    """Deletion of a key; also a change."""

    kind: Literal["delete"]
    table: str
    key: bytes

    @property
    def after(self) -> bytes | None:
        """None: there is no such key afterwards."""
        return None


class MakeSnapshot(tuple[str, ...]):
    """A named snapshot of tables; a row as long as the number of tables requires."""

    __slots__ = ()
    kind: Final = "snapshot"

    @property
    def name(self) -> str:
        """Name of the snapshot."""
        return self[1]

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its tables; empty for all."""
        return self[2:]


class DropSnapshot(NamedTuple):
    """Deletion of a snapshot."""

    kind: Literal["drop-snapshot"]
    name: str


class Stage(NamedTuple):
    """The other operations of the transaction are a part of a large one."""

    kind: Literal["stage"]
    name: TxId
    part: int
    """Number of the part, from 1."""


class CommitStaged(NamedTuple):
    """Commit of a large transaction."""

    kind: Literal["commit-staged"]
    name: TxId
    parts: int


class DropStaged(NamedTuple):
    """Deletion of a staged large transaction."""

    kind: Literal["drop-staged"]
    name: TxId


class Piece(NamedTuple):
    """A piece of the body of a message."""

    kind: Literal["piece"]
    data: bytes


class PublishPieces(NamedTuple):
    """A message whose body is in pieces."""

    kind: Literal["publish-pieces"]
    queue: str
    content_type: str
    first: int
    last: int
    """Parts with the pieces, both ends included."""
    size_bytes: int
    """Size of the whole body."""


class Staged(NamedTuple):
    """The change by a `CommitStaged`."""

    kind: Literal["staged"]
    name: TxId
    parts: tuple[tuple[Lsn, int], ...]
    """For each part: the LSN at which it was staged, and the number of messages published by earlier parts."""
    stores: tuple[tuple[str, str] | tuple[str, str, int], ...]
    """Kind and name of stores that it can change; for a repository that it empties also the number of removed quads."""


class Cleared(NamedTuple):
    """The change of a repository that is emptied or removed with too many quads to name."""

    kind: Literal["clear"]
    repository: str
    quads: int
    """Number of removed quads."""


class CreateRepository(NamedTuple):
    """Creation of a repository; also a change."""

    kind: Literal["create-repository"]
    repository: str


class RemoveRepository(NamedTuple):
    """Removal of a repository; also a change."""

    kind: Literal["remove-repository"]
    repository: str


class ControlAdd(NamedTuple):
    """A new or replaced check of the control suite; also a change."""

    kind: Literal["control-add"]
    name: str
    of: str
    """Kind of the check."""
    target: str
    text: str
    expected: str


class ControlRemove(NamedTuple):
    """Removal of a check of the control suite; also a change."""

    kind: Literal["control-remove"]
    name: str


class Publish(NamedTuple):
    """A message to publish."""

    kind: Literal["publish"]
    queue: str
    content_type: str
    body: bytes


class Accept(NamedTuple):
    """Removal of a message; also a change."""

    kind: Literal["accept"]
    queue: str
    message_id: str


class By(NamedTuple):
    """The author of the transaction, added by the interface that received it; also an entry of the effect, without a change."""

    kind: Literal["by"]
    user: str


class ExpectKey(NamedTuple):
    """A key has this ETag."""

    kind: Literal["expect-key"]
    table: str
    key: bytes
    etag: str
    """Empty when there must be no such key."""


class ExpectRange(NamedTuple):
    """The keys of a range and their values have this digest."""

    kind: Literal["expect-range"]
    table: str
    first: bytes
    end: bytes
    digest: bytes


class ExpectSince(NamedTuple):
    """A store is unchanged since an LSN."""

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
    """The change by a `Publish`."""

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
"""A change of an effect."""

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
"""Name of an operation -> its class, and the types of its arguments."""
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
"""Tuples for isinstance."""


class Result(NamedTuple):
    """The outcome of one transaction at its LSN: the same on every site."""

    outcome: str
    """`APPLIED` or `REJECTED`."""
    reason: str
    """Why it was rejected; empty otherwise."""
    effect: bytes
    """Packed list of changes; empty bytes when nothing changed."""
    fingerprint: bytes
    """Fingerprint of the whole content after it (fingerprints.py)."""


class Logged(NamedTuple):
    """One line of the log that workers follow and keep: a result with its transaction."""

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
        is_value = len(operations) == 1 and operations[0][0] == "put"
        advice = VALUE_TOO_LARGE if is_value else TOO_LARGE
        message = f"the transaction has {len(body)} bytes; the limit is {BODY_LIMIT_BYTES}: {advice}"
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
"""A body without operations, for transactions that the probe's content includes already; no client can send it."""


def typed_operations(operations: Iterable[Operation]) -> list[Checked]:
    """Convert operations with checked shapes to their classes."""
    return [tuple.__new__(_SHAPES[operation[0]][0], operation) for operation in operations]


def operations_to_execute(body: bytes) -> list[Checked]:
    """Do the same as `unpack_operations`, with an empty list for `NO_OPERATIONS`."""
    return [] if body == NO_OPERATIONS else unpack_operations(body)


def check_operations(operations: Sequence[Operation]) -> None:
    """Raise InvalidRequest or TooLarge, naming the first malformed operation."""
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
    """Do the same as `_problem`, and check for UTF-8, which packed input has already."""
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
        # Nearly all operations are of these, and each call costs time.
        return key_problem(arguments[0], arguments[1]) or reserved_problem(arguments)
    return problem_of(name, arguments)


def message_id(txid: TxId, number: int) -> str:
    """Return the id of a published message; ``number`` is the operation's place in the transaction, from 1."""
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
    """Convert rows of changes to their classes. Raises StoreError for a change of a later version."""
    try:
        return [tuple.__new__(_CHANGES[row[0]], row) for row in rows]
    except KeyError as error:
        raise StoreError(f"the log has a change {error}, which this version of brokerha does not know") from None
