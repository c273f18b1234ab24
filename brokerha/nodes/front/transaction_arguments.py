"""What a node checks of a step of a transaction before the loop hears of it. Whatever is wrong is one InvalidRequest that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import Xid
from brokerha.model.operations import OPERATIONS_LIMIT, QUEUE, name_problem
from brokerha.model.outside.isolation import ISOLATIONS, READ_COMMITTED
from brokerha.model.outside.levels import COPIES_LIMIT
from brokerha.model.outside.shapes import (
    FLAG,
    TIMEOUT,
    TXID,
    Shape,
    Shapes,
    check_shapes,
    is_text,
    listed,
    needed,
    number,
    one_of,
    shown,
    text,
)
from brokerha.model.requests import APPLIED_LEVEL, LEVELS
from brokerha.nodes.front.checking import checked_body

TAKING: Final = "accept"
LIST: Final = "list"
TX_TIMEOUT_LIMIT_MS: Final = 86_400_000
"""The highest that tx-timeout-max-s may be; the coordinator knows what it is."""
TAKE_LIMIT: Final = 1000
"""Messages that one step takes at most."""
SESSION_LIMIT: Final = 128
XID_LIMIT: Final = 300

Arguments = dict[str, Any]


def checked_step(action: str, txid: str, arguments: Arguments, timeout_ms: int) -> Arguments:
    """The arguments of a step, complete. ``txid`` is empty where a new one begins, or all are meant. Raises InvalidRequest and its kinds."""
    shapes = _SHAPES.get(action)
    if shapes is None:
        raise InvalidRequest(
            f"there is no step {shown(action)} of a transaction; there are {', '.join(sorted(_SHAPES))}"
        )
    about = {"txid": txid or None, "timeout_ms": timeout_ms}
    check_shapes(f"the step {action}", _STEP if action in {"begin", LIST} else _STEP_OF_ONE, about)
    check_shapes(f"the step {action}", shapes, arguments)
    given = {name: value for name, value in arguments.items() if value is not None}
    return _COMPLETE.get(action, dict)(given)


def _begin(given: Arguments) -> Arguments:
    xid = given.get("xid", "")
    if xid:
        try:
            xid = Xid.parse(xid).text
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
    return {
        "xid": xid,
        "timeout_ms": given.get("timeout_ms", 0),
        "session": given.get("session", ""),
        "isolation": given.get("isolation", READ_COMMITTED),
    }


def _operations(given: Arguments) -> Arguments:
    operations = [tuple(each) for each in given["operations"]]
    checked_body(operations)
    return {"first": given.get("first"), "operations": operations}


def _accept(given: Arguments) -> Arguments:
    return {"first": None, "count": 1, "wait_ms": 0, **given}


def _commit(given: Arguments) -> Arguments:
    return {"one_phase": None, "level": APPLIED_LEVEL, "copies": 1, **_end(given)}


def _end(given: Arguments) -> Arguments:
    rest = {name: value for name, value in given.items() if name != "by_hand" or value}
    return {"session": "", **rest}


_STEP: Final[Shapes] = {"txid": TXID, "timeout_ms": TIMEOUT}
_STEP_OF_ONE: Final[Shapes] = {"txid": needed(TXID), "timeout_ms": TIMEOUT}
_SESSION: Final[Shapes] = {"session": text(SESSION_LIMIT)}
_END: Final[Shapes] = {**_SESSION, "by_hand": FLAG}
_FIRST: Final = number(0, OPERATIONS_LIMIT)
_LISTED: Final = Shape("a list", lambda value: isinstance(value, (tuple, list)))
_QUEUE: Final = Shape(f"the name of a {QUEUE}", lambda value: is_text(value) and not name_problem(QUEUE, value))
_SHAPES: Final[dict[str, Shapes]] = {
    "begin": {
        "xid": text(XID_LIMIT),
        "timeout_ms": number(0, TX_TIMEOUT_LIMIT_MS),
        "isolation": one_of(*ISOLATIONS),
        **_SESSION,
    },
    "operations": {"first": _FIRST, "operations": needed(listed(_LISTED, 0, OPERATIONS_LIMIT))},
    TAKING: {
        "first": _FIRST,
        "queue": needed(_QUEUE),
        "count": number(1, TAKE_LIMIT),
        "wait_ms": number(0, TX_TIMEOUT_LIMIT_MS),
    },
    "prepare": _SESSION,
    "commit": {**_END, "one_phase": FLAG, "level": one_of(*LEVELS), "copies": number(1, COPIES_LIMIT)},
    "rollback": _END,
    "ping": {},
    "forget": {},
    LIST: {},
}
_COMPLETE: Final[dict[str, Callable[[Arguments], Arguments]]] = {
    "begin": _begin,
    "operations": _operations,
    TAKING: _accept,
    "prepare": _end,
    "commit": _commit,
    "rollback": _end,
}
"""What they are when not all is given."""
