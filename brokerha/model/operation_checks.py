"""Checks of the names and sizes of an operation whose shape is right, and of names reserved for brokerha.

>>> key_problem("stock", b""), key_problem("stock", b"apples")
('a key has 1 to 400 bytes, this one has 0', '')
"""

from __future__ import annotations

import re
from typing import Any, Final

from brokerha.model import control, etags, fingerprints
from brokerha.model.ids import is_repository_id
from brokerha.model.reserved import about, branches, claims, pieces, settings, staging, table_snapshots

RANGE_DIGEST_BYTES: Final = fingerprints.DIGEST_BYTES
"""Size of the digest of an expected range: the XOR of the digests of its keys, as in the fingerprint."""
LSN_LIMIT = 2**63
"""Exclusive limit of an LSN; workers and masters keep LSNs in 63 bits."""
KEY_LIMIT_BYTES = control.KEY_LIMIT_BYTES
"""Largest key of a key-value table; LMDB allows 511 bytes for table name and key together."""
TABLE_LIMIT_BYTES = control.TABLE_LIMIT_BYTES
USER_LIMIT_BYTES = 255
"""The same as RabbitMQ's limit for users."""
CONTENT_TYPE_LIMIT_BYTES = 255

GRAPH, TABLE, QUEUE = "graph", "table", "queue"
SNAPSHOT: Final = "snapshot"
"""Kinds of stores; a store of kind graph is a repository."""

_MESSAGE_ID: Final = re.compile(r"[!-~]{1,128}\.[1-9][0-9]{0,5}\Z")
_RESERVED: Final = {about.TABLE: about.problem_of, settings.TABLE: settings.problem_of, claims.TABLE: claims.problem_of}
"""Tables whose keys and values are checked one by one."""
_OF_A_REPOSITORY = frozenset({"update", "add", "remove", "clear", "create-repository", "remove-repository"})
OF_KEYS: Final = frozenset({"put", "delete"})
_OF_QUEUES: Final = frozenset({"publish", "accept"})


def problem_of(name: str, arguments: Any) -> str:
    """Return the problem with the well-typed arguments of this operation (not put or delete), or an empty string."""
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
    if name in staging.ALL_KINDS:
        problem = _queue_problem(name, arguments) if name == pieces.PUBLISH else ""
        return problem or staging.problem_of(name, arguments)
    return _expectation_problem(name, arguments)


def is_message_id(text: str) -> bool:
    """Tell whether this is a valid message id."""
    return _MESSAGE_ID.match(text) is not None


def name_problem(kind: str, name: str) -> str:
    """Return the problem with the name of a table, a queue or a snapshot, or an empty string."""
    if not name or "\0" in name or len(name.encode()) > TABLE_LIMIT_BYTES:
        return f"a {kind} name has 1 to {TABLE_LIMIT_BYTES} bytes and no NUL"
    return ""


def user_problem(name: str) -> str:
    """Return the problem with the name of a user, or an empty string."""
    is_name = 1 <= len(name.encode()) <= USER_LIMIT_BYTES and name.isprintable()
    return "" if is_name else f"a user name has 1 to {USER_LIMIT_BYTES} bytes, all of them printable"


def _repository_problem(name: str) -> str:
    return "" if is_repository_id(name) else f"{name!r} is no repository id ([A-Za-z0-9_-]{{1,64}})"


def key_problem(table: str, key: bytes) -> str:
    """Return the problem with the name of a table, or with a key in it, or an empty string."""
    if not table or "\0" in table or len(table.encode()) > TABLE_LIMIT_BYTES:
        return name_problem(TABLE, table)
    if table == branches.TABLE:
        return _private(table)
    if not 1 <= len(key) <= KEY_LIMIT_BYTES:
        return f"a key has 1 to {KEY_LIMIT_BYTES} bytes, this one has {len(key)}"
    return ""


def _private(table: str) -> str:
    return f"table {table} is brokerha's own: it holds {control.PRIVATE[table]}"


def snapshot_problem(arguments: Any) -> str:
    """Return the problem with the arguments of a snapshot, which can name many tables."""
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


def reserved_problem(arguments: Any) -> str:
    """Return the problem with a change of a key in a reserved table; empty for any other table."""
    if arguments[0] in control.PRIVATE:
        return _private(arguments[0])
    judge = _RESERVED.get(arguments[0])
    if judge is None:
        own = f"tables whose names begin with {staging.OWN!r} are brokerha's own"
        return own if arguments[0].startswith(staging.OWN) else ""
    return judge(arguments[1], arguments[2] if len(arguments) == 3 else None)


def _queue_problem(name: str, arguments: Any) -> str:
    problem = name_problem(QUEUE, arguments[0])
    if problem:
        return problem
    if name == "accept":
        return "" if is_message_id(arguments[1]) else f"{arguments[1]!r} is no message id (transaction id, dot, number)"
    content_type = arguments[1]
    if len(content_type) > CONTENT_TYPE_LIMIT_BYTES or not (content_type.isascii() and content_type.isprintable()):
        return f"a content type has at most {CONTENT_TYPE_LIMIT_BYTES} printable ASCII characters"
    if content_type.startswith(pieces.PREFIX):
        return f"no content type begins with {pieces.PREFIX!r}: that says that a message is in pieces"
    return ""


def _expectation_problem(name: str, arguments: Any) -> str:
    if name == "expect-key":
        table, key, etag = arguments
        problem = key_problem(table, key)
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
