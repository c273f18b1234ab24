r"""The site: its workers, their standing, and the orders that follow (replication, section 5).

    Progress -> judge -> standing: uninitialised, on, off, out-of-sync, replication-client, unknown
                     \-> order: Coin (follow me), LoadFrom (take a snapshot of one of these), Idle (stop),
                               Restore (replace your copy by your kept one), Keep (splits.py)

A worker is **on** when it follows the log, has the log's content at its LSN, and lags less than the window. Only such workers are
read, execute, and are sources of snapshots; with fewer than `min_in_sync` of them the master is read-only. A worker that differs,
or is in trouble, is condemned: its copy is replaced, whatever the reason.

Orders are repeated until the worker's messages show that it follows them. Invariants: a condemned copy never comes back (a new copy
has a new name); the log is the judge unless a majority of live copies contradicts it; with unknown copies and no good one an
operator must choose (`trust`); after the log went back a worker is in sync only when it says that it follows the present lineage
(lineages.py).
"""

from __future__ import annotations

from brokerha.following.leader import NEVER
from brokerha.model import states
from brokerha.model.fingerprints import from_text
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.log_lineages import Rewinds
from brokerha.model.records import History
from brokerha.model.wire.messages import Idle, LoadFrom, Message, Outgoing, Progress
from brokerha.replication.site.adopting import adopts
from brokerha.replication.site.config import FeedConfig, Filling, Named, Standing, Trust, WorkerFeed
from brokerha.replication.site.healing import behind, should_copy, sources_for
from brokerha.replication.site.judging import Ruling, Verdict, Votes, cut_off, verdict
from brokerha.replication.site.splits import NO_CONTENT, Splits


def foreign_sources(site: Site, mono_ms: int) -> tuple[NodeId, ...]:
    """Return workers of other sites as sources: on command, or when no copy of this site is good and none will be heard soon."""
    if site.repair_sources:
        return site.repair_sources
    if site.disagreement or site.is_settling(mono_ms):
        return ()
    alive = [each for each in site.workers.values() if each.is_switched_on and site.is_alive(each, mono_ms)]
    is_hopeful = any(not each.condemned or site.splits.may_restore(each) for each in alive)
    return () if is_hopeful else site.config.others


class Site:
    """All workers of one master."""

    def __init__(self, config: FeedConfig, history: History, workers: Named, view: int = 1, rewinds: Rewinds = ()) -> None:
        """Take the ``rewinds`` from before this master started."""
        self.config = config
        self.history = history
        self.view = view
        self.lsn: Lsn = 0
        """Length of the synchronised queue, as far as it can be told."""
        self.reach: Lsn = 0
        """How far the queue can come by itself: after a crash a copy may be ahead of it until then."""
        self.executed: Lsn = 0
        self.workers = {node: WorkerFeed(node, is_readable, is_on) for node, is_readable, is_on in workers}
        self.began_ms: int | None = None
        self.disagreement = ""
        """Which copies disagree without a majority; empty when none do."""
        self.overruled: Votes | None = None
        """A line of the log that a majority of the copies contradicts."""
        self.adopted: tuple[Lsn, bytes, int, str] | None = None
        """(LSN, fingerprint, items, reason) of a copy from which the site's log has to begin anew."""
        self.took_elsewhere = False  # Whether the content has become that of another site since the last look.
        self.has_own_content = False
        """Whether other sites may have other content at the same LSN (strategy none)."""
        self.filling: Filling | None = None
        """Results that are fetched from other nodes, because a good copy is ahead of them."""
        self.repair_sources: tuple[NodeId, ...] = ()
        """Workers of another site whose content this site has to take."""
        self.splits = Splits(config, history, rewinds)
        self.lineages = self.splits.lineages
        self._votes: Votes | None = None
        self._orders: list[Outgoing] = []

    # ---- inputs

    def on_progress(self, worker: WorkerFeed, progress: Progress, mono_ms: int) -> None:
        """Take in the heartbeat of a worker."""
        if self._is_past(worker, progress, mono_ms):
            return
        if worker.journal != progress.journal or progress.applied_lsn < worker.applied:
            worker.take_copy(progress)
        if worker.cut_off_lsn is not None and progress.applied_lsn > worker.cut_off_lsn:
            # It had applied what the log has forgotten, and its message was late.
            worker.condemn("")
        if worker.progress is None or worker.progress.follows != progress.follows:
            if worker.order != "LoadFrom" or progress.follows != "idle":
                # A load that failed is ordered again after a while, not at once: the same source would refuse it again.
                worker.order = ""
            worker.load_begun_ms = mono_ms
            if progress.follows == "idle":
                # A new process, or one that was told to stop: messages under way to it are lost.
                worker.rewind(worker.applied)
        if not progress.differs_lsn:
            worker.forgiven_lsn = 0
            self._take_back_vote(worker.node)
        if progress.follows in ("basic", "request") and not worker.condemned:
            worker.load_from_lsn = None
        worker.progress = progress
        worker.heard_ms = mono_ms
        worker.rate(progress.applied_lsn, mono_ms)
        self.judge(worker, mono_ms)

    def _is_past(self, worker: WorkerFeed, progress: Progress, mono_ms: int) -> bool:
        """Tell whether a delayed message is of an earlier copy, or of a lower LSN than it has confirmed since.

        From a worker that sends nothing else any more, it is the present state, whatever the cause.
        """
        is_earlier = progress.journal in worker.past_journals
        is_less = (progress.lineage, progress.applied_lsn) < (worker.said.lineage, worker.applied)
        return (is_earlier or (progress.journal == worker.journal and is_less)) and self.is_alive(worker, mono_ms)

    def judge(self, worker: WorkerFeed, mono_ms: int) -> None:
        """Decide the standing of a worker, and its order."""
        progress = worker.progress
        if progress is None:
            return
        if any(order.to == worker.node for order in self._orders):
            # Drop orders from an earlier message of the same turn.
            self._orders = [order for order in self._orders if order.to != worker.node]
            worker.order = ""
        if not worker.is_switched_on:
            self.stand(worker, Standing.OFF, "switched off")
            if progress.follows != "idle":
                self._order(worker, Idle(self.view, "switched off by its master"), mono_ms)
        elif progress.differs_lsn and progress.differs_lsn == worker.forgiven_lsn:
            self.stand(worker, Standing.OUT_OF_SYNC, f"comes back: the log was wrong at LSN {worker.forgiven_lsn}")
            self._order(worker, self.splits.coin(worker, self.view, ()), mono_ms)
        elif progress.follows == "load":
            # Remember it here, because a worker that dies forgets what was found out about its copy.
            if progress.trouble:
                worker.condemn(progress.trouble)
            self.stand(worker, Standing.LOADING, progress.reason)
            self._vote(worker, progress, mono_ms)
            is_idle = not progress.total_bytes and self.overruled is None
            if self.has_own_content and worker.load_from_lsn is None:
                # This master has ordered no such load: if it goes on, it may bring the content of another site.
                reason = progress.trouble or "it loads from a source that this master does not know"
                self._order(worker, Idle(self.view, reason), mono_ms)
            elif is_idle and not self._is_undecided(worker, progress, mono_ms):
                self._heal(worker, progress.trouble or worker.reason, mono_ms)
        elif progress.trouble:
            worker.condemn(progress.trouble)
            self.stand(worker, Standing.OUT_OF_SYNC, progress.trouble)
            self._heal(worker, progress.trouble, mono_ms)
        else:
            self._compare(worker, progress, mono_ms)

    def _compare(self, worker: WorkerFeed, progress: Progress, mono_ms: int) -> None:
        """Compare a copy without reported trouble with the log."""
        if self.splits.may_move(worker) and not worker.condemned:
            self.stand(
                worker, Standing.OUT_OF_SYNC, f"goes on from LSN {self.lineages.agreed(worker.said.lineage)}, with what it has"
            )
            self._order(worker, self.splits.coin(worker, self.view, ()), mono_ms)
            return
        found, reason = verdict(self.history, self.lsn, self.executed, progress.applied_lsn, progress.fingerprint)
        if worker.trust is not Trust.NONE and adopts(self, worker, progress, found):
            return
        if found is Verdict.BEYOND and progress.applied_lsn <= self.reach and not worker.condemned:
            worker.waits_lsn = progress.applied_lsn
            self.stand(worker, Standing.OUT_OF_SYNC, f"waits until the log has LSN {progress.applied_lsn} again")
            return
        if self.adopted is None and (first := cut_off(self.history, self.executed)):
            at = f"it is at LSN {progress.applied_lsn}, "
            is_before = progress.applied_lsn + 1 < first
            reason = at + (f"the log begins after {first - 1}" if is_before else "and there are no results here to compare it with")
            found = Verdict.NOT_IN_LOG
        void = self.splits.void(worker) if worker.trust is Trust.NONE else ""
        reason = void or reason
        is_good = found in (Verdict.FOUND, Verdict.AHEAD) and not worker.condemned and not void
        if found is Verdict.FOUND and not void:
            worker.agreed_lsn = max(worker.agreed_lsn, progress.applied_lsn)
        if not is_good:
            if not worker.condemned:
                is_cut_off = found is Verdict.NOT_IN_LOG and not void
                worker.condemn(reason, progress.applied_lsn if is_cut_off else None)
            self.stand(worker, Standing.OUT_OF_SYNC, worker.condemned)
            self._heal(worker, worker.condemned, mono_ms)
            return
        lag = behind(self.executed, progress.applied_lsn)
        is_elsewhere = progress.lineage != self.lineages.number
        if progress.follows == "idle" or progress.view != self.view or is_elsewhere:
            sources = sources_for(worker.node, self.workers.values())
            if sources and should_copy(self.config, lag, worker.replay_per_s, self.workers[sources[0]].said.items):
                self.stand(worker, Standing.OUT_OF_SYNC, f"{lag} transactions behind: takes a snapshot")
                self._order_load(worker, sources, worker.reason, mono_ms)
                return
            self._order(worker, self.splits.coin(worker, self.view, sources), mono_ms)
        if is_elsewhere and not worker.is_on:
            self.stand(worker, Standing.OUT_OF_SYNC, f"is to follow lineage {self.lineages.number} of the log")
        elif progress.state == states.HALTED:
            # It cannot write: another worker executes meanwhile, and it is in sync again when it can.
            self.stand(worker, Standing.OUT_OF_SYNC, progress.reason)
        else:
            self._stand_by_lag(worker, lag)

    def fill(self, worker: WorkerFeed, last: Lsn) -> None:
        """Fetch the results up to an LSN from workers that have them: other workers of this site, then those of other sites."""
        if self.filling is None or self.filling.last < last:
            own = tuple(each.node for each in self.workers.values() if each is not worker)
            self.filling = Filling((*self.repair_sources, *own, *self.config.others, worker.node), last)

    def lacks_results_of(self, worker: WorkerFeed) -> bool:
        """Tell whether this copy is ahead of results that all asked workers lack, too."""
        return self.filling is not None and self.filling.is_in_vain and worker.applied > self.executed

    def forget(self, node: NodeId) -> None:
        """Forget a removed worker, and its vote."""
        del self.workers[node]
        self._take_back_vote(node)

    def dismiss(self, node: NodeId, progress: Progress) -> None:
        """Tell a node that follows without being a worker here to stop: it gets no more lines, and its reads would grow old."""
        if progress.follows != "idle":
            self._orders.append(Outgoing(node, Idle(self.view, "it is no worker of this master")))

    def adopt(self, worker: WorkerFeed, reason: str) -> None:
        """Begin the results of this site anew from the copy of this worker."""
        progress = worker.progress
        if progress is not None:
            worker.condemn("")
            worker.forgiven_lsn = progress.differs_lsn
            worker.vouched_lsn = progress.applied_lsn
            self.repair_sources, self.disagreement, self._votes = (), "", None
            for other in self.workers.values():
                if other is not worker and other.trust is Trust.CHOSEN:
                    # Results begin anew from one copy; the others are compared with it.
                    other.trust = Trust.LOADED
            self.adopted = (progress.applied_lsn, from_text(progress.fingerprint), progress.items, reason)

    def _stand_by_lag(self, worker: WorkerFeed, lag: int) -> None:
        limit = 3 * self.config.window if worker.is_on else self.config.window
        if lag <= limit:
            self.stand(worker, Standing.ON, "")
        else:
            self.stand(worker, Standing.OUT_OF_SYNC, f"replays the log: {lag} transactions to go")

    def stand(self, worker: WorkerFeed, standing: Standing, reason: str) -> None:
        """Set the standing of a worker, and the reason."""
        worker.standing, worker.reason = standing, reason

    def _heal(self, worker: WorkerFeed, reason: str, mono_ms: int) -> None:
        """Have a copy replaced; without any good copy the worker stops serving."""
        if self.splits.may_restore(worker):
            self._order(worker, self.splits.restore(worker, self.view, reason), mono_ms)
            return
        sources = sources_for(worker.node, self.workers.values()) or foreign_sources(self, mono_ms)
        if sources:
            is_elsewhere = sources[0] not in self.workers
            # A load under way goes on whatever sources are named later, so the mark stays until it is judged if contents differ.
            worker.is_from_elsewhere = is_elsewhere or (self.has_own_content and worker.is_from_elsewhere)
            if is_elsewhere:
                worker.trust = Trust.CHOSEN if self.repair_sources else Trust.LOADED
            self._order_load(worker, sources, reason, mono_ms)
        elif worker.is_following:
            self._order(worker, Idle(self.view, reason), mono_ms)

    def _order_load(self, worker: WorkerFeed, sources: tuple[NodeId, ...], reason: str, mono_ms: int) -> None:
        """Order a load; the log from the sources' present LSN on is kept until the worker follows again.

        Otherwise a log that is short against the time of a load would end above each snapshot, and the worker would load for ever.
        """
        if worker.load_from_lsn is None:
            own = [self.workers[source].applied for source in sources if source in self.workers]
            worker.load_from_lsn = min(own, default=self.executed)
        self._order(worker, LoadFrom(self.view, sources, reason, self._least_lsn(worker)), mono_ms)

    def _least_lsn(self, worker: WorkerFeed) -> Lsn:
        """Return the first LSN from which a copy can follow the log; a chosen copy need not be found in the results."""
        first, results = self.history.first_lsn(), self.history.results_from()
        return (first if worker.trust is Trust.CHOSEN else max(first, results)) - 1

    # ---- splits

    def rewind(self, lsn: Lsn, lineage: int, mono_ms: int, content: str = "") -> None:
        """Let the log go another way after ``lsn``: results and places after it are void, and so are copies beyond it.

        Copies with the fingerprint ``content`` are not void: they have what the log has there from now on.

        ``lineage`` is the same number at all masters, and the highest so far; where nothing is lost ``lsn`` is the end of the log.
        """
        if lineage <= self.lineages.number:
            return
        is_shorter = lsn < self.lsn
        self.lineages.rewind(lsn, lineage)
        self.splits.content = (lsn, content) if content else NO_CONTENT
        self.lsn = self.reach = min(self.lsn, lsn)
        self.executed = min(self.executed, lsn)
        if is_shorter:
            self._votes, self.overruled, self.filling, self.disagreement = None, None, None, ""
            self.adopted = self.adopted if self.adopted is not None and self.adopted[0] <= lsn else None
        for worker in self.workers.values():
            worker.go_back(lsn)
            if is_shorter and worker.is_on:
                self.stand(worker, Standing.OUT_OF_SYNC, f"the log went back to LSN {lsn}")
        for worker in self.workers.values():
            self.judge(worker, mono_ms)

    def kept(self) -> dict[NodeId, Lsn]:
        """Return the workers with a kept copy that could be restored, by their own messages, and its LSN."""
        return self.splits.kept(list(self.workers.values()))

    # ---- disagreement

    def _take_back_vote(self, node: NodeId) -> None:
        """Remove the vote of a worker that follows again, or has another copy."""
        if self._votes is not None and node in self._votes.voters:
            self._votes, self.disagreement = None, ""

    def _vote(self, worker: WorkerFeed, progress: Progress, mono_ms: int) -> None:
        """Count the vote of a copy whose content differs from a line of the log, and rule if all have voted."""
        if not progress.differs_lsn:
            return
        if self._votes is None or self._votes.lsn != progress.differs_lsn:
            self._votes = Votes(progress.differs_lsn)
        self._votes.add(worker.node, progress.differs_fingerprint)
        if self._is_undecided(worker, progress, mono_ms):
            return
        loyal = sum(1 for each in self.in_sync(mono_ms) if each.applied >= progress.differs_lsn)
        ruling, wrong = self._votes.ruling(loyal)
        self.disagreement = ""
        if ruling is Ruling.OTHERS:
            self.overruled = self._votes
        elif ruling is Ruling.NOBODY:
            named = ", ".join(sorted(self._votes.voters))
            self.disagreement = f"{named} disagree about LSN {self._votes.lsn} and no majority can be named"
        for node in wrong:
            self.workers[node].condemn(f"differs from the majority at LSN {self._votes.lsn}")

    def _is_undecided(self, worker: WorkerFeed, progress: Progress, mono_ms: int) -> bool:
        """Tell whether live copies have still to reach the line at which this one differs: healing waits for their vote.

        The wait is limited to that for a silent worker: a live one that never gets there must not keep another from being healed.
        """
        if mono_ms - worker.load_begun_ms >= self.config.dead_after_ms:
            return False
        return any(
            each.is_on and self.is_alive(each, mono_ms) and each.applied < progress.differs_lsn for each in self.workers.values()
        )

    def settle_overruled(self) -> Votes | None:
        """Return the line of the log that the copies overruled, once: the log goes back before it and is executed again."""
        votes, self.overruled = self.overruled, None
        if votes is None:
            return None
        self._votes = None
        right = max(votes.others.values(), key=len)
        for worker in self.workers.values():
            if worker.node in right:
                worker.condemn("")
                worker.forgiven_lsn, worker.order = votes.lsn, ""
                self._orders.append(Outgoing(worker.node, self.splits.coin(worker, self.view, ())))
            elif worker.applied >= votes.lsn:
                worker.condemn(f"differs from the majority at LSN {votes.lsn}")
                self.stand(worker, Standing.OUT_OF_SYNC, worker.condemned)
        return votes

    # ---- orders

    def _order(self, worker: WorkerFeed, message: Message, mono_ms: int) -> None:
        """Give an order; repeat it only after a while."""
        kind = type(message).__name__
        if worker.order == kind and mono_ms - worker.ordered_ms < self.config.order_ms:
            return
        worker.order, worker.ordered_ms = kind, mono_ms
        self._orders.append(Outgoing(worker.node, message))

    def take_orders(self, mono_ms: int) -> list[Outgoing]:
        """Return orders to send now, and mark silent workers as unknown."""
        if self.began_ms is None:
            self.began_ms = mono_ms
        alive = []
        for worker in self.workers.values():
            if worker.waits_lsn and worker.waits_lsn <= self.lsn:
                worker.waits_lsn = 0
                self.judge(worker, mono_ms)
            if self.is_alive(worker, mono_ms):
                alive.append(worker)
            elif worker.heard_ms != NEVER:
                self.stand(worker, Standing.UNKNOWN, "not heard")
        orders, self._orders = self._orders, []
        return orders + self.splits.orders(alive, self.view, mono_ms)

    # ---- questions

    def is_alive(self, worker: WorkerFeed, mono_ms: int) -> bool:
        """Tell whether the worker was heard recently."""
        return mono_ms - worker.heard_ms < self.config.dead_after_ms

    def is_settling(self, mono_ms: int) -> bool:
        """Tell whether the master has just started, so that silence does not mean anything yet."""
        return self.began_ms is None or mono_ms - self.began_ms < self.config.dead_after_ms

    def in_sync(self, mono_ms: int) -> list[WorkerFeed]:
        """Return workers that are on and alive."""
        return [worker for worker in self.workers.values() if worker.is_on and self.is_alive(worker, mono_ms)]

    def readable(self, mono_ms: int) -> list[NodeId]:
        """Return workers that can be read."""
        return [w.node for w in self.in_sync(mono_ms) if w.is_readable and w.is_following and not w.is_away]

    @property
    def needed(self) -> int:
        """Return how many workers must be in sync for writes."""
        if self.config.min_in_sync >= 0:
            return min(self.config.min_in_sync, len(self.workers))
        return min(2, len(self.workers))

    def read_only_reason(self, mono_ms: int) -> str:
        """Return why writes are refused; empty when they are taken."""
        if self.disagreement:
            return self.disagreement
        in_sync = {worker.node for worker in self.in_sync(mono_ms)}
        good = len(in_sync)
        if self.is_settling(mono_ms):
            # Workers that were not heard since this master started get time to report.
            good += sum(1 for worker in self.workers.values() if worker.heard_ms == NEVER and worker.is_switched_on)
        if good >= self.needed:
            return ""
        away = ", ".join(_away(worker) for worker in self.workers.values() if worker.node not in in_sync)
        return f"{good} of {len(self.workers)} workers in sync, writes need {self.needed}: {away}"

    def attention(self, mono_ms: int) -> str:
        """Return what needs a person: copies of which none is known to be good; empty when nothing does."""
        if self.disagreement or self.repair_sources or not self.workers or self.is_settling(mono_ms):
            return self.disagreement
        alive = [worker for worker in self.workers.values() if worker.is_switched_on and self.is_alive(worker, mono_ms)]
        if ahead := [worker.node for worker in alive if self.lacks_results_of(worker)]:
            return f"nobody has the results after LSN {self.executed} any more, which lead to the copy of {', '.join(ahead)}"
        if not alive or any(not worker.condemned or self.splits.may_restore(worker) for worker in alive):
            return ""
        if any(worker.progress is not None and worker.progress.total_bytes for worker in alive):
            return ""
        return "no copy is known to be good: " + "; ".join(
            f"{worker.node} at LSN {worker.applied} with {worker.fingerprint} ({worker.condemned})" for worker in alive
        )


def _away(worker: WorkerFeed) -> str:
    if worker.is_on:
        # It was silent for too long, and is about to be judged.
        return f"{worker.node} is unknown (not heard)"
    return f"{worker.node} is {worker.standing.value}" + (f" ({worker.reason})" if worker.reason else "")
