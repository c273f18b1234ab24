"""Planted mistakes about ids that are forgotten by entries of the queue, and that come again; for `catalogue.py`, which makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from brokerha.log.history import LogHistory
from brokerha.log.ids import Ids
from brokerha.master.core import MasterCore
from brokerha.model.ids import Instant, Lsn, Ordered, TxId
from brokerha.model.wire.epoch_messages import Row
from brokerha.sync.bodies import BodyExchange
from brokerha.sync.core import SyncCore
from brokerha.sync.state import SyncState
from tests.simulation.mistakes.patches import Patch, nothing

# The replacements below take ``self`` of classes whose insides they must touch.


def _by_own_memory(self: SyncCore, _added: Iterable[Ordered]) -> Lsn:
    return self.history.first_lsn()


def _whoever_is_away(self: MasterCore, below: Lsn, now: Instant) -> None:
    peers, outside = self.sync.peers, self.sync.peers.outside
    is_whole, self.sync.is_whole = self.sync.is_whole, lambda: True  # type: ignore[method-assign]
    peers.outside = {}
    try:
        _forget_ids(self, below, now)
    finally:
        self.sync.is_whole = is_whole  # type: ignore[method-assign]
        peers.outside = outside


_forget_ids = MasterCore._forget_ids


def _needs_none(self: SyncState, number: int, now: Instant) -> Row:
    return replace(_row(self, number, now), ids_from=2**60)


_row = SyncState.row


def _floors_stay(self: Ids, txids: Iterable[TxId], end: Lsn) -> None:
    floors = self.floors
    _go_back(self, txids, end)
    self.floors = floors


_go_back = Ids.go_back


def _hidden_for_good(self: Ids, txids: Iterable[TxId], end: Lsn) -> None:
    _go_back(self, [], end)
    self.lsns.update(dict.fromkeys(txids, 0))


def _only_held(self: LogHistory, lsn: Lsn) -> Ordered | None:
    found = self.ordered(lsn, 1) if lsn else []
    return found[0] if found else None


FORGETTING_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "each master forgets ids at its own moment": lambda: [(SyncCore, "_ids_from", _by_own_memory)],
    "ids are forgotten while a master is away": lambda: [(MasterCore, "_forget_ids", _whoever_is_away)],
    "ids that another master needs are forgotten": lambda: [(SyncState, "row", _needs_none)],
    "the name of a body of a tail stays": lambda: [(BodyExchange, "settle", nothing)],
    "the name of a body of a state stays": lambda: [(BodyExchange, "forget_names", nothing)],
    "ids stay forgotten where sides go back": lambda: [(Ids, "go_back", _floors_stay)],
    "an id that loses its LSN has none before": lambda: [(Ids, "go_back", _hidden_for_good)],
    "the entry before an empty log is unknown": lambda: [(LogHistory, "entry_at", _only_held)],
}
"""Each needs a world of `tests.simulator.drawing.forgetful`."""
