"""Beginning another epoch: a master's queues, streams and peers in it (rule R11).

    parked      own transactions without a place, and those that had one in the epoch before and are not recovered by this one
    streams     empty, each from the number on that the epoch gives
    recovery    the entries that the epoch puts before those of its streams

Must never: drop an own transaction that was accepted and is not synchronised.
"""

from __future__ import annotations

from collections import deque

from brokerha.model.epochs import OF_A_JOINER, Epoch
from brokerha.model.invariants import invariant
from brokerha.sync.epochs.recovery import Recovery
from brokerha.sync.modes import QUORUM
from brokerha.sync.state import SyncState
from brokerha.sync.streams import IncomingQueue, Stream


def begin(sync: SyncState, epoch: Epoch) -> None:
    """Continue in this epoch, with the synchronised queue at its base (R11)."""
    recovered = {txid for _, txid, origin in epoch.recovered if origin == sync.node}
    unused = [txid for _, txid, origin in sync.recovery.left() if origin == sync.node]
    unused += [txid for _, txid in sync.own.between(sync.own.used, 2**62)]
    again = [txid for txid in unused if txid in sync.pending and txid not in recovered]
    sync.parked = deque(dict.fromkeys([*again, *(txid for txid in sync.parked if txid not in recovered)]))
    sync.epoch, sync.reads = epoch, None
    sync.incoming = IncomingQueue()
    for origin in sorted({*epoch.configuration.masters, *epoch.starts}.difference(sync.streams)):
        sync.streams[origin] = Stream(origin, 0, [], 0)
    for origin, stream in sync.streams.items():
        start = epoch.starts.get(origin, 0)
        invariant(start >= stream.count, "a stream goes on after what is held of it", origin=origin, start=start)
        sync.streams[origin] = Stream(origin, start, [], start)
        sync.streams[origin].last = epoch.above
    sync.own = sync.streams[sync.node]
    sync.counts = {origin: stream.count for origin, stream in sync.streams.items()}
    sync.peers.begin(epoch)
    sync.recovery = Recovery(epoch, sync.lsn, sync.bodies.has)
    sync.clock.saw(epoch.above)
    sync.choose(epoch.mode)


def join(sync: SyncState) -> None:
    """Become a joiner instead of a founder; this master never stamped or promised anything."""
    sync.lost = ""
    sync.epoch, sync.incoming = OF_A_JOINER, IncomingQueue()
    sync.choose(QUORUM)
    sync.peers.begin(sync.epoch)
    sync.recovery = Recovery(sync.epoch, sync.lsn, sync.bodies.has)
