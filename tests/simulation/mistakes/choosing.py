"""Planted mistakes about the step between quorum and the other strategies (rule R19), for `catalogue.py`, which makes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from brokerha.model.ids import NodeId
from brokerha.model.wire.epoch_messages import EpochReport
from brokerha.sync import peers as peers_module
from brokerha.sync import state as state_module
from brokerha.sync.epochs import epochs as epochs_module
from brokerha.sync.epochs import proposing as proposing_module
from brokerha.sync.modes import JOINT, QUORUM, keeps_sides
from brokerha.sync.peers import PeerTable
from brokerha.sync.splits import choosing as choosing_module
from brokerha.sync.state import SyncState
from tests.simulation.mistakes.epochs import Patch, _always

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
        (peers_module, "are_alike", _always),
        (epochs_module, "are_alike", _always),
    ],
    "any side decides in the step": lambda: [(state_module, "needs_majority", _is_quorum)],
    "the step takes in what is read before it is decided": lambda: [
        (state_module, "keeps_sides", _of_side),
        (epochs_module, "keeps_sides", _of_side),
        (proposing_module, "keeps_sides", _of_side),
    ],
    "a strategy of some of the masters": lambda: [(choosing_module, "obstacle", lambda *_: ""), (proposing_module, "allowed", _of_some)],
    "held by a majority where sides may part": lambda: [(PeerTable, "choose", _as_the_file_says)],
    "strategy of the first reporter": lambda: [(proposing_module, "mode_of", _of_the_first)],
    "the step is left before all have what came before it": lambda: [(choosing_module, "JOINT", _Unfinished(JOINT))],
}
"""Every mistake about changing to quorum and from it, by what goes wrong."""
