"""What a node checks of a step of a transaction before the loop hears of it. Whatever is wrong is one InvalidRequest that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import Xid
from brokerha.model.levels import COPIES_LIMIT
from brokerha.model.operations import OPERATIONS_LIMIT
from brokerha.model.requests import APPLIED_LEVEL, LEVELS
from brokerha.nodes.checking import checked_body

TAKING: Final = "accept"
LIST: Final = "list"
TX_TIMEOUT_LIMIT_MS: Final = 86_400_000
"""The highest that tx-timeout-max-s may be; the coordinator knows what it is."""
TAKE_LIMIT: Final = 1000
"""Messages that one step takes at most."""
SESSION_LIMIT: Final = 128

Arguments = dict[str, Any]


def checked_arguments(action: str, arguments: Arguments) -> Arguments:
    """The arguments of an action, complete. Raises InvalidRequest and its kinds."""
    check = _CHECKS.get(action)
    if check is None:
        raise InvalidRequest(f"there is no step {action!r} of a transaction; there are {', '.join(sorted(_CHECKS))}")
    return check(arguments)


def _begin(arguments: Arguments) -> Arguments:
    xid = _text(arguments, "xid", 300)
    if xid:
        try:
            xid = Xid.parse(xid).text
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
    timeout_ms = _number(arguments, "timeout_ms", 0, TX_TIMEOUT_LIMIT_MS, 0)
    return {"xid": xid, "timeout_ms": timeout_ms, "session": _session(arguments)}


def _operations(arguments: Arguments) -> Arguments:
    listed = arguments.get("operations")
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, (list, tuple)) for each in listed):
        raise InvalidRequest('operations are a list of lists such as [["put", "table", "key", "value"]]')
    operations = [tuple(each) for each in listed]
    checked_body(operations)
    return {"first": _first(arguments), "operations": operations}


def _accept(arguments: Arguments) -> Arguments:
    queue = _text(arguments, "queue", 1000)
    if not queue:
        raise InvalidRequest("name the queue to take from")
    count = _number(arguments, "count", 1, TAKE_LIMIT, 1)
    wait_ms = _number(arguments, "wait_ms", 0, TX_TIMEOUT_LIMIT_MS, 0)
    return {"first": _first(arguments), "queue": queue, "count": count, "wait_ms": wait_ms}


def _commit(arguments: Arguments) -> Arguments:
    one_phase = arguments.get("one_phase")
    if one_phase is not None and not isinstance(one_phase, bool):
        raise InvalidRequest(f"one_phase is true, false or left out, not {one_phase!r}")
    level = arguments.get("level", APPLIED_LEVEL)
    if level not in LEVELS:
        raise InvalidRequest(f"unknown acknowledgement level {level!r}: write one of {', '.join(LEVELS)}")
    copies = _number(arguments, "copies", 1, COPIES_LIMIT, 1)
    return {**_end(arguments), "one_phase": one_phase, "level": level, "copies": copies}


def _end(arguments: Arguments) -> Arguments:
    by_hand = arguments.get("by_hand", False)
    if not isinstance(by_hand, bool):
        raise InvalidRequest(f"by_hand is true or false, not {by_hand!r}")
    return {"session": _session(arguments), **({"by_hand": True} if by_hand else {})}


def _prepare(arguments: Arguments) -> Arguments:
    return {"session": _session(arguments)}


def _nothing(_arguments: Arguments) -> Arguments:
    return {}


_CHECKS: Final[dict[str, Callable[[Arguments], Arguments]]] = {
    "begin": _begin,
    "operations": _operations,
    TAKING: _accept,
    "prepare": _prepare,
    "commit": _commit,
    "rollback": _end,
    "ping": _nothing,
    "forget": _nothing,
    LIST: _nothing,
}


def _first(arguments: Arguments) -> int | None:
    return None if arguments.get("first") is None else _number(arguments, "first", 0, OPERATIONS_LIMIT, 0)


def _session(arguments: Arguments) -> str:
    return _text(arguments, "session", SESSION_LIMIT)


def _text(arguments: Arguments, name: str, limit: int) -> str:
    value = arguments.get(name, "")
    if not isinstance(value, str) or len(value) > limit:
        raise InvalidRequest(f"{name} is a text of at most {limit} characters")
    return value


def _number(arguments: Arguments, name: str, least: int, most: int, default: int) -> int:
    value = arguments.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequest(f"{name} is a whole number from {least} to {most}, not {value!r}")
    return value
