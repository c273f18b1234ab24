"""Commands about the masters of the cluster: add one, take one out, and who there is (rule R15).

    peer-add    {node}           wish that a node becomes a master
    peer-remove {node, force}    wish that it is none any more; force: although the majority may be gone for good
    peers       {}               all masters as this one sees them, and what became of its last wish

The first two are answered at once with the state of the wish (`sync/membership.py`); a client that wants to know its end asks `peers`
again. A wish is forgotten when its master is restarted: until the epoch is decided nothing has happened, and saying it
again does no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brokerha.master.belonging import no_command
from brokerha.model.epochs import ADD
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.ids import Instant, NodeId
from brokerha.sync.membership import DONE, Wish
from brokerha.sync.peers import NEVER

if TYPE_CHECKING:
    from brokerha.master.core import MasterCore

MEMBER, EXCLUDED, INVITED, JOINER, RETIRED = "member", "excluded", "invited", "joiner", "retired"
"""What a row is to the epoch of the master that is asked."""

Answer = dict[str, Any]


class PeerCommands:
    """The commands of one master; see the head of the module."""

    def __init__(self, core: MasterCore) -> None:
        self._core = core

    def add(self, arguments: dict[str, Any], now: Instant) -> Answer:
        """Wish for a master more. Raises InvalidRequest, NotReady."""
        node = self._node(arguments)
        if node in self._core.site.workers or node in self._core.config.feed.others:
            raise InvalidRequest(f"{node} is a worker: a master has an id of its own")
        return self._answer(self._core.sync.epochs.membership.add(self._core.sync, node, now))

    def remove(self, arguments: dict[str, Any], now: Instant) -> Answer:
        """Wish for a master less. Raises InvalidRequest, NotReady."""
        node, is_forced = self._node(arguments), arguments.get("force") is True
        return self._answer(self._core.sync.epochs.membership.remove(self._core.sync, node, now, is_forced=is_forced))

    def _node(self, arguments: dict[str, Any]) -> NodeId:
        node: NodeId = arguments["node"]
        if refused := no_command(self._core.sync):
            raise NotReady(refused)
        return node

    def _answer(self, wish: Wish) -> Answer:
        sync = self._core.sync
        is_new = wish is sync.epochs.membership.wish
        masters = list(sync.epoch.configuration.masters)
        return {"master": sync.node, **self._told(wish), "changed": is_new, "masters": masters}

    def peers(self, _arguments: dict[str, Any], now: Instant) -> Answer:
        """All masters, and what is under way."""
        sync = self._core.sync
        configuration, wish = sync.epoch.configuration, sync.epochs.membership.wish
        peers = [self._own(), *(self._row(node, now.mono_ms) for node in (*sync.peers.peers, *sync.peers.outside))]
        return {
            "master": sync.node,
            "epoch": sync.epoch.number,
            "proposer": sync.epoch.proposer,
            "masters": list(configuration.masters),
            "members": list(sync.epoch.members),
            "before": list(configuration.before),
            "retired": [{"node": node, "journal": journal} for node, journal in configuration.retired],
            "refused": no_command(sync),
            "change": self._told(wish) if wish is not None else None,
            "peers": sorted(peers, key=lambda row: str(row["node"])),
        }

    def _own(self) -> Answer:
        sync = self._core.sync
        standing = RETIRED if sync.retired else JOINER if sync.is_joiner() else self._standing(sync.node)
        return {
            "node": sync.node,
            "standing": standing,
            "heard": True,
            "heard_s": 0.0,
            "epoch": sync.epoch.number,
            "journal": sync.journal,
            "other_journal": "",
            "lsn": sync.lsn,
            "lag": 0,
        }

    def _row(self, node: NodeId, mono_ms: int) -> Answer:
        sync = self._core.sync
        peer, row = sync.peers.peer(node), sync.peers.last_row(node)
        heard_ms = peer.heard_ms if peer is not None else NEVER
        return {
            "node": node,
            "standing": self._standing(node),
            "heard": sync.peers.is_heard(node, mono_ms),
            "heard_s": None if heard_ms == NEVER else max(0, mono_ms - heard_ms) / 1000,
            "epoch": row.epoch[0] if row is not None else None,
            "journal": sync.peers.journals.get(node, ""),
            "other_journal": sync.peers.impostors.get(node, ""),
            "lsn": row.lsn if row is not None else None,
            "lag": max(0, sync.lsn - row.lsn) if row is not None else None,
        }

    def _standing(self, node: NodeId) -> str:
        epoch = self._core.sync.epoch
        if node in epoch.members:
            return MEMBER
        return EXCLUDED if node in epoch.configuration.masters else INVITED

    def _told(self, wish: Wish) -> Answer:
        """A wish as plain data."""
        sync, stage = self._core.sync, wish.stage
        is_retired = any(node == wish.node for node, _ in sync.epoch.configuration.retired)
        if wish.kind == ADD and wish.state != DONE and is_retired and sync.peers.last_row(wish.node) is None:
            stage += f"; {wish.node} was taken out before: it comes back with an empty data directory only"
        return {"kind": wish.kind, "node": wish.node, "state": wish.state, "stage": stage, "forced": wish.is_forced}
