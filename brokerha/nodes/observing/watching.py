"""What a master tells of itself unasked: to its log, the status page, the address book, and to the broker whether it takes writes that any master may take.

    turn, turn, turn ── note ──> look, at most every `LOOK_MS` ──> site_log, epoch_log, split_log, known_masters, rates, staleness

Nobody waits for any of it, so it is looked at after a while and not after each turn; a look that is owed wakes the loop (`due_ms`).
It reads the core and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from brokerha.master import belonging
from brokerha.master.apart import is_alone
from brokerha.model.ids import Instant, NodeId
from brokerha.model.numbers import Numbers
from brokerha.nodes.master.known_masters import KnownMasters
from brokerha.nodes.master.runner import MasterRunner
from brokerha.nodes.observing.epoch_log import EpochLog
from brokerha.nodes.observing.master_view import MasterView
from brokerha.nodes.observing.site_log import SiteLog
from brokerha.nodes.observing.staleness import Staleness
from brokerha.ports.transport import Transport

LOOK_MS = 100


class Watching:
    """Used by the loop's thread."""

    def __init__(
        self,
        node: NodeId,
        masters: Iterable[NodeId],
        transport: Transport,
        view: MasterView,
        staleness: Staleness,
        on_others: Callable[[tuple[NodeId, ...]], None],
        *,
        shares_broker: bool,
        leaves_writes: bool,
    ) -> None:
        """``masters`` are those of the cluster file; ``on_others`` is told all others whenever they change. The rest as for `MasterNode`."""
        self._transport = transport
        self._view = view
        self._staleness = staleness
        self._site_log = SiteLog(node)
        self._epoch_log = EpochLog(node)
        self._known_masters = KnownMasters(masters, transport, on_others)
        self.shares_broker, self.leaves_writes = shares_broker, leaves_writes
        self._look_at_ms = 0
        self._is_owed = False

    def is_due(self, now: Instant) -> bool:
        """A turn is over: whether to `note` it now; if not, that is owed."""
        self._is_owed = now.mono_ms < self._look_at_ms
        return not self._is_owed

    def note(self, runner: MasterRunner, reads: int, now: Instant) -> None:
        """Look; ``reads`` were asked so far."""
        self._look_at_ms = now.mono_ms + LOOK_MS
        core = runner.core
        self._serve_shared(runner, now)
        self._site_log.note(core, now.mono_ms)
        self._epoch_log.note(core, now.mono_ms)
        self._view.splits.note(core)
        self._known_masters.note(core)
        self._view.note_rates(reads, now)

    def due_ms(self) -> int | None:
        """When to look though nothing happens; None when nothing has happened since the last look."""
        return self._look_at_ms if self._is_owed else None

    def _serve_shared(self, runner: MasterRunner, now: Instant) -> None:
        """Writes that any master may take are left to the others while none are taken here, or while others may go on without this one."""
        core = runner.core
        self._staleness.note(core, now)
        is_left = (self.shares_broker or self._known_masters.are_more) and is_alone(self._staleness.found)
        is_left = is_left or (self.leaves_writes and not core.feed.workers)
        # Who is no master of the cluster has nothing to say to apps: what waits for it waits, or is read by others.
        self._transport.serve_clients(not belonging.is_outside(core.sync))
        self._transport.serve_shared(not runner.failure and not core.refusal(now) and not is_left)

    def metrics(self, mono_ms: int) -> Numbers:
        """Numbers for /metrics."""
        return {**self._site_log.counts, **self._epoch_log.metrics(mono_ms)}
