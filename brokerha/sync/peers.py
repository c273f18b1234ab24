"""What one master knows of the others: the COLLECT half of a round (rules R4 to R6).

Of each peer it keeps the last row (ordered by incarnation and number, whether it came directly or through another
master), the qualified promise, and when it was heard. From these follow the two limits of ADD:

- `least_promise`: no other member can still stamp anything at or below it. A promise counts only when it is
  **qualified**: everything of the promiser's stream that it covers is held here. Two things say the same without a
  promise, because a stream only grows: the timestamp of the last entry that is held, and the one before the first entry
  that was announced but whose body is still on its way. So a large body holds up nothing that comes before it.
- `held_by_required`: how many entries of an origin are durable wherever they have to be.

A row counts only if it is of the epoch, of a member and of that member's journal. Of a row of another epoch only that it came is
kept, and how long its master's queue is: `elsewhere`. All else is ignored and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from brokerha.model.epochs import FIRST, OF_A_JOINER, Epoch
from brokerha.model.ids import Instant, Lsn, NodeId, Timestamp
from brokerha.model.records import PeerJournal
from brokerha.model.wire.epoch_messages import Row
from brokerha.sync.config import SyncConfig
from brokerha.sync.modes import QUORUM, are_alike
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
    """When a post of it came directly, of whatever epoch."""
    known_ms: int | None = None
    """When something new was last heard of it in this epoch, directly or through another master; None before anybody looked."""
    posted_ms: int = NEVER
    """When it was last posted to."""
    is_post_due: bool = True
    """Whether something changed that it waits for."""
    confirm_due_ms: int | None = None
    """When it is posted to at the latest although it waits for nothing; None when nothing changed."""
    has_more: bool = False
    """Whether the last post to it was filled to the window, so that more may follow."""
    sent: dict[NodeId, int] = field(default_factory=dict)
    """How much of each stream was sent to it."""
    stuck: dict[NodeId, tuple[int, int, int]] = field(default_factory=dict)
    """Of each stream that it lacks something of: (what it confirmed, since when it did not confirm more, when that was sent last)."""

    def confirmed(self, origin: NodeId) -> int:
        """How many entries of a stream it holds durably, by its own word."""
        return self.row.have.get(origin, 0) if self.row else 0

    def stuck_ms(self, origin: NodeId, mono_ms: int) -> int:
        """For how long it has confirmed nothing more of a stream that it lacks something of, nor was sent it again."""
        confirmed = self.confirmed(origin)
        mark = self.stuck.get(origin)
        if mark is None or mark[0] != confirmed:
            self.stuck[origin] = (confirmed, mono_ms, mono_ms)
            return 0
        return mono_ms - mark[2]


class PeerTable:
    """All other masters."""

    def __init__(self, config: SyncConfig, journals: dict[NodeId, str], epoch: Epoch) -> None:
        self.config = config
        self.epoch = epoch
        self.journals = dict(journals)
        self.peers: dict[NodeId, Peer] = {}
        """The other members of the epoch."""
        self.outside: dict[NodeId, Peer] = {}
        """Masters of the cluster that are no members of it."""
        self.elsewhere: dict[NodeId, Row] = {}
        """Last row of each master that is in another epoch."""
        self.ignored: Counter[str] = Counter()
        self.new_journals: list[PeerJournal] = []
        self.impostors: dict[NodeId, str] = {}
        """Known node ids that came with a foreign journal, with its name."""
        self.unlike: set[NodeId] = set()
        """Masters of which one needs a majority and the other does not: they cannot agree on anything."""
        self.guests: set[NodeId] = set()
        """Nodes that are no masters as far as this one knows, and are listened to: one that is to be added, or that another master named."""
        self.choose(epoch.mode or config.split_recovery)
        self.begin(epoch)

    def begin(self, epoch: Epoch) -> None:
        """Go on in this epoch: nothing that was heard in another one counts in it, but that it was heard."""
        before = {**self.peers, **self.outside}
        self.epoch = epoch
        self._is_active = False
        configuration = epoch.configuration
        self._trust(configuration.journals)
        masters = configuration.masters or self.config.members
        self.guests.difference_update(masters)
        others = [node for node in sorted({*masters, *self.guests}) if node != self.config.node]
        fresh = {node: Peer(node) for node in others}
        for node, peer in fresh.items():
            if node in before:
                peer.heard_ms, row = before[node].heard_ms, before[node].row
                if row is not None and row.journal == self.journals.get(node):
                    self.elsewhere[node] = row
        self.peers = {node: fresh[node] for node in others if node in epoch.members}
        self.outside = {node: fresh[node] for node in others if node not in epoch.members}

    def _trust(self, journals: dict[NodeId, str]) -> None:
        """What an installed epoch says of journals goes before what was heard: a master may have come back with another one."""
        for node, name in journals.items():
            if node != self.config.node and self.journals.get(node) != name:
                self.journals[node] = name
                self.new_journals.append(PeerJournal(node, name))
                self.impostors.pop(node, None)
                self.elsewhere.pop(node, None)

    def choose(self, mode: str) -> None:
        """This strategy is in force: where sides may part, an entry is held by all members (R13)."""
        self.mode, self._is_active = mode, False
        self._acknowledge = self.config.acknowledge if mode == QUORUM else "all"

    def listen_to(self, node: NodeId, journal: str = "") -> None:
        """Hear a node that is no master here: it is to be added, or others name it, with its journal, as one."""
        if node != self.config.node and self.peer(node) is None:
            self.guests.add(node)
            # It may have another journal than the master that had this id before.
            self.begin_anew(node)
            if journal:
                self.journals[node] = journal

    def begin_anew(self, guest: NodeId) -> None:
        """Nothing that was heard of this guest counts: it may have another journal now."""
        self.outside[guest] = Peer(guest)
        self.journals.pop(guest, None)
        self.impostors.pop(guest, None)
        self.elsewhere.pop(guest, None)

    def let_go(self, node: NodeId) -> None:
        """Hear it no longer."""
        if node in self.guests:
            self.guests.remove(node)
            self.outside.pop(node, None)

    def founders(self) -> list[tuple[NodeId, str]]:
        """Journals by node, without guests: a guest that learned that it is known would count itself as a master."""
        return [(node, name) for node, name in self.journals.items() if node not in self.guests]

    def givers(self) -> tuple[NodeId, ...]:
        """Who may hand in bodies: all that are heard, and a master that was just taken out."""
        before = (node for node in self.epoch.configuration.before if node != self.config.node)
        return tuple(dict.fromkeys((*self.peers, *self.outside, *before)))

    def peer(self, node: NodeId) -> Peer | None:
        """Another master of the cluster, member or not."""
        return self.peers.get(node) or self.outside.get(node)

    def last_row(self, node: NodeId) -> Row | None:
        """What another master last said of itself, in whatever epoch."""
        peer, other = self.peer(node), self.elsewhere.get(node)
        own = peer.row if peer else None
        if own is None or other is None:
            return own or other
        return max(own, other, key=lambda row: (row.incarnation, row.number))

    def lsn_of(self, node: NodeId) -> Lsn:
        """How long the synchronised queue of another master was when it was heard of last; 0 when it never was."""
        row = self.last_row(node)
        return row.lsn if row else 0

    def learn(self, row: Row) -> str:
        """Take in a row, direct or relayed.

        Returns `REFUSED` (unknown node, other epoch, foreign journal, older incarnation: counted, nothing of the message
        may be used), `OLD` (a later one of the same incarnation is known already), `NEWER`, or `RESTARTED` (the first row
        of an incarnation).
        """
        peer = self.peers.get(row.node)
        known = peer.row if peer is not None else None
        if known is None or not self._is_like(known, row):
            refusal = self._refusal(row)
            if refusal:
                self.ignored[refusal] += 1
                return REFUSED
        if peer is None:
            return REFUSED
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

    def _is_like(self, known: Row, row: Row) -> bool:
        """Whether nothing speaks against a row that did not speak against the last one of the same master in this epoch."""
        node = row.node
        is_same = (row.epoch, row.journal, row.incarnation, row.mode) == (
            known.epoch, known.journal, known.incarnation, known.mode,
        )  # fmt: skip
        return is_same and self.journals.get(node) == row.journal and not (node in self.impostors or node in self.unlike)

    def _refusal(self, row: Row) -> str:
        peer = self.peer(row.node)
        if peer is None:
            return "unknown_peer"
        if not self.is_known_journal(row):
            return "foreign_journal"
        if not are_alike(row.mode, self.mode) and row.node not in self.guests:
            self.unlike.add(row.node)
            return "other_mode"
        self.unlike.discard(row.node)
        if row.epoch != self.epoch.id:
            known = self.elsewhere.get(row.node)
            if known is None or (known.incarnation, known.number) < (row.incarnation, row.number):
                self.elsewhere[row.node] = row
            return "other_epoch"
        if row.node not in self.peers:
            return "no_member"
        if peer.row is not None and row.incarnation < peer.row.incarnation:
            return "old_incarnation"
        return ""

    def is_known_journal(self, row: Row) -> bool:
        """Whether it comes from the journal that this master is known by; the first one that is heard of counts."""
        if self.is_retired(row):
            return False
        known = self.journals.get(row.node)
        # One that is to be added has no past with anybody: who was emptied since it first heard of them is as good to it.
        is_joiner = self.epoch.number == OF_A_JOINER.number
        if known is None or (known != row.journal and is_joiner):
            self.journals[row.node] = row.journal
            if row.node not in self.guests:
                self.new_journals.append(PeerJournal(row.node, row.journal))
        elif known != row.journal:
            self.impostors[row.node] = row.journal
            return False
        else:
            # What came from the other one may have been long on its way.
            self.impostors.pop(row.node, None)
        return True

    def poster(self, sender: NodeId, row: Row) -> Peer | None:
        """The master whose own row this is, as its sender says; None if it is none here. Who is back is listened to from now on."""
        if sender != row.node:
            return None
        if self.epoch.configuration.retired:
            if self.is_retired(row):
                return None
            if self.is_back(row):
                self.listen_to(sender, row.journal)
        return self.peer(sender)

    def is_retired(self, row: Row) -> bool:
        """Whether its master was taken out of the cluster for good."""
        return (row.node, row.journal) in self.epoch.configuration.retired and not self.is_back(row)

    def is_back(self, row: Row) -> bool:
        """Whether a master that was taken out goes on all the same, in a later epoch.

        Then the epoch that took it out, in which this master never saw enough others, was given up: a majority decided another one instead,
        and that master is a way to it.
        """
        is_out = (row.node, row.journal) in self.epoch.configuration.retired
        return is_out and row.epoch > self.epoch.id and not self._is_active and self.mode == row.mode == QUORUM

    def tell_all(self) -> None:
        """Something changed here that all others wait for."""
        for peer in self.peers.values():
            peer.is_post_due = True

    def tell_held(self, origin: NodeId, streams: Mapping[NodeId, Stream], now: Instant) -> None:
        """More of a stream is held here: its origin waits for that, and so does who has entries of its own that are not added yet.

        To all others it is told later (a delayed acknowledgement). To everybody at once: own entries, and those of an origin that hears this
        master only through another one.
        """
        whose = self.peers.get(origin)
        if whose is None or whose.row is None or self.config.node not in whose.row.heard:
            self.tell_all()
            return
        for node, peer in self.peers.items():
            stream = streams[node]
            if node == origin or stream.waiting or stream.used < stream.count:
                peer.is_post_due = True
            elif peer.confirm_due_ms is None:
                peer.confirm_due_ms = now.mono_ms + self.config.confirm_delay_ms

    def pass_on(self, node: NodeId) -> None:
        """A member confirmed more: a master that does not hear it gets its row from here."""
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
        return min([peer.promise for peer in self.peers.values()])

    def is_heard(self, node: NodeId, mono_ms: int) -> bool:
        """Whether a direct post of this member came lately."""
        peer = self.peers.get(node) or self.outside.get(node)
        return peer is not None and mono_ms - peer.heard_ms <= self.config.heard_ms

    def heard_of(self, nodes: Iterable[NodeId], mono_ms: int) -> list[NodeId]:
        """Those of these masters that are heard."""
        return [node for node in nodes if self.is_heard(node, mono_ms)]

    def heard(self, mono_ms: int) -> tuple[NodeId, ...]:
        """Members heard directly and lately, in order, then masters that are no members."""
        oldest_ms = mono_ms - self.config.heard_ms
        heard = [node for node, peer in self.peers.items() if peer.heard_ms >= oldest_ms]
        if self.outside:
            heard += [node for node, peer in self.outside.items() if peer.heard_ms >= oldest_ms]
        return tuple(heard)

    def heard_since(self, mono_ms: int) -> list[NodeId]:
        """Members that were heard since then, or of which something new was heard through another master."""
        return [node for node, peer in self.peers.items() if max(peer.heard_ms, peer.known_ms or NEVER) >= mono_ms]

    def is_active(self, journal: str) -> bool:
        """Whether rows of this epoch came from enough members to add anything (R5); ``journal`` is that of this master."""
        if not self._is_active:
            # Rows of an epoch stay.
            known = 1 + sum([peer.row is not None for peer in self.peers.values()])
            if self.mode == QUORUM:
                self._is_active = known >= self.majority and self.is_known_before()
            else:
                self._is_active = known >= len(self.epoch.members)
            self._is_active &= self.epoch.id != FIRST or self._is_agreed_who_is_who(journal)
        return self._is_active

    def _is_agreed_who_is_who(self, journal: str) -> bool:
        """Whether all others say that they know this master, and each other, by the journals that are known here.

        Else what two hold may be one's alone: the other one was emptied, and is somebody else to a third.
        """
        names = {self.config.node: journal, **{node: self.journals.get(node) for node in self.peers}}
        rows = {node: peer.row for node, peer in self.peers.items()}
        return all(
            row is not None and (self._holds_of(row, node, rows.get(node)) or row.known.get(node) == name)
            for node, name in names.items()
            for other, row in rows.items()
            if other != node
        )

    def _holds_of(self, row: Row, node: NodeId, own: Row | None) -> bool:
        """Whether a master holds something of a stream, and no more than whose stream it is says itself: else that is another one."""
        held = row.have.get(node, 0)
        if node == self.config.node:
            return held > 0
        return own is not None and 0 < held <= own.have.get(node, 0)

    @property
    def majority(self) -> int:
        """Of the masters of the cluster."""
        return self.epoch.configuration.majority

    def is_known_before(self) -> bool:
        """Whether so many of the masters before the last change are in this epoch that the others cannot go on by what was before."""
        here = [node for node, peer in self.peers.items() if peer.row is not None]
        return self.epoch.configuration.is_known_before([self.config.node, *here])

    def held_by_required(self, streams: dict[NodeId, Stream], mono_ms: int) -> dict[NodeId, int]:
        """How many entries of each origin are durable at every member where they have to be (R6)."""
        counts = {}
        if self._acknowledge == "all":
            held = [peer.row.have if peer.row else {} for peer in self.peers.values()]
            for origin, stream in streams.items():
                counts[origin] = min([stream.count, *[have.get(origin, 0) for have in held]])
            return counts
        required = self._required(mono_ms)
        for origin, stream in streams.items():
            confirmed = {node: peer.confirmed(origin) for node, peer in self.peers.items()}
            counts[origin] = self._least(stream.count, confirmed, required)
        return counts

    def recovered_by_required(self, own: int, mono_ms: int) -> int:
        """The same of the epoch's recovered list, of which ``own`` entries are held here."""
        confirmed = {node: peer.row.recovered if peer.row else 0 for node, peer in self.peers.items()}
        return self._least(own, confirmed, self._required(mono_ms))

    def _required(self, mono_ms: int) -> list[NodeId]:
        """Members each of which has to hold an entry."""
        if self._acknowledge == "majority":
            return []
        if self._acknowledge == "present":
            return [node for node in self.peers if self.is_heard(node, mono_ms)]
        return list(self.peers)

    def _least(self, own: int, confirmed: dict[NodeId, int], required: list[NodeId]) -> int:
        held = min([own, *(confirmed[node] for node in required)])
        # What all members hold is held by a majority as well.
        if self._acknowledge != "all":
            held = min(held, self._held_by_majority(own, confirmed))
        return held

    def _held_by_majority(self, own: int, confirmed: dict[NodeId, int]) -> int:
        """Of all masters of the cluster, whether they are members or not."""
        counts = sorted([own, *confirmed.values()], reverse=True)
        return counts[self.majority - 1] if len(counts) >= self.majority else 0

    def confirmed_by_all(self, origin: NodeId) -> int:
        """How many entries of an origin every other member holds."""
        return min((peer.confirmed(origin) for peer in self.peers.values()), default=2**62)
