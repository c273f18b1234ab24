"""Questions about the cluster: their names, their arguments, and how a node is asked. Every door uses this table.

answer(front, "log", {"first_lsn": 1, "last_lsn": 9})    waits, a grace longer than its timeout at most
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

import structlog

from brokerha.master.command_arguments import check_command
from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import NodeId
from brokerha.model.outside.commands import is_change
from brokerha.model.outside.levels import COPIES_LIMIT
from brokerha.model.outside.shapes import LSN, MAP, TEXT, TIMEOUT, TXID, Shapes, check_shapes, either, needed, number, one_of, shown
from brokerha.ports.front import Front

log = structlog.get_logger()

TIMEOUT_DEFAULT_MS: Final = 5000
GRACE_S: Final = 5.0
STATUS_TIMEOUT_MS: Final = 2000
"""Longest wait of the status for silent masters, as over HTTP: few threads answer all questions."""

Arguments = Mapping[str, Any]


class _Question(NamedTuple):
    shapes: Shapes
    ask: Callable[[Front, Arguments, int], Any]
    """Takes the timeout in ms; can return a future."""


_LINES: Final[Shapes] = {"first_lsn": needed(LSN), "last_lsn": needed(LSN)}
_OF_ALL: Final[Shapes] = {"timeout_ms": TIMEOUT, "node": TEXT}
"""Every question can name the node that it is for."""
_WORKERS: Final = either(number(1, COPIES_LIMIT), one_of("all", "quorum"))
QUESTIONS: Final[dict[str, _Question]] = {
    "status": _Question({}, lambda front, _, timeout_ms: front.status(min(timeout_ms, STATUS_TIMEOUT_MS))),
    "log": _Question(_LINES, lambda front, asked, _: front.log(asked["first_lsn"], asked["last_lsn"])),
    "logged": _Question(_LINES, lambda front, asked, _: front.logged(asked["first_lsn"], asked["last_lsn"])),
    "entries": _Question(_LINES, lambda front, asked, _: front.entries(asked["first_lsn"], asked["last_lsn"])),
    "outcome": _Question({"txid": needed(TXID)}, lambda front, asked, _: front.outcome(asked["txid"])),
    "command": _Question(
        {"name": needed(TEXT), "arguments": needed(MAP)},
        lambda front, asked, timeout_ms: front.command(asked["name"], asked["arguments"], timeout_ms),
    ),
    "wait": _Question(
        {"lsn": needed(LSN), "workers": needed(_WORKERS)},
        lambda front, asked, timeout_ms: front.wait_for(asked["lsn"], asked["workers"], timeout_ms),
    ),
}


def note_command(done: Future[Any], node: NodeId, name: str, arguments: Arguments, user: str, origin: str) -> None:
    """Log who gave this node a command that changes something, once its result is known."""

    def note(done: Future[Any]) -> None:
        error = done.exception()
        refused = {} if error is None else {"refused": f"{type(error).__name__}: {error}"}
        log.info("command", node=node, command=name, arguments=dict(arguments), user=user, origin=origin, **refused)

    if is_change(name, arguments):
        done.add_done_callback(note)


def check_question(what: str, arguments: Arguments) -> None:
    """Raise InvalidRequest for an unknown question or wrong arguments. Waits for nothing."""
    question = QUESTIONS.get(what)
    if question is None:
        raise InvalidRequest(f"unknown question {shown(what)}; known are {', '.join(sorted([*QUESTIONS, 'transact']))}")
    check_shapes(f"the question {what}", {**question.shapes, **_OF_ALL}, arguments)
    first, last = arguments.get("first_lsn", 0), arguments.get("last_lsn", 0)
    # ``last_lsn`` 0 means the whole log.
    if first > last and (last or what != "log"):
        raise InvalidRequest(f"from ({first}) is above to ({last})")
    if what == "command":
        check_command(arguments["name"], arguments["arguments"])


def answer(front: Front, what: str, arguments: Arguments) -> Any:
    """Ask, and wait for the answer. Raises InvalidRequest, and the errors of the node."""
    check_question(what, arguments)
    timeout_ms = arguments.get("timeout_ms") or TIMEOUT_DEFAULT_MS
    found = QUESTIONS[what].ask(front, arguments, timeout_ms)
    return found.result(timeout_ms / 1000 + GRACE_S) if hasattr(found, "add_done_callback") else found
