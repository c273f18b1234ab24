r"""Operations in JSON: the lists of model/operations.py, where bytes are text or ``{"base64": …}``.

>>> operations_of_json(b'[["put", "t", "key", {"base64": "/w=="}]]')
[('put', 't', b'key', b'\xff')]
"""

from __future__ import annotations

from typing import Any

from brokerha.http.data.key_forms import OPERATIONS_ITEMS_LIMIT, bytes_of_json, json_of
from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import Operation

_BYTES_OF = {"put": (2, 3), "delete": (2,), "publish": (3,), "expect-key": (2,), "expect-range": (2, 3, 4)}
"""Which items of an operation are bytes."""


def operations_of_json(body: bytes) -> list[Operation]:
    """Operations in JSON; their shape is checked with the transaction. Raises InvalidRequest."""
    return operations_of(json_of(body, OPERATIONS_ITEMS_LIMIT))


def operations_of(listed: Any) -> list[Operation]:
    """The same, of what was read from JSON."""
    if not isinstance(listed, list) or not all(isinstance(operation, list) for operation in listed):
        raise InvalidRequest('a transaction is a list of operations such as [["put", "table", "key", "value"]]')
    operations = []
    for number, operation in enumerate(listed, 1):
        items: list[Any] = list(operation)
        for place in _BYTES_OF.get(str(items[0]) if items else "", ()):
            if place < len(items):
                items[place] = bytes_of_json(items[place], f"operation {number}: item {place + 1}")
        operations.append(tuple(items))
    return operations
