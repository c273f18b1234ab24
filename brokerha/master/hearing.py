"""Whether this master's ways to the others lead anywhere: each says in its rows whom it hears.

    who is heard                          does it hear this master?         the way that leads nowhere
    some, each of them                    yes                               none
    some, and one of them hears others    not this one                      out
    nobody, although there are masters    nobody knows                      out and in

In a cluster of RabbitMQ a connection may live at a node whose tables of queues and bindings are not those of the other nodes: what is published
there is taken, confirmed, and gone (seen with 3.10 after a node had been frozen or killed). Nothing says so but the silence of the others, and
a connection to another node of the broker ends it. One that was opened in vain, as the others are really gone, costs little: each time it is
waited twice as long.

It reads the core and changes nothing. Must never: want another connection sooner than a change of epoch takes.
"""

from __future__ import annotations

from typing import Final

from brokerha.model.ids import Instant, NodeId
from brokerha.sync.core import SyncCore

IN, OUT = "in", "out"
PATIENCE_MS: Final = 5_000
"""How long a way leads nowhere before it is given up: longer than a broker that lost a node stands still for."""
MOST_MS: Final = 60_000
"""Patience doubles up to this, and begins anew once all was well for so long."""


class Hearing:
    """Of one master; used by the loop's thread."""

    def __init__(self) -> None:
        self.reason = ""
        """Which way leads nowhere, for the status; empty while none does, or while that may pass."""
        self._since_ms: int | None = None
        """Since when some way leads nowhere; None while none does."""
        self._patience_ms = PATIENCE_MS
        self._well_ms = 0
        """Since when all is well, or was before."""
        self._given_up_ms = 0

    def look(self, sync: SyncCore, now: Instant, *, is_connected: bool) -> tuple[str, ...]:
        """The directions that want another connection now: none, `OUT`, or both. Without a connection no way is judged."""
        ways, reason = _lost_ways(sync, now.mono_ms) if is_connected else ((), "")
        if not ways:
            if self._since_ms is not None:
                self._since_ms, self._well_ms, self.reason = None, now.mono_ms, ""
            if now.mono_ms - self._well_ms >= MOST_MS:
                self._patience_ms = PATIENCE_MS
            return ()
        if self._since_ms is None:
            self._since_ms = self._given_up_ms = now.mono_ms
        if now.mono_ms - self._since_ms >= PATIENCE_MS:
            self.reason = reason
        if now.mono_ms - self._given_up_ms < self._patience_ms:
            return ()
        self._given_up_ms = now.mono_ms
        self._patience_ms = min(MOST_MS, 2 * self._patience_ms)
        return ways


def _lost_ways(sync: SyncCore, mono_ms: int) -> tuple[tuple[str, ...], str]:
    """The directions that lead nowhere, and the reason in words."""
    peers = sync.peers
    if sync.retired or sync.lost or sync.is_joiner():
        return (), ""
    odd = {*peers.guests, *peers.impostors, *peers.unlike}
    others = [node for node in (*peers.peers, *peers.outside) if node not in odd]
    heard = peers.heard_of(others, mono_ms)
    if others and not heard:
        return (OUT, IN), f"{sync.node} hears no other master through its broker node"
    deaf = [node for node in heard if _is_deaf(sync, node, is_alone=len(others) == 1)]
    if deaf:
        return (OUT,), f"{', '.join(deaf)}: heard, and not heard by {'it' if len(deaf) == 1 else 'them'} through the broker node of {sync.node}"
    return (), ""


def _is_deaf(sync: SyncCore, node: NodeId, *, is_alone: bool) -> bool:
    """Whether a master does not hear this one. Of one that hears nobody the fault is its own, if there is somebody else to be heard."""
    row = sync.peers.last_row(node)
    return row is not None and sync.node not in row.heard and (is_alone or bool(row.heard))
