"""The split book of a master for whoever asks, read beside its loop: joining it with the log may take a second.

Must never: tell what backups may not hold yet, or mix what was before and after the log went back once more.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from threading import BoundedSemaphore, Thread
from typing import Any

from brokerha.master import split_report
from brokerha.master.split_commands import facts_of
from brokerha.master.split_report import Facts
from brokerha.model.errors import BrokerhaError, NotReady
from brokerha.model.records import History
from brokerha.nodes.master.runner import MasterRunner

Answer = dict[str, Any]

REPORTS: dict[str, Callable[[History, Facts, Answer], Answer]] = {
    "splits": lambda history, facts, _arguments: split_report.listed(history, facts),
    "split": split_report.shown,
}
"""Commands that only read."""
AT_ONCE = 2
"""Reports that may be made at the same time."""


class SplitReports:
    """Makes reports of one master; callable from any thread."""

    def __init__(self) -> None:
        self._places = BoundedSemaphore(AT_ONCE)

    def run(self, runner: MasterRunner, name: str, arguments: Answer) -> Future[Answer]:
        """Make one. The future raises NotFound, InvalidRequest, NotReady."""
        future: Future[Answer] = Future()
        if not self._places.acquire(blocking=False):
            future.set_exception(NotReady(f"{AT_ONCE} reports of splits are being made already: ask again"))
            return future

        def make() -> None:
            try:
                future.set_result(_report(runner, name, arguments))
            except BrokerhaError as error:
                future.set_exception(error)
            except Exception as error:  # noqa: BLE001  (who waits must be told; the journal may be closed meanwhile)
                future.set_exception(NotReady(f"the split book could not be read: {error}"))
            finally:
                self._places.release()

        Thread(target=make, name="split report", daemon=True).start()
        return future


def _report(runner: MasterRunner, name: str, arguments: Answer) -> Answer:
    while True:
        splits, facts = runner.journal.splits(), facts_of(runner.core)
        safe = runner.safe_lsn
        facts = replace(facts, shown=min(facts.shown, safe), executed=min(facts.executed, safe))
        answer = REPORTS[name](runner.journal, facts, arguments)
        if runner.journal.splits() == splits:
            return answer
