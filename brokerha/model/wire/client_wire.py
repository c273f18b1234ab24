"""Bodies, headers and content types between client programs and masters over AMQP, both directions.

    WRITES_TYPE       [[txid, body], …]                                       to brokerha.writes; headers ack, copies, timeout_ms, apart
    REPLIES_TYPE      [[txid, status, lsn, error, reason], …]                  back, in any split, with the batch's correlation id
    READ_TYPE         {kind, name, arguments, min_lsn, timeout_ms}             to brokerha.reads
                      {ask, arguments}
    READ_ANSWER_TYPE  {error, reason, content_type, lsn, body, apart, stale_ms} or {error, reason, answer}

The master reads messages of other content types on brokerha.writes as one transaction each (docs/amqp.md). Malformed bytes raise
InvalidRequest: they came from a client, not from a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgpack

from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.ids import Lsn, TxId
from brokerha.model.outside.levels import parse_ack, parse_apart
from brokerha.model.outside.shapes import (
    LEAST_LSN,
    MAP,
    TEXT,
    TIMEOUT,
    TIMEOUT_LIMIT_MS,
    Shape,
    Shapes,
    check_shapes,
    either,
    needed,
    number,
)
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.model.requests import APPLIED_LEVEL, WAIT

WRITES_TYPE = "application/vnd.brokerha.writes+msgpack"
REPLIES_TYPE = "application/vnd.brokerha.replies+msgpack"
READ_TYPE = "application/vnd.brokerha.read+msgpack"
READ_ANSWER_TYPE = "application/vnd.brokerha.read-answer+msgpack"

BATCH_LIMIT = 512
"""Limit of writes in one message."""
BATCH_LIMIT_BYTES = 1024 * 1024
"""Size at which a batch is cut; a larger single write travels alone."""
MESSAGE_LIMIT_BYTES = 12 * 1024 * 1024
DEFAULT_TIMEOUT_MS = 30_000

_DIGITS = re.compile(r"[0-9]{1,9}\Z")
_WHOLE = either(
    number(1, TIMEOUT_LIMIT_MS), Shape("its digits", lambda value: type(value) is str and _DIGITS.match(value) is not None)
)
_HEADERS: Shapes = {"ack": TEXT, "copies": _WHOLE, "timeout_ms": _WHOLE}
_READ: Shapes = {"kind": needed(TEXT), "name": TEXT, "arguments": MAP, "min_lsn": LEAST_LSN, "timeout_ms": TIMEOUT}
_QUESTION: Shapes = {"ask": needed(TEXT), "arguments": MAP}

ReplyRow = tuple[TxId, str, Lsn, str, str]


def terms(headers: Mapping[str, Any]) -> tuple[str, int, int]:
    """Return level, copies and time-out in milliseconds from headers. ``ack`` can be ``applied=2``. Raises InvalidRequest."""
    check_shapes("the headers", _HEADERS, {name: headers.get(name) for name in _HEADERS})
    level, copies = parse_ack(headers.get("ack") or APPLIED_LEVEL)
    copies = max(copies, int(headers.get("copies") or 1))
    return level, copies, int(headers.get("timeout_ms") or DEFAULT_TIMEOUT_MS)


def apart_of(headers: Mapping[str, Any]) -> str:
    """Return the choice in headers for a master that is apart. Raises InvalidRequest."""
    check_shapes("the headers", {"apart": TEXT}, {"apart": headers.get("apart")})
    return parse_apart(headers.get("apart") or "")


def repository_of(headers: Mapping[str, Any]) -> str:
    """Return the repository in headers, ``main`` by default. Raises InvalidRequest."""
    check_shapes("the headers", {"repository": TEXT}, {"repository": headers.get("repository")})
    return headers.get("repository") or "main"


def headers_of(level: str, copies: int, timeout_ms: int, apart: str = WAIT) -> dict[str, Any]:
    """Return headers for these values: the opposite of `terms` and `apart_of`."""
    headers: dict[str, Any] = {"ack": level, "copies": copies, "timeout_ms": timeout_ms}
    return headers if apart == WAIT else {**headers, "apart": apart}


def cut(writes: Sequence[tuple[TxId, bytes]]) -> Iterator[Sequence[tuple[TxId, bytes]]]:
    """Cut writes into batches within the limits, in order; a write above the limits has its own batch.

    >>> [len(batch) for batch in cut([("t", b"x" * 600_000)] * 3)]
    [1, 1, 1]
    >>> [len(batch) for batch in cut([("t", b"x")] * 1000)]
    [512, 488]
    """
    start = size_bytes = 0
    for n, (_, body) in enumerate(writes):
        if n > start and (n - start == BATCH_LIMIT or size_bytes + len(body) > BATCH_LIMIT_BYTES):
            yield writes[start:n]
            start, size_bytes = n, 0
        size_bytes += len(body)
    if start < len(writes):
        yield writes[start:]


def encode_writes(writes: Sequence[tuple[TxId, bytes]]) -> bytes:
    """Return the body of a batch of writes."""
    data: bytes = msgpack.packb(list(writes))
    return data


def decode_writes(data: bytes) -> list[tuple[TxId, bytes]]:
    """Return the writes of a batch. Raises InvalidRequest, TooLarge."""
    rows = _unpack(data)
    if type(rows) is not tuple or not rows:
        message = "a batch is a msgpack list of [transaction id, body]"
        raise InvalidRequest(message)
    for row in rows:
        if type(row) is not tuple or len(row) != 2 or type(row[0]) is not str or type(row[1]) is not bytes:
            message = "each write of a batch is [transaction id, body]"
            raise InvalidRequest(message)
    return list(rows)


def encode_replies(rows: Sequence[ReplyRow]) -> bytes:
    """Return the body of an answer to writes."""
    return _packed(list(rows))


def decode_replies(data: bytes) -> list[ReplyRow]:
    """Return the rows of an answer to writes. Raises InvalidRequest."""
    rows = _unpack(data)
    if type(rows) is not tuple or any(type(row) is not tuple for row in rows):
        message = "an answer is a msgpack list of lists"
        raise InvalidRequest(message)
    for row in rows:
        if tuple(map(type, row)) != (str, str, int, str, str):
            message = "each row of an answer is [transaction id, status, lsn, error, reason]"
            raise InvalidRequest(message)
    return list(rows)


def encode_read(kind: str, name: str, arguments: Mapping[str, Any], min_lsn: Lsn, timeout_ms: int) -> bytes:
    """Return the body of a read."""
    request = {"kind": kind, "name": name, "arguments": dict(arguments), "min_lsn": min_lsn, "timeout_ms": timeout_ms}
    data: bytes = msgpack.packb(request)
    return data


def encode_question(what: str, arguments: Mapping[str, Any]) -> bytes:
    """Return the body of a question about the cluster."""
    data: bytes = msgpack.packb({"ask": what, "arguments": dict(arguments)})
    return data


def decode_read(data: bytes) -> dict[str, Any]:
    """Return a read or a question, with every field present and of its type. Raises InvalidRequest."""
    request = _unpack(data)
    if type(request) is not dict:
        message = "a read is a msgpack map with kind, name and arguments, or with ask and arguments"
        raise InvalidRequest(message)
    given = {field: value for field, value in request.items() if value is not None}
    if "ask" in given:
        check_shapes("a question", _QUESTION, given)
        return {"arguments": {}, **given}
    check_shapes("a read", _READ, given)
    return {"name": "", "arguments": {}, "min_lsn": 0, "timeout_ms": DEFAULT_TIMEOUT_MS, **given}


def encode_read_answer(
    error: str, reason: str, content_type: str, lsn: Lsn, body: bytes, apart: str = "", stale_ms: int | None = None
) -> bytes:
    """Return the answer to a read; ``error`` names a class of errors.py, or is empty. A master that is apart adds the last two."""
    answer = {"error": error, "reason": reason, "content_type": content_type, "lsn": lsn, "body": body}
    if apart:
        answer |= {"apart": apart, "stale_ms": stale_ms}
    return _packed(answer)


def encode_answer(error: str, reason: str, answer: Any) -> bytes:
    """Return the answer to a question; ``answer`` is plain data."""
    return _packed({"error": error, "reason": reason, "answer": answer})


def decode_answer(data: bytes) -> dict[str, Any]:
    """Return the decoded answer to a read or a question. Raises InvalidRequest."""
    answer = _unpack(data, use_list=True, limit_bytes=2**31)
    if type(answer) is not dict or type(answer.get("error")) is not str:
        message = "not an answer to a read"
        raise InvalidRequest(message)
    return answer


def _packed(value: Any) -> bytes:
    """Pack a value; question marks replace halves of surrogate pairs, which AMQP lets pass and UTF-8 cannot encode."""
    data: bytes = msgpack.packb(value, unicode_errors="replace")
    return data


def _unpack(data: bytes, *, use_list: bool = False, limit_bytes: int = MESSAGE_LIMIT_BYTES) -> Any:
    if len(data) > limit_bytes:
        message = f"the message has {len(data)} bytes; the limit is {limit_bytes}: split it"
        raise TooLarge(message)
    try:
        if limit_bytes == MESSAGE_LIMIT_BYTES:
            return unpack_foreign(data, use_list=use_list)
        # An answer comes from a node, so it is trusted: a result can have a map in each row.
        return msgpack.unpackb(data, use_list=use_list, strict_map_key=True, max_ext_len=0)
    except BROKEN as error:
        message = f"the body is not msgpack: {error or type(error).__name__}"
        raise InvalidRequest(message) from None
