"""Planted mistakes about epochs, and about masters that come and go, for `catalogue.py`, which makes them.

Like the others each switches off one rule in the shipped code, and the simulator has to notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from brokerha.model.epochs import Configuration, Epoch, EpochId
from brokerha.model.ids import Instant, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.records import Accepted, MasterState
from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare, EpochReport, Row, Tail, TailWanted
from brokerha.model.wire.messages import Outgoing
from brokerha.sync import identity as identity_module
from brokerha.sync.catching_up import TailReader
from brokerha.sync.config import SyncConfig
from brokerha.sync.core import SyncCore
from brokerha.sync.epochs import deciding as deciding_module
from brokerha.sync.epochs import epochs as epochs_module
from brokerha.sync.epochs import proposing as proposing_module
from brokerha.sync.epochs.beginning import begin
from brokerha.sync.epochs.deciding import decide
from brokerha.sync.epochs.epochs import Epochs
from brokerha.sync.epochs.proposing import Attempt, Proposing
from brokerha.sync.epochs.recovery import Recovery
from brokerha.sync.membership import Membership
from brokerha.sync.peers import PeerTable
from brokerha.sync.round import RoundResult
from brokerha.sync.state import SyncState
from tests.simulation.mistakes.patches import Patch, always, never, nothing

# The replacements below take ``self`` of classes whose insides they must touch.


# ---- promising


def _promise_in_memory(self: Epochs, sync: SyncState, epoch: EpochId, now: Instant) -> None:
    _promise(self, sync, epoch, now)
    self._is_promise_new = False


_promise = Epochs.promise


def _start_unpromised(self: SyncCore, config: SyncConfig, state: MasterState, history: Any) -> None:
    _core_init(self, config, state, history)
    self.promised = self.epoch.id


def _start_in_the_first_epoch(self: SyncCore, config: SyncConfig, state: MasterState, history: Any) -> None:
    state.installed = None
    _core_init(self, config, state, history)


_core_init = SyncCore.__init__


def _promise_anything(self: Epochs, sync: SyncState, sender: NodeId, message: EpochPrepare, now: Instant) -> None:
    if message.epoch < sync.promised and sync.peers.peer(sender) is not None:
        sync.promised = (0, "")
    _on_prepare(self, sync, sender, message, now)


_on_prepare = Epochs.on_prepare


# ---- what a frozen master does


def _merge_always(self: SyncCore, result: RoundResult, now: Instant, *, is_frozen: bool) -> None:
    del is_frozen
    _merge(self, result, now, is_frozen=False)


_merge = SyncCore._merge


def _stamp_always(self: Epochs, core: SyncCore, result: RoundResult, now: Instant) -> bool:
    goes_on = _before(self, core, result, now)
    if goes_on and core.is_frozen():
        fresh = {txid: body for record in result.records if isinstance(record, Accepted) for txid, body in record.items}
        core._stamp(result, now, fresh)
    return goes_on


def _add_always(self: Epochs, core: SyncCore, result: RoundResult, now: Instant) -> bool:
    goes_on = _before(self, core, result, now)
    if goes_on and core.is_frozen():
        core._add(result, now)
    return goes_on


_before = Epochs.before


# ---- deciding


def _oldest_first(reports: list[EpochReport]) -> list[EpochReport]:
    return sorted(reports, key=lambda report: report.row.epoch)


def _own_only(number: EpochId, reports: Iterable[EpochReport], *more: Any) -> Epoch:
    """The proposer believes in its own report alone; everybody else just becomes a member."""
    told = list(reports)
    blank = [replace(report, recovered=(), streams=()) if report.row.node != number[1] else report for report in told]
    return decide(number, blank, *more)


def _nothing_recovered(*arguments: Any) -> Epoch:
    return replace(decide(*arguments), recovered=())


def _low_starts(number: EpochId, reports: Iterable[EpochReport], *more: Any) -> Epoch:
    told = list(reports)
    epoch = decide(number, told, *more)
    starts = {origin: min(report.row.have.get(origin, 0) for report in told) for origin in epoch.starts}
    return replace(epoch, starts=starts)


def _low_above(*arguments: Any) -> Epoch:
    return replace(decide(*arguments), above=0)


def _again_what_is_synchronised(number: EpochId, reports: Iterable[EpochReport], _is_synchronised: object, *more: Any) -> Epoch:
    return decide(number, reports, never, *more)


def _by_time(reports: list[EpochReport], held: set[tuple[NodeId, TxId]]) -> list[Ordered]:
    """What was recovered before is sorted among the rest."""
    return sorted(_entries_of(reports, held))


_entries_of = deciding_module._entries_of


def _base_as_it_is(self: Proposing, sync: SyncState, mono_ms: int) -> tuple[Lsn, list[NodeId]] | None:
    base = _base(self, sync, mono_ms)
    return None if base is None else (min(sync.lsn, base[0]), base[1])


_base = Proposing.base


def _same_number_again(self: Proposing, sync: SyncState, mono_ms: int) -> EpochId:
    """Two attempts of one master have one number."""
    higher = _begin_attempt(self, sync, mono_ms)
    epoch = self.__dict__.setdefault("number", higher)
    assert self.attempt is not None
    self.attempt.epoch = max(epoch, sync.promised)
    return self.attempt.epoch


_begin_attempt = Proposing.begin_attempt


# ---- installing


def _install_unpromised(_self: Epochs, sync: SyncState, sender: NodeId, message: EpochInstall) -> None:
    epoch = message.epoch
    if sync.node in epoch.members and epoch.id > sync.epoch.id:
        sync.decided = epoch
        sync.tail.aim(epoch.base_lsn, [sender])


def _install_without_base(self: Epochs, sync: SyncState, result: RoundResult, now: Instant) -> bool:
    decided = sync.decided
    if decided is not None and sync.lsn < decided.base_lsn:
        # The rest of the round finds a queue that ends at the base.
        sync.lsn = decided.base_lsn
        sync.last_entry = (0, decided.base_txid, sync.node)
    return _before(self, sync, result, now)


def _park_twice(sync: SyncState, epoch: Epoch) -> None:
    waited = list(sync.parked)
    begin(sync, epoch)
    sync.parked.extendleft([txid for txid in sync.parked if txid not in waited])


def _clock_stays(sync: SyncState, epoch: Epoch) -> None:
    last = sync.clock.last
    begin(sync, epoch)
    sync.clock.last = last
    for stream in sync.streams.values():
        stream.last = 0


# ---- within an epoch


def _any_epoch(self: PeerTable, row: Row) -> str:
    return _refusal(self, replace(row, epoch=self.epoch.id))


_refusal = PeerTable._refusal


def _recovered_here(_self: PeerTable, own: int, _mono_ms: int) -> int:
    return own


def _hold_without_bodies(self: Recovery, _has: object) -> int:
    return _hold(self, always)


_hold = Recovery.hold


def _report_whole_list(self: Recovery, *_arguments: object) -> tuple[tuple[int, Timestamp, TxId, NodeId], ...]:
    return tuple((place, *self.entries[place]) for place in range(self.done, len(self.entries)))


def _report_no_list(_self: Recovery, *_arguments: object) -> tuple[()]:
    return ()


# ---- tails


def _incoming_as_tail(self: Epochs, core: SyncCore, sender: NodeId, wanted: TailWanted) -> None:
    """What is asked for is answered with what will be there next."""
    _on_tail_wanted(self, core, sender, wanted)
    for place, outgoing in enumerate(self._outgoing):
        tail = outgoing.message
        if isinstance(tail, Tail) and tail.entries:
            guessed = [entry[:3] for entry in core.incoming] or [*reversed(tail.entries)]
            entries = (*tail.entries[:-1], guessed[0])
            self._outgoing[place] = Outgoing(outgoing.to, replace(tail, entries=entries))


_on_tail_wanted = Epochs.on_tail_wanted


def _take_any_tail(self: TailReader, _lsn: Lsn, tail: Tail, _sender: NodeId = "") -> None:
    self._missing.extend(tail.entries)


EPOCH_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "promise of an epoch kept in memory": lambda: [(Epochs, "promise", _promise_in_memory)],
    "promise of an epoch forgotten at a restart": lambda: [(SyncCore, "__init__", _start_unpromised)],
    "epoch forgotten at a restart": lambda: [(SyncCore, "__init__", _start_in_the_first_epoch)],
    "lower epoch promised": lambda: [(Epochs, "on_prepare", _promise_anything)],
    "added while frozen": lambda: [(Epochs, "before", _add_always)],
    "stamped while frozen": lambda: [(Epochs, "before", _stamp_always)],
    "merged while frozen": lambda: [(SyncCore, "_merge", _merge_always)],
    "lowest epoch first": lambda: [(deciding_module, "_newest_first", _oldest_first)],
    "own report alone": lambda: [(proposing_module, "decide", _own_only)],
    "entries of others dropped": lambda: [(proposing_module, "decide", _nothing_recovered)],
    "recovered list sorted again": lambda: [(deciding_module, "_entries_of", _by_time)],
    "streams of an epoch start too low": lambda: [(proposing_module, "decide", _low_starts)],
    "epoch below what was stamped": lambda: [(proposing_module, "decide", _low_above)],
    "synchronised entries recovered again": lambda: [(proposing_module, "decide", _again_what_is_synchronised)],
    "decided without owning the base": lambda: [(Proposing, "base", _base_as_it_is)],
    "minority may decide": lambda: [(Configuration, "is_majority", always)],
    "number of an epoch used twice": lambda: [(Proposing, "begin_attempt", _same_number_again)],
    "epoch installed that was not promised": lambda: [(Epochs, "on_install", _install_unpromised)],
    "epoch installed without its base": lambda: [(Epochs, "before", _install_without_base)],
    "own entries parked twice at install": lambda: [(epochs_module, "begin", _park_twice)],
    "clock not moved above the epoch": lambda: [(epochs_module, "begin", _clock_stays)],
    "posts of another epoch accepted": lambda: [(PeerTable, "_refusal", _any_epoch)],
    "recovered list added before others hold it": lambda: [
        (PeerTable, "recovered_by_required", _recovered_here),
        (PeerTable, "is_active", always),
    ],
    "recovered list without bodies": lambda: [(Recovery, "hold", _hold_without_bodies)],
    "recovered list reported without bodies": lambda: [(Recovery, "reported", _report_whole_list)],
    "recovered list not reported": lambda: [(Recovery, "reported", _report_no_list)],
    "tail from elsewhere than the queue": lambda: [(Epochs, "on_tail_wanted", _incoming_as_tail)],
    "tail taken as it comes": lambda: [(TailReader, "on_tail", _take_any_tail)],
    "nobody taken back": lambda: [(Epochs, "on_join", nothing)],
}
"""Every mistake about epochs, by what goes wrong."""


def _old_majority_only(_self: Proposing, sync: SyncState, attempt: Attempt) -> bool:
    return attempt.is_majority(sync)


def _nothing_parked(_self: Membership, _sync: SyncState) -> tuple[tuple[TxId, ...], int]:
    return (), 0


def _promise_uninvited(sync: SyncState) -> bool:
    return sync.is_joiner() or _is_known(sync)


_is_known = identity_module.is_known


MEMBER_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "masters before a change not counted": lambda: [
        (Configuration, "is_known_before", always),
        (Configuration, "is_majority_before", always),
    ],
    "majority of the new masters not required": lambda: [(Proposing, "_is_enough", _old_majority_only)],
    "joiner counts before it is a master": lambda: [(identity_module, "is_known", _promise_uninvited)],
    "retired journal accepted again": lambda: [(PeerTable, "is_retired", never)],
    "nobody tells who was taken out": lambda: [(Epochs, "on_stranger", nothing)],
    "parked of one that goes not reported": lambda: [(Membership, "parked", _nothing_parked)],
    "blank master stays a founder": lambda: [(identity_module, "on_epoch", nothing)],
    "journals not taken over from the epoch": lambda: [(PeerTable, "_trust", nothing)],
    "memory of the disk before believed": lambda: [(identity_module, "_knows_better", never)],
}
"""Every mistake about masters that come and go, by what goes wrong."""
