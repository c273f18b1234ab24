"""Operators' commands on their way through a master's loop: run between two turns, answered once what they changed is durable.

Where a master has backups an answer waits for them as any other one does.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from brokerha.master.command_arguments import check_command
from brokerha.master.site_commands import SiteCommands
from brokerha.model.errors import BrokerhaError, NotReady, TimedOut
from brokerha.nodes.loop import NodeLoop
from brokerha.nodes.master.runner import MasterRunner
from brokerha.nodes.observing.split_reports import REPORTS, SplitReports
from brokerha.ports.clock import Clock

Answer = dict[str, Any]
WAITING_LIMIT = 1000
"""Commands that wait for backups at once."""


class Commands:
    """Commands under way at one master; `run` from any thread, `settle` by the loop."""

    def __init__(self, clock: Clock, *, protect_single_worker: bool) -> None:
        self._clock = clock
        self._protects = protect_single_worker
        self._reports = SplitReports()
        self._open: list[tuple[Future[Answer], Answer, object]] = []
        self._waiting: set[Future[Answer]] = set()
        """What they changed is durable here, and has to be at backups."""
        self._ended = ""
        """Why no command is taken any more; empty as long as they are."""

    def run(self, loop: NodeLoop, runner: MasterRunner, name: str, arguments: dict[str, Any]) -> Future[Answer]:
        """Hand a command in. Raises InvalidRequest at once; the future raises it too, NotFound and NotReady."""
        check_command(name, arguments)
        if name in REPORTS and not self._ended:
            return self._reports.run(runner, name, arguments)
        future: Future[Answer] = Future()

        def carry_out() -> None:
            if refusal := self._ended or runner.failure:
                future.set_exception(NotReady(refusal))
                return
            commands = SiteCommands(runner.core, protect_single_worker=self._protects)
            try:
                answer = commands.run(name, arguments, self._clock.now())
            except BrokerhaError as error:
                future.set_exception(error)
                return
            self._open.append((future, answer, runner.core))

        called = loop.call(carry_out)
        called.add_done_callback(
            lambda done: future.set_exception(error) if (error := done.exception()) and not future.done() else None
        )
        return future

    def settle(self, runner: MasterRunner) -> None:
        """Answer what is durable now; what a failed journal lost is refused."""
        waiting, self._open = self._open, []
        for future, answer, core in waiting:
            if runner.failure or core is not runner.core:
                _fail(future, NotReady(f"nothing was changed: {runner.failure or 'the journal failed'}"))
            elif runner.core.to_write:
                self._open.append((future, answer, core))
            else:
                self._tell(runner, future, answer)

    def _tell(self, runner: MasterRunner, future: Future[Answer], answer: Answer) -> None:
        """Answer once enough backups hold what was changed."""
        if len(self._waiting) >= WAITING_LIMIT:
            _fail(future, TimedOut(f"{WAITING_LIMIT} commands wait for the backups already; see status"))
            return
        self._waiting.add(future)

        def tell() -> None:
            self._waiting.discard(future)
            if not future.done():
                future.set_result(answer)

        runner.when_safe(tell)

    def close(self, reason: str) -> None:
        """Answer everybody who waits: the node stops, or another process is primary now."""
        self._ended = reason
        open_, self._open = self._open, []
        waiting, self._waiting = self._waiting, set()
        for future in (*(each[0] for each in open_), *waiting):
            _fail(future, TimedOut(f"whether it was carried out is unknown, see status: {reason}"))


def _fail(future: Future[Answer], error: BrokerhaError) -> None:
    if not future.done():
        future.set_exception(error)
