"""ports.Transport through kombu; the URL chooses the broker.

    amqp://…, amqps://…    RabbitMQ        served by the loop itself, confirms, reconnects (rabbitmq/loop_link.py)
    embedded://<name>      this process    no threads (in_process/direct_link.py)

| | RabbitMQ | in-process |
|---|---|---|
| order within one sender and channel | kept, except across a reconnect | kept |
| message to a node without a queue | lost; the protocol repeats | lost |
| full queue | drops its oldest, unnoticed | drops its oldest; the sender counts it |
| full outbox | drops its oldest, counted | has none |
| unsettled message of an app | comes again, marked | comes again, marked |
| confirmations | for messages that must not be lost, in a bounded window | immediate |
| queue of a transaction | opened and filled in this order (rabbitmq/writer.py); removed with its reader | the same |

This module turns messages into publications and arrivals into messages, and counts unusable ones: an envelope of another cluster,
or bytes that are no envelope. It never reads the content of an app's message.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from brokerha.model.errors import ProtocolError, TooLarge
from brokerha.model.ids import NodeId
from brokerha.model.operation_checks import user_problem
from brokerha.model.ready import FollowTxQueue, LeaveTxQueue, OpenTxQueue, TxQueueDecision
from brokerha.model.requests import Absence
from brokerha.model.wire.channels import SYNC
from brokerha.model.wire.client_wire import encode_answer
from brokerha.model.wire.codec import TOGETHER_LIMIT, OtherVersion, decode_envelopes, encode_envelope
from brokerha.model.wire.messages import Bodies, Chunk, Message, Outgoing
from brokerha.model.wire.process_messages import TxJoin
from brokerha.ports.transport import ClientMessage, ClientReply, Inbound, TransportStatus
from brokerha.transports.config import TransportConfig
from brokerha.transports.in_process.direct_link import DirectLink
from brokerha.transports.lanes import (
    ABSENCE_LANE,
    BULK_LANE,
    CLIENT_LANE,
    DATA_LANE,
    REPLY_LANE,
    SYNC_LANE,
    TX_LANE,
    Arrival,
    Counters,
    Publication,
)
from brokerha.transports.link import Link
from brokerha.transports.rabbitmq.addresses import NOBODY, is_embedded, parse_addresses
from brokerha.transports.rabbitmq.loop_link import LoopLink
from brokerha.transports.rabbitmq.rejecting import FOREIGN_CLUSTER, UNDECODABLE, Sparing, rejected
from brokerha.transports.rights import Foreigners, Senders, of_another_user, of_another_version
from brokerha.transports.topology import DATA_EXCHANGE, DEFAULT_EXCHANGE, MASTER_ROLE, SYNC_EXCHANGE

ENVELOPE_TYPE = "application/vnd.brokerha.envelope+msgpack"
_TRANSIENT = 1
SMALL_BYTES = 16 * 1024
"""Larger bodies would delay the protocol's own messages."""
TOGETHER_BYTES = 64 * 1024
"""Messages for the same nodes are published together up to this size."""
_LANES_OF_NODES = (SYNC_LANE, DATA_LANE)


class KombuTransport:
    """One node's connection to the others; see ports.Transport for the contract of each method."""

    def __init__(
        self,
        url: str,
        cluster: str,
        node: NodeId,
        incarnation: int,
        role: str,
        config: TransportConfig | None = None,
        master: NodeId = "",
        processes: Mapping[NodeId, Collection[NodeId]] | None = None,
    ) -> None:
        """Start connecting, without waiting for a broker. Raises ConfigurationError for an impossible URL or limits.

        ``master`` is that of a backup; ``processes`` are those of each known master.
        """
        self._cluster = cluster
        self._node = node
        self._incarnation = incarnation
        self._config = config or TransportConfig()
        self._config.check()
        self._counters = Counters()
        self._sparing = Sparing()
        self._is_sharing = True
        self._is_serving = role == MASTER_ROLE
        addresses = () if is_embedded(url) else parse_addresses(url)
        users = {address.user for address in addresses}
        # A user that the broker does not allow must not be named; with different users at the addresses the right one is unknown.
        self._user = users.pop() if len(users) == 1 else ""
        self._senders = Senders(cluster, node, self._user, processes)
        self._foreigners = Foreigners(node)
        self._heard: set[NodeId] = set()
        self._left: list[Inbound] = []
        """Rest of the last arrival, beyond the limit of `receive`."""
        self._kinds: dict[type[Message], tuple[str, str, dict[str, Any]]] = {}
        """Lane, exchange and properties by kind of message, for the kinds sent so far."""
        self._link: Link
        if addresses:
            self._link = LoopLink(addresses, node, role, self._config, self._counters, master, cluster)
        else:
            self._link = DirectLink(url, node, role, self._config, self._counters, master, cluster)

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        """Queue messages for publishing. A message to several nodes is published once, messages to the same nodes together.

        A node joins an earlier publication only when no message for it is in between.
        """
        now_s = time.monotonic()
        made: list[Publication] = []
        places: dict[tuple[int, NodeId, int], int] = {}
        last: dict[str, int] = {}
        for each in outgoing:
            name = (id(each.message), each.sender, each.incarnation)
            place = places.get(name)
            same = None if place is None else made[place]
            may_join = same is not None and same.lane in _LANES_OF_NODES and not each.queue
            if same is not None and place is not None and may_join and last.get(each.to, -1) < place:
                same.also += (each.to,)
                last[each.to] = place
            else:
                made.append(self._publication(each, now_s, b"" if same is None else same.body))
                places[name] = last[each.to] = len(made) - 1
        if made:
            self._link.publish(_together(made) if len(made) > 1 else made)

    def look(self, masters: Sequence[NodeId]) -> None:
        """Ask the broker for the inboxes of masters."""
        if masters:
            self._link.look(masters)

    @property
    def has_other_nodes(self) -> bool:
        """Whether the broker has more than one address."""
        return self._link.has_other_nodes

    def leave_broker_node(self, directions: Sequence[str]) -> None:
        """Reconnect at another address, if there is one."""
        self._link.leave_broker_node(directions)

    def receive(self, limit: int, timeout_ms: int) -> list[Inbound]:
        """Return up to ``limit`` messages, sync first; see the port."""
        if self._left:
            taken, self._left = self._left[:limit], self._left[limit:]
            return taken
        deadline_s = time.monotonic() + timeout_ms / 1000
        while True:
            arrivals = self._link.take(limit, max(0.0, deadline_s - time.monotonic()))
            messages = [message for arrival in arrivals for message in self._messages(arrival)]
            # Unusable messages must not end the wait; an empty take means woken, or timed out.
            if messages or not arrivals:
                self._counters.add("received", len(messages))
                if len(messages) > limit:
                    messages, self._left = messages[:limit], messages[limit:]
                return messages

    def wake(self) -> None:
        """Make a waiting `receive` return at once."""
        self._link.wake()

    def serve_shared(self, is_open: bool) -> None:
        """Start or stop taking writes from the queue that all masters share."""
        if is_open is not self._is_sharing:
            self._is_sharing = is_open
            self._link.serve_shared(is_open)

    def serve_clients(self, is_open: bool) -> None:
        """Start or stop taking writes and reads of apps; another process of this master takes them instead."""
        if is_open is not self._is_serving:
            self._is_serving = is_open
            # Earlier messages go back unread, as in `_messages`.
            self._left = [message for message in self._left if not isinstance(message, ClientMessage)]
            self._link.serve_clients(is_open)

    def tx_queue(self, decision: TxQueueDecision) -> None:
        """Open, follow or leave the queue of a transaction."""
        queue = decision.queue
        match decision:
            case OpenTxQueue():
                self._link.publish([_opening(queue)])
            case FollowTxQueue():
                self._link.follow(queue)
            case LeaveTxQueue():
                self._link.leave(queue)

    def reply(self, replies: Sequence[ClientReply]) -> None:
        """Queue answers to apps; skip those without an address."""
        now_s, most_bytes = time.monotonic(), self._link.most_bytes()
        self._link.publish([_reply(each, now_s, most_bytes) for each in replies if each.reply_to])

    def settle(self, messages: Sequence[ClientMessage]) -> None:
        """Acknowledge messages of apps."""
        self._link.settle([message.tag for message in messages])

    def reject(self, message: ClientMessage, reason: str) -> None:
        """Move a message of an app to ``brokerha.rejected``; it is settled once that is confirmed."""
        self._counters.add("rejected")
        self._link.publish([self._rejected(message, reason)])

    def status(self) -> TransportStatus:
        """Return state, reason, outbox and counters."""
        state, problem = self._link.state()
        waiting, counts, set_aside = self._link.waiting(), self._counters.read(), self._foreigners.reasons()
        return TransportStatus(state, problem.reason, waiting, counts, set_aside, problem.remedy)

    def close(self, timeout_ms: int = 5000) -> None:
        """Publish the waiting messages, then disconnect."""
        self._link.close(timeout_ms / 1000)

    def _publication(self, outgoing: Outgoing, now_s: float, encoded: bytes) -> Publication:
        message, queue, key = outgoing.message, outgoing.queue, outgoing.to
        body = encoded or self._envelope(outgoing)
        kind = type(message)
        lane, exchange, properties = self._kinds.get(kind) or self._label(kind)
        if kind is Bodies and len(body) <= SMALL_BYTES:
            # In the queue of the post that lists them, so that both arrive together.
            lane, exchange = SYNC_LANE, SYNC_EXCHANGE
        if queue:
            lane, exchange, key = TX_LANE, DEFAULT_EXCHANGE, queue
        elif kind is TxJoin:
            # The invitation uses the channel of its queue, so that the queue exists when it arrives.
            queue = message.queue  # type: ignore[union-attr]
        return Publication(lane, exchange, key, body, properties, None, now_s, queue)

    def _label(self, kind: type[Message]) -> tuple[str, str, dict[str, Any]]:
        """Return lane, exchange and properties of all messages of a kind."""
        properties = {"content_type": ENVELOPE_TYPE, "delivery_mode": _TRANSIENT, "type": kind.__name__}
        if self._user:
            properties["user_id"] = self._user
        is_sync = kind.CHANNEL == SYNC
        lane = TX_LANE if kind is TxJoin else SYNC_LANE if is_sync else BULK_LANE if kind is Chunk else DATA_LANE
        self._kinds[kind] = made = lane, SYNC_EXCHANGE if is_sync else DATA_EXCHANGE, properties
        return made

    def _envelope(self, outgoing: Outgoing) -> bytes:
        sender, message = outgoing.sender, outgoing.message
        if not sender:
            return encode_envelope(self._cluster, self._node, self._incarnation, message)
        process = "" if sender == self._node else self._node
        return encode_envelope(self._cluster, sender, outgoing.incarnation, message, process)

    def _rejected(self, message: ClientMessage, reason: str) -> Publication:
        properties = {
            "content_type": message.content_type,
            "content_encoding": message.content_encoding,
            "message_id": message.message_id,
            "correlation_id": message.correlation_id,
            "reply_to": message.reply_to,
            "application_headers": message.headers,
        }
        came = message.exchange, message.routing_key
        now_ms, now_s = time.time_ns() // 1_000_000, time.monotonic()
        return rejected(self._node, message.body, properties, came, reason, now_ms, now_s, message.tag)

    def _set_aside(self, arrival: Arrival, word: str, reason: str) -> None:
        """Count an unusable message between nodes, and keep some of its kind for a person."""
        self._counters.add(word)
        now_s = time.monotonic()
        if self._sparing.is_kept(word, now_s):
            came = arrival.exchange, arrival.routing_key
            now_ms = time.time_ns() // 1_000_000
            kept = rejected(self._node, arrival.body, arrival.properties, came, f"{word}: {reason}", now_ms, now_s)
            self._link.publish([kept])

    def _messages(self, arrival: Arrival) -> Sequence[Inbound]:
        if arrival.lane == ABSENCE_LANE:
            return (Absence(arrival.routing_key),)
        if arrival.lane == CLIENT_LANE:
            # Messages from before the door was closed go back unread.
            return (_client_message(arrival),) if self._is_serving else ()
        try:
            envelopes = decode_envelopes(arrival.body)
        except ProtocolError as error:
            self._set_aside(arrival, UNDECODABLE, str(error))
            if isinstance(error, OtherVersion) and error.cluster == self._cluster:
                self._foreigners.note(error.sender, of_another_version(str(error)), time.monotonic())
            return ()
        user = arrival.properties.get("user_id") or ""
        for envelope in envelopes:
            if envelope.cluster != self._cluster:
                self._set_aside(arrival, FOREIGN_CLUSTER, f"it is of cluster {envelope.cluster!r}, this is {self._cluster!r}")
                return ()
            if problem := self._senders.problem(envelope.sender, user, envelope.process):
                self._set_aside(arrival, *problem)
                named = envelope.process or envelope.sender
                self._foreigners.note(named, of_another_user(named, problem[1]), time.monotonic())
                return ()
            self._foreigners.hear(envelope.process or envelope.sender)
            if envelope.sender not in self._heard:
                self._heard.add(envelope.sender)
                self._link.hear(envelope.sender)
        return envelopes


def _together(made: Sequence[Publication]) -> list[Publication]:
    """Join adjacent publications that go the same way to the same nodes."""
    kept: list[Publication] = []
    way: tuple[str, str, str, tuple[str, ...]] | None = None
    count = 0
    for each in made:
        before, way = way, (each.lane, each.exchange, each.routing_key, each.also)
        count = count + 1 if way == before and each.lane in _LANES_OF_NODES else 1
        if 1 < count <= TOGETHER_LIMIT and len(kept[-1].body) + len(each.body) <= TOGETHER_BYTES:
            kept[-1].body += each.body
        else:
            kept.append(each)
            count = 1
    return kept


def _opening(queue: str) -> Publication:
    return Publication(TX_LANE, DEFAULT_EXCHANGE, queue, b"", queued_s=time.monotonic(), tx_queue=queue, opens=True)


def _client_message(arrival: Arrival) -> ClientMessage:
    properties = arrival.properties
    return ClientMessage(
        tag=arrival.tag,
        body=arrival.body,
        content_type=properties.get("content_type") or "",
        message_id=properties.get("message_id") or "",
        reply_to=properties.get("reply_to") or "",
        correlation_id=properties.get("correlation_id") or "",
        exchange=arrival.exchange,
        redelivered=arrival.redelivered,
        headers=dict(properties.get("application_headers") or {}),
        routing_key=arrival.routing_key,
        user=_user_of(properties.get("user_id") or ""),
        content_encoding=properties.get("content_encoding") or "",
    )


def _user_of(user_id: str) -> str:
    return "" if user_id == NOBODY or user_problem(user_id) else user_id


def _reply(reply: ClientReply, now_s: float, most_bytes: int) -> Publication:
    body = reply.body
    if len(body) > most_bytes:
        # The broker would close the connection, and with it the answers to everybody else.
        too_large = f"the answer has {len(body)} bytes, and this broker takes messages of {most_bytes}: ask for less, or over HTTP"
        body = encode_answer(TooLarge.__name__, too_large, None)
    properties: dict[str, Any] = {"content_type": reply.content_type, "delivery_mode": _TRANSIENT}
    if reply.correlation_id:
        properties["correlation_id"] = reply.correlation_id
    if reply.headers:
        properties["application_headers"] = dict(reply.headers)
    return Publication(REPLY_LANE, DEFAULT_EXCHANGE, reply.reply_to, body, properties, queued_s=now_s)
