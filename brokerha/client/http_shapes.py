"""Shapes of the answers of a node over HTTP: a proxy, or another program at its address, answers with JSON too.

A shape is a type, several types, ``[shape]`` for a list of such items, or a dictionary with the fields that the client relies on.

>>> fits({"checks": [{"name": str}]}, {"checks": [{"name": "c", "kind": "ask"}]}), fits([str], {}), fits(int, True)
(True, False, False)
"""

from __future__ import annotations

from typing import Any, Final

Shape = Any

OF_READS: Final[dict[str, Shape]] = {
    "size": int,
    "tables": [str],
    "snapshots": [{"name": str, "tables": [str], "lsn": int}],
    "queues": dict,
    "staged": [{"txid": str}],
    "fingerprint": dict,
    "control": {"checks": [{"name": str, "kind": str, "target": str, "text": str, "expected": str}]},
}
"""Reads whose answer is JSON; names of repositories and contexts come from a table."""
PACKED: Final = frozenset({"range", "together", "queue", "message", "digests", "items"})
"""Reads whose answer is msgpack, which can be too large to be decoded twice: its content type is enough."""
OF_QUESTIONS: Final[dict[str, Shape]] = {
    "status": {"nodes": [{"id": str, "state": str}]},
    "log": [{"lsn": int, "txid": str}],
    "logged": [[object]],
    "entries": {"first_lsn": int, "last_lsn": int, "entries": [[object]]},
    "outcome": {"txid": str, "state": str},
}
"""Every other question is answered with a dictionary."""
MESSAGES: Final = {"messages": [[(str, bytes)]]}
OF_STEPS: Final[dict[str, Shape]] = {
    "begin": {"txid": str, "node": str},
    "operations": {"count": int},
    "accept": {"count": int, **MESSAGES},
    "prepare": {"state": str},
}
"""Of every other step, and of a command, a dictionary."""
OF_COMMANDS: Final[dict[str, Shape]] = {"unpin": {"changed": bool}}
TRANSACTIONS: Final = {"transactions": [{"txid": str, "node": str, "state": str, "xid": str}]}


def fits(shape: Shape, value: Any) -> bool:
    """Tell whether a value has a shape."""
    if isinstance(shape, list):
        return isinstance(value, (list, tuple)) and all(fits(shape[0], each) for each in value)
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(name in value and fits(each, value[name]) for name, each in shape.items())
    return isinstance(value, shape) and (type(value) is not bool or shape in {bool, object})


def shaped(shape: Shape, value: Any) -> Any:
    """Return a value that has this shape. Raises ValueError for another one."""
    if not fits(shape, value):
        raise ValueError(f"not as {shape}")
    return value
