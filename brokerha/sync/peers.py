"""What one master knows of the others: the COLLECT half of a round (rules R4 to R6).

Of each peer it keeps the last row (ordered by incarnation and number, whether it came directly or through another
master), the qualified promise, and when it was heard. From these follow the two limits of ADD:

- `least_promise`: no other member can still stamp anything at or below it. A promise counts only when it is
  **qualified**: everything of the promiser's stream that it covers is held here. Two things say the same without a
  promise, because a stream only grows: the timestamp of the last entry that is held, and the one before the first entry
  that was announced but whose body is still on its way. So a large body holds up nothing that comes before it.
- `held_by_required`: how many entries of an origin are durable wherever they have to be.

A row counts only if it is of the epoch, of a known member and of that member's journal. All else is ignored and counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from brokerha.model.ids import NodeId, Timestamp
from brokerha.model.messages import Row
from brokerha.model.records import PeerJournal
from brokerha.sync.config import SyncConfig
from brokerha.sync.streams import Stream

REFUSED, OLD, NEWER, RESTARTED = "refused", "old", "newer", "restarted"

NEVER = -(10**12)
"""A moment before everything, in milliseconds of the monotonic clock."""


@dataclass(slots=True)
class Peer:
    """One other master, as seen from here."""

    node: NodeId
    row: Row | None = None
    promise: Timestamp = 0
    """Highest qualified promise, or timestamp of the last entry held of its stream."""
    heard_ms: int = NEVER
    posted_ms: int = NEVER
    """When it was last posted to."""
    is_post_due: bool = True
    """Whether something changed that it waits for."""
    has_more: bool = False
    """Whether the last post to it was filled to the window, so that more may follow."""
    sent: dict[NodeId, int] = field(default_factory=dict)
    """How much of each stream was sent to it."""
    stuck: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    """Of each stream that it lacks something of: (what it confirmed, since when it did not confirm more)."""

    def confirmed(self, origin: NodeId) -> int:
        """How many entries of a stream it holds durably, by its own word."""
        return self.row.have.get(origin, 0) if self.row else 0

    def stuck_ms(self, origin: NodeId, mono_ms: int) -> int:
        """For how long it has confirmed nothing more of a stream that it lacks something of."""
        confirmed = self.confirmed(origin)
        mark = self.stuck.get(origin)
        if mark is None or mark[0] != confirmed:
            self.stuck[origin] = (confirmed, mono_ms)
            return 0
        return mono_ms - mark[1]


class PeerTable:
    """All other masters."""

    def __init__(self, config: SyncConfig, journals: dict[NodeId, str], epoch: int) -> None:
        self.config = config
        self.epoch = epoch
        self.journals = dict(journals)
        self.peers = {node: Peer(node) for node in config.members if node != config.node}
        self.ignored: Counter[str] = Counter()
        self.new_journals: list[PeerJournal] = []
        self.impostors: dict[NodeId, str] = {}
        """Known node ids that came with a foreign journal, with its name."""

    def learn(self, row: Row) -> str:
        """Take in a row, direct or relayed.

        Returns `REFUSED` (unknown node, other epoch, foreign journal, older incarnation: counted, nothing of the message
        may be used), `OLD` (a later one of the same incarnation is known already), `NEWER`, or `RESTARTED` (the first row
        of an incarnation).
        """
        peer = self.peers.get(row.node)
        refusal = self._refusal(row, peer)
        if peer is None or refusal:
            self.ignored[refusal] += 1
            return REFUSED
        known = peer.row
        if known is not None and known.incarnation == row.incarnation:
            if row.number <= known.number:
                return OLD
            peer.row = row
            if row.have != known.have:
                self.pass_on(row.node)
            return NEWER
        peer.sent = dict(row.have)
        peer.stuck = {}
        peer.row = row
        self.pass_on(row.node)
        return RESTARTED

    def _refusal(self, row: Row, peer: Peer | None) -> str:
        if peer is None:
            return "unknown_peer"
        if row.epoch != self.epoch:
            return "other_epoch"
        if not self._is_known_journal(row):
            return "foreign_journal"
        if peer.row is not None and row.incarnation < peer.row.incarnation:
            return "old_incarnation"
        return ""

    def _is_known_journal(self, row: Row) -> bool:
        known = self.journals.get(row.node)
        if known is None:
            self.journals[row.node] = row.journal
            self.new_journals.append(PeerJournal(row.node, row.journal))
        elif known != row.journal:
            self.impostors[row.node] = row.journal
            return False
        return True

    def tell_all(self) -> None:
        """Something changed here that all others wait for."""
        for peer in self.peers.values():
            peer.is_post_due = True

    def pass_on(self, node: NodeId) -> None:
        """A member confirmed more: whoever does not hear it gets its row from here."""
        for peer in self.peers.values():
            if peer.node != node and peer.row is not None and node not in peer.row.heard:
                peer.is_post_due = True

    def qualify(self, streams: dict[NodeId, Stream]) -> None:
        """Let promises count whose streams are held here as far as they cover (R4)."""
        for peer in self.peers.values():
            stream = streams[peer.node]
            covered = stream.waiting[0][0] - 1 if stream.waiting else 0
            peer.promise = max(peer.promise, stream.last, covered)
            row = peer.row
            if row is not None and row.promise > peer.promise and row.have.get(peer.node, 0) <= stream.count:
                peer.promise = row.promise

    def least_promise(self) -> Timestamp | None:
        """Smallest promise known of the other members; None when there are no others, 0 before all were heard."""
        if not self.peers:
            return None
        return min(peer.promise for peer in self.peers.values())

    def is_heard(self, node: NodeId, mono_ms: int) -> bool:
        """Whether a direct post of this member came lately."""
        return mono_ms - self.peers[node].heard_ms <= self.config.heard_ms

    def heard(self, mono_ms: int) -> tuple[NodeId, ...]:
        """Members heard directly and lately, in order."""
        return tuple(node for node in self.peers if self.is_heard(node, mono_ms))

    def is_active(self) -> bool:
        """Whether rows of this epoch came from enough members to add anything (R5)."""
        known = 1 + sum(peer.row is not None for peer in self.peers.values())
        needed = self.config.majority if self.config.split_recovery == "quorum" else len(self.config.members)
        return known >= needed

    def held_by_required(self, streams: dict[NodeId, Stream], mono_ms: int) -> dict[NodeId, int]:
        """How many entries of each origin are durable at every member where they have to be (R6)."""
        config = self.config
        required = [] if config.acknowledge == "majority" else list(self.peers.values())
        if config.acknowledge == "present":
            required = [peer for peer in required if self.is_heard(peer.node, mono_ms)]
        # What all members hold is held by a majority as well.
        is_majority_asked = config.acknowledge == "majority" or (
            config.acknowledge == "present" and config.split_recovery == "quorum"
        )
        counts = {}
        for origin, stream in streams.items():
            held = stream.count
            for peer in required:
                held = min(held, peer.confirmed(origin))
            if is_majority_asked:
                held = min(held, self._held_by_majority(origin, stream.count))
            counts[origin] = held
        return counts

    def _held_by_majority(self, origin: NodeId, own: int) -> int:
        counts = sorted([own, *(peer.confirmed(origin) for peer in self.peers.values())], reverse=True)
        return counts[self.config.majority - 1]

    def confirmed_by_all(self, origin: NodeId) -> int:
        """How many entries of an origin every other member holds."""
        return min((peer.confirmed(origin) for peer in self.peers.values()), default=2**62)
