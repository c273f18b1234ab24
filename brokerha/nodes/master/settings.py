"""Settings at run time at a master: how it learns them, tells them to others, and changes them by command.

    learn     something was applied here since the last look ── at most once a second ──> a worker of the site is asked
              no worker can be asked: the other masters are, one after the other, until one knows the settings as of the order here
    tell      SettingsRequest of a process that can ask no worker ──> SettingsReport
    change    judged by what is known here ──> a transaction that expects the settings unchanged since then ──> learn ──> answered
              others were faster: judged again, up to `TRIES` times

So a change is an ordinary place in the order, and two at two masters never make a pair that contradicts itself. Belongs to the loop.
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
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady, TimedOut
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.operation_checks import TABLE as TABLE_KIND
from brokerha.model.operations import Operation, pack_operations
from brokerha.model.requests import APPLIED_LEVEL, SYNCHRONISED, Reply
from brokerha.model.reserved.settings import (
    TABLE,
    Row,
    name_problem,
    packed,
    problem_of,
    text_of,
    value_of,
    value_problem,
)
from brokerha.model.wire.messages import Outgoing, SettingsReport, SettingsRequest
from brokerha.nodes.loop import NodeLoop, complete
from brokerha.nodes.settings import NEVER, NodeSettings, rows_of
from brokerha.ports.front import ReadOutcome

log = structlog.get_logger()

LOOK_MS: Final = 1000
"""Least time between two looks, while nobody waits for one."""
ANSWER_MS: Final = 2000
"""A look that is not answered for so long is tried again."""
TRIES: Final = 5
WISHES_LIMIT: Final = 100
"""Changes under way at one master."""

Answer = dict[str, Any]


class SettingsHost(NamedTuple):
    """What the master does for its settings."""

    node: NodeId
    now: Callable[[], Instant]
    ask_worker: Callable[[Lsn, int], Future[ReadOutcome] | None]
    """Asks a worker for the rows, as of this LSN at least, within so many ms; None when no worker can be asked now."""
    send: Callable[[list[Outgoing]], None]
    submit: Callable[[bytes, str], Future[Reply]]
    """Hands in a transaction with its level."""
    others: Callable[[], tuple[NodeId, ...]]
    """The other masters."""
    end: Callable[[], Lsn]
    """Of the order here."""
    reached: Callable[[], Lsn]
    """Up to where the best worker of the site has applied it; `end` of a site without workers."""
    has_workers: Callable[[], bool]


@dataclass(slots=True)
class _Wish:
    """A change under way."""

    name: str
    row: Row
    future: Future[Answer]
    ends_ms: int
    least_lsn: Lsn
    """It is judged where the settings are known as of this LSN."""
    before: Row | None = None
    """What was there when it was judged."""
    lsn: Lsn = 0
    """Its place in the order; 0 as long as it has none."""
    level: str = ""
    """What its transaction has reached."""
    is_sent: bool = False
    tries: int = 0


class MasterSettings:
    """Those of one master."""

    def __init__(self, here: NodeSettings, host: SettingsHost) -> None:
        self.here = here
        self._host = host
        self._wishes: list[_Wish] = []
        self._looked_ms: int | None = None
        self._asked_ms: int | None = None
        """When the question was asked that is not answered yet."""
        self._asked_number = 0
        self.due_ms: int | None = 0
        """When `tick` wants to be called, as of the last one; None when nothing is to be learnt, and nobody waits."""
        self._place = 0
        """Which of the other masters is asked next."""
        self._ended = ""
        """Why nothing is changed any more."""

    # ---- learn

    def tick(self, now: Instant) -> None:
        """Serve what is due; called at the end of each turn, and a few calls long while nobody waits and the last look is not long ago."""
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
            self._fail(wish, TimedOut(f"it is not known what became of {wish.name}: brokerha settings get {wish.name} tells"))
        if self._is_behind() and now.mono_ms >= self._look_at_ms():
            self._look(now)

    def _is_behind(self) -> bool:
        return self.here.lsn < self._least_lsn()

    def _least_lsn(self) -> Lsn:
        """What the settings here have to be as of."""
        return max(self._host.reached(), self._wanted_lsn())

    def _wanted_lsn(self) -> Lsn:
        return max((max(wish.least_lsn, wish.lsn) for wish in self._wishes), default=0)

    def _look_at_ms(self) -> int:
        if self._asked_ms is not None:
            return self._asked_ms + ANSWER_MS
        if self._looked_ms is None:
            return 0
        # Nothing was learnt yet, or somebody waits for a change.
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
        """Another master tells them; one that was not asked, or knows less than is known here, does not count."""
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
        """What another master is told; nothing before they were learnt here."""
        if self.here.lsn == NEVER:
            return []
        return [SettingsReport(self.here.lsn, tuple((name, packed(row)) for name, row in self.here.rows.items()))]

    # ---- change

    def run(self, loop: NodeLoop, name: str, arguments: dict[str, Any], timeout_ms: int) -> Future[Answer]:
        """Carry out one of `AT_NODES`, from any thread. Raises InvalidRequest; the future fails with it too, and with what a write may end in."""
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
        """What is known here now may be enough for the next step of a change."""
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
        """It has its place, and the settings as of it are known here. Without workers nobody here heard how it was judged."""
        row = self.here.rows.get(wish.name)
        if wish.level == SYNCHRONISED and row != wish.row and row == wish.before:
            # Others changed a setting before it.
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
        """Answer who waits: the node stops, or another process is primary now."""
        self._ended = reason
        for wish in list(self._wishes):
            self._fail(wish, NotReady(reason))


def told_by(report: SettingsReport) -> dict[str, Any]:
    """What a report tells, as `rows_of` takes it. Raises ValueError."""
    return {name: json.loads(value) for name, value in report.rows}
