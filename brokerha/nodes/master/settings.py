"""Run-time settings at a master: how it learns them, sends them to others, and changes them by command.

    learn     the site applied something since the last look ── at most once a second ──> a worker of the site is asked
              no worker can be asked ──> the other masters are, one after the other, until one knows them as of the local order
    tell      SettingsRequest of a process that can ask no worker ──> SettingsReport
    change    judged by the known settings ──> a transaction that expects the settings unchanged since then ──> learn ──> answered
              another change was faster ──> judged again, up to `TRIES` times

So a change is an ordinary entry of the log. Two changes at two masters never contradict each other. Used only by the loop.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import structlog

from brokerha.client.outcomes import error_of_reply, is_conflict
from brokerha.master.command_arguments import check_command
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady, OutcomeUnknown
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.operation_checks import TABLE as TABLE_KIND
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.requests import APPLIED_LEVEL, SYNCHRONISED, Reply
from brokerha.model.reserved.settings import TABLE, Row, name_problem, packed, problem_of, text_of, value_of, value_problem
from brokerha.model.wire.messages import Outgoing, SettingsReport, SettingsRequest
from brokerha.nodes.loop import NodeLoop, complete
from brokerha.nodes.settings import NEVER, NodeSettings, rows_of
from brokerha.ports.front import ReadOutcome

log = structlog.get_logger()

LOOK_MS: Final = 1000
"""Least time between two looks, while no change waits for one."""
ANSWER_MS: Final = 2000
"""A look without an answer after this time is tried again."""
TRIES: Final = 5
WISHES_LIMIT: Final = 100
"""Most changes under way at one master."""

Answer = dict[str, Any]


class SettingsHost(NamedTuple):
    """What the master does for its settings."""

    node: NodeId
    now: Callable[[], Instant]
    ask_worker: Callable[[Lsn, int], Future[ReadOutcome] | None]
    """Asks a worker for the rows, as of at least this LSN, within so many ms; None when no worker can be asked now."""
    send: Callable[[list[Outgoing]], None]
    submit: Callable[[bytes, str], Future[Reply]]
    """Submits a transaction with its level."""
    others: Callable[[], tuple[NodeId, ...]]
    """The other masters."""
    end: Callable[[], Lsn]
    """Last LSN of the order at this master."""
    reached: Callable[[], Lsn]
    """Highest LSN that a worker of the site has applied; same as `end` at a site without workers."""
    has_workers: Callable[[], bool]


@dataclass(slots=True)
class _Wish:
    """A change under way."""

    name: str
    row: Row
    future: Future[Answer]
    ends_ms: int
    least_lsn: Lsn
    """The change is judged when the settings are known as of this LSN."""
    before: Row | None = None
    """The row when the change was judged."""
    lsn: Lsn = 0
    """LSN of the change; 0 while it has none."""
    level: str = ""
    """Level that its transaction has reached."""
    is_sent: bool = False
    tries: int = 0


class MasterSettings:
    """The run-time settings at one master."""

    def __init__(self, here: NodeSettings, host: SettingsHost) -> None:
        self.here = here
        self._host = host
        self._wishes: list[_Wish] = []
        self._looked_ms: int | None = None
        self._asked_ms: int | None = None
        """When the open question was asked; None when none is open."""
        self._asked_number = 0
        self.due_ms: int | None = 0
        """When `tick` is due next, as of the last call; None when there is nothing to learn and no change waits."""
        self._place = 0
        """Index of the other master to ask next."""
        self._ended = ""
        """Why changes are refused; empty while they are not."""

    # ---- learn

    def tick(self, now: Instant) -> None:
        """Serve what is due; called at the end of each turn. It does little while no change waits and the last look is recent."""
        if self.here.lsn > self._host.end():
            # The order went back.
            self.here.lsn = NEVER
        look_at_ms = self._look_at_ms()
        if self._wishes or now.mono_ms >= look_at_ms:
            self._serve(now)
            due = [wish.ends_ms for wish in self._wishes]
            if self._is_behind():
                due.append(self._look_at_ms())
            self.due_ms = min(due, default=None)
        else:
            self.due_ms = look_at_ms

    def _serve(self, now: Instant) -> None:
        for wish in [each for each in self._wishes if now.mono_ms >= each.ends_ms]:
            text = f"it is not known what became of {wish.name}: brokerha settings get {wish.name} tells"
            self._fail(wish, OutcomeUnknown("", text))
        if self._is_behind() and now.mono_ms >= self._look_at_ms():
            self._look(now)

    def _is_behind(self) -> bool:
        return self.here.lsn < self._least_lsn()

    def _least_lsn(self) -> Lsn:
        """Return the LSN as of which the settings must be known here."""
        return max(self._host.reached(), self._wanted_lsn())

    def _wanted_lsn(self) -> Lsn:
        return max((max(wish.least_lsn, wish.lsn) for wish in self._wishes), default=0)

    def _look_at_ms(self) -> int:
        if self._asked_ms is not None:
            return self._asked_ms + ANSWER_MS
        if self._looked_ms is None:
            return 0
        # Nothing was learnt yet, or a change waits for a look.
        may_be_waited_for = self._wishes or self.here.lsn == NEVER
        is_waited_for = may_be_waited_for and self.here.lsn < self._wanted_lsn() and self._host.has_workers()
        return 0 if is_waited_for else self._looked_ms + LOOK_MS

    def _look(self, now: Instant) -> None:
        self._looked_ms = self._asked_ms = now.mono_ms
        self._asked_number += 1
        number = self._asked_number
        found = self._host.ask_worker(self._least_lsn(), ANSWER_MS)
        if found is not None:
            found.add_done_callback(lambda done: self._on_rows(number, done))
        elif others := self._host.others():
            self._place += 1
            self._host.send([Outgoing(others[self._place % len(others)], SettingsRequest())])

    def _on_rows(self, number: int, done: Future[ReadOutcome]) -> None:
        if self._ended or number != self._asked_number:
            return
        self._asked_ms = None
        if done.exception() is None:
            self._learn(done.result().lsn, json.loads(done.result().body))

    def on_report(self, sender: NodeId, report: SettingsReport) -> None:
        """Take the settings of another master; ignore a report that was not asked for, or that is older than the known settings."""
        if self._asked_ms is None or sender not in self._host.others() or report.lsn < self.here.lsn:
            return
        self._asked_ms = None
        self._learn(report.lsn, told_by(report))

    def _learn(self, lsn: Lsn, told: Any) -> None:
        try:
            self.here.learn(lsn, rows_of(told))
        except ValueError as error:
            log.warning("settings cannot be read", node=self._host.node, error=str(error))
            return
        for wish in list(self._wishes):
            self._go_on(wish)

    def report(self) -> list[SettingsReport]:
        """Return the report for another master; nothing before the settings were learnt here."""
        if self.here.lsn == NEVER:
            return []
        return [SettingsReport(self.here.lsn, tuple((name, packed(row)) for name, row in self.here.rows.items()))]

    # ---- change

    def run(self, loop: NodeLoop, name: str, arguments: dict[str, Any], timeout_ms: int) -> Future[Answer]:
        """Carry out one of `AT_NODES`, from any thread. Raises InvalidRequest; the future raises it too, or an error of a write."""
        check_command(name, arguments)
        future: Future[Answer] = Future()

        def begin() -> None:
            if name == "settings":
                complete(future, {**self._told(), "settings": self.here.report()})
                return
            wish = self._wish(name, arguments, timeout_ms, future)
            self._wishes.append(wish)
            self._go_on(wish)

        loop.call_for(future, begin)
        return future

    def _told(self) -> Answer:
        return {"master": self._host.node, "lsn": max(0, self.here.lsn), "problem": self.here.problem}

    def _wish(self, command: str, arguments: dict[str, Any], timeout_ms: int, future: Future[Answer]) -> _Wish:
        """Raises InvalidRequest, NotReady."""
        name, value = arguments["name"], None
        if command == "setting-set":
            text = arguments["value"].strip().lower()
            if problem := value_problem(name, text):
                raise InvalidRequest(problem)
            value = text_of(value_of(name, text))
        elif problem := name_problem(name):
            raise InvalidRequest(problem)
        if self._ended or len(self._wishes) >= WISHES_LIMIT:
            raise NotReady(self._ended or f"{WISHES_LIMIT} changes of settings are under way: try again")
        now = self._host.now()
        origin = f"{arguments.get('from') or 'a program'}, by {self._host.node}"
        row = Row(value, arguments.get("by") or "", now.wall_us, origin)
        if problem := problem_of(name.encode(), packed(row)):
            raise InvalidRequest(problem)
        return _Wish(name, row, future, now.mono_ms + timeout_ms, self._host.reached())

    def _go_on(self, wish: _Wish) -> None:
        """Take the next step of a change when the known settings are recent enough."""
        if wish.lsn and self.here.lsn >= wish.lsn:
            self._settle(wish)
        elif not wish.is_sent and self.here.lsn >= wish.least_lsn:
            self._send(wish)

    def _send(self, wish: _Wish) -> None:
        if problem := self.here.problem_with(wish.name, wish.row.value):
            self._fail(wish, InvalidRequest(problem))
            return
        change: list[Operation] = [
            ("expect-since", TABLE_KIND, TABLE, self.here.lsn),
            ("put", TABLE, wish.name.encode(), packed(wish.row)),
        ]
        level = APPLIED_LEVEL if self._host.has_workers() else SYNCHRONISED
        wish.before, wish.is_sent, wish.tries = self.here.rows.get(wish.name), True, wish.tries + 1
        try:
            reply = self._host.submit(pack_operations(change), level)
        except BrokerhaError as error:
            self._fail(wish, error)
            return
        reply.add_done_callback(lambda done: self._on_reply(wish, done.result()))

    def _on_reply(self, wish: _Wish, reply: Reply) -> None:
        if is_conflict(reply) and wish.tries < TRIES:
            wish.is_sent, wish.least_lsn = False, reply.lsn
        elif error := error_of_reply(reply):
            self._fail(wish, error)
        else:
            wish.lsn, wish.level = reply.lsn, reply.status

    def _settle(self, wish: _Wish) -> None:
        """Answer a change when the settings as of its LSN are known. At a site without workers its outcome was not heard."""
        row = self.here.rows.get(wish.name)
        if wish.level == SYNCHRONISED and row != wish.row and row == wish.before:
            # Other changes of settings came before it.
            wish.is_sent, wish.least_lsn, wish.lsn = False, wish.lsn, 0
            if wish.tries < TRIES:
                self._send(wish)
            else:
                self._fail(wish, NotReady(f"{wish.name} was not changed: others change settings all the time; try again"))
            return
        self._wishes.remove(wish)
        complete(wish.future, {**self._told(), "set_lsn": wish.lsn, "setting": self.here.report_of(wish.name)})

    def _fail(self, wish: _Wish, error: BrokerhaError) -> None:
        if wish in self._wishes:
            self._wishes.remove(wish)
        complete(wish.future, error)

    def close(self, reason: str) -> None:
        """Answer all waiting callers: the node stops, or another process is primary now."""
        self._ended = reason
        for wish in list(self._wishes):
            self._fail(wish, NotReady(reason))


def told_by(report: SettingsReport) -> dict[str, Any]:
    """Return the rows of a report in the form for `rows_of`. Raises ValueError."""
    return {name: json.loads(value) for name, value in report.rows}
