"""Checks of masters' decisions about their workers: the read-only rule, and that a condemned copy does not come back (F13, F8).

A master accepts a write only while enough of its workers are heard and report themselves well. It refuses one for lack of workers
only when it has too few. These checks note what it heard, from the messages that it took in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from brokerha.master.core import MasterCore
from brokerha.model.ids import NodeId
from brokerha.model.requests import Reply
from brokerha.model.wire.epoch_messages import Leave
from brokerha.model.wire.messages import Coin, Envelope, Executed, Progress
from tests.simulator.checks.truth import Truth, check
from tests.simulator.nodes import SimMaster

TOLERANCE_US = 2_000
"""Nodes count whole milliseconds."""


@dataclass(slots=True)
class _Heard:
    """The last news of a worker that a master took in."""

    at_us: int
    progress: Progress
    life: int
    """Life of the worker at that time: its end can be known to the master."""
    earlier: frozenset[str] = frozenset()
    """Names of the worker's earlier copies."""


class ReadinessChecks:
    """What each master heard in its current life."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._began: dict[NodeId, tuple[object, int]] = {}
        """Core of each master, and when it was first seen."""
        self._seen: dict[NodeId, dict[NodeId, int]] = {}
        """When each worker was first seen among those of its master."""
        self._heard: dict[NodeId, dict[NodeId, _Heard]] = {}
        self._troubled: dict[NodeId, dict[tuple[NodeId, str], object]] = {}
        """By master: workers with the names of copies that they reported as bad, and the master's record of them."""

    def on_taken(self, node: NodeId, core: MasterCore, envelopes: Iterable[Envelope]) -> None:
        """Note messages that a master takes in."""
        now_us = self._truth.world.now_us
        if self._began.get(node, (None, 0))[0] is not core:
            self._began[node] = core, now_us
            self._heard[node], self._troubled[node] = {}, {}
        self._see(node, core)
        heard, workers = self._heard[node], core.site.workers
        for envelope in envelopes:
            message, sender = envelope.message, envelope.sender
            if isinstance(message, Progress):
                before = heard.get(sender)
                if before is not None and self._is_past(node, before, message):
                    continue
                names = before.earlier | {before.progress.journal} if before is not None else frozenset()
                heard[sender] = _Heard(now_us, message, self._life(sender), names - {message.journal})
                if message.trouble:
                    self._troubled[node][sender, message.journal] = workers.get(sender)
            elif isinstance(message, Executed) and sender in heard:
                heard[sender].at_us, heard[sender].life = now_us, self._life(sender)
            elif isinstance(message, Leave) and sender in heard:
                # A process that was started after that has not been heard yet.
                heard[sender].life = 0

    def _life(self, worker: NodeId) -> int:
        """Return the life of a worker's running process; 0 without one."""
        process = self._truth.world.processes[worker]
        return process.life if process.is_up else 0

    def _is_past(self, node: NodeId, before: _Heard, progress: Progress) -> bool:
        """Tell whether a message is late: it reports an earlier copy, or a lower LSN, while the worker is alive."""
        world = self._truth.world
        is_alive = world.now_us - before.at_us < world.master(node).config.feed.dead_after_ms * 1000
        is_less = progress.journal == before.progress.journal and progress.applied_lsn < before.progress.applied_lsn
        return is_alive and (is_less or progress.journal in before.earlier)

    def on_coin(self, sender: NodeId, to: NodeId, coin: Coin) -> None:
        """Check a master's order to a worker to follow it."""
        heard = self._heard.get(sender, {}).get(to)
        core = self._truth.world.master(sender).runner.core
        if heard is None or coin.forgiven_lsn or not self._is_known(sender, core):
            return
        # A worker that was removed and added again counts as a new one.
        known = core.site.workers.get(to)
        # A master takes a late message as current if it knows that the worker has ended; these checks do not know that.
        names = {heard.progress.journal, known.journal} if known is not None else ()
        is_bad = known is not None and all(self._troubled[sender].get((to, name)) is known for name in names)
        check(not is_bad, "F8", "a condemned copy does not come back", to=to, name=heard.progress.journal)

    def _see(self, node: NodeId, core: MasterCore) -> None:
        """Note new workers, which get as much time to be heard as all workers after a start."""
        seen, now_us = self._seen.get(node, {}), self._truth.world.now_us
        self._seen[node] = {worker: seen.get(worker, now_us) for worker in core.site.workers}

    def _is_known(self, node: NodeId, core: MasterCore) -> bool:
        """Tell whether the news belongs to this core: one that was built in this very turn is not known yet."""
        return self._began.get(node, (None, 0))[0] is core and not self._truth.may_differ

    def on_accepted(self, master: SimMaster) -> None:
        """Check an accepted write: enough workers are well, as far as the master can know."""
        node = master.node
        needed = self._needed(master)
        if not needed or not self._is_known(node, master.runner.core):
            return
        dead_us = master.config.feed.dead_after_ms * 1000
        now_us, heard = self._truth.world.now_us, self._heard.get(node, {})
        began_us = self._began[node][1]
        self._see(node, master.runner.core)
        good = [
            worker
            for worker, seen_us in self._seen[node].items()
            if (
                _is_well(heard[worker].progress) and now_us - heard[worker].at_us <= dead_us + TOLERANCE_US
                if worker in heard and heard[worker].at_us >= seen_us
                else now_us - max(began_us, seen_us) <= dead_us + TOLERANCE_US
            )
        ]
        check(len(good) >= needed, "F13", "enough workers are in sync to write", node=node, good=good, needed=needed)

    def on_refused(self, master: SimMaster, reply: Reply) -> None:
        """Check a refusal: too few workers are well."""
        is_about_workers = "workers in sync, writes need" in reply.reason
        if not is_about_workers or not self._is_known(master.node, master.runner.core):
            return
        node, site = master.node, master.runner.core.site
        young_us = master.config.feed.dead_after_ms * 1000 - TOLERANCE_US
        now_us, heard = self._truth.world.now_us, self._heard.get(node, {})
        good = [
            name
            for name, worker in site.workers.items()
            if name in heard
            and now_us - heard[name].at_us < young_us
            and worker.is_on
            and heard[name].life == self._life(name) != 0
        ]
        needed = self._needed(master)
        check(len(good) < needed, "F13", "writes are refused for a reason", node=node, good=good, needed=needed)

    def _needed(self, master: SimMaster) -> int:
        count, least = len(master.runner.core.site.workers), master.config.feed.min_in_sync
        return min(least if least >= 0 else 2, count)


def _is_well(progress: Progress) -> bool:
    return progress.follows != "load" and not progress.trouble
