"""SyncCore: one master's part in agreeing on one order of transactions.

The paper's round is POST, COLLECT, ADD, MERGE. Here each turn of the loop is a round. It collects the input since the last turn and
merges entries whose bodies are here into the incoming queue. It adds the longest safe prefix to the synchronised queue, and posts
to every peer that has to know (PROTOCOL.md has the rules and the reasons).

    on_post, on_bodies, on_fetch, accept      inputs; they only take note
    collect(now)                              one round: records to log, then messages to send; returns the added entries

Invariants kept here: S2 (each transaction id once), S5 (order by timestamp and id), S6 (added only when all required members hold
it), S8 (listed only with its body), S11 (promises never go back). The records that a message depends on are in the same batch or an
earlier one, so they are durable when it is sent. The core reads no clock, draws no number and never blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from brokerha.model.epochs import first_epoch
from brokerha.model.forgetting import MARK, forgotten_below
from brokerha.model.ids import Entry, Instant, Lsn, NodeId, Ordered, TxId
from brokerha.model.invariants import invariant
from brokerha.model.records import Accepted, Appended, BodiesHeld, History, MasterState
from brokerha.model.wire.epoch_messages import Leave, Row
from brokerha.model.wire.messages import Bodies, Fetch, Outgoing, Post
from brokerha.sync import identity
from brokerha.sync.bodies import Item, in_records
from brokerha.sync.config import SyncConfig
from brokerha.sync.epochs.epochs import Epochs
from brokerha.sync.peers import OLD, REFUSED, RESTARTED, Peer
from brokerha.sync.round import RoundResult
from brokerha.sync.splits.going_back import read_before
from brokerha.sync.state import SyncState
from brokerha.sync.streams import Incoming, Stream

Listing = tuple[NodeId, int, tuple[Entry, ...]]


class Posting:
    """Decides which posts go out in a round.

    POST: the time and the content of a master's messages to its peers (rules R3 and R17).

    A post is due at once when something became durable that others wait for, and when a peer lacks entries. It is also a heartbeat:
    every ``idle_round_ms`` while there is nothing to agree on, every ``busy_post_ms`` while there is. Each post carries the own row
    and, of each stream, the entries that the peer has not confirmed and was not sent recently. So its size follows the number of
    new entries, never the length of a queue.

    Entries of other origins are relayed at once to a peer that does not hear the origin, together with the origin's row. A peer
    that hears the origin but lags gets them after a delay. A row that confirms more is also passed on at once; passing on other
    rows would go round in circles where several links are cut. So one broken link of three costs only a hop.
    """

    def __init__(self, config: SyncConfig, history: History) -> None:
        self.has_more = False
        """Tell whether another round in the same instant may have something to send: a post was filled to its window."""
        self._config = config
        self._history = history

    def _is_heartbeat_due(self, sync: SyncState, since_ms: int) -> bool:
        """Tell whether the next heartbeat is due, so long after the last post: fast while busy, slow while idle."""
        config = self._config
        return since_ms >= config.idle_round_ms or (since_ms >= sync.busy_post_ms and sync.is_busy())

    def due_ms(self, sync: SyncState) -> int:
        """Return when the next post is due if nothing happens before."""
        config, peers = self._config, sync.peers
        interval = sync.busy_post_ms if sync.is_busy() else config.idle_round_ms
        due = [p.posted_ms + (config.post_gap_ms if p.is_post_due or p.has_more else interval) for p in peers.peers.values()]
        due += [
            max(p.confirm_due_ms, p.posted_ms + config.post_gap_ms) for p in peers.peers.values() if p.confirm_due_ms is not None
        ]
        if peers.outside:
            due += [p.posted_ms + config.idle_round_ms for p in peers.outside.values()]
        return min(due)

    def posts(self, sync: SyncState, now: Instant) -> list[Outgoing]:
        """Return the posts of this round; all of them share one row."""
        outgoing = []
        row: Row | None = None
        post: Post | None = None
        for peer in sync.peers.peers.values():
            since = now.mono_ms - peer.posted_ms
            if since < self._config.post_gap_ms:
                continue
            streams = self._listings(sync, peer, now)
            window = self._config.post_window
            peer.has_more = bool(streams) and window in [len(entries) for _, _, entries in streams]
            is_quiet = since < sync.busy_post_ms and since < self._config.idle_round_ms
            is_due = peer.is_post_due or (peer.confirm_due_ms is not None and now.mono_ms >= peer.confirm_due_ms)
            if not (is_due or streams) and (is_quiet or not self._is_heartbeat_due(sync, since)):
                continue
            if row is None:
                row = sync.own_row(now)
            peer.posted_ms = now.mono_ms
            peer.is_post_due, peer.confirm_due_ms = False, None
            relayed, listed = self._relayed(sync, peer), tuple(streams)
            if post is None or (post.relayed, post.streams) != (relayed, listed):
                # Most peers get the same post, and the transport encodes one object once.
                post = Post(row, relayed, listed)
            outgoing.append(Outgoing(peer.node, post))
        self.has_more = True in [peer.has_more for peer in sync.peers.peers.values()]
        for peer in sync.peers.outside.values():
            # A master outside the epoch needs to know only that the epoch exists.
            if now.mono_ms - peer.posted_ms >= self._config.idle_round_ms:
                if row is None:
                    row = sync.own_row(now)
                peer.posted_ms = now.mono_ms
                outgoing.append(Outgoing(peer.node, Post(row, self._relayed(sync, peer), ())))
        return outgoing

    def _relayed(self, sync: SyncState, peer: Peer) -> tuple[Row, ...]:
        """Return rows of others, members or not, for a peer that does not hear them."""
        peers = sync.peers
        told = peers.last_row(peer.node)
        heard = {*told.heard, peer.node} if told else {peer.node}
        if not peers.outside and peers.peers.keys() <= heard:
            return ()
        members = [other.row for other in peers.peers.values() if other.node not in heard]
        outside = [peers.elsewhere.get(node) for node in peers.outside if node not in heard]
        return tuple(row for row in (*members, *outside) if row is not None)

    def _listings(self, sync: SyncState, peer: Peer, now: Instant) -> list[Listing]:
        """Return the entries that this peer has not confirmed, as far as they are due."""
        if peer.row is None:
            return []
        listings: list[Listing] = []
        have = peer.row.have
        if have == sync.counts:
            peer.stuck.clear()
            return listings
        for origin, stream in sync.streams.items():
            confirmed = have.get(origin, 0)
            if confirmed >= stream.count or origin == peer.node:
                peer.stuck.pop(origin, None)
                continue
            stuck_ms = peer.stuck_ms(origin, now.mono_ms)
            sent = max(confirmed, peer.sent.get(origin, 0))
            if stuck_ms >= self._config.retransmit_ms and sent > confirmed:
                sent = confirmed
                peer.stuck[origin] = (confirmed, peer.stuck[origin][1], now.mono_ms)
            if sent >= stream.count or sent - confirmed >= 4 * self._config.post_window:
                continue
            if not self._is_relayed(sync, peer, origin, stuck_ms):
                continue
            entries = self._entries(stream, sent)
            if entries:
                peer.sent[origin] = sent + len(entries)
                if sent == confirmed:
                    # Entries that were relayed after a delay get as long to be confirmed.
                    peer.stuck[origin] = (confirmed, peer.stuck[origin][1], now.mono_ms)
                listings.append((origin, sent, tuple(entries)))
        return listings

    def _is_relayed(self, sync: SyncState, peer: Peer, origin: NodeId, stuck_ms: int) -> bool:
        """Relay own entries always, others' at once when the peer does not hear the origin, and else when it lags."""
        if origin == sync.node or (peer.row is not None and origin not in peer.row.heard):
            return True
        return stuck_ms >= 2 * self._config.retransmit_ms

    def _entries(self, stream: Stream, start: int) -> list[Entry]:
        if start >= stream.start:
            return stream.between(start, self._config.post_window)
        return self._history.stream(stream.origin, start, self._config.post_window)


class SyncCore(SyncState):
    """The sync protocol of one master: the members of its epoch agree, and the configuration names the possible members."""

    _is_settled = False
    """Whether the last round left no work for another one."""

    def __init__(self, config: SyncConfig, state: MasterState, history: History) -> None:
        super().__init__(config, state, history, state.installed or first_epoch(identity.founders(config, state)))
        self.epochs = Epochs(config, self.mode)
        self.posting = Posting(config, history)
        splits = history.splits()
        self.reads = read_before(self.node, self.incarnation, self.epoch, splits[-1]) if splits else None
        self._answers: list[Outgoing] = []
        self._pushed: deque[tuple[int, int]] = deque()
        """Of each round that pushed bodies which have no LSN yet: the number after its last entry, and their bytes."""
        self._pushed_size = 0

    # ---- inputs: they take note, the round does the work

    def accept(self, txid: TxId, body: bytes) -> None:
        """Take in an own transaction that is neither known here nor synchronised (R1)."""
        if txid in self.pending:
            invariant(False, "a transaction is accepted once", txid=txid)
        self.pending.add(txid)
        self.accepted.append((txid, body))

    def on_post(self, sender: NodeId, post: Post, now: Instant) -> None:
        """COLLECT one post: its row, the rows it relays, and what it lists (R4)."""
        peer = self.peers.poster(sender, post.row)
        if peer is None:
            self.peers.ignored["unknown_peer"] += 1
            self.epochs.on_stranger(self, sender, post.row, now)
            return
        suspicion = self.epochs.suspicion
        if now.mono_ms - peer.heard_ms > suspicion.telling_ms and not self._has_begun_anew(post.row):
            suspicion.on_silence_over(peer, now.mono_ms)
        verdict = self._learn(post.row, now)
        if verdict != REFUSED or self.peers.is_known_journal(post.row):
            peer.heard_ms = now.mono_ms
        is_unlike = sender in self.peers.impostors or sender in self.peers.unlike
        is_elsewhere = post.row.epoch != self.epoch.id and not is_unlike
        if verdict != REFUSED or is_elsewhere:
            for row in post.relayed:
                # Only a guest itself says who it is: others may still pass on its rows from before its disk was emptied.
                if row.node != self.node and row.node not in self.peers.guests:
                    self._learn(row, now)
        if is_elsewhere:
            identity.check_own_state(self, post.row)
            self.epochs.on_row_of_other_epoch(self, sender, post.row, now)
        if verdict == REFUSED:
            return
        if verdict == RESTARTED:
            self.peers.tell_all()
        for origin, start, entries in post.streams:
            stream = self.streams.get(origin)
            if stream is None or origin == self.node:
                self.peers.ignored["unknown_origin"] += stream is None
            else:
                stream.announce(start, entries, 4 * self.config.post_window, now.mono_ms)

    def _has_begun_anew(self, row: Row) -> bool:
        known = self.peers.last_row(row.node)
        return known is None or known.incarnation != row.incarnation

    def _learn(self, row: Row, now: Instant) -> str:
        """Take in a row; a newer row than the known one is news of its master."""
        verdict = self.peers.learn(row)
        if verdict != REFUSED:
            identity.check_own_state(self, row)
            if verdict != OLD:
                self.peers.peers[row.node].known_ms = now.mono_ms
        return verdict

    def on_bodies(self, sender: NodeId, bodies: Bodies) -> None:
        """Take in bodies that a peer pushed or that this master requested."""
        if sender not in self.peers.givers():
            self.peers.ignored["unknown_peer"] += 1
            return
        self.peers.ignored["unknown_origin"] += self.bodies.take(bodies.items, self._origins())

    def _origins(self) -> Collection[NodeId] | None:
        """Return the origins whose bodies are useful, or None for all: a tail also has bodies of former masters."""
        return None if self.tail.target > self.lsn else self.streams

    def on_fetch(self, sender: NodeId, fetch: Fetch) -> None:
        """Answer a request for bodies."""
        if self.peers.peer(sender) is None:
            self.peers.ignored["unknown_peer"] += 1
            return
        self._answers.extend(Outgoing(sender, bodies) for bodies in self.bodies.answer(fetch.wanted))

    # ---- one round

    def collect(self, now: Instant) -> RoundResult:
        """Run one round on everything noted since the last one."""
        result = self.round = RoundResult()
        self._is_settled = False
        if self.lost:
            return result
        if self.retired:
            result.messages, self._answers = self._answers, []
            return result
        result.records, self.peers.new_journals = [*self.peers.new_journals], []
        fresh, epoch = self._write_accepted(result) if self.accepted else {}, self.epoch
        if not self.epochs.before(self, result, now):
            return result
        is_frozen = self.is_standing_still()
        self._merge(result, now, is_frozen=is_frozen)
        stamped = [] if is_frozen or not self.parked else self._stamp(result, now, fresh)
        if not is_frozen:
            self._add(result, now)
        result.messages, self._answers = [*result.messages, *self._answers], []
        result.messages.extend(self.bodies.pushed(stamped, self.peers.peers))
        if not is_frozen:
            self._fetch(result, now)
        result.messages.extend(self.posting.posts(self, now))
        if is_frozen or epoch is not self.epoch or self.epochs.is_due(now.mono_ms):
            self.epochs.after(self, result, now)
        self._is_settled = epoch is self.epoch and not self.parked and self.recovery.is_over
        reservation = self.clock.reservation()
        if reservation:
            # First: a backup that has only a part of a turn must not stamp below the timestamps of that turn.
            result.records.insert(0, reservation)
        return result

    def is_settled(self) -> bool:
        """Tell whether another round in the same instant, without new input, would do nothing, whatever became durable."""
        is_told = self.accepted or self._answers or self.peers.new_journals or self.posting.has_more
        return self._is_settled and not is_told and not self.is_standing_still()

    def _write_accepted(self, result: RoundResult) -> dict[TxId, bytes]:
        fresh = dict(self.accepted)
        result.records.extend(Accepted(part) for part in in_records(self.accepted))
        self.parked.extend(fresh)
        self.accepted = []
        return fresh

    def _merge(self, result: RoundResult, now: Instant, *, is_frozen: bool) -> None:
        """MERGE: sort foreign entries whose bodies are here into the incoming queue."""
        counts: dict[NodeId, int] = {}
        recovered = 0
        if not is_frozen:
            counts = {stream.origin: self.bodies.acquire(stream) for stream in self.streams.values() if stream.waiting}
            if not self.recovery.is_over and (recovered := self.recovery.hold(self.bodies.has)):
                self.peers.tell_all()
        # Bodies without entries wait for them, or for other records: the entry is about to come, and one fsync is saved.
        if any(counts.values()) or recovered or result.records or self.bodies.is_full():
            arrived = self.bodies.arrived()
            if arrived:
                # First: entries that this turn took in by LSN have their bodies among these.
                result.records[:0] = [BodiesHeld(part) for part in in_records(arrived)]
        for origin, count in counts.items():
            if count:
                stream = self.streams[origin]
                entries = stream.waiting[:count]
                del stream.waiting[:count]
                self._hold(stream, entries, result, now)
                self.clock.saw(stream.last)

    def _fetch(self, result: RoundResult, now: Instant) -> None:
        result.messages += self.bodies.fetches(self.streams.values(), self.peers, now.mono_ms)
        if self.recovery.is_over:
            return
        holders = sorted(self.peers.givers(), key=lambda node: not self.peers.is_heard(node, now.mono_ms))
        again_ms = self.config.retransmit_ms
        result.messages.extend(self.recovery.missing.fetch(self.bodies.has, holders, now.mono_ms, again_ms))

    def _hold(self, stream: Stream, entries: Sequence[Entry], result: RoundResult, now: Instant) -> None:
        first = stream.hold(entries)
        self.counts[stream.origin] = stream.count
        self.peers.tell_held(stream.origin, self.streams, now)
        result.records.append(Appended(stream.origin, first, tuple(entries)))
        origin = stream.origin
        self.incoming.merge([(*entry, origin, number) for number, entry in enumerate(entries, first)])

    def _stamp(self, result: RoundResult, now: Instant, fresh: dict[TxId, bytes]) -> list[Item]:
        """Give parked transactions timestamps, at most the window ahead of the added entries (R2); return them with their bodies."""
        if not identity.is_known(self) or not self.recovery.is_over:
            return []  # The next epoch may have to recover at most one window of each master.
        room = self.config.stamp_window(len(self.epoch.configuration.masters)) - (self.own.count - self.own.used)
        stamped, size = self.bodies.own(islice(self.parked, max(0, room)), fresh, self._pushed_bytes())
        if stamped:
            times = self.clock.ticks(now.wall_us, len(stamped))
            self._hold(self.own, list(zip(times, [txid for _, txid, _ in stamped], strict=True)), result, now)
            for _ in stamped:
                self.parked.popleft()
            self._pushed.append((self.own.count, size))
            self._pushed_size += size
        return stamped

    def _pushed_bytes(self) -> int:
        """Return the bytes of the bodies of own entries that were pushed and have no LSN yet."""
        pushed = self._pushed
        while pushed and pushed[0][0] <= self.own.used:
            self._pushed_size -= pushed.popleft()[1]
        while pushed and pushed[-1][0] > self.own.count:
            self._pushed_size -= pushed.pop()[1]  # An epoch took their numbers back.
        return self._pushed_size

    def _add(self, result: RoundResult, now: Instant) -> None:
        """ADD: the recovered list, then the longest common prefix up to the least promise (R6), each transaction id once (S2)."""
        is_recovered = self.recovery.is_over
        if is_recovered and not self.incoming.count:
            return
        self.peers.qualify(self.streams)
        if not self.peers.is_active(self.journal):
            return
        if not is_recovered:
            up_to = self.peers.recovered_by_required(self.recovery.held, now.mono_ms)
            recovered = self.recovery.next(up_to)
            if recovered:
                self.append_of_others(recovered, result)
            if not self.recovery.is_over:
                return
        least = self.peers.least_promise()
        head = self.incoming.head()
        if head is None or (least is not None and head[0] > least):
            return
        up_to = least if least is not None else 2**63
        prefix = self.incoming.common_prefix(up_to, self.peers.held_by_required(self.streams, now.mono_ms))
        if not prefix:
            return
        self.incoming.remove_head(len(prefix))
        added = self._without_known(prefix, result)
        for _, txid, origin, number in prefix:
            self.streams[origin].used = number + 1
            if origin == self.node:
                self.pending.discard(txid)
        self.append(added, {origin: stream.used for origin, stream in self.streams.items()}, result)
        self.clock.saw(prefix[-1][0])
        for origin, stream in self.streams.items():
            # A member that comes back reads entries beyond a few windows from the journal.
            if stream.is_long:
                kept = stream.used - 4 * self.config.post_window
                stream.forget(max(kept, self.peers.confirmed_by_all(origin)))

    def _without_known(self, prefix: list[Incoming], result: RoundResult) -> list[Ordered]:
        """Drop entries that are in the synchronised queue already, unless their ids are forgotten at their places."""
        known = self.history.known([entry[1] for entry in prefix])
        if result.added:
            known |= {txid: lsn for lsn, (_, txid, _) in enumerate(result.added, result.first_lsn)}
        added: list[Ordered] = []
        ids_from: Lsn | None = None
        for timestamp, txid, origin, _ in prefix:
            lsn = known.get(txid)
            if lsn is not None:
                # Most prefixes have no known id. For all in one, it is looked up once, and kept up from there on.
                if ids_from is None:
                    ids_from = self._ids_from((*result.added, *added))
                if lsn >= ids_from:
                    continue
            added.append((timestamp, txid, origin))
            known[txid] = self.lsn + len(added)
            if ids_from is not None and MARK in txid:
                ids_from = max(ids_from, forgotten_below(txid))
        return added

    def _ids_from(self, added: Iterable[Ordered]) -> Lsn:
        """Return the LSN below which ids are forgotten after these entries, which the journal does not have yet."""
        forgotten = [forgotten_below(txid) for _, txid, _ in added if MARK in txid]
        return max([self.history.ids_from(self.lsn), *forgotten])

    # ---- the end

    def leave(self) -> list[Outgoing]:
        """Return the last messages of a process that is being stopped; no other call may follow (R8)."""
        is_silent = self.lost or self.retired or self.is_joiner()
        return [] if is_silent else [Outgoing(node, Leave()) for node in self.peers.peers]

    # ---- questions

    def backlog(self) -> int:
        """Return the number of accepted or held transactions that are not yet synchronised."""
        return self.incoming.count + len(self.parked) + len(self.accepted)

    def deadline_ms(self) -> int | None:
        """Return when the core needs the next round, in monotonic milliseconds; None when only a message can change anything."""
        if self.lost or self.retired or not (self.peers.peers or self.peers.outside):
            return None
        due = [self.posting.due_ms(self), self.epochs.deadline_ms(self)]
        if not self.is_standing_still():
            if not self.recovery.is_over:
                due.append(self.recovery.missing.due_ms(self.config.retransmit_ms))
            due += self.bodies.due_ms(self.streams.values())
        return min([at for at in due if at is not None])
