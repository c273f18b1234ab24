"""Checks of what masters make of their workers: the read-only rule, and that a condemned copy does not come back (F13, F8).

A master accepts a write only while enough of its workers are heard and well by their own words, and refuses one for the lack
of them only when it has too few. What it heard is noted here from the messages that it took in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from brokerha.master.core import MasterCore
from brokerha.model.ids import NodeId
from brokerha.model.requests import Reply
from brokerha.model.wire.epoch_messages import Leave
from brokerha.model.wire.messages import Coin, Envelope, Executed, Progress
from brokerha.simulator.checks.truth import Truth, check
from brokerha.simulator.nodes import SimMaster

TOLERANCE_US = 2_000
"""Nodes count whole milliseconds."""


@dataclass(slots=True)
class _Heard:
    """What a master last took in from a worker."""

    at_us: int
    progress: Progress
    life: int
    """Of the worker then: what has ended since may be known to have ended."""
    earlier: frozenset[str] = frozenset()
    """Names of the copies that the worker had before."""


class ReadinessChecks:
    """What each master heard, in its present life."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._began: dict[NodeId, tuple[object, int]] = {}
        """Each master's core, and when it was first seen."""
        self._seen: dict[NodeId, dict[NodeId, int]] = {}
        """When each worker was first seen among those of its master."""
        self._heard: dict[NodeId, dict[NodeId, _Heard]] = {}
        self._troubled: dict[NodeId, dict[tuple[NodeId, str], object]] = {}
        """By master: workers with the names of copies that they called bad, and what the master held of them."""

    def on_taken(self, node: NodeId, core: MasterCore, envelopes: Iterable[Envelope]) -> None:
        """A master takes these messages in."""
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
                # Whoever was started again since has not been heard yet.
                heard[sender].life = 0

    def _life(self, worker: NodeId) -> int:
        """Which of its processes runs; 0 while none does."""
        process = self._truth.world.processes[worker]
        return process.life if process.is_up else 0

    def _is_past(self, node: NodeId, before: _Heard, progress: Progress) -> bool:
        """Whether a message came late: it tells of an earlier copy, or of less, and the worker is heard otherwise."""
        world = self._truth.world
        is_alive = world.now_us - before.at_us < world.master(node).config.feed.dead_after_ms * 1000
        is_less = progress.journal == before.progress.journal and progress.applied_lsn < before.progress.applied_lsn
        return is_alive and (is_less or progress.journal in before.earlier)

    def on_coin(self, sender: NodeId, to: NodeId, coin: Coin) -> None:
        """A master tells a worker to follow it."""
        heard = self._heard.get(sender, {}).get(to)
        core = self._truth.world.master(sender).runner.core
        if heard is None or coin.forgiven_lsn or not self._is_known(sender, core):
            return
        # Who was removed and added again is met as if for the first time.
        known = core.site.workers.get(to)
        # What came late counts at a master as the present if it knows that the worker has ended; nobody tells that here.
        names = {heard.progress.journal, known.journal} if known is not None else ()
        is_bad = known is not None and all(self._troubled[sender].get((to, name)) is known for name in names)
        check(not is_bad, "F8", "a condemned copy does not come back", to=to, name=heard.progress.journal)

    def _see(self, node: NodeId, core: MasterCore) -> None:
        """Who was added lately has as much time to be heard as everybody has after a start."""
        seen, now_us = self._seen.get(node, {}), self._truth.world.now_us
        self._seen[node] = {worker: seen.get(worker, now_us) for worker in core.site.workers}

    def _is_known(self, node: NodeId, core: MasterCore) -> bool:
        """Whether what was heard is what this core took in: one that was built in this very turn is not known yet."""
        return self._began.get(node, (None, 0))[0] is core and not self._truth.may_differ

    def on_accepted(self, master: SimMaster) -> None:
        """A master takes a write in: enough of its workers are well, as far as it can know."""
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
        """A master takes no writes: too few of its workers are well."""
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
