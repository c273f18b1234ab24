"""Planted mistakes about the strategies none, simple and smart, and about the step between them and quorum (rule R19), for `catalogue.py`.

Each of the former belongs to one strategy, in which it is looked for: `MODE_OF` names it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Any

from brokerha.log import split_book as split_book_module
from brokerha.log.content import Content
from brokerha.master import parting as parting_module
from brokerha.master.core import MasterCore
from brokerha.model.epochs import Epoch
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.records import Rewound
from brokerha.model.wire.epoch_messages import EpochReport
from brokerha.replication.site.feed import Feed
from brokerha.replication.site.splits import Splits
from brokerha.replication.worker.kept_here import KeptHere
from brokerha.sync import core as core_module
from brokerha.sync import peers as peers_module
from brokerha.sync import state as state_module
from brokerha.sync.epochs import epochs as epochs_module
from brokerha.sync.epochs import proposing as proposing_module
from brokerha.sync.modes import JOINT, QUORUM, keeps_sides
from brokerha.sync.peers import PeerTable
from brokerha.sync.round import RoundResult
from brokerha.sync.splits import choosing as choosing_module
from brokerha.sync.splits import deciding as split_deciding_module
from brokerha.sync.splits import going_back as going_back_module
from brokerha.sync.splits.deciding import Head, heads_of
from brokerha.sync.state import SyncState
from tests.simulation.mistakes.patches import Patch, always, never, nothing

# The replacements below take ``self`` of classes whose insides they must touch.


_go_back = going_back_module.go_back
Others = list[tuple[TxId, bytes]]


def _without_own(sync: SyncState, lsn: Lsn, epoch: Epoch, result: RoundResult, others: Others, handed_in: set[TxId]) -> None:
    own = {txid for _, txid, origin in sync.history.ordered(lsn + 1, sync.lsn - lsn) if origin == sync.node}
    _go_back(sync, lsn, epoch, result, others, handed_in)
    for txid in own:
        sync.parked.remove(txid)
        sync.pending.discard(txid)


def _one_too_far(sync: SyncState, lsn: Lsn, epoch: Epoch, result: RoundResult, others: Others, handed_in: set[TxId]) -> None:
    _go_back(sync, max(0, lsn - 1), epoch, result, others, handed_in)


def _one_too_few(sync: SyncState, lsn: Lsn, epoch: Epoch, result: RoundResult, others: Others, handed_in: set[TxId]) -> None:
    _go_back(sync, min(sync.lsn, lsn + 1), epoch, result, others, handed_in)


def _unwritten(sync: SyncState, lsn: Lsn, epoch: Epoch, result: RoundResult, others: Others, handed_in: set[TxId]) -> None:
    _go_back(sync, lsn, epoch, result, others, handed_in)
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
    "lineage not begun": lambda: [(epochs_module, "come_together", nothing)],
    "queue of another side read as the own one": lambda: [(going_back_module, "_reads_another", never)],
    "what was read is forgotten at a restart": lambda: [(core_module, "read_before", nothing)],
    "second head stays": lambda: [(split_deciding_module, "heads_of", _last_first)],
    "void results kept": lambda: [(MasterCore, "forget_results", nothing)],
    "workers not told of going back": lambda: [(Feed, "rewind", nothing)],
    "written while a copy is kept": lambda: [(KeptHere, "is_freezing", never)],
    "void copy restored": lambda: [(Splits, "is_usable", always)],
    "executed again after a split": lambda: [(parting_module, "executed_before", _nothing_before)],
    "executed again after many splits": lambda: [(split_book_module, "SPLITS_KEPT", 1), (Content, "_is_open", never)],
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


_choose = PeerTable.choose


def _straight(_mode: str, wanted: str) -> str:
    return wanted


def _is_quorum(mode: str) -> bool:
    return mode == QUORUM


def _of_side(mode: str) -> bool:
    return keeps_sides(mode) and mode not in JOINT


def _of_some(_sync: SyncState, mode: str, _reports: Mapping[NodeId, EpochReport]) -> str:
    return mode


def _as_the_file_says(self: PeerTable, mode: str) -> None:
    _choose(self, mode)
    self._acknowledge = self.config.acknowledge


def _of_the_first(reports: Collection[EpochReport]) -> tuple[str, str]:
    first = min(reports, key=lambda report: report.row.node)
    return first.mode or first.row.mode, first.mode


class _Unfinished(dict[str, str]):
    """As the table of steps, but that no epoch is one."""

    def __contains__(self, _mode: object) -> bool:
        return False


CHOOSING_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "no step between": lambda: [
        (choosing_module, "step_to", _straight),
        (peers_module, "are_alike", always),
        (epochs_module, "are_alike", always),
    ],
    "any side decides in the step": lambda: [(state_module, "needs_majority", _is_quorum)],
    "the step takes in what is read before it is decided": lambda: [
        (state_module, "keeps_sides", _of_side),
        (epochs_module, "keeps_sides", _of_side),
        (proposing_module, "keeps_sides", _of_side),
    ],
    "a strategy of some of the masters": lambda: [
        (choosing_module, "obstacle", lambda *_: ""),
        (proposing_module, "allowed", _of_some),
    ],
    "held by a majority where sides may part": lambda: [(PeerTable, "choose", _as_the_file_says)],
    "strategy of the first reporter": lambda: [(proposing_module, "mode_of", _of_the_first)],
    "the step is left before all have what came before it": lambda: [(choosing_module, "JOINT", _Unfinished(JOINT))],
}
"""Every mistake about changing to quorum and from it, by what goes wrong."""
