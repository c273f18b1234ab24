"""Transaction exchange: bodies travel apart from the protocol (the paper's *Transaction exchange* and *Acquired only*).

The origin pushes each body once to each peer. A peer that was told of an entry without having its body asks for it:
first the origin, then, ever less often, whoever says that it holds it. Until the body is here, and durable, the entry is
neither held nor posted, so nobody can be asked to execute what it does not have.
"""

from __future__ import annotations

from collections.abc import Iterable

from brokerha.model.ids import NodeId, TxId
from brokerha.model.messages import Bodies, Fetch, Outgoing
from brokerha.model.records import History
from brokerha.sync.config import SyncConfig
from brokerha.sync.peers import PeerTable
from brokerha.sync.streams import Stream

FETCH_LIMIT = 500
"""Bodies asked for in one message."""
ANSWER_LIMIT_BYTES = 4 * 1024 * 1024
"""Bodies sent in answer to one message; what is over it is asked for again."""
LOOSE_LIMIT = 100_000
"""Bodies without an entry whose names are remembered in memory; older ones are still found in the journal."""

Item = tuple[NodeId, TxId, bytes]


class BodyExchange:
    """Bodies on their way in and out."""

    def __init__(self, config: SyncConfig, history: History) -> None:
        self._config = config
        self._history = history
        self._loose: dict[tuple[NodeId, TxId], None] = {}
        self._arrived: list[Item] = []

    def take(self, items: Iterable[Item], members: Iterable[NodeId]) -> int:
        """Take in bodies of other masters, each once; return how many were of no known origin."""
        known = set(members) - {self._config.node}
        strangers = 0
        for item in items:
            name = (item[0], item[1])
            if item[0] not in known:
                strangers += 1
            elif name not in self._loose and self._history.body(*name) is None:
                self._loose[name] = None
                self._arrived.append(item)
        return strangers

    def arrived(self) -> tuple[Item, ...]:
        """Bodies that came since the last call; they are to be journalled before anything that tells of them."""
        items, self._arrived = tuple(self._arrived), []
        while len(self._loose) > LOOSE_LIMIT:
            del self._loose[next(iter(self._loose))]
        return items

    def acquire(self, stream: Stream) -> int:
        """Return how many of the entries that wait at the head of a stream now have their bodies here."""
        count = 0
        for _, txid in stream.waiting:
            name = (stream.origin, txid)
            if name in self._loose:
                del self._loose[name]
            elif self._history.body(*name) is None:
                break
            count += 1
        return count

    def fetches(self, stream: Stream, peers: PeerTable, mono_ms: int) -> Outgoing | None:
        """Return the request for what a stream waits for, when it is due."""
        if not stream.waiting:
            stream.ask_at_ms, stream.asked = None, 0
            return None
        is_origin_heard = peers.is_heard(stream.origin, mono_ms)
        if stream.ask_at_ms is None:
            # From an origin that is not heard no push will come.
            stream.ask_at_ms = mono_ms + (self._config.fetch_after_ms if is_origin_heard else 0)
        if mono_ms < stream.ask_at_ms:
            return None
        missing = [(stream.origin, txid) for _, txid in stream.waiting if (stream.origin, txid) not in self._loose]
        holders = [
            node
            for node, peer in peers.peers.items()
            if node != stream.origin and peer.confirmed(stream.origin) > stream.count
        ]
        holders.sort(key=lambda node: not peers.is_heard(node, mono_ms))
        holders.insert(0 if is_origin_heard else len(holders), stream.origin)
        holder = holders[stream.asked % len(holders)]
        stream.asked += 1
        stream.ask_at_ms = mono_ms + self._config.retransmit_ms * min(8, stream.asked)
        return Outgoing(holder, Fetch(tuple(missing[:FETCH_LIMIT]))) if missing else None

    def answer(self, wanted: Iterable[tuple[NodeId, TxId]]) -> list[Bodies]:
        """Return the bodies asked for that are held here, within the limit of one answer."""
        items: list[Item] = []
        size = 0
        for origin, txid in wanted:
            body = self._history.body(origin, txid)
            if body is not None:
                items.append((origin, txid, body))
                size += len(body)
            if size >= ANSWER_LIMIT_BYTES:
                break
        return split(items, self._config.body_message_bytes)


def split(items: list[Item], limit_bytes: int) -> list[Bodies]:
    """Cut bodies into messages of about ``limit_bytes``, at least one body each."""
    messages: list[Bodies] = []
    part: list[Item] = []
    size = 0
    for item in items:
        if part and size + len(item[2]) > limit_bytes:
            messages.append(Bodies(tuple(part)))
            part, size = [], 0
        part.append(item)
        size += len(item[2])
    if part:
        messages.append(Bodies(tuple(part)))
    return messages
