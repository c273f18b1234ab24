r"""Keys, values, ranges and operations as JSON and msgpack.

Keys and values are bytes. In JSON a field ``key`` or ``value`` is text (its UTF-8 bytes), and ``key_base64`` or ``value_base64``
any bytes. Both are read, and text is written when the bytes are UTF-8. A row of a range can be sent back unchanged, with an added
``op``.

    range   [{"key": "sku-1", "value": "9.90"}, {"key_base64": "/w==", "value": ""}]
    group   [{"op": "put", "key": "sku-1", "value": "9.90"}, {"op": "delete", "key": "sku-2"}]
            {"op": "expect", "key": "sku-1", "etag": ""} requires that ETag in the state before, or no such key

    msgpack, range   [[key, value], …]
    msgpack, group   [["put", key, value], ["delete", key], ["expect", key, etag], …]

Operations are the lists of model/operations.py, where bytes are text or ``{"base64": …}`` in JSON:

>>> operations_of_json(b'[["put", "t", "key", {"base64": "/w=="}]]')
[('put', 't', b'key', b'\xff')]
"""

from __future__ import annotations

import base64
import binascii
import json
from codecs import BOM_UTF8
from typing import Any

import msgpack

from brokerha.ingress.rdf_bodies import utf8
from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import OPERATIONS_LIMIT, Operation
from brokerha.model.outside.foreign_json import ITEMS_LIMIT, parse_foreign_json
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign

OPERATIONS_ITEMS_LIMIT = 8 * OPERATIONS_LIMIT
"""Most items in JSON of a transaction with the most operations: each is a list of four, and two of them can be objects."""

_FIELDS: dict[str, tuple[str, ...]] = {"put": ("key", "value"), "delete": ("key",), "expect": ("key",)}
_OPERATIONS = {"put": "put", "delete": "delete", "expect": "expect-key"}
"""Changes of a group, and their operations."""
_BYTES_OF = {"put": (2, 3), "delete": (2,), "publish": (3,), "piece": (1,), "expect-key": (2,), "expect-range": (2, 3, 4)}
"""Indexes of the items of an operation that are bytes."""


def group_of_json(body: bytes, table: str) -> list[Operation]:
    """Parse the operations of a group in JSON. Raises InvalidRequest, which names the change."""
    changes = json_of(body, OPERATIONS_ITEMS_LIMIT)
    if not isinstance(changes, list):
        raise InvalidRequest('a group is a list such as [{"op": "put", "key": "a", "value": "1"}, {"op": "delete", "key": "b"}]')
    return [_change_of_json(change, number, table) for number, change in enumerate(changes, 1)]


def group_of_msgpack(body: bytes, table: str) -> list[Operation]:
    """Parse the operations of a group in msgpack; the transaction checks their shape. Raises InvalidRequest."""
    changes = msgpack_of(body)
    if not isinstance(changes, tuple) or not all(isinstance(change, tuple) and change for change in changes):
        raise InvalidRequest('a group is a list such as [["put", key, value], ["delete", key]]')
    if any(not isinstance(change[0], str) or change[0] not in _OPERATIONS for change in changes):
        raise InvalidRequest("a change of a group is put or delete, or expect")
    return [(_OPERATIONS[change[0]], table, *change[1:]) for change in changes]


def operations_of_json(body: bytes) -> list[Operation]:
    """Parse operations in JSON; the transaction checks their shape. Raises InvalidRequest."""
    found = json_of(body, OPERATIONS_ITEMS_LIMIT)
    if not isinstance(found, list) or not all(isinstance(operation, list) for operation in found):
        raise InvalidRequest('a transaction is a list of operations such as [["put", "table", "key", "value"]]')
    for number, items in enumerate(found, 1):
        for place in _BYTES_OF.get(str(items[0]) if items else "", ()):
            if place < len(items):
                items[place] = bytes_of_json(items[place], f"operation {number}: item {place + 1}")
    return [tuple(items) for items in found]


def row_as_json(key: bytes, value: bytes) -> dict[str, str]:
    """Return one row of a range as plain data for JSON."""
    return {**_field("key", key), **_field("value", value)}


def range_as_json(packed: bytes) -> bytes:
    """Convert a worker's packed range to JSON."""
    rows = msgpack.unpackb(packed, use_list=False)
    return json.dumps([row_as_json(key, value) for key, value in rows], ensure_ascii=False).encode()


def bytes_of_json(value: Any, what: str) -> bytes:
    """Return the bytes of a text, or of ``{"base64": …}``. Raises InvalidRequest."""
    if isinstance(value, str):
        return _text_bytes(value, what)
    if isinstance(value, dict) and list(value) == ["base64"]:
        return _base64_bytes(value["base64"], what)
    raise InvalidRequest(f'{what} is text, or {{"base64": "…"}} for any bytes')


def json_of(body: bytes, items_limit: int = ITEMS_LIMIT) -> Any:
    """Parse a JSON body; RFC 8259 lets readers ignore a byte order mark. Raises InvalidRequest, TooLarge."""
    return parse_foreign_json(utf8(body.removeprefix(BOM_UTF8), "the body"), items_limit)


def msgpack_of(body: bytes) -> Any:
    """Parse a msgpack body. Raises InvalidRequest."""
    try:
        return unpack_foreign(body)
    except BROKEN as error:
        raise InvalidRequest(f"the body is not msgpack: {error or type(error).__name__}") from None


def _change_of_json(change: Any, number: int, table: str) -> Operation:
    if not isinstance(change, dict):
        raise InvalidRequest(f'change {number} is an object such as {{"op": "put", "key": "a", "value": "1"}}')
    kind = change.get("op")
    fields = _FIELDS.get(str(kind))
    if fields is None:
        raise InvalidRequest(f'change {number}: "op" is "put", "delete" or "expect", not {kind!r}')
    etag = [change.get("etag")] if kind == "expect" else []
    if etag and not isinstance(etag[0], str):
        raise InvalidRequest(f'change {number}: give "etag", the ETag that GET gave, or "" for no such key')
    unknown = set(change) - {"op", *(("etag",) if etag else ())} - {name + ending for name in fields for ending in ("", "_base64")}
    if unknown:
        raise InvalidRequest(f"change {number}: {kind} does not take {min(unknown)!r}")
    return (_OPERATIONS[str(kind)], table, *[_field_bytes(change, name, number) for name in fields], *etag)


def _field_bytes(change: dict[str, Any], name: str, number: int) -> bytes:
    coded = f"{name}_base64"
    if (name in change) == (coded in change):
        raise InvalidRequest(f"change {number}: give {name!r} (text) or {coded!r}, one of them")
    what = f"change {number}: {name if name in change else coded}"
    return _text_bytes(change[name], what) if name in change else _base64_bytes(change[coded], what)


def _text_bytes(value: Any, what: str) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
    except UnicodeEncodeError:  # A lone surrogate, which JSON can write and UTF-8 cannot.
        pass
    raise InvalidRequest(f"{what} is text in UTF-8")


def _base64_bytes(value: Any, what: str) -> bytes:
    try:
        if isinstance(value, str):
            return base64.b64decode(value.encode(), validate=True)
    except (binascii.Error, ValueError):
        pass
    raise InvalidRequest(f"{what} is not base64")


def _field(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
