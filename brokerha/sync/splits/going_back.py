"""Going back: entries that only one side of a split synchronised are given up, and handed in again as new (rule R13).

    queue here        … 100 | 101 x  102 y  103 z(of m4)           m3 and m4 were on this side; m4 is not heard
    next epoch        … 100 | 101 a  102 b                         agreed: 100, and m3 speaks for absent masters
    afterwards        … 100 |       parked: x y z, with z as m3's own, before the transactions that were parked already

Each master hands in again the transactions that it accepted, also if they came to their LSN through another master. For masters
outside the next epoch, the first of their side does. They may do so again when they are back: an id is synchronised once.

Reading the other queue may take longer than others wait, and the next attempt then finds this master on its way. Its report says
for which epoch it went back (`EpochReport.reads`), and it does not give up the entries that it has read of that epoch's queue. A
restart forgets that epoch: then the queue after the place to which it went back is of no known epoch, and the master gives it up.
"""

from __future__ import annotations

from collections import deque

from brokerha.model.epochs import Epoch
from brokerha.model.given_up import Split
from brokerha.model.ids import Instant, Lsn, NodeId, TxId
from brokerha.model.records import Accepted, Rewound
from brokerha.sync.bodies import in_records
from brokerha.sync.config import SyncConfig
from brokerha.sync.epochs.recovery import Recovery
from brokerha.sync.modes import NONE
from brokerha.sync.round import RoundResult
from brokerha.sync.splits.deciding import CUT, ENDLESS, agreement
from brokerha.sync.state import SyncState

HANDED_IN_BYTES = 32 * 1024 * 1024
"""Bodies that one turn hands in for absent masters, and a last one beyond it: a side of a split can have synchronised any number."""


class GoingBack:
    """Decides when a master goes back, before it takes over an epoch that its queue is ahead of or beside."""

    def __init__(self, config: SyncConfig) -> None:
        self._config = config
        self.until_ms: int | None = None
        """Deadline for going back; None when nothing is to be given up."""
        self._early: set[TxId] = set()
        """Transactions of absent masters that were handed in before going back."""

    def is_due(self, sync: SyncState, epoch: Epoch) -> bool:
        """Tell whether the own queue is longer than that epoch says, or continues with entries of another side.

        After the master went back for it, even to its own end, the entries that it has read since are of that epoch.
        """
        if sync.lineage < epoch.number and (sync.lsn > _agreed(sync, epoch) or _reads_another(sync, epoch)):
            return True
        self.until_ms = None
        return False

    def step(self, sync: SyncState, epoch: Epoch, result: RoundResult, now: Instant) -> bool:
        """Go back, unless the own site still has work to do first, which has a deadline. Return whether it went back."""
        lsn, first = min(_agreed(sync, epoch), sync.lsn), sync.history.first_lsn()
        if lsn + 1 < first:
            sync.lost = f"the queue here parted from that of the others at LSN {lsn}, and begins at {first}"
            return False
        if self.until_ms is None:
            self.until_ms = now.mono_ms + self._config.lag_ms
        if lsn < sync.lsn and not sync.is_ready_to_go_back() and now.mono_ms < self.until_ms:
            return False
        self._early &= sync.pending
        others, is_all = _of_absent(sync, lsn, epoch, self._early)
        self._early.update(txid for txid, _ in others)
        if not is_all:
            # First, because a crash after going back would lose the rest. If it does not go back, they are dropped as duplicates.
            result.records.extend(Accepted(part) for part in in_records(others))
            sync.parked.extend(txid for txid, _ in others)
            sync.pending.update(self._early)
            return False
        self.until_ms = None
        go_back(sync, lsn, epoch, result, others, self._early)
        return True


def read_before(node: NodeId, incarnation: int, epoch: Epoch, split: Split) -> Epoch | None:
    """Return the epoch that a master read when its process ended between going back and taking it over; None if it did not read.

    ``split`` is the last one that it came from, ``epoch`` the installed one.
    """
    if split.lineage <= epoch.number:
        return None
    # Also epochs in which it added nothing: others may know no earlier one.
    way = [(epoch_id, min(left, split.lsn)) for epoch_id, left in (*epoch.path, (epoch.id, ENDLESS))]
    # No other epoch has this name: no master is on its way.
    return Epoch(split.lineage, f"{node}?{incarnation}", (), path=(*way, (CUT, split.lsn)))


def _side(sync: SyncState) -> Epoch:
    """Return the epoch whose queue the own one is: the installed one, or the one that this master went back for."""
    return sync.reads or sync.epoch


def _agreed(sync: SyncState, epoch: Epoch) -> Lsn:
    """Return up to which LSN the own queue is that of the epoch to come."""
    side = _side(sync)
    found = [lsn for epoch_id, lsn, _ in epoch.agreed if epoch_id == side.id]
    if found or not epoch.agreed:
        return min(found, default=sync.lsn)
    # It reported the epoch that it read, and forgot it in a restart since: no other master knows its queue under the present name.
    return agreement((*epoch.path, (epoch.id, ENDLESS)), (*side.path, (side.id, sync.lsn)), {})


def _reads_another(sync: SyncState, epoch: Epoch) -> bool:
    """Tell whether entries up to the base of the coming epoch were added after it left the own one: the own queue lacks them."""
    left = dict(epoch.path).get(_side(sync).id, 0)
    return bool(epoch.agreed) and sync.lsn < epoch.base_lsn and left < epoch.base_lsn


def _rewound(sync: SyncState, lsn: Lsn, epoch: Epoch) -> Rewound:
    return Rewound(lsn, _side(sync).number, epoch.number, keeps_content=sync.mode_of(epoch) == NONE)


def come_together(sync: SyncState, epoch: Epoch, result: RoundResult) -> None:
    """Note once that an epoch to come brings sides of a split together: a lineage begins at the end of the queue."""
    if len(epoch.agreed) > 1 and epoch.number > sync.lineage:
        result.rewound = _rewound(sync, sync.lsn, epoch)
        result.records.append(result.rewound)
        sync.lineage = epoch.number


def _of_absent(sync: SyncState, lsn: Lsn, epoch: Epoch, early: set[TxId]) -> tuple[list[tuple[TxId, bytes]], bool]:
    """Return the next bodies after an LSN that this master hands in for absent masters, and whether they are the last ones."""
    others: list[tuple[TxId, bytes]] = []
    size = 0
    if any(epoch_id == _side(sync).id and node == sync.node for epoch_id, _, node in epoch.agreed):
        for _, txid, origin in sync.history.ordered(lsn + 1, sync.lsn - lsn):
            is_wanted = origin not in epoch.members and txid not in early
            body = sync.history.body(origin, txid) if is_wanted else None
            if body is None:
                continue
            if size >= HANDED_IN_BYTES:
                return others, False
            others.append((txid, body))
            size += len(body)
    return others, True


def go_back(
    sync: SyncState, lsn: Lsn, epoch: Epoch, result: RoundResult, others: list[tuple[TxId, bytes]], handed_in: set[TxId]
) -> None:
    """Take the synchronised queue back to an LSN; the queue of the epoch to come continues from there.

    ``handed_in`` are the transactions of absent masters that it hands in, ``others`` those of them that it has not handed in before.
    """
    entries = sync.history.ordered(lsn + 1, sync.lsn - lsn)
    result.rewound = _rewound(sync, lsn, epoch)
    result.records.append(result.rewound)
    result.records.extend(Accepted(part) for part in in_records(others))
    # The origin may count on this master: on its side the transaction was synchronised through this one.
    handed_in = handed_in | {*sync.history.duplicates([txid for _, txid, _ in entries])}
    # In the former order: the writer of the later one may have seen the earlier one.
    again = [txid for _, txid, origin in entries if origin == sync.node or txid in handed_in]
    sync.parked = deque(dict.fromkeys([*again, *sync.parked]))
    sync.pending.update(sync.parked)
    sync.need_ids(again, lsn + 1)
    sync.lsn = lsn
    sync.last_entry = sync.history.entry_at(lsn)
    sync.bodies.look_again()
    sync.recovery = Recovery(sync.epoch, lsn, sync.bodies.has)
    sync.gone_back, sync.lineage, sync.reads = lsn, epoch.number, epoch
