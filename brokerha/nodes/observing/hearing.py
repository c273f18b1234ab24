"""Whether the ways of a node to the others lead anywhere: a connection that lives is left when nothing comes of what goes over it.

In a cluster of RabbitMQ a connection may live at a node whose tables of queues and bindings are not those of the other nodes: what is published
there is taken, confirmed, and gone (seen with 3.10 after a node had been frozen or killed). Nothing says so but the others, and a connection to
another node of the broker ends it.

    a master hears                        do they hear it, by their rows?   the way that leads nowhere
    some, each of them                    yes                               none
    some, and one of them hears others    not this one                      out
    nobody, although there are masters    nobody knows                      out and in

    a worker is greeted again             its master does not hear it       out
    a worker asked, and hears nothing     nobody knows                      out and in
    a backup waits for a primary          nobody knows                      out and in

What a master does not hear itself of another one, others pass on: two masters that hear each other no more only through a third learn it so.

A way that was left in vain, as the others are really gone, costs little: each time it is waited twice as long. Where the broker has no other node
nothing is judged.

Must never: change anything but the connection, or leave it sooner than a broker that lost a node takes to answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from brokerha.model.ids import Instant, NodeId
from brokerha.ports.transport import Transport
from brokerha.sync.core import SyncCore

IN, OUT = "in", "out"
PATIENCE_MS: Final = 5_000
"""How long a way leads nowhere before it is given up."""
MOST_MS: Final = 60_000
"""Patience doubles up to this, and begins anew once all was well for so long."""
LISTEN_MS: Final = 500
"""How often it is looked."""
ASK_MS: Final = 3_000
"""A worker that has heard nothing of its master for so long asks it something, again and again."""
GREETED_MS: Final = 20_000
"""A worker whose last greeting is longer ago is heard: its master greets it every few seconds while it is not."""


def is_judged(transport: Transport) -> bool:
    """Whether the ways of a node are judged now: it is connected, and the broker has another node."""
    return transport.has_other_nodes and transport.status().state == "connected"


class _Patience:
    def __init__(self) -> None:
        self._patience_ms = PATIENCE_MS
        self._since_ms: int | None = None
        self._given_up_ms = self._well_ms = 0

    def lasts_ms(self, mono_ms: int) -> int:
        """For how long some way has led nowhere."""
        return 0 if self._since_ms is None else mono_ms - self._since_ms

    def is_over(self, mono_ms: int, *, is_well: bool) -> bool:
        """Take note of how it is; whether the way is to be left now."""
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
    """Of one master; it reads the core. Used by the loop's thread."""

    def __init__(self) -> None:
        self.reason = ""
        """Which way leads nowhere, for the status; empty while none does, or while that may pass."""
        self._patience = _Patience()

    def look(self, sync: SyncCore, now: Instant, *, is_judged: bool) -> tuple[str, ...]:
        """The directions to be left now: none, `OUT`, or both."""
        ways, reason = _lost_ways(sync, now.mono_ms) if is_judged else ((), "")
        is_left = self._patience.is_over(now.mono_ms, is_well=not ways)
        self.reason = reason if self._patience.lasts_ms(now.mono_ms) >= PATIENCE_MS else ""
        return ways if is_left else ()


class WorkerHearing:
    """Of one worker: its master asks with an empty `Apply` where it stands, once at its start, and again while it does not hear it.

    A master that has nothing to say to a worker is asked something, so that its silence means something.
    """

    def __init__(self, mono_ms: int) -> None:
        self.heard_ms = mono_ms
        """When anything came of the master; the owner sets it."""
        self._asked_ms = mono_ms
        self._of_silence, self._of_greetings = _Patience(), _Patience()
        self._greeted_ms = -GREETED_MS
        self.is_greeted = False
        """Whether a greeting was the last thing that came: until lines come, which only those get who are heard."""

    def on_lines(self, mono_ms: int, *, is_greeting: bool) -> tuple[str, ...]:
        """Something came from the master; the directions to be left now: none, or `OUT`. Of no use for lines unless it `is_greeted`."""
        is_again = is_greeting and mono_ms - self._greeted_ms <= GREETED_MS
        self.is_greeted = is_greeting
        if is_greeting:
            self._greeted_ms = mono_ms
        return (OUT,) if self._of_greetings.is_over(mono_ms, is_well=not is_again) else ()

    def is_to_ask(self, mono_ms: int) -> bool:
        """Whether the master is to be asked something now, as it has been silent for a while."""
        if mono_ms - max(self.heard_ms, self._asked_ms) < ASK_MS:
            return False
        self._asked_ms = mono_ms
        return True

    def look(self, mono_ms: int) -> tuple[str, ...]:
        """The directions to be left now, as nothing comes of the master: none, or both."""
        is_well = mono_ms - self.heard_ms < 2 * ASK_MS
        return (OUT, IN) if self._of_silence.is_over(mono_ms, is_well=is_well) else ()


class BackupHearing:
    """Of a process that stands by."""

    def __init__(self) -> None:
        self._patience = _Patience()
        self._next_ms = 0

    def look(self, is_waiting: Callable[[], bool], mono_ms: int) -> tuple[str, ...]:
        """The directions to be left now: none, or both. It asks every half second at most whether this process waits for a primary."""
        if mono_ms < self._next_ms:
            return ()
        self._next_ms = mono_ms + LISTEN_MS
        return (OUT, IN) if self._patience.is_over(mono_ms, is_well=not is_waiting()) else ()


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
    known = [node for node in others if node in heard or _is_passed_on(sync, node, mono_ms)]
    deaf = [node for node in known if _is_deaf(sync, node, is_alone=len(others) == 1)]
    if deaf:
        them = "it" if len(deaf) == 1 else "them"
        return (OUT,), f"{', '.join(deaf)}: heard of, and {sync.node} is not heard by {them} through its broker node"
    return (), ""


def _is_passed_on(sync: SyncCore, node: NodeId, mono_ms: int) -> bool:
    """Whether others passed on lately what a member says."""
    peer = sync.peers.peers.get(node)
    lately_ms = sync.config.heard_ms + sync.config.idle_round_ms
    return peer is not None and peer.known_ms is not None and mono_ms - peer.known_ms <= lately_ms


def _is_deaf(sync: SyncCore, node: NodeId, *, is_alone: bool) -> bool:
    """Whether a master does not hear this one. Of one that hears nobody the fault is its own, if there is somebody else to be heard."""
    row = sync.peers.last_row(node)
    return row is not None and sync.node not in row.heard and (is_alone or bool(row.heard))
