"""POST: when a master tells its peers what it knows, and how much of it (rules R3 and R17).

A post is due at once when something became durable that others wait for, when a peer lacks entries, and as a heartbeat:
every ``idle_round_ms`` while there is nothing to agree on, every ``busy_post_ms`` while there is. Each post carries the
own row and, of each stream, what the peer has not confirmed and was not sent just now; so its size follows what is new,
never the length of a queue.

Entries of other origins are relayed at once to a peer that does not hear the origin, together with the origin's row; and
to a peer that hears it but stays behind, after a delay. A row that confirms more is passed on at once as well; passing on one that
does not would go round in circles where several links are cut. So one broken link of three costs nothing but a hop.
"""

from __future__ import annotations

from brokerha.model.ids import Entry, Instant, NodeId
from brokerha.model.records import History
from brokerha.model.wire.epoch_messages import Row
from brokerha.model.wire.messages import Outgoing, Post
from brokerha.sync.config import SyncConfig
from brokerha.sync.peers import Peer
from brokerha.sync.state import SyncState
from brokerha.sync.streams import Stream

Listing = tuple[NodeId, int, tuple[Entry, ...]]


class Posting:
    """Decides which posts go out in a round."""

    def __init__(self, config: SyncConfig, history: History) -> None:
        self.has_more = False
        """Whether another round in the same instant may have something to send: a post was filled to its window."""
        self._config = config
        self._history = history

    def _is_heartbeat_due(self, sync: SyncState, since_ms: int) -> bool:
        """Whether it is time for another post, so long after the last one: heartbeats come fast while busy, slowly while idle."""
        config = self._config
        return since_ms >= config.idle_round_ms or (since_ms >= sync.busy_post_ms and sync.is_busy())

    def due_ms(self, sync: SyncState) -> int:
        """When the next post is due if nothing happens before."""
        config, peers = self._config, sync.peers
        interval = sync.busy_post_ms if sync.is_busy() else config.idle_round_ms
        due = [
            p.posted_ms + (config.post_gap_ms if p.is_post_due or p.has_more else interval)
            for p in peers.peers.values()
        ]
        due += [
            max(p.confirm_due_ms, p.posted_ms + config.post_gap_ms)
            for p in peers.peers.values()
            if p.confirm_due_ms is not None
        ]
        if peers.outside:
            due += [p.posted_ms + config.idle_round_ms for p in peers.outside.values()]
        return min(due)

    def posts(self, sync: SyncState, now: Instant) -> list[Outgoing]:
        """The posts of this round; one row for all of them."""
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
                # Most peers are told the same, and the transport encodes one post once.
                post = Post(row, relayed, listed)
            outgoing.append(Outgoing(peer.node, post))
        self.has_more = True in [peer.has_more for peer in sync.peers.peers.values()]
        for peer in sync.peers.outside.values():
            # Nothing of this epoch concerns it but that there is one.
            if now.mono_ms - peer.posted_ms >= self._config.idle_round_ms:
                if row is None:
                    row = sync.own_row(now)
                peer.posted_ms = now.mono_ms
                outgoing.append(Outgoing(peer.node, Post(row, self._relayed(sync, peer), ())))
        return outgoing

    def _relayed(self, sync: SyncState, peer: Peer) -> tuple[Row, ...]:
        """Rows of others, members or not, for a peer that does not hear them."""
        peers = sync.peers
        told = peers.last_row(peer.node)
        heard = {*told.heard, peer.node} if told else {peer.node}
        if not peers.outside and peers.peers.keys() <= heard:
            return ()
        members = [other.row for other in peers.peers.values() if other.node not in heard]
        outside = [peers.elsewhere.get(node) for node in peers.outside if node not in heard]
        return tuple(row for row in (*members, *outside) if row is not None)

    def _listings(self, sync: SyncState, peer: Peer, now: Instant) -> list[Listing]:
        """What this peer has not confirmed, as far as it is due."""
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
                peer.stuck[origin] = (confirmed, now.mono_ms)
            if sent >= stream.count or sent - confirmed >= 4 * self._config.post_window:
                continue
            if not self._is_relayed(sync, peer, origin, stuck_ms):
                continue
            entries = self._entries(stream, sent)
            if entries:
                if sent == confirmed:
                    # What was relayed after a delay is given that long to be confirmed, too.
                    peer.stuck[origin] = (confirmed, now.mono_ms)
                peer.sent[origin] = sent + len(entries)
                listings.append((origin, sent, tuple(entries)))
        return listings

    def _is_relayed(self, sync: SyncState, peer: Peer, origin: NodeId, stuck_ms: int) -> bool:
        """Own entries always; others' at once when the peer does not hear the origin, else when it stays behind."""
        if origin == sync.node or (peer.row is not None and origin not in peer.row.heard):
            return True
        return stuck_ms >= 2 * self._config.retransmit_ms

    def _entries(self, stream: Stream, start: int) -> list[Entry]:
        if start >= stream.start:
            return stream.between(start, self._config.post_window)
        return self._history.stream(stream.origin, start, self._config.post_window)
