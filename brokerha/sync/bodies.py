"""Bodies of transactions, which travel apart from the protocol (the paper's *Transaction exchange* and *Acquired only*).

The origin pushes each body once to each peer. A peer that has lacked the body of an announced entry for a while asks for it: first
the origin, then, at growing intervals, masters that say that they hold it. It asks for a backlog part by part, the next one as soon
as one has come. Until the body is here and durable the entry is neither held nor posted. So no master has to execute a transaction
that it does not have.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from brokerha.model.ids import NodeId, Ordered, TxId
from brokerha.model.invariants import invariant
from brokerha.model.records import History
from brokerha.model.wire.messages import Bodies, Fetch, Outgoing
from brokerha.sync.config import SyncConfig
from brokerha.sync.peers import PeerTable
from brokerha.sync.streams import Stream

FETCH_LIMIT = 500
"""Bodies requested in one message."""
ANSWER_LIMIT_BYTES = 4 * 1024 * 1024
"""Bodies sent in answer to one message; bodies over it are requested again."""
PUSHED_LIMIT_BYTES = 32 * 1024 * 1024
"""Bodies of own entries that were pushed and have no LSN yet, and a last one beyond it: after a pause a backlog of any size can be stamped."""
LOOSE_LIMIT = 100_000
"""Names of bodies without an entry that are remembered in memory; the journal still finds older ones."""

ARRIVED_LIMIT = 256
"""Bodies that can wait in memory for their entries; no message told of them, so a crash only costs a fetch."""

RECORD_LIMIT_BYTES = 8 * 1024 * 1024
"""Bodies in one record, because each record must fit into a message to a backup; a single body is never larger."""
ID_BYTES = 160
"""Greatest size of the other fields beside a body."""

Item = tuple[NodeId, TxId, bytes]
AnyItem = TypeVar("AnyItem", Item, tuple[TxId, bytes])


class BodyExchange:
    """Bodies on their way in and out."""

    def __init__(self, config: SyncConfig, history: History) -> None:
        self._config = config
        self._history = history
        # In a plain dict, finding the first key means passing over all deleted ones.
        self._loose: OrderedDict[tuple[NodeId, TxId], None] = OrderedDict()
        self._arrived: list[Item] = []
        self._arrived_bytes = 0

    def take(self, items: Sequence[Item], origins: Collection[NodeId] | None) -> int:
        """Take in bodies, each once, of these origins (None: of all); return how many were of another origin.

        A master whose disk was emptied also gets its own ones back.
        """
        strangers = 0
        names = [(item[0], item[1]) for item in items]
        for item, name, held in zip(items, names, self._history.bodies(names), strict=True):
            if origins is not None and item[0] not in origins:
                strangers += 1
            elif held is None and name not in self._loose:
                self._loose[name] = None
                self._arrived.append(item)
                self._arrived_bytes += len(item[2])
        return strangers

    def is_full(self) -> bool:
        """Tell whether so many bodies have arrived that they must be journalled although no entry needs them yet."""
        return len(self._arrived) >= ARRIVED_LIMIT or self._arrived_bytes >= self._config.body_message_bytes

    def arrived(self) -> tuple[Item, ...]:
        """Return bodies that came since the last call; they must be journalled before any record or message that tells of them."""
        items, self._arrived, self._arrived_bytes = tuple(self._arrived), [], 0
        while len(self._loose) > LOOSE_LIMIT:
            self._loose.popitem(last=False)
        return items

    def settle(self, entries: Iterable[Ordered]) -> None:
        """Forget the names of bodies whose entries came without a stream: once their ids are forgotten, another body can have them."""
        for _, txid, origin in entries:
            self._loose.pop((origin, txid), None)

    def forget_names(self) -> None:
        """Trust only the journal: after a state, a body that came can be that of an entry before it."""
        self._loose.clear()

    def look_again(self) -> None:
        """Trust only the journal for written bodies: after a rewind it drops bodies that came long ago."""
        self._loose = OrderedDict.fromkeys((item[0], item[1]) for item in self._arrived)

    def has(self, origin: NodeId, txid: TxId) -> bool:
        """Tell whether the body of a transaction is here; recent bodies are journalled with the records that need them."""
        return (origin, txid) in self._loose or self._history.body(origin, txid) is not None

    def is_durable(self, origin: NodeId, txid: TxId) -> bool:
        """Tell whether the body of a transaction is in the journal."""
        return self._history.body(origin, txid) is not None

    def is_left(self, origin: NodeId, txid: TxId) -> bool:
        """Tell whether a body is in the journal and its transaction not in the synchronised queue, as far as ids are known."""
        return self._history.lsn_of(txid) is None and self.is_durable(origin, txid)

    def is_taken_over(self, txid: TxId) -> bool:
        """Tell whether an own entry came to its LSN with a tail, while its stream still has it (until the next epoch begins)."""
        lsn = self._history.lsn_of(txid)
        if lsn is None:
            return False
        is_trimmed = not self.is_durable(self._config.node, txid)
        return is_trimmed or [entry[2] for entry in self._history.ordered(lsn, 1)] == [self._config.node]

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

    def fetches(self, streams: Iterable[Stream], peers: PeerTable, mono_ms: int) -> list[Outgoing]:
        """Return requests for bodies that streams wait for, as far as they are due."""
        requests = []
        for stream in streams:
            asking = stream.asking
            if stream.waiting or asking.announced or asking.again_at_ms is not None:
                requests.append(self._fetch(stream, peers, mono_ms))
        return [request for request in requests if request is not None] if requests else []

    def _fetch(self, stream: Stream, peers: PeerTable, mono_ms: int) -> Outgoing | None:
        """Return the request for bodies that a stream waits for, when it is due.

        It has the entries that were announced a while ago. When all of them have come, it has the next part at once. When none
        comes, it repeats the same, at growing intervals, to another holder.
        """
        asking = stream.asking
        if not stream.waiting:
            asking.forget()
            return None
        # An origin that is not heard will not push.
        patience_ms = self._config.fetch_after_ms if peers.is_heard(stream.origin, mono_ms) else 0
        while asking.announced and asking.announced[0][1] + patience_ms <= mono_ms:
            asking.overdue = asking.announced.popleft()[0]
        if asking.end <= stream.count:
            asking.tries, asking.again_at_ms = 0, None
        elif asking.count < stream.count:
            # Be patient while bodies come: a second request for bodies under way would make a slow link slower.
            asking.tries, asking.again_at_ms = 0, mono_ms + self._config.retransmit_ms
        asking.count = stream.count
        if asking.overdue <= stream.count or (asking.again_at_ms is not None and mono_ms < asking.again_at_ms):
            return None
        missing = self._missing(stream)
        holder = self._holder(stream, peers, mono_ms)
        asking.tries += 1
        asking.again_at_ms = mono_ms + self._config.retransmit_ms * min(8, asking.tries)
        return Outgoing(holder, Fetch(missing)) if missing else None

    def _missing(self, stream: Stream) -> tuple[tuple[NodeId, TxId], ...]:
        """Return names of overdue bodies that are not here, from the head of the waiting entries, for one request."""
        missing: list[tuple[NodeId, TxId]] = []
        for number, (_, txid) in enumerate(islice(stream.waiting, stream.asking.overdue - stream.count), stream.count):
            if len(missing) == FETCH_LIMIT:
                break
            stream.asking.end = number + 1
            if (stream.origin, txid) not in self._loose:
                missing.append((stream.origin, txid))
        return tuple(missing)

    @staticmethod
    def _holder(stream: Stream, peers: PeerTable, mono_ms: int) -> NodeId:
        """Return the master to ask: the origin while it is heard, then in turn masters that hold the next entry."""
        holders = [
            node for node, peer in peers.peers.items() if node != stream.origin and peer.confirmed(stream.origin) > stream.count
        ]
        holders.sort(key=lambda node: not peers.is_heard(node, mono_ms))
        holders.insert(0 if peers.is_heard(stream.origin, mono_ms) else len(holders), stream.origin)
        return holders[stream.asking.tries % len(holders)]

    def due_ms(self, streams: Iterable[Stream]) -> list[int]:
        """Return when to look again at each stream that waits for bodies."""
        due: list[int] = []
        for stream in streams:
            asking = stream.asking
            if asking.again_at_ms is not None:
                due.append(asking.again_at_ms)
            elif asking.announced:
                due.append(asking.announced[0][1] + self._config.fetch_after_ms)
        return due

    def own(self, txids: Iterable[TxId], fresh: Mapping[TxId, bytes], pushed_bytes: int) -> tuple[list[Item], int]:
        """Return the first of these own transactions with their bodies, as many as may be pushed beside what waits for an LSN; and their bytes.

        ``fresh`` ones are not in the journal yet.
        """
        items: list[Item] = []
        size = pushed_bytes
        node = self._config.node
        for txid in txids:
            if size >= PUSHED_LIMIT_BYTES:
                break
            body = fresh.get(txid)
            if body is None and (body := self._history.body(node, txid)) is None:
                invariant(False, "an accepted transaction has its body", txid=txid)
            items.append((node, txid, body or b""))
            size += len(body or b"")
        return items, size - pushed_bytes

    def pushed(self, stamped: list[Item], to: Collection[NodeId]) -> list[Outgoing]:
        """Return bodies of own transactions that were just stamped, for all peers."""
        return [Outgoing(node, part) for part in split(stamped, self._config.body_message_bytes) for node in to]

    def beside(self, entries: Sequence[Ordered], reader: NodeId) -> tuple[Sequence[Ordered], list[Bodies]]:
        """Return the first entries whose bodies fit into one answer, and these bodies without those of the reader itself."""
        items: list[Item] = []
        size = 0
        for place, (_, txid, origin) in enumerate(entries):
            body = None if origin == reader else self._history.body(origin, txid)
            if body is None:
                continue
            if items and size + len(body) > ANSWER_LIMIT_BYTES:
                entries = entries[:place]
                break
            items.append((origin, txid, body))
            size += len(body)
        return entries, split(items, self._config.body_message_bytes)

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


def in_records(items: Iterable[AnyItem]) -> Iterator[tuple[AnyItem, ...]]:
    """Split bodies, with the names before them, into parts that fit into one record, at least one body each."""
    part: list[AnyItem] = []
    size = 0
    for item in items:
        if part and size + len(item[-1]) > RECORD_LIMIT_BYTES:
            yield tuple(part)
            part, size = [], 0
        part.append(item)
        size += len(item[-1]) + ID_BYTES
    if part:
        yield tuple(part)
