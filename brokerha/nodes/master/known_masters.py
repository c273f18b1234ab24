"""Who the masters are at run time, for the parts of a node that the core knows nothing of: the address book, and the gathering of the status.

    core.sync.epoch.configuration  ──┐
    nodes that are to be added       ├── note, after turns ───> AddressBook, StatusGathering
    journals, and those retired    ──┘                           a line in the log where the cluster file says otherwise

The cluster file counts when a cluster begins, and no more once all masters know each other. A file that still names a master that was taken out, or does not name one that was
added, does no harm: that is said once, when the master starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from brokerha.master.core import MasterCore
from brokerha.model.ids import NodeId
from brokerha.nodes.master.address_book import AddressedTransport
from brokerha.ports.transport import Transport

log = structlog.get_logger()


class KnownMasters:
    """Compares and hands on; used by one thread."""

    def __init__(
        self, file: Iterable[NodeId], transport: Transport, on_others: Callable[[tuple[NodeId, ...]], None]
    ) -> None:
        """``file`` names the masters of the cluster file; ``on_others`` is told all other masters whenever they change."""
        self._file = tuple(sorted(file))
        self._book = transport if isinstance(transport, AddressedTransport) else None
        self._on_others = on_others
        self._seen: object = None
        self.are_more = False
        """Whether there are masters that the cluster file does not name: they may share its broker."""

    def note(self, core: MasterCore) -> None:
        """Look who there is now."""
        sync = core.sync
        peers = sync.peers
        seen = (sync.epoch.id, tuple(peers.guests), tuple(peers.journals.items()))
        if seen == self._seen:
            return
        is_first, self._seen = self._seen is None, seen
        configuration = sync.epoch.configuration
        masters = {*(configuration.masters or self._file), *peers.guests}
        self.are_more = not masters <= {*self._file}
        self._on_others(tuple(sorted(masters - {sync.node})))
        if self._book is not None:
            self._book.trust({*masters, *self._file}, peers.journals, configuration.retired)
        if is_first and configuration.masters and self._file != configuration.masters:
            self._warn(sync.node, configuration.masters)

    def _warn(self, node: NodeId, masters: tuple[NodeId, ...]) -> None:
        log.warning(
            "cluster file differs",
            node=node,
            not_in_file=sorted({*masters} - {*self._file}),
            no_masters=sorted({*self._file} - {*masters}),
            what_counts=f"the masters are {', '.join(masters)}, as they agreed: correct the [[master]] sections of the cluster file",
        )
