"""Going on in another epoch: what a master's queues, streams and peers are when it begins (rule R11).

    parked      own transactions without a place, and those that had one in the epoch before and are not recovered by this one
    streams     empty, each from the number on that the epoch says
    recovery    what the epoch puts before anything of its streams

Must never: drop an own transaction that was accepted and is not synchronised.
"""

from __future__ import annotations

from collections import deque

from brokerha.model.epochs import OF_A_JOINER, Epoch
from brokerha.model.invariants import invariant
from brokerha.sync.epochs.recovery import Recovery
from brokerha.sync.state import SyncState
from brokerha.sync.streams import IncomingQueue, Stream


def begin(core: SyncState, epoch: Epoch) -> None:
    """Go on in this epoch, with the synchronised queue at its base (R11)."""
    recovered = {txid for _, txid, origin in epoch.recovered if origin == core.node}
    unused = [txid for _, txid, origin in core.recovery.left() if origin == core.node]
    unused += [txid for _, txid in core.own.between(core.own.used, 2**62)]
    again = [txid for txid in unused if txid in core.pending and txid not in recovered]
    core.parked = deque(dict.fromkeys([*again, *(txid for txid in core.parked if txid not in recovered)]))
    core.epoch, core.reads = epoch, None
    core.incoming = IncomingQueue()
    for origin in sorted({*epoch.configuration.masters, *epoch.starts}.difference(core.streams)):
        core.streams[origin] = Stream(origin, 0, [], 0)
    for origin, stream in core.streams.items():
        start = epoch.starts.get(origin, 0)
        invariant(start >= stream.count, "a stream goes on after what is held of it", origin=origin, start=start)
        core.streams[origin] = Stream(origin, start, [], start)
        core.streams[origin].last = epoch.above
    core.own = core.streams[core.node]
    core.counts = {origin: stream.count for origin, stream in core.streams.items()}
    core.peers.begin(epoch)
    core.recovery = Recovery(epoch, core.lsn, core.bodies.has)
    core.clock.saw(epoch.above)
    core.choose(epoch.mode)


def join(core: SyncState) -> None:
    """Be no founder, but one that is to be added; nothing was ever stamped or promised here."""
    core.lost = ""
    core.epoch, core.incoming = OF_A_JOINER, IncomingQueue()
    core.peers.begin(core.epoch)
    core.recovery = Recovery(core.epoch, core.lsn, core.bodies.has)
