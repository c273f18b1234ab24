"""Messages between nodes, and writes from apps, as a node's loop sees them.

The transport may lose, repeat, delay and reorder messages, and all layers above cope with that. It must never block the loop, grow
without bound, or drop a client's write silently: a `ClientMessage` stays with the broker until it was settled, and comes again
after a crash.

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
    """The publisher, as the broker says; empty when the broker did not say it."""
    content_encoding: str = ""


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
    """The remedy for that person."""


@dataclass(frozen=True, slots=True)
class TransportStatus:
    """The part of the transport that status, metrics and the page show."""

    state: str
    """``connected``, ``waiting-for-broker`` or ``blocked``."""
    reason: str
    outbox: int
    """Messages waiting to be published."""
    counters: dict[str, int]
    """Monotone counts: sent, received, returned, dropped, undecodable, foreign_cluster, reconnects, nacked …"""
    set_aside: dict[NodeId, Problem] = field(default_factory=dict)
    """Nodes whose messages are ignored: another user of the broker published the last one, or the node runs another version."""
    remedy: str = ""
    """Remedy for the reason; empty for the usual one of the state."""


Inbound = Envelope | ClientMessage | Absence


class Transport(Protocol):
    """One node's connection to the others; used by one loop thread, except `wake` and `status`."""

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        """Queue messages for publishing; never block; drop the oldest (counted) when the outbox is full."""

    def receive(self, limit: int, timeout_ms: int) -> list[Inbound]:
        """Return up to ``limit`` messages, waiting at most ``timeout_ms`` for the first one or for `wake`.

        Envelopes of another cluster or version, and undecodable bytes, are counted, acknowledged and left out. The transport itself
        acknowledges envelopes (the protocol repeats important ones); only `settle` acknowledges client messages. Raises
        ConfigurationError when the broker turns out to be another cluster's before the node was ever connected; a node that was
        connected waits for a change.
        """

    def wake(self) -> None:
        """Make a waiting `receive` return at once. Callable from any thread."""

    def look(self, masters: Sequence[NodeId]) -> None:
        """Ask the broker whether the inboxes of masters are there; never block.

        An `Absence` is received for each inbox that was seen and is gone. None comes where that is not sure: for an inbox never
        seen at this broker, on a new own connection while others may still be on their way, for a master with several processes.
        """

    @property
    def has_other_nodes(self) -> bool:
        """Tell whether the broker has another node beside that of a connection."""

    def leave_broker_node(self, directions: Sequence[str]) -> None:
        """Connect ``in`` or ``out`` anew, at another node of the broker: for a live connection through which no message passes.

        Does nothing where there is no other node.
        """

    def reply(self, replies: Sequence[ClientReply]) -> None:
        """Queue answers to apps; never block."""

    def settle(self, messages: Sequence[ClientMessage]) -> None:
        """Acknowledge client messages: they are durable here, or were answered with a refusal."""

    def reject(self, message: ClientMessage, reason: str) -> None:
        """Move a poison client message to ``brokerha.rejected`` with the reason as header, and settle it."""

    def serve_shared(self, is_open: bool) -> None:
        """Set whether shared writes, which any master can take, are taken here; those for this master always are.

        A master that takes no writes leaves them to the others. Those that came already are still received.
        """

    def serve_clients(self, is_open: bool) -> None:
        """Set whether writes and reads of apps are taken here at all; a backup begins with no, a master with yes."""

    def tx_queue(self, decision: TxQueueDecision) -> None:
        """Open, follow or leave the queue of a transaction; never block, in order with sent messages.

        Messages of a followed queue are received like all others. A queue goes when its reader leaves it, or is gone. A queue that
        is gone, or whose broker restarts, is not awaited: the protocol opens another one.
        """

    def status(self) -> TransportStatus:
        """Return the state of the transport. Callable from any thread."""

    def close(self, timeout_ms: int = 5000) -> None:
        """Publish waiting messages as far as the time allows, then disconnect. Idempotent."""
