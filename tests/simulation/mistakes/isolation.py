"""Planted mistakes about what isolated transactions have read (transactions, section 4); for `catalogue.py`, which makes them.

Each forgets something that was found, or does not judge it; the simulator has to notice by T9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from brokerha.model.ids import Lsn
from brokerha.model.operations import Checked, Operation
from brokerha.model.outside.isolation import SNAPSHOT
from brokerha.stores.execution import batch as batch_module
from brokerha.stores.execution.expectations import Before
from brokerha.stores.reads import observing
from brokerha.transactions.read_set import ReadSet
from tests.simulation.mistakes.workers import Patch

# The replacements below take ``self`` of classes whose insides they must touch.


def _demand_nothing(_self: ReadSet, _operations: Iterable[bytes]) -> list[bytes]:
    return []


def _demand_what_is_written(self: ReadSet, operations: Iterable[bytes]) -> list[bytes]:
    level, self.level = self.level, SNAPSHOT
    try:
        return _demands(self, operations)
    finally:
        self.level = level


_demands = ReadSet.demands


def _forget(_self: ReadSet, _found: Sequence[Operation], _lsn: Lsn = 0) -> None:
    return


def _judge_nothing(_operations: Iterable[Checked], _before: Before) -> None:
    return


def _only_the_last(self: ReadSet, found: Sequence[Operation], lsn: Lsn = 0) -> None:
    self._found.clear()
    _add(self, found, lsn)


_add = ReadSet.add

ISOLATION_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "nothing of what was read has to hold": lambda: [(ReadSet, "demands", _demand_nothing)],
    "serializable is snapshot": lambda: [(ReadSet, "demands", _demand_what_is_written)],
    "what was read is forgotten": lambda: [(ReadSet, "add", _forget)],
    "only the last read counts": lambda: [(ReadSet, "add", _only_the_last)],
    "earlier reads are not judged by later ones": lambda: [(observing, "judge_expectations", _judge_nothing)],
    "expectations are not judged at their place": lambda: [(batch_module, "judge_expectations", _judge_nothing)],
}
