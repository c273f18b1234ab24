"""What client programs and masters say to each other over AMQP: bodies, headers and content types, both directions.

    WRITES_TYPE       [[txid, body], …]                                       to brokerha.writes; headers ack, copies, timeout_ms, apart
    REPLIES_TYPE      [[txid, status, lsn, error, reason], …]                  back, in any split, with the batch's correlation id
    READ_TYPE         {kind, name, arguments, min_lsn, timeout_ms}             to brokerha.reads
                      {ask, arguments}
    READ_ANSWER_TYPE  {error, reason, content_type, lsn, body, apart, stale_ms} or {error, reason, answer}

Other content types on brokerha.writes carry one transaction each and are read by the master (docs/amqp.md). What
cannot be decoded is InvalidRequest: it came from a client, not from a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgpack

from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.ids import Lsn, TxId
from brokerha.model.levels import parse_ack, parse_apart
from brokerha.model.requests import APPLIED_LEVEL, WAIT
from brokerha.model.unpacking import BROKEN, unpack_foreign

WRITES_TYPE = "application/vnd.brokerha.writes+msgpack"
REPLIES_TYPE = "application/vnd.brokerha.replies+msgpack"
READ_TYPE = "application/vnd.brokerha.read+msgpack"
READ_ANSWER_TYPE = "application/vnd.brokerha.read-answer+msgpack"

BATCH_LIMIT = 512
"""Writes in one message at most."""
BATCH_LIMIT_BYTES = 1024 * 1024
"""A batch is cut when it grows over this; a single larger write travels alone."""
MESSAGE_LIMIT_BYTES = 12 * 1024 * 1024
DEFAULT_TIMEOUT_MS = 30_000

ReplyRow = tuple[TxId, str, Lsn, str, str]


def terms(headers: Mapping[str, Any]) -> tuple[str, int, int]:
    """Level, copies and time-out in milliseconds that headers ask for. ``ack`` may say ``applied=2``. Raises InvalidRequest."""
    level, copies = parse_ack(str(headers.get("ack", APPLIED_LEVEL)))
    try:
        copies = max(copies, int(headers.get("copies", 1)))
        timeout_ms = int(headers.get("timeout_ms", DEFAULT_TIMEOUT_MS))
    except (TypeError, ValueError):
        message = "the headers copies and timeout_ms are whole numbers"
        raise InvalidRequest(message) from None
    return level, copies, timeout_ms


def apart_of(headers: Mapping[str, Any]) -> str:
    """What headers ask for at a master that is apart. Raises InvalidRequest."""
    return parse_apart(str(headers.get("apart", "")))


def headers_of(level: str, copies: int, timeout_ms: int, apart: str = WAIT) -> dict[str, Any]:
    """The opposite of `terms` and `apart_of`."""
    headers: dict[str, Any] = {"ack": level, "copies": copies, "timeout_ms": timeout_ms}
    return headers if apart == WAIT else {**headers, "apart": apart}


def cut(writes: Sequence[tuple[TxId, bytes]]) -> Iterator[Sequence[tuple[TxId, bytes]]]:
    """Cut writes into batches within the limits, in their order; a write that is over them alone has its own.

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
    """The body of a batch of writes."""
    data: bytes = msgpack.packb(list(writes))
    return data


def decode_writes(data: bytes) -> list[tuple[TxId, bytes]]:
    """The writes of a batch. Raises InvalidRequest, TooLarge."""
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
    """The body of an answer to writes."""
    data: bytes = msgpack.packb(list(rows))
    return data


def decode_replies(data: bytes) -> list[ReplyRow]:
    """The rows of an answer to writes. Raises InvalidRequest."""
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
    """The body of a read."""
    request = {"kind": kind, "name": name, "arguments": dict(arguments), "min_lsn": min_lsn, "timeout_ms": timeout_ms}
    data: bytes = msgpack.packb(request)
    return data


def encode_question(what: str, arguments: Mapping[str, Any]) -> bytes:
    """The body of a question about the cluster."""
    data: bytes = msgpack.packb({"ask": what, "arguments": dict(arguments)})
    return data


def decode_read(data: bytes) -> dict[str, Any]:
    """A read or a question, with every field present and of its type. Raises InvalidRequest."""
    request = _unpack(data)
    if type(request) is not dict or type(request.get("arguments", {})) is not dict:
        message = "a read is a msgpack map with kind, name and arguments, or with ask and arguments"
        raise InvalidRequest(message)
    if "ask" in request:
        return {"ask": str(request["ask"]), "arguments": request.get("arguments", {})}
    full = {"name": "", "arguments": {}, "min_lsn": 0, "timeout_ms": DEFAULT_TIMEOUT_MS, **request}
    shape = {"kind": str, "name": str, "arguments": dict, "min_lsn": int, "timeout_ms": int}
    for field, kind in shape.items():
        if type(full.get(field)) is not kind:
            message = f"the field {field} of a read is {kind.__name__}"
            raise InvalidRequest(message)
    return full


def encode_read_answer(
    error: str, reason: str, content_type: str, lsn: Lsn, body: bytes, apart: str = "", stale_ms: int | None = None
) -> bytes:
    """The answer to a read; ``error`` names a class of errors.py, or is empty. The last two are there while the master is apart."""
    answer = {"error": error, "reason": reason, "content_type": content_type, "lsn": lsn, "body": body}
    if apart:
        answer |= {"apart": apart, "stale_ms": stale_ms}
    data: bytes = msgpack.packb(answer)
    return data


def encode_answer(error: str, reason: str, answer: Any) -> bytes:
    """The answer to a question; ``answer`` is plain data."""
    data: bytes = msgpack.packb({"error": error, "reason": reason, "answer": answer})
    return data


def decode_answer(data: bytes) -> dict[str, Any]:
    """The answer to a read or a question. Raises InvalidRequest."""
    answer = _unpack(data, use_list=True, limit_bytes=2**31)
    if type(answer) is not dict or type(answer.get("error")) is not str:
        message = "not an answer to a read"
        raise InvalidRequest(message)
    return answer


def _unpack(data: bytes, *, use_list: bool = False, limit_bytes: int = MESSAGE_LIMIT_BYTES) -> Any:
    if len(data) > limit_bytes:
        message = f"the message has {len(data)} bytes; the limit is {limit_bytes}: split it"
        raise TooLarge(message)
    try:
        if limit_bytes == MESSAGE_LIMIT_BYTES:
            return unpack_foreign(data, use_list=use_list)
        # What comes from a node that was asked is believed: a result may have a map in each row.
        return msgpack.unpackb(data, use_list=use_list, strict_map_key=True, max_ext_len=0)
    except BROKEN as error:
        message = f"the body is not msgpack: {type(error).__name__}"
        raise InvalidRequest(message) from None
