"""The row of a master: what it says of itself in each post, and in its reports.

Must never: say more than is durable with the records of this turn, which are written before it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerha.model.epochs import NO_EPOCH, EpochId
from brokerha.model.ids import Instant, Lsn
from brokerha.model.wire.epoch_messages import EpochReport, Row
from brokerha.sync.round import is_derived

if TYPE_CHECKING:
    from brokerha.sync.core import SyncCore


def row_of(core: SyncCore, number: int, now: Instant) -> Row:
    """What a master says of itself now."""
    fingerprint_lsn, fingerprint = core.content()
    return Row(
        node=core.node,
        journal=core.posting.journal,
        incarnation=core.incarnation,
        number=number,
        epoch=core.epoch.id,
        promised=core.epochs.promised,
        promise=core.clock.promise(now.wall_us),
        have=dict(core.counts),
        recovered=core.recovery.held,
        lsn=_durable_lsn(core),
        heard=core.peers.heard(now.mono_ms),
        fingerprint_lsn=fingerprint_lsn,
        fingerprint=fingerprint,
        known={node: name for node, name in core.peers.founders() if not core.counts.get(node)},
        mode="" if core.config.is_quorum else core.config.split_recovery,
    )


def report_of(core: SyncCore, epoch: EpochId, now: Instant) -> EpochReport:
    """What a master that has promised this epoch holds and has not added."""
    streams = tuple(
        (origin, stream.used, tuple(stream.between(stream.used, 2**62)))
        for origin, stream in core.streams.items()
        if stream.used < stream.count
    )
    return EpochReport(
        epoch,
        core.own_row(now),
        core.last()[1],
        core.recovery.reported(core.bodies.is_durable),
        streams,
        core.epoch.configuration,
        *core.epochs.membership.parked(core),
        core.epoch.members,
        core.reads.path if core.reads else () if core.is_whole() else core.epoch.path,
        core.epoch.mode,
        core.reads.id if core.reads else NO_EPOCH,
    )


def _durable_lsn(core: SyncCore) -> Lsn:
    """Peers forget what this master has, so it says of its queue only what a crash cannot take (R18)."""
    if core.durable_lsn is None or not all(map(is_derived, core.round.records)):
        return core.lsn
    return core.durable_lsn
