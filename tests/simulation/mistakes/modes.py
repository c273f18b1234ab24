"""Planted mistakes about the strategies none, simple and smart, for `catalogue.py`, which makes them.

Each belongs to one strategy, in which it is looked for: `MODE_OF` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from brokerha.log import split_book as split_book_module
from brokerha.log.content import Content
from brokerha.master import parting as parting_module
from brokerha.master.core import MasterCore
from brokerha.model.epochs import Epoch
from brokerha.model.ids import Lsn, TxId
from brokerha.model.records import Rewound
from brokerha.model.wire.epoch_messages import EpochReport
from brokerha.replication.site.feed import Feed
from brokerha.replication.site.splits import Splits
from brokerha.replication.worker.kept_here import KeptHere
from brokerha.sync import core as core_module
from brokerha.sync.epochs import epochs as epochs_module
from brokerha.sync.round import RoundResult
from brokerha.sync.splits import deciding as split_deciding_module
from brokerha.sync.splits import going_back as going_back_module
from brokerha.sync.splits.deciding import Head, heads_of
from brokerha.sync.state import SyncState
from tests.simulation.mistakes.epochs import Patch, _always, _never, _nothing

_go_back = going_back_module.go_back


def _without_own(sync: SyncState, lsn: Lsn, epoch: Epoch, result: RoundResult) -> None:
    own = {txid for _, txid, origin in sync.history.ordered(lsn + 1, sync.lsn - lsn) if origin == sync.node}
    _go_back(sync, lsn, epoch, result)
    for txid in own:
        sync.parked.remove(txid)
        sync.pending.discard(txid)


def _one_too_far(sync: SyncState, lsn: Lsn, epoch: Epoch, result: RoundResult) -> None:
    _go_back(sync, max(0, lsn - 1), epoch, result)


def _one_too_few(sync: SyncState, lsn: Lsn, epoch: Epoch, result: RoundResult) -> None:
    _go_back(sync, min(sync.lsn, lsn + 1), epoch, result)


def _unwritten(sync: SyncState, lsn: Lsn, epoch: Epoch, result: RoundResult) -> None:
    _go_back(sync, lsn, epoch, result)
    result.records[:] = [record for record in result.records if not isinstance(record, Rewound)]


def _last_first(reports: Iterable[EpochReport]) -> list[Head]:
    heads = heads_of(reports)
    return [*heads[1:2], *heads[:1], *heads[2:]]


def _same_lineage(sync: SyncState, lsn: Lsn, epoch: Epoch) -> Rewound:
    return Rewound(lsn, sync.epoch.number, sync.lineage, keeps_content=_rewound(sync, lsn, epoch).keeps_content)


_rewound = going_back_module._rewound


def _nothing_before(_history: Any, _executed: Lsn, _since: int = 0) -> Container[TxId]:
    return set()


MODE_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "given up and not handed in again": lambda: [(going_back_module, "go_back", _without_own)],
    "back one too far": lambda: [(going_back_module, "go_back", _one_too_far)],
    "back one too few": lambda: [(going_back_module, "go_back", _one_too_few)],
    "going back not written": lambda: [(going_back_module, "go_back", _unwritten)],
    "lineage not raised": lambda: [(going_back_module, "_rewound", _same_lineage)],
    "lineage not begun": lambda: [(epochs_module, "come_together", _nothing)],
    "queue of another side read as the own one": lambda: [(going_back_module, "_reads_another", _never)],
    "what was read is forgotten at a restart": lambda: [(core_module, "read_before", _nothing)],
    "second head stays": lambda: [(split_deciding_module, "heads_of", _last_first)],
    "void results kept": lambda: [(MasterCore, "forget_results", _nothing)],
    "workers not told of going back": lambda: [(Feed, "rewind", _nothing)],
    "written while a copy is kept": lambda: [(KeptHere, "is_freezing", _never)],
    "void copy restored": lambda: [(Splits, "is_usable", _always)],
    "executed again after a split": lambda: [(parting_module, "executed_before", _nothing_before)],
    "executed again after many splits": lambda: [(split_book_module, "SPLITS_KEPT", 1), (Content, "_is_open", _never)],
}
"""Every mistake about strategies, by what goes wrong."""

MODE_OF: dict[str, str] = {
    "executed again after a split": "none",
    "executed again after many splits": "none",
    "void copy restored": "simple",
    "void results kept": "none",
    "written while a copy is kept": "simple",
    "back one too far": "simple",
}
"""Strategy in which a mistake is looked for; smart without it."""


def mode_of(mistake: str) -> str:
    """Strategy in which a mistake matters."""
    return MODE_OF.get(mistake, "smart")


