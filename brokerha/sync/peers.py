"""Knowledge of one master about the others: the COLLECT half of a round (rules R4 to R6).

For each peer it keeps the last row, the qualified promise, and the time of the last post. Rows are ordered by incarnation and
number, whether they came directly or through another master. From these follow the two limits of ADD:

- `least_promise`: no other member can still stamp an entry at or below it. A promise counts only when it is **qualified**: all
  entries of the promiser's stream that it covers are held here. Because a stream only grows, two timestamps count like a promise:
  that of the last held entry, and the one before the first entry that was announced without its body here. So a large body delays
  no entry before it.
- `held_by_required`: the number of entries of an origin that are durable at all required members.

A row counts only if it is of the epoch, of a member and of that member's journal. Of a row of another epoch, only its arrival and
the length of its master's queue are kept: `elsewhere`. All other rows are ignored and counted.
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
"""A moment before all others, in milliseconds of the monotonic clock."""


@dataclass(slots=True)
class Peer:
    """Knowledge about one other master."""

    node: NodeId
    row: Row | None = None
    promise: Timestamp = 0
    """Highest qualified promise, or timestamp of the last entry held of its stream."""
    heard_ms: int = NEVER
    """When its last direct post came, of any epoch."""
    known_ms: int | None = None
    """When its last news in this epoch came, directly or through another master; None before the first look."""
    posted_ms: int = NEVER
    """When it was last posted to."""
    is_post_due: bool = True
    """Whether a change is to be posted that it waits for."""
    confirm_due_ms: int | None = None
    """Deadline of the next post to it, although it waits for nothing; None when nothing changed."""
    has_more: bool = False
    """Whether the last post to it was filled to the window, so that more may follow."""
    sent: dict[NodeId, int] = field(default_factory=dict)
    """Number of entries of each stream that were sent to it."""
    stuck: dict[NodeId, tuple[int, int, int]] = field(default_factory=dict)
    """Streams of which it lacks entries: (number confirmed, time of that confirmation, time of the last sending)."""

    def confirmed(self, origin: NodeId) -> int:
        """Return how many entries of a stream it holds durably, by its own row."""
        return self.row.have.get(origin, 0) if self.row else 0

    def stuck_ms(self, origin: NodeId, mono_ms: int) -> int:
        """Return how long ago it last confirmed more of a stream that it lacks entries of, or was sent these again."""
        confirmed = self.confirmed(origin)
        mark = self.stuck.get(origin)
        if mark is None or mark[0] != confirmed:
            self.stuck[origin] = (confirmed, mono_ms, mono_ms)
            return 0
        return mono_ms - mark[2]


class PeerTable:
    """Knowledge about all other masters."""

    def __init__(self, config: SyncConfig, journals: dict[NodeId, str], epoch: Epoch) -> None:
        self.config = config
        self.epoch = epoch
        self.journals = dict(journals)
        self.peers: dict[NodeId, Peer] = {}
        """The other members of the epoch."""
        self.outside: dict[NodeId, Peer] = {}
        """Masters of the cluster that are not members of the epoch."""
        self.elsewhere: dict[NodeId, Row] = {}
        """Last row of each master that is in another epoch."""
        self.ignored: Counter[str] = Counter()
        self.new_journals: list[PeerJournal] = []
        self.impostors: dict[NodeId, str] = {}
        """Known node ids that came with a foreign journal, with its name."""
        self.unlike: set[NodeId] = set()
        """Masters that cannot agree with this one: one of the two strategies needs a majority, and the other does not."""
        self.guests: set[NodeId] = set()
        """Nodes that this master listens to and does not know as masters: one to be added, or one that another master named."""
        self.choose(epoch.mode or config.split_recovery)
        self.begin(epoch)

    def begin(self, epoch: Epoch) -> None:
        """Continue in this epoch: of what was heard in another one, only the time counts."""
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
        """Prefer the journals of an installed epoch to those that were heard: a master may have come back with another one."""
        for node, name in journals.items():
            if node != self.config.node and self.journals.get(node) != name:
                self.journals[node] = name
                self.new_journals.append(PeerJournal(node, name))
                self.impostors.pop(node, None)
                self.elsewhere.pop(node, None)

    def choose(self, mode: str) -> None:
        """Follow this strategy: where sides can part, all members must hold an entry (R13)."""
        self.mode, self._is_active = mode, False
        self._acknowledge = self.config.acknowledge if mode == QUORUM else "all"

    def listen_to(self, node: NodeId, journal: str = "") -> None:
        """Listen to a node that is no master here: it is to be added, or others name it, with its journal, as a master."""
        if node != self.config.node and self.peer(node) is None:
            self.guests.add(node)
            # It may have another journal than the master that had this id before.
            self.begin_anew(node)
            if journal:
                self.journals[node] = journal

    def begin_anew(self, guest: NodeId) -> None:
        """Forget all news of this guest: it may have another journal now."""
        self.outside[guest] = Peer(guest)
        self.journals.pop(guest, None)
        self.impostors.pop(guest, None)
        self.elsewhere.pop(guest, None)

    def let_go(self, node: NodeId) -> None:
        """Stop listening to a guest."""
        if node in self.guests:
            self.guests.remove(node)
            self.outside.pop(node, None)

    def founders(self) -> list[tuple[NodeId, str]]:
        """Return journals by node, without guests: a guest that learned that it is known would count itself as a master."""
        return [(node, name) for node, name in self.journals.items() if node not in self.guests]

    def givers(self) -> tuple[NodeId, ...]:
        """Return the masters that can hand in bodies: all that are heard, and a master that was just taken out."""
        before = (node for node in self.epoch.configuration.before if node != self.config.node)
        return tuple(dict.fromkeys((*self.peers, *self.outside, *before)))

    def peer(self, node: NodeId) -> Peer | None:
        """Return another master of the cluster, member or not."""
        return self.peers.get(node) or self.outside.get(node)

    def last_row(self, node: NodeId) -> Row | None:
        """Return the last row of another master, of any epoch."""
        peer, other = self.peer(node), self.elsewhere.get(node)
        own = peer.row if peer else None
        if own is None or other is None:
            return own or other
        return max(own, other, key=lambda row: (row.incarnation, row.number))

    def lsn_of(self, node: NodeId) -> Lsn:
        """Return the last known length of another master's synchronised queue; 0 when it was never heard."""
        row = self.last_row(node)
        return row.lsn if row else 0

    def learn(self, row: Row) -> str:
        """Take in a row, direct or relayed.

        Returns `REFUSED` (unknown node, other epoch, foreign journal, older incarnation: counted, the message must not be used),
        `OLD` (a later row of the same incarnation is known already), `NEWER`, or `RESTARTED` (the first row of an incarnation).
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
        """Tell whether a row agrees with the accepted last row of its master in all that `_refusal` checks."""
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
        """Tell whether a row comes from the known journal of its master; the first journal that is heard of counts."""
        if self.is_retired(row):
            return False
        known = self.journals.get(row.node)
        # A joiner has no past with any master: it accepts one that was emptied since the joiner first heard it.
        is_joiner = self.epoch.number == OF_A_JOINER.number
        if known is None or (known != row.journal and is_joiner):
            self.journals[row.node] = row.journal
            if row.node not in self.guests:
                self.new_journals.append(PeerJournal(row.node, row.journal))
        elif known != row.journal:
            self.impostors[row.node] = row.journal
            return False
        else:
            # Posts from the foreign journal may have been long on their way.
            self.impostors.pop(row.node, None)
        return True

    def poster(self, sender: NodeId, row: Row) -> Peer | None:
        """Return the master whose own row this is, or None if it is no master here. A master that is back becomes a guest."""
        if sender != row.node:
            return None
        if self.epoch.configuration.retired:
            if self.is_retired(row):
                return None
            if self.is_back(row):
                self.listen_to(sender, row.journal)
        return self.peer(sender)

    def is_retired(self, row: Row) -> bool:
        """Tell whether its master was taken out of the cluster for good."""
        return (row.node, row.journal) in self.epoch.configuration.retired and not self.is_back(row)

    def is_back(self, row: Row) -> bool:
        """Tell whether a master that was taken out continues in a later epoch.

        Then the epoch that took it out was given up, and this master never heard enough others in it. A majority decided another
        epoch instead, and that master is a way to it.
        """
        is_out = (row.node, row.journal) in self.epoch.configuration.retired
        return is_out and row.epoch > self.epoch.id and not self._is_active and self.mode == row.mode == QUORUM

    def tell_all(self) -> None:
        """Post to all other members soon: they wait for a change here."""
        for peer in self.peers.values():
            peer.is_post_due = True

    def tell_held(self, origin: NodeId, streams: Mapping[NodeId, Stream], now: Instant) -> None:
        """Post that more of a stream is held here: to its origin, and to members with entries that are not added yet.

        The other members get a delayed acknowledgement. All get it at once for own entries, and for an origin that hears this
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
        """Post to the masters that do not hear a member: it confirmed more, and they get its row from here."""
        for peer in self.peers.values():
            if peer.node != node and peer.row is not None and node not in peer.row.heard:
                peer.is_post_due = True

    def qualify(self, streams: dict[NodeId, Stream]) -> None:
        """Let promises count if all entries that they cover are held here (R4)."""
        for peer in self.peers.values():
            stream = streams[peer.node]
            covered = stream.waiting[0][0] - 1 if stream.waiting else 0
            peer.promise = max(peer.promise, stream.last, covered)
            row = peer.row
            if row is not None and row.promise > peer.promise and row.have.get(peer.node, 0) <= stream.count:
                peer.promise = row.promise

    def least_promise(self) -> Timestamp | None:
        """Return the smallest promise of the other members; None when there are no others, 0 before all were heard."""
        if not self.peers:
            return None
        return min([peer.promise for peer in self.peers.values()])

    def is_heard(self, node: NodeId, mono_ms: int) -> bool:
        """Tell whether a direct post of this master came recently."""
        peer = self.peers.get(node) or self.outside.get(node)
        return peer is not None and mono_ms - peer.heard_ms <= self.config.heard_ms

    def heard_of(self, nodes: Iterable[NodeId], mono_ms: int) -> list[NodeId]:
        """Return those of these masters that are heard."""
        return [node for node in nodes if self.is_heard(node, mono_ms)]

    def heard(self, mono_ms: int) -> tuple[NodeId, ...]:
        """Return members heard directly and recently, in order, then other masters."""
        oldest_ms = mono_ms - self.config.heard_ms
        heard = [node for node, peer in self.peers.items() if peer.heard_ms >= oldest_ms]
        if self.outside:
            heard += [node for node, peer in self.outside.items() if peer.heard_ms >= oldest_ms]
        return tuple(heard)

    def heard_since(self, mono_ms: int) -> list[NodeId]:
        """Return members that were heard since then, or had news through another master."""
        return [node for node, peer in self.peers.items() if max(peer.heard_ms, peer.known_ms or NEVER) >= mono_ms]

    def is_active(self, journal: str) -> bool:
        """Tell whether rows of this epoch came from enough members to add entries (R5); ``journal`` is that of this master."""
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
        """Tell whether all others say that they know this master, and each other, by the journals that are known here.

        Otherwise an entry that two masters seem to hold may be held by one alone: the other one was emptied, and a third one knows
        it by another journal.
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
        """Tell whether a master holds entries of a stream, and no more than the origin itself says; more means another origin."""
        held = row.have.get(node, 0)
        if node == self.config.node:
            return held > 0
        return own is not None and 0 < held <= own.have.get(node, 0)

    @property
    def majority(self) -> int:
        """Return how many masters of the cluster are a majority."""
        return self.epoch.configuration.majority

    def is_known_before(self) -> bool:
        """Tell whether enough of the masters before the last change are in this epoch that the others cannot go on without them."""
        here = [node for node, peer in self.peers.items() if peer.row is not None]
        return self.epoch.configuration.is_known_before([self.config.node, *here])

    def held_by_required(self, streams: dict[NodeId, Stream], mono_ms: int) -> dict[NodeId, int]:
        """Return how many entries of each origin are durable at all required members (R6)."""
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
        """Return the same for the epoch's recovered list, of which ``own`` entries are held here."""
        confirmed = {node: peer.row.recovered if peer.row else 0 for node, peer in self.peers.items()}
        return self._least(own, confirmed, self._required(mono_ms))

    def _required(self, mono_ms: int) -> list[NodeId]:
        """Return the members that each have to hold an entry."""
        if self._acknowledge == "majority":
            return []
        if self._acknowledge == "present":
            return [node for node in self.peers if self.is_heard(node, mono_ms)]
        return list(self.peers)

    def _least(self, own: int, confirmed: dict[NodeId, int], required: list[NodeId]) -> int:
        held = min([own, *(confirmed[node] for node in required)])
        # A majority holds all that every member holds.
        if self._acknowledge != "all":
            held = min(held, self._held_by_majority(own, confirmed))
        return held

    def _held_by_majority(self, own: int, confirmed: dict[NodeId, int]) -> int:
        """Return how many entries a majority of all masters of the cluster holds, members or not."""
        counts = sorted([own, *confirmed.values()], reverse=True)
        return counts[self.majority - 1] if len(counts) >= self.majority else 0

    def confirmed_by_all(self, origin: NodeId) -> int:
        """Return how many entries of an origin every other member holds."""
        return min((peer.confirmed(origin) for peer in self.peers.values()), default=2**62)
