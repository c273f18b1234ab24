"""Going back: what was synchronised on one side of a split only is given up, and handed in again as new (rule R13).

    queue here        … 100 | 101 x  102 y  103 z(of m4)           m3 and m4 were on this side; m4 is not heard
    next epoch        … 100 | 101 a  102 b                         agreed: 100, and m3 speaks for those who are not here
    afterwards        … 100 |       parked: x y, and z as m3's own

Whoever took a transaction in hands it in again; for masters that are no members of the next epoch the first of their side does. They
may do so again when they are back: a transaction id is synchronised once.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from brokerha.model.epochs import Epoch
from brokerha.model.ids import Lsn, TxId
from brokerha.model.records import Accepted, Rewound
from brokerha.sync.bodies import in_records
from brokerha.sync.recovery import Recovery

if TYPE_CHECKING:
    from brokerha.sync.core import SyncCore
    from brokerha.sync.round import RoundResult


def come_together(core: SyncCore, epoch: Epoch, result: RoundResult) -> None:
    """Note that an epoch to come brings sides of a split together, unless that is noted already: a lineage begins at the end of the queue."""
    if len(epoch.agreed) > 1 and epoch.number > core.lineage:
        result.rewound = Rewound(core.lsn, core.epoch.number, epoch.number)
        result.records.append(result.rewound)
        core.lineage = epoch.number


def go_back(core: SyncCore, lsn: Lsn, epoch: Epoch, result: RoundResult) -> None:
    """Take the synchronised queue back to an LSN; the queue of the epoch to come goes on from there."""
    entries = core.history.ordered(lsn + 1, core.lsn - lsn)
    own = [txid for _, txid, origin in entries if origin == core.node]
    others: list[tuple[TxId, bytes]] = []
    if any(epoch_id == core.epoch.id and node == core.node for epoch_id, _, node in epoch.agreed):
        for _, txid, origin in entries:
            body = core.history.body(origin, txid) if origin not in epoch.members else None
            if body is not None:
                others.append((txid, body))
    result.rewound = Rewound(lsn, core.epoch.number, epoch.number)
    result.records.append(result.rewound)
    result.records.extend(Accepted(part) for part in in_records(others))
    again = [*own, *core.parked, *(txid for txid, _ in others)]
    core.parked = deque(dict.fromkeys(again))
    core.pending.update(core.parked)
    core.lsn = lsn
    core.last_entry = core.entry_at(lsn)
    core.recovery = Recovery(core.epoch, lsn, core.bodies.has)
    core.gone_back, core.lineage = lsn, epoch.number
