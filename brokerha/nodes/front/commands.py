"""Operators' commands on their way through a master's loop: run between two turns, answered once their changes are durable.

When a master has backups, an answer waits for them like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from threading import BoundedSemaphore, Thread
from typing import Any

from brokerha.master import split_report
from brokerha.master.command_arguments import check_command
from brokerha.master.site_commands import SiteCommands
from brokerha.master.split_report import Facts, facts_of
from brokerha.model.errors import BrokerhaError, NotReady, OutcomeUnknown
from brokerha.model.records import History
from brokerha.nodes.loop import NodeLoop, complete
from brokerha.nodes.master.journal_lines import of_one_lineage
from brokerha.nodes.master.runner import MasterRunner
from brokerha.ports.clock import Clock

Answer = dict[str, Any]
REPORTS: dict[str, Callable[[History, Facts, Answer], Answer]] = {
    "splits": lambda history, facts, _arguments: split_report.listed(history, facts),
    "split": split_report.shown,
}
"""Commands that only read."""
AT_ONCE = 2
"""Most reports made at the same time."""
WAITING_LIMIT = 1000
"""Most commands that wait for backups at the same time."""


class Commands:
    """Commands under way at one master; any thread can call `run`, only the loop calls `settle`."""

    def __init__(self, clock: Clock, *, protect_single_worker: bool) -> None:
        self._clock = clock
        self._protects = protect_single_worker
        self._reports = SplitReports()
        self._open: list[tuple[Future[Answer], Answer, object]] = []
        self._waiting: set[Future[Answer]] = set()
        """Their changes are durable here, and must get to backups."""
        self._ended = ""
        """Why commands are refused; empty while they are not."""

    def run(self, loop: NodeLoop, runner: MasterRunner, name: str, arguments: dict[str, Any]) -> Future[Answer]:
        """Submit a command. Raises InvalidRequest at once; the future raises it too, NotFound and NotReady."""
        check_command(name, arguments)
        if name in REPORTS and not self._ended:
            return self._reports.run(runner, name, arguments)
        future: Future[Answer] = Future()

        def carry_out() -> None:
            if refusal := self._ended or runner.failure:
                raise NotReady(str(refusal))
            commands = SiteCommands(runner.core, protect_single_worker=self._protects)
            self._open.append((future, commands.run(name, arguments, self._clock.now()), runner.core))

        loop.call_for(future, carry_out)
        return future

    def settle(self, runner: MasterRunner) -> None:
        """Answer commands that are durable now; refuse those that a failed journal lost."""
        waiting, self._open = self._open, []
        for future, answer, core in waiting:
            if runner.failure or core is not runner.core:
                complete(future, NotReady(f"nothing was changed: {runner.failure or 'the journal failed'}"))
            elif runner.core.to_write:
                self._open.append((future, answer, core))
            else:
                self._tell(runner, future, answer)

    def _tell(self, runner: MasterRunner, future: Future[Answer], answer: Answer) -> None:
        """Answer once enough backups hold the change."""
        if len(self._waiting) >= WAITING_LIMIT:
            complete(future, _unknown(f"{WAITING_LIMIT} commands wait for the backups already"))
            return
        self._waiting.add(future)

        def tell() -> None:
            self._waiting.discard(future)
            complete(future, answer)

        runner.when_safe(tell)

    def close(self, reason: str) -> None:
        """Answer all waiting callers: the node stops, or another process is primary now."""
        self._ended = reason
        open_, self._open = self._open, []
        waiting, self._waiting = self._waiting, set()
        for future in (*(each[0] for each in open_), *waiting):
            complete(future, _unknown(reason))


def _unknown(reason: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        "", f"whether it was carried out is unknown: {reason}: look with `brokerha status` before you give it again"
    )


class SplitReports:
    """The split book of a master, read beside its loop: joining it with the log can take a second. Any thread can call it.

    Must never: show entries that backups possibly lack, or mix the states before and after another going back of the log.
    """

    def __init__(self) -> None:
        self._places = BoundedSemaphore(AT_ONCE)

    def run(self, runner: MasterRunner, name: str, arguments: Answer) -> Future[Answer]:
        """Make a report. The future raises NotFound, InvalidRequest, NotReady."""
        future: Future[Answer] = Future()
        if not self._places.acquire(blocking=False):
            future.set_exception(NotReady(f"{AT_ONCE} reports of splits are being made already: ask again"))
            return future

        def make() -> None:
            try:
                future.set_result(_report(runner, name, arguments))
            except BrokerhaError as error:
                future.set_exception(error)
            except Exception as error:  # noqa: BLE001  (the caller must be answered; the journal can be closed meanwhile)
                future.set_exception(NotReady(f"the split book could not be read: {error}"))
            finally:
                self._places.release()

        Thread(target=make, name="split report", daemon=True).start()
        return future


def _report(runner: MasterRunner, name: str, arguments: Answer) -> Answer:
    def read(_rewinds: object) -> Answer:
        facts, safe = facts_of(runner.core), runner.safe_lsn
        facts = replace(facts, shown=min(facts.shown, safe), executed=min(facts.executed, safe))
        return REPORTS[name](runner.journal, facts, arguments)

    return of_one_lineage(runner.journal, read)
