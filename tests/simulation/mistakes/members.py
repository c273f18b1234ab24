"""Planted mistakes about masters that come and go, for `catalogue.py`, which makes them."""

from __future__ import annotations

from collections.abc import Callable

from brokerha.model.epochs import Configuration
from brokerha.model.ids import TxId
from brokerha.sync import identity as identity_module
from brokerha.sync.epochs.epochs import Epochs
from brokerha.sync.epochs.proposing import Attempt, Proposing
from brokerha.sync.membership import Membership
from brokerha.sync.peers import PeerTable
from brokerha.sync.state import SyncState
from tests.simulation.mistakes.epochs import Patch, _always, _never, _nothing


def _old_majority_only(_self: Proposing, sync: SyncState, attempt: Attempt) -> bool:
    return attempt.is_majority(sync)


def _nothing_parked(_self: Membership, _sync: SyncState) -> tuple[tuple[TxId, ...], int]:
    return (), 0


def _promise_uninvited(sync: SyncState) -> bool:
    return sync.is_joiner() or _is_known(sync)


_is_known = identity_module.is_known


MEMBER_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "masters before a change not counted": lambda: [
        (Configuration, "is_known_before", _always),
        (Configuration, "is_majority_before", _always),
    ],
    "majority of the new masters not required": lambda: [(Proposing, "_is_enough", _old_majority_only)],
    "joiner counts before it is a master": lambda: [(identity_module, "is_known", _promise_uninvited)],
    "retired journal accepted again": lambda: [(PeerTable, "is_retired", _never)],
    "nobody tells who was taken out": lambda: [(Epochs, "on_stranger", _nothing)],
    "parked of one that goes not reported": lambda: [(Membership, "parked", _nothing_parked)],
    "blank master stays a founder": lambda: [(identity_module, "on_epoch", _nothing)],
    "journals not taken over from the epoch": lambda: [(PeerTable, "_trust", _nothing)],
    "memory of the disk before believed": lambda: [(identity_module, "_knows_better", _never)],
}
"""Every mistake about masters that come and go, by what goes wrong."""

