"""Leading an epoch change: one attempt after the other, with growing patience (rules R8, R9).

    is_due -> begin_attempt -> prepare to all that are heard -> reports of a majority -> base -> decide
                                                     `-> a refusal, a reporter that is further, or no answer: wait, then take a higher number

Who begins: of the members that hear each other, the first in the alphabet begins at once and each other one some time later, so
that two seldom begin. When two do, the higher id wins and the other one waits. An attempt waits for all members that it hears, but
not longer than `lag` once a majority has reported.

Must never: decide twice under one id. Each attempt has a new number, above the own durable promise. It is also above every epoch
that a reporter is in or went back for: the lineage of a queue is the number of the epoch that it went back for, and must grow.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from brokerha.model.epochs import FIRST, NO_CHANGE, Change, Configuration, Epoch, EpochId
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.wire.epoch_messages import EpochPrepare, EpochRefused, EpochReport
from brokerha.model.wire.messages import Outgoing
from brokerha.sync import identity
from brokerha.sync.config import SyncConfig
from brokerha.sync.epochs.deciding import are_enough, base_of, configuration_of, decide, synchronised
from brokerha.sync.epochs.suspicion import Suspicion
from brokerha.sync.membership import Membership
from brokerha.sync.modes import NONE, keeps_sides
from brokerha.sync.splits.choosing import Choosing, allowed, mode_of
from brokerha.sync.splits.deciding import base_of_split, decide_split, way_to
from brokerha.sync.state import SyncState
from brokerha.sync.waiting import beyond_the_log, culprits

MOST_DOUBLINGS = 4
"""Limit of doublings of the patience, one for each failure."""


@dataclass(slots=True)
class Attempt:
    """A proposal under way."""

    epoch: EpochId
    began_ms: int
    moved_ms: int
    """Time of the last progress."""
    without: tuple[NodeId, ...] = ()
    """Masters that are left out, even if they are heard: they have held up the queue."""
    change: Change = NO_CHANGE
    """Change of the configuration."""
    is_forced: bool = False
    """Whether no majority is needed: an operator forces the change, or the strategy needs none."""
    mode: str = ""
    """Strategy of split recovery to put in force; empty: as before."""
    reports: dict[NodeId, EpochReport] = field(default_factory=dict)
    asked_ms: dict[NodeId, int] = field(default_factory=dict)

    def is_majority(self, sync: SyncState) -> bool:
        """Tell whether enough have reported."""
        if self.is_forced or not self.reports:
            return bool(self.reports)
        is_own = configuration_of(self.reports.values()) == sync.epoch.configuration
        return are_enough(self.reports, is_settled=is_own and sync.peers.is_known_before())


class Proposing:
    """The proposer in a master; see the head of the module."""

    def __init__(self, config: SyncConfig, suspicion: Suspicion, membership: Membership, choosing: Choosing) -> None:
        self._config = config
        self._suspicion = suspicion
        self._membership = membership
        self._choosing = choosing
        self.attempt: Attempt | None = None
        self._highest: EpochId = FIRST
        """Highest known epoch id."""
        self._failures = 0
        self._without: tuple[NodeId, ...] = ()
        """Masters that the next attempt leaves out."""
        self._promised_ms: int | None = None
        """When the own promise last grew, or the own queue came nearer to the base; None before the first look."""

    def saw(self, epoch: EpochId) -> None:
        """Note an epoch id that another master knows."""
        self._highest = max(self._highest, epoch)

    def begin(self) -> None:
        """Note that another epoch has begun."""
        self.attempt, self._failures = None, 0

    def on_promise(self, epoch: EpochId, mono_ms: int) -> None:
        """Note that the own promise has grown; an own attempt below it is over."""
        self.saw(epoch)
        self._promised_ms = mono_ms
        if self.attempt is not None and self.attempt.epoch < epoch:
            self.attempt = None

    def on_report(self, report: EpochReport) -> bool:
        """Take in a report; return whether it is for the own proposal."""
        attempt = self.attempt
        if attempt is not None and report.epoch == attempt.epoch:
            attempt.reports[report.row.node] = report
            return True
        return False

    def on_refused(self, refused: EpochRefused, mono_ms: int) -> None:
        """Take in a refusal: wait, and take a higher id the next time."""
        self.saw(refused.promised)
        attempt = self.attempt
        if attempt is not None and refused.epoch == attempt.epoch:
            self._fail(mono_ms)

    def on_progress(self, mono_ms: int) -> None:
        """Note that the own queue comes nearer to the base."""
        self._promised_ms = mono_ms
        if self.attempt is not None:
            self.attempt.moved_ms = mono_ms

    def is_young(self, mono_ms: int) -> bool:
        """Tell whether the own promise is so new that it may still lead to an epoch."""
        return self._promised_ms is None or mono_ms - self._promised_ms < self._config.lag_ms

    def hand_over(self, mono_ms: int) -> None:
        """Let another master propose; the own promise stays, and counts as new."""
        self.attempt = None
        self._promised_ms = mono_ms

    def on_handed_over(self, mono_ms: int) -> None:
        """Propose at once: the master that got the own promise leaves it to this one."""
        self._promised_ms = mono_ms - 64 * self._config.lag_ms

    def _fail(self, mono_ms: int) -> None:
        self.attempt = None
        self._failures += 1
        self._promised_ms = mono_ms

    # ---- when

    def _patience_ms(self) -> int:
        return 4 * self._config.round_timeout_ms << min(MOST_DOUBLINGS, self._failures)

    def _heard(self, sync: SyncState, mono_ms: int) -> list[NodeId]:
        """Return masters of the cluster that are heard directly."""
        peers = sync.peers
        others = [*peers.peers, *peers.outside]
        return [node for node in others if peers.is_heard(node, mono_ms) and node not in peers.impostors]

    def _asked(self, sync: SyncState, attempt: Attempt, mono_ms: int) -> list[NodeId]:
        """Return the masters to ask: all that are heard, but guests only if the change or a reported configuration names them."""
        named = {*configuration_of(attempt.reports.values()).masters} if attempt.reports else set()
        named.add(attempt.change.node)
        guests = sync.peers.guests.difference(named)
        return [node for node in self._heard(sync, mono_ms) if node not in guests]

    def _wait_ms(self, sync: SyncState, missing: list[NodeId], mono_ms: int) -> int:
        """Return how long to leave the change to masters that come first, and to those that hear more."""
        heard = set(self._heard(sync, mono_ms))
        masters = sync.epoch.configuration.masters if sync.keeps_sides else sync.epoch.members
        first = [n for n in masters if n < sync.node and n in heard and n not in missing]
        unheard = [n for n in sync.peers.peers if n not in heard and n not in missing]
        return 2 * self._config.round_timeout_ms * (len(first) + len(sync.epoch.configuration.masters) * len(unheard))

    def is_due(self, sync: SyncState, mono_ms: int) -> bool:
        """Tell whether to begin an attempt now (R8); also end an attempt without result."""
        config, membership = self._config, self._membership
        attempt = self.attempt
        if self._promised_ms is None:
            self._promised_ms = mono_ms
        if attempt is not None:
            patience_ms = max(self._patience_ms(), 2 * config.lag_ms if attempt.is_majority(sync) else 0)
            if mono_ms - attempt.moved_ms >= patience_ms:
                self._fail(mono_ms)
            return False
        is_majority = sync.epoch.configuration.is_majority([sync.node, *self._heard(sync, mono_ms)])
        if not identity.is_known(sync) or not (is_majority or membership.is_forced() or not sync.needs_majority):
            return False
        self._without = ()
        if sync.is_frozen():
            return self._is_orphaned(sync, mono_ms)
        if sync.later:
            return False  # The tail of the others has every entry that the own epoch could still add.
        missing = self._missing(sync, mono_ms)
        self._without = tuple(missing)
        wait_ms = self._wait_ms(sync, missing, mono_ms)
        since_ms = self._suspicion.missing_ms
        if missing and since_ms is not None and mono_ms - since_ms >= wait_ms:
            return not sync.keeps_sides or self._may_part(sync, mono_ms - since_ms)
        if not sync.recovery.is_over and self._is_lost(sync, mono_ms - wait_ms):
            return True
        is_wished = membership.is_due(sync, mono_ms) or self._choosing.is_due(sync, mono_ms)
        return is_wished or bool(self._suspicion.joining(mono_ms - wait_ms))

    def _is_lost(self, sync: SyncState, mono_ms: int) -> bool:
        """Tell whether the body of the next entry went with a master that was taken out: no other master has it."""
        recovery = sync.recovery
        return (
            recovery.held == recovery.done
            and recovery.left()[0][2] not in sync.epoch.configuration.masters
            and self._suspicion.is_stuck(mono_ms)
        )

    def _may_part(self, sync: SyncState, missing_ms: int) -> bool:
        """Tell whether to go on without missing masters, which may still run: a site keeps a copy first, if it can."""
        return sync.mode == NONE or sync.is_ready_to_part() or missing_ms >= self._config.lag_ms

    def _missing(self, sync: SyncState, mono_ms: int) -> list[NodeId]:
        """Return members to go on without, as far as a majority remains."""
        suspicion, heard = self._suspicion, self._heard(sync, mono_ms)
        missing = suspicion.missing(sync.peers, culprits(sync, mono_ms), beyond_the_log(sync, mono_ms), mono_ms)
        for some in (missing, suspicion.silent(sync.peers, mono_ms)):
            # A member that is heard and holds up the queue may itself wait for a silent one.
            if not sync.needs_majority or sync.epoch.configuration.is_majority({sync.node, *heard}.difference(some)):
                return some
        return []

    def _is_orphaned(self, sync: SyncState, mono_ms: int) -> bool:
        """Tell whether the own promise has led to nothing for too long."""
        peers = sync.peers
        if any(peers.is_heard(node, mono_ms) and row.epoch > sync.epoch.id for node, row in sync.later.items()):
            return False  # The others are in a later epoch already, and will take this one back.
        patience_ms = self._patience_ms() + self._wait_ms(sync, [], mono_ms)
        proposer = sync.promised[1]
        if sync.decided is not None or (proposer != sync.node and peers.is_heard(proposer, mono_ms)):
            patience_ms += 2 * self._config.lag_ms
        return mono_ms - (self._promised_ms or 0) >= patience_ms

    def begin_attempt(self, sync: SyncState, mono_ms: int) -> EpochId:
        """Begin an attempt with an id above all known ones; the caller promises it."""
        epoch = (max(self._highest, sync.promised)[0] + 1, sync.node)
        membership = self._membership
        change, is_forced = membership.change(sync, mono_ms), membership.is_forced() or not sync.needs_majority
        mode = self._choosing.mode(sync, mono_ms)
        self.attempt = Attempt(epoch, mono_ms, mono_ms, self._without, change, is_forced, mode)
        return epoch

    # ---- how

    def messages(self, sync: SyncState, mono_ms: int) -> list[Outgoing]:
        """Return prepares that are due."""
        attempt = self.attempt
        if attempt is None:
            return []
        messages = []
        for node in self._asked(sync, attempt, mono_ms):
            asked_ms = attempt.asked_ms.get(node)
            is_due = asked_ms is None or mono_ms - asked_ms >= self._config.retransmit_ms
            if node not in attempt.reports and node not in attempt.without and is_due:
                attempt.asked_ms[node] = mono_ms
                messages.append(Outgoing(node, EpochPrepare(attempt.epoch, attempt.change, sync.mode)))
        return messages

    def end_if_outrun(self, sync: SyncState, mono_ms: int) -> None:
        """End the attempt when enough have reported, and one of them is in an epoch that is not below it."""
        attempt = self.attempt
        if attempt is None or not self._is_enough(sync, attempt):
            return
        if any(max(report.row.epoch, report.reads)[0] >= attempt.epoch[0] for report in attempt.reports.values()):
            self._fail(mono_ms)

    def base(self, sync: SyncState, mono_ms: int) -> tuple[Lsn, list[NodeId]] | None:
        """Return (LSN to reach before deciding, its owners) once enough have reported, else None; LSN -1: an owner decides."""
        attempt = self.attempt
        if attempt is None or not self._is_enough(sync, attempt):
            return None
        known = {*attempt.reports, *attempt.without}
        awaited = [node for node in self._asked(sync, attempt, mono_ms) if node not in known]
        # A member may have many records to write; a master that asks to be taken back has caught up before.
        is_member = any(node in sync.peers.peers for node in awaited)
        patience_ms = self._config.lag_ms if is_member else 4 * self._config.round_timeout_ms
        if awaited and mono_ms - attempt.began_ms < patience_ms:
            return None
        mode, _ = mode_of(attempt.reports.values())
        if keeps_sides(mode):
            lsn, deciders = base_of_split(attempt.reports.values(), mode)
            owners = [node for node in deciders if attempt.reports[node].row.lsn >= lsn]
            return (lsn if sync.node in deciders else -1), owners
        lsn, _ = base_of(attempt.reports.values())
        return lsn, [node for node, report in attempt.reports.items() if report.row.lsn >= lsn]

    def _configuration(self, sync: SyncState, attempt: Attempt) -> Configuration:
        """Return the configuration of the epoch to decide: with the change, as far as the reports allow it."""
        known, own = configuration_of(attempt.reports.values()), sync.epoch.configuration
        change = self._membership.allowed(attempt.change, known, own, attempt.reports)
        if known == own and sync.peers.is_known_before():
            known = known.settled()
        return known.after(change)

    def _is_enough(self, sync: SyncState, attempt: Attempt) -> bool:
        """Tell whether this master and majorities of the configurations before and after the change have reported."""
        if sync.node not in attempt.reports or not attempt.is_majority(sync):
            return False
        return attempt.is_forced or self._configuration(sync, attempt).is_majority(attempt.reports)

    def decide(self, sync: SyncState) -> Epoch:
        """Return the epoch that the reports lead to; the attempt ends with it."""
        attempt = self.attempt
        assert attempt is not None
        self.attempt = None

        history, reports, configuration = sync.history, attempt.reports.values(), self._configuration(sync, attempt)
        mode, said = mode_of(reports)
        wished = allowed(sync, attempt.mode, attempt.reports)
        if keeps_sides(mode) or keeps_sides(wished or mode):
            # The path begins with the first epoch whose sides can part.
            epoch = decide_split(attempt.epoch, reports, mode, history.known_at, history.entry_at, configuration, history.ids_from)
        else:
            is_synchronised = synchronised(history.known_at, history.ids_from(sync.lsn), sync.lsn)
            epoch = decide(attempt.epoch, reports, is_synchronised, sync.last()[0], configuration)
            epoch = replace(epoch, path=way_to(reports, epoch.base_lsn))
        return replace(epoch, mode=wished or said)

    def deadline_ms(self, sync: SyncState, mono_ms: int) -> int | None:
        """Return when `is_due` or `messages` may have work."""
        config, attempt = self._config, self.attempt
        if attempt is not None:
            due = [at + config.retransmit_ms for node, at in attempt.asked_ms.items() if node not in attempt.reports]
            due += [attempt.began_ms + wait_ms for wait_ms in (4 * config.round_timeout_ms, config.lag_ms)]
            return min([*due, attempt.moved_ms + self._patience_ms()])
        if sync.is_frozen():
            return (self._promised_ms or 0) + self._patience_ms() + self._wait_ms(sync, [], mono_ms)
        since_ms = self._suspicion.missing_ms
        return None if since_ms is None else since_ms + self._wait_ms(sync, [], mono_ms)
