"""Whether the connections of a node reach the others: a live connection is left when its messages lead nowhere.

In a cluster of RabbitMQ a connection can stay alive at a node whose tables of queues and bindings differ from those of the other
nodes. Such a node takes and confirms messages, and loses them (seen with 3.10 after a node had been frozen or killed). Only the
silence of the other nodes of the cluster shows this, and a connection to another node of the broker ends it.

    a master hears                        do they hear it, by their rows?   direction that leads nowhere
    some, each of them                    yes                               none
    some, and one of them hears others    not this one                      out
    none, although there are masters      unknown                           out and in

    a worker is greeted again             its master does not hear it       out
    a worker asked, and hears nothing     unknown                           out and in
    a backup waits for a primary          unknown                           out and in

Masters pass on rows that another master does not hear itself: so two masters that only a third one connects learn of it.

When the other nodes are really gone, a change of the broker node does not help, but costs little: the patience doubles each time.
When the broker has no other node, nothing is judged.

Must never: change anything but the connection, or leave it sooner than a broker that lost a node needs to answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from brokerha.model.ids import Instant, NodeId
from brokerha.ports.transport import Transport
from brokerha.sync.core import SyncCore

IN, OUT = "in", "out"
PATIENCE_MS: Final = 5_000
"""Time that a direction can lead nowhere before the connection is left."""
MOST_MS: Final = 60_000
"""Upper limit of the doubled patience, and the time without a problem that resets it to `PATIENCE_MS`."""
LISTEN_MS: Final = 500
"""Interval between two looks."""
ASK_MS: Final = 3_000
"""Time of silence after which a worker asks its master for an answer, repeatedly."""
GREETED_MS: Final = 20_000
"""Time after a greeting when a worker counts as heard: a master greets a worker that it does not hear every few seconds."""


def is_judged(transport: Transport) -> bool:
    """Tell whether the directions of a node are judged now: it is connected, and the broker has another node."""
    return transport.has_other_nodes and transport.status().state == "connected"


class _Patience:
    def __init__(self) -> None:
        self._patience_ms = PATIENCE_MS
        self._since_ms: int | None = None
        self._given_up_ms = self._well_ms = 0

    def lasts_ms(self, mono_ms: int) -> int:
        """Return for how long a direction has led nowhere."""
        return 0 if self._since_ms is None else mono_ms - self._since_ms

    def is_over(self, mono_ms: int, *, is_well: bool) -> bool:
        """Note whether all is well; return whether to leave the connection now."""
        if is_well:
            if self._since_ms is not None:
                self._since_ms, self._well_ms = None, mono_ms
            if mono_ms - self._well_ms >= MOST_MS:
                self._patience_ms = PATIENCE_MS
            return False
        if self._since_ms is None:
            self._since_ms = self._given_up_ms = mono_ms
        if mono_ms - self._given_up_ms < self._patience_ms:
            return False
        self._given_up_ms = mono_ms
        self._patience_ms = min(MOST_MS, 2 * self._patience_ms)
        return True


class MasterHearing:
    """The hearing of one master; it reads the core. Used by the loop's thread."""

    def __init__(self) -> None:
        self.reason = ""
        """The direction that leads nowhere, for the status; empty while there is none, or while it can still pass."""
        self._patience = _Patience()

    def look(self, sync: SyncCore, now: Instant, *, is_judged: bool) -> tuple[str, ...]:
        """Return the directions to leave now: none, `OUT`, or both."""
        ways, reason = _lost_ways(sync, now.mono_ms) if is_judged else ((), "")
        is_left = self._patience.is_over(now.mono_ms, is_well=not ways)
        self.reason = reason if self._patience.lasts_ms(now.mono_ms) >= PATIENCE_MS else ""
        return ways if is_left else ()


class WorkerHearing:
    """The hearing of one worker; its master greets it with an empty `Apply` at its start, and again while it does not hear it.

    The worker asks a quiet master something, so that its silence is a sign.
    """

    def __init__(self, mono_ms: int) -> None:
        self.heard_ms = mono_ms
        """When the last message of the master came; the owner sets it."""
        self._asked_ms = mono_ms
        self._of_silence, self._of_greetings = _Patience(), _Patience()
        self._greeted_ms = -GREETED_MS
        self._begun_ms = mono_ms
        self.is_known = False
        """Whether the master has ever sent a greeting or lines, as it does to each worker on its list; the owner sets it."""
        self._is_told = False
        self.is_greeted = False
        """Whether the last message was a greeting; lines end it, because a master sends them only to a worker that it hears."""

    def on_lines(self, mono_ms: int, *, is_greeting: bool) -> tuple[str, ...]:
        """Note a message of the master; return the directions to leave now: none, or `OUT`. Lines count only while `is_greeted`."""
        is_again = is_greeting and mono_ms - self._greeted_ms <= GREETED_MS
        self.is_greeted = is_greeting
        if is_greeting:
            self._greeted_ms = mono_ms
        return (OUT,) if self._of_greetings.is_over(mono_ms, is_well=not is_again) else ()

    def is_to_ask(self, mono_ms: int) -> bool:
        """Tell whether to ask the master something now, because it has been silent for a while."""
        if mono_ms - max(self.heard_ms, self._asked_ms) < ASK_MS:
            return False
        self._asked_ms = mono_ms
        return True

    def is_to_tell(self, mono_ms: int) -> bool:
        """Tell, once, that the master has sent nothing since the start of this worker."""
        if self.is_known or self._is_told or mono_ms - self._begun_ms < GREETED_MS:
            return False
        self._is_told = True
        return True

    def look(self, mono_ms: int) -> tuple[str, ...]:
        """Return the directions to leave now because the master is silent: none, or both."""
        is_well = mono_ms - self.heard_ms < 2 * ASK_MS
        return (OUT, IN) if self._of_silence.is_over(mono_ms, is_well=is_well) else ()


class BackupHearing:
    """The hearing of a standby."""

    def __init__(self) -> None:
        self._patience = _Patience()
        self._next_ms = 0

    def look(self, is_waiting: Callable[[], bool], mono_ms: int) -> tuple[str, ...]:
        """Return the directions to leave now: none, or both. It calls ``is_waiting`` (for a primary) every half second at most."""
        if mono_ms < self._next_ms:
            return ()
        self._next_ms = mono_ms + LISTEN_MS
        return (OUT, IN) if self._patience.is_over(mono_ms, is_well=not is_waiting()) else ()


def _lost_ways(sync: SyncCore, mono_ms: int) -> tuple[tuple[str, ...], str]:
    """Return the directions that lead nowhere, and the reason in words."""
    peers = sync.peers
    if sync.retired or sync.lost or sync.is_joiner():
        return (), ""
    odd = {*peers.guests, *peers.impostors, *peers.unlike}
    others = [node for node in (*peers.peers, *peers.outside) if node not in odd]
    heard = peers.heard_of(others, mono_ms)
    if others and not heard:
        return (OUT, IN), f"{sync.node} hears no other master through its broker node"
    known = [node for node in others if node in heard or _is_passed_on(sync, node, mono_ms)]
    deaf = [node for node in known if _is_deaf(sync, node, is_alone=len(others) == 1)]
    if deaf:
        them = "it" if len(deaf) == 1 else "them"
        return (OUT,), f"{', '.join(deaf)}: heard of, and {sync.node} is not heard by {them} through its broker node"
    return (), ""


def _is_passed_on(sync: SyncCore, node: NodeId, mono_ms: int) -> bool:
    """Tell whether other masters recently passed on messages of a member."""
    peer = sync.peers.peers.get(node)
    lately_ms = sync.config.heard_ms + sync.config.idle_round_ms
    return peer is not None and peer.known_ms is not None and mono_ms - peer.known_ms <= lately_ms


def _is_deaf(sync: SyncCore, node: NodeId, *, is_alone: bool) -> bool:
    """Tell whether a master does not hear this one. One that hears none has its own fault, unless it has only this one to hear."""
    row = sync.peers.last_row(node)
    return row is not None and sync.node not in row.heard and (is_alone or bool(row.heard))
