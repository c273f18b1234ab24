"""Planted mistakes in the store of workers, which the simulator runs on real files: what a crash between two of its steps has to show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from brokerha.model.ids import Lsn
from brokerha.stores.copies.directory import CopyDirectory
from brokerha.stores.execution import batch as batch_module
from brokerha.stores.execution import worker_store as worker_store_module
from brokerha.stores.execution.effects_log import EffectsLog
from brokerha.stores.rdf.repositories import Repositories
from tests.simulation.mistakes.workers import Patch, _nothing

# The replacements below take ``self`` of classes whose insides they must touch.


def _only_say_so(self: Repositories, lsn: Lsn) -> None:
    for repository in self.listed.values():
        repository.is_dirty = False
        repository.flushed_position = repository.engine.position
        repository.base_lsn = lsn


def _keep_less(self: EffectsLog, transaction: Any, first_lsn: Lsn, lines: Sequence[Any]) -> None:
    _append(self, transaction, first_lsn, lines[:-1] if len(lines) > 1 else lines)


_append = EffectsLog.append


STORE_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "place not written with the data": lambda: [(batch_module, "write_state", _nothing)],
    "engines not brought up at a start": lambda: [(worker_store_module, "bring_up", _nothing)],
    "engines said to be flushed": lambda: [(Repositories, "flush", _only_say_so)],
    "last line of a batch not logged": lambda: [(EffectsLog, "append", _keep_less)],
    "pointer not replaced": lambda: [(CopyDirectory, "point_to", _nothing)],
}
"""Every mistake in the store, by what goes wrong."""
