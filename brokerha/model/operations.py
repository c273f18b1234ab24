"""What a transaction asks for (operations), and what it really changed (its effect).

A transaction's **body** is the msgpack list of its operations. Masters carry it as opaque bytes; only admission and the
workers look inside. Each operation is a list whose first item names it; unpacked, it is a NamedTuple of that kind below:

    ["update", repository, sparql]           a SPARQL 1.1 update request (one or more operations)
    ["add", repository, nquads]              quads to add, as N-Quads text; blank node labels are kept as they are
    ["remove", repository, nquads]           quads to remove, as N-Quads text
    ["put", table, key, value]               key and value are bytes
    ["delete", table, key]                   one table is reserved for what is kept about repositories (about.py), one for what is prepared,
                                             one for snapshots (table_snapshots.py), one for settings (settings.py)
    ["snapshot", name, table, ...]           the tables as this transaction leaves them can be read by that name; all tables if none is named
    ["drop-snapshot", name]
    ["create-repository", repository]
    ["remove-repository", repository]
    ["control-add", name, kind, target, text, expected]    a check of the control suite (control.py), all text
    ["control-remove", name]
    ["publish", queue, content_type, body]   a message at the tail; its id is "<txid>.<place of the operation, from 1>"
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
    ["create-repository", repository] ["remove-repository", repository]
    ["control-add", name, kind, target, text, expected] ["control-remove", name]
    ["publish", queue, message_id, content_type, body] ["accept", queue, message_id]
    ["by", user]

Applying an effect twice is the same as applying it once. The effect of a transaction that changes nothing, or is rejected, says at most
who wrote it; without that it is empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgpack

from brokerha.model import about, branches, claims, control, etags, fingerprints, settings, table_snapshots
from brokerha.model.errors import InvalidRequest, StoreError, TooLarge
from brokerha.model.ids import Lsn, Timestamp, TxId, is_repository_id
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign

BODY_LIMIT_BYTES = 8 * 1024 * 1024
"""Largest body of one transaction; larger input is split by the client (RabbitMQ refuses far larger messages)."""
OPERATIONS_LIMIT = 100_000
TOO_LARGE: Final = "split it; quads of any number are loaded from a file: brokerha load, brokerha pipeline load"
"""What to do."""
RANGE_DIGEST_BYTES: Final = fingerprints.DIGEST_BYTES
"""Of an expected range: the exclusive or of the digests of its keys, as in the fingerprint."""
LSN_LIMIT = 2**63
"""Every LSN is below it; workers and masters keep them in 63 bits."""
KEY_LIMIT_BYTES = control.KEY_LIMIT_BYTES
"""Largest key of a key-value table; LMDB allows 511 bytes for table name and key together."""
TABLE_LIMIT_BYTES = control.TABLE_LIMIT_BYTES

QUEUE_LIMIT_BYTES = TABLE_LIMIT_BYTES
USER_LIMIT_BYTES = 255
"""As RabbitMQ has it for its users."""
CONTENT_TYPE_LIMIT_BYTES = 255

APPLIED = "applied"
REJECTED = "rejected"

GRAPH, TABLE, QUEUE = "graph", "table", "queue"
SNAPSHOT: Final = "snapshot"
"""Kinds of stores; the graph of that kind is a repository."""

_MESSAGE_ID: Final = re.compile(r"[!-~]{1,128}\.[1-9][0-9]{0,5}\Z")
_RESERVED: Final = {about.TABLE: about.problem_of, settings.TABLE: settings.problem_of, claims.TABLE: claims.problem_of}
"""Tables whose keys and values are judged one by one."""
_OF_A_REPOSITORY = frozenset({"update", "add", "remove", "create-repository", "remove-repository"})
_OF_KEYS: Final = frozenset({"put", "delete"})
_OF_QUEUES: Final = frozenset({"publish", "accept"})

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


OnQuads = Update | Add | Remove
OnKey = Put | Delete
OfQueue = Published | Accept
OnControl = ControlAdd | ControlRemove
OnSnapshot = MakeSnapshot | DropSnapshot
Expectation = ExpectKey | ExpectRange | ExpectSince | ExpectFingerprint
Checked = OnQuads | OnKey | OnSnapshot | CreateRepository | RemoveRepository | OnControl | Publish | Accept | By | Expectation
"""An operation whose shape was checked."""
Change = QuadsChanged | OnKey | CreateRepository | RemoveRepository | OnControl | Published | Accept | By
"""Of an effect."""

_SHAPES: Final[dict[str, tuple[type[Checked], tuple[type, ...]]]] = {
    "update": (Update, (str, str)),
    "add": (Add, (str, str)),
    "remove": (Remove, (str, str)),
    "put": (Put, (str, bytes, bytes)),
    "delete": (Delete, (str, bytes)),
    "snapshot": (MakeSnapshot, (str,)),
    "drop-snapshot": (DropSnapshot, (str,)),
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
    "put": Put,
    "delete": Delete,
    "create-repository": CreateRepository,
    "remove-repository": RemoveRepository,
    "control-add": ControlAdd,
    "control-remove": ControlRemove,
    "publish": Published,
    "accept": Accept,
    "by": By,
}
ON_KEYS: Final = (Put, Delete)
ON_SNAPSHOTS: Final = (MakeSnapshot, DropSnapshot)
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
    for number, operation in enumerate(operations, 1):
        if problem := problem_of(operation):
            message = f"operation {number}: {problem}"
            raise InvalidRequest(message)


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
        return "a text holds half of a surrogate pair, which UTF-8 cannot write"
    return ""


def _problem(operation: Any) -> str:
    if not operation or not isinstance(operation, (tuple, list)) or not isinstance(operation[0], str):
        return "not a list that starts with the name of an operation"
    name, arguments = operation[0], operation[1:]
    known = _SHAPES.get(name)
    if known is None:
        return f"unknown operation {name!r}; known are {', '.join(sorted(_SHAPES))}"
    if name == "snapshot":
        return _snapshot_problem(arguments)
    if tuple(map(type, arguments)) != known[1]:
        wanted = ", ".join(t.__name__ for t in known[1])
        return f"{name} takes ({wanted})"
    if name in _OF_KEYS:
        return _key_problem(arguments[0], arguments[1]) or _reserved_problem(arguments)
    if name == "drop-snapshot":
        return name_problem(SNAPSHOT, arguments[0])
    if name in _OF_A_REPOSITORY:
        return _repository_problem(arguments[0])
    if name == "control-add":
        return control.problem_of(tuple(arguments))
    if name == "control-remove":
        return "" if control.is_check_name(arguments[0]) else f"{arguments[0]!r} is no name of a check"
    if name in _OF_QUEUES:
        return _queue_problem(name, arguments)
    if name == "by":
        return user_problem(arguments[0])
    return _expectation_problem(name, arguments)


def message_id(txid: TxId, number: int) -> str:
    """Id of the message that an operation publishes; ``number`` is its place in the transaction, from 1."""
    return f"{txid}.{number}"


def is_message_id(text: str) -> bool:
    """Whether a message could have this id."""
    return _MESSAGE_ID.match(text) is not None


def name_problem(kind: str, name: str) -> str:
    """What is wrong with the name of a table, a queue or a snapshot; empty when nothing is."""
    if not name or "\0" in name or len(name.encode()) > TABLE_LIMIT_BYTES:
        return f"a {kind} name has 1 to {TABLE_LIMIT_BYTES} bytes and no NUL"
    return ""


def user_problem(name: str) -> str:
    """What is wrong with the name of a user; empty when nothing is."""
    is_name = 1 <= len(name.encode()) <= USER_LIMIT_BYTES and name.isprintable()
    return "" if is_name else f"a user name has 1 to {USER_LIMIT_BYTES} bytes, all of them printable"


def _repository_problem(name: str) -> str:
    return "" if is_repository_id(name) else f"{name!r} is no repository id ([A-Za-z0-9_-]{{1,64}})"


def _key_problem(table: str, key: bytes) -> str:
    if not table or "\0" in table or len(table.encode()) > TABLE_LIMIT_BYTES:
        return name_problem(TABLE, table)
    if table == branches.TABLE:
        return _private(table)
    if not 1 <= len(key) <= KEY_LIMIT_BYTES:
        return f"a key has 1 to {KEY_LIMIT_BYTES} bytes, this one has {len(key)}"
    return ""


def _private(table: str) -> str:
    return f"table {table} is brokerha's own: it holds {control.PRIVATE[table]}"


def _snapshot_problem(arguments: Any) -> str:
    if not arguments or any(type(each) is not str for each in arguments):
        return "snapshot takes a name and the names of tables"
    name, *tables = arguments
    if problem := name_problem(SNAPSHOT, name):
        return problem
    if len(set(tables)) != len(tables) or len(tables) > table_snapshots.TABLES_LIMIT:
        return f"a snapshot is of at most {table_snapshots.TABLES_LIMIT} tables, each named once"
    for table in tables:
        if problem := name_problem(TABLE, table):
            return problem
        if table in _RESERVED or table in control.PRIVATE:
            return f"table {table} is brokerha's own, which no snapshot shows"
    return ""


def _reserved_problem(arguments: Any) -> str:
    if arguments[0] in control.PRIVATE:
        return _private(arguments[0])
    judge = _RESERVED.get(arguments[0])
    return "" if judge is None else judge(arguments[1], arguments[2] if len(arguments) == 3 else None)


def _queue_problem(name: str, arguments: Any) -> str:
    problem = name_problem(QUEUE, arguments[0])
    if problem:
        return problem
    if name == "accept":
        return "" if is_message_id(arguments[1]) else f"{arguments[1]!r} is no message id (transaction id, dot, number)"
    content_type = arguments[1]
    if len(content_type) > CONTENT_TYPE_LIMIT_BYTES or not (content_type.isascii() and content_type.isprintable()):
        return f"a content type has at most {CONTENT_TYPE_LIMIT_BYTES} printable ASCII characters"
    return ""


def _expectation_problem(name: str, arguments: Any) -> str:
    if name == "expect-key":
        table, key, etag = arguments
        problem = _key_problem(table, key)
        if not problem and etag and not etags.is_etag(etag):
            problem = f"{etag!r} is no ETag of a key: give it as HTTP does, quotes included, or empty for no such key"
        return problem
    if name == "expect-range":
        return _range_problem(*arguments)
    if name == "expect-since":
        kind, store, lsn = arguments
        if kind not in {GRAPH, TABLE, QUEUE}:
            return f"expect-since is about a graph, table or queue, not {kind!r}"
        if not 0 <= lsn < LSN_LIMIT:
            return "an LSN is 0 or more and below 2**63"
        return _repository_problem(store) if kind == GRAPH else name_problem(kind, store)
    known = fingerprints.from_text(arguments[0])
    if len(known) != 1 + fingerprints.DIGEST_BYTES or known[0] != fingerprints.VERSION:
        return f"{arguments[0]!r} is no fingerprint of version {fingerprints.VERSION} (1:<32 hexadecimal digits>)"
    return ""


def _range_problem(table: str, first: bytes, end: bytes, digest: bytes) -> str:
    if problem := name_problem(TABLE, table):
        return problem
    if len(first) > KEY_LIMIT_BYTES or len(end) > KEY_LIMIT_BYTES + 1:
        return f"a range is from a key of at most {KEY_LIMIT_BYTES} bytes to one of at most {KEY_LIMIT_BYTES + 1}"
    if len(digest) != RANGE_DIGEST_BYTES:
        return f"the digest of a range has {RANGE_DIGEST_BYTES} bytes, this one has {len(digest)}"
    return ""


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
