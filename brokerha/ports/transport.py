"""Messages between nodes, and writes from apps, as a node's loop sees them.

The transport may lose, repeat, delay and reorder messages, and everything above copes with that. What it must never do
is block the loop, grow without bound, or drop a client's write silently: a `ClientMessage` stays with the broker until
it was settled, and comes again after a crash.

    loop                         transport                                 world
    receive(limit, timeout) <--- bounded inbox <--- the same call reads <--- queues brokerha.<node>.{sync,data,writes}
    send(outgoing...)       ---> bounded outbox ---> the same call writes ---> exchanges
    settle(...)             ---> acknowledgements
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from brokerha.model.ids import NodeId
from brokerha.model.ready import TxQueueDecision
from brokerha.model.requests import Absence
from brokerha.model.wire.messages import Envelope, Outgoing


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """A message that an app published to ``brokerha.writes`` or ``brokerha.reads``; not decoded yet."""

    tag: Any
    """The transport's own handle for settling it."""
    body: bytes
    content_type: str
    message_id: str
    reply_to: str
    correlation_id: str
    exchange: str
    redelivered: bool = False
    headers: dict[str, Any] = field(default_factory=dict)
    routing_key: str = ""
    user: str = ""
    """Who published it, by the word of the broker; empty when he did not say so."""


@dataclass(frozen=True, slots=True)
class ClientReply:
    """An answer to an app: goes to the queue named by its ``reply_to``; lost when that queue is gone (the app asks again)."""

    reply_to: str
    correlation_id: str
    body: bytes
    content_type: str
    headers: dict[str, Any] = field(default_factory=dict)


class Problem(NamedTuple):
    """What is wrong with a connection to a broker, or with what comes over it, in words for a person."""

    reason: str
    remedy: str
    """What the person does about it."""


@dataclass(frozen=True, slots=True)
class TransportStatus:
    """What status, metrics and the page show about the wire."""

    state: str
    """``connected``, ``waiting-for-broker`` or ``blocked``."""
    reason: str
    outbox: int
    """Messages waiting to be published."""
    counters: dict[str, int]
    """Monotone counts: sent, received, returned, dropped, undecodable, foreign_cluster, reconnects, nacked …"""
    set_aside: dict[NodeId, Problem] = field(default_factory=dict)
    """Nodes whose messages are of no use: another user of the broker published the last one, or it is of another version."""
    remedy: str = ""
    """What a person does about the reason; empty for the usual of the state."""


Inbound = Envelope | ClientMessage | Absence


class Transport(Protocol):
    """One node's connection to the others; used by one loop thread, except `wake` and `status`."""

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        """Queue messages for publishing; never blocks; drops the oldest (counted) when the outbox is full."""

    def receive(self, limit: int, timeout_ms: int) -> list[Inbound]:
        """Up to ``limit`` messages, waiting at most ``timeout_ms`` for the first one or for `wake`.

        Envelopes of another cluster or version, and undecodable bytes, are counted, acknowledged and left out.
        Envelopes are acknowledged by the transport itself (the protocol repeats what matters); client messages are
        acknowledged by `settle` only. Raises ConfigurationError when the broker turns out to be another cluster's before the node was ever
        connected; one that was waits until that has changed.
        """

    def wake(self) -> None:
        """Make a waiting `receive` return at once. Callable from any thread."""

    def look(self, masters: Sequence[NodeId]) -> None:
        """Ask the broker whether the inboxes of masters are there; never blocks.

        An `Absence` is received for each that was seen and is gone. Nothing comes where that is not sure: an inbox never seen at this broker,
        a connection of our own that is so young that others may still be on their way, a master with several processes.
        """

    @property
    def has_other_nodes(self) -> bool:
        """Whether the broker has a node to go to beside the one of a connection."""

    def leave_broker_node(self, directions: Sequence[str]) -> None:
        """Connect ``in`` or ``out`` anew, at another node of the broker: for a way that leads nowhere although its connection lives.

        Does nothing where there is no other one.
        """

    def reply(self, replies: Sequence[ClientReply]) -> None:
        """Queue answers to apps; never blocks."""

    def settle(self, messages: Sequence[ClientMessage]) -> None:
        """Acknowledge client messages: they are durable here, or were answered with a refusal."""

    def reject(self, message: ClientMessage, reason: str) -> None:
        """Move a poison client message to ``brokerha.rejected`` with the reason as header, and settle it."""

    def serve_shared(self, is_open: bool) -> None:
        """Whether writes that any master may take are taken here from now on; those of this master alone always are.

        A master that takes no writes leaves them to the others. Those that came already are still received.
        """

    def serve_clients(self, is_open: bool) -> None:
        """Whether writes and reads of apps are taken here at all; a backup begins with no, a master with yes."""

    def tx_queue(self, decision: TxQueueDecision) -> None:
        """Open, follow or leave the queue of a transaction; never blocks, in order with what is sent.

        What arrives through a followed queue is received like everything else. A queue goes when its reader leaves it, or is gone. One
        that is gone, or whose broker restarts, is not waited for: the protocol opens another one.
        """

    def status(self) -> TransportStatus:
        """What is known about the wire. Callable from any thread."""

    def close(self, timeout_ms: int = 5000) -> None:
        """Publish what is waiting as far as the time allows, then disconnect. Idempotent."""
