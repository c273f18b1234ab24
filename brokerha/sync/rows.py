"""The row of a master: what it says of itself in each post, and in its reports.

Must never: say more than is durable with the records of this turn, which are written before it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerha.model.epoch_messages import Row
from brokerha.model.ids import Instant

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
        lsn=core.lsn,
        heard=core.peers.heard(now.mono_ms),
        fingerprint_lsn=fingerprint_lsn,
        fingerprint=fingerprint,
        known={node: name for node, name in core.peers.founders() if not core.counts.get(node)},
        mode="" if core.config.is_quorum else core.config.split_recovery,
    )
