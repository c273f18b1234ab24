"""The feed: which worker executes, which ones apply, confirmations, resends (architecture, section 3, steps 5 and 6).

In each site one worker, the **probe**, executes transactions and reports results; the others apply lines of the log. All get them
in LSN order, a window at a time, and confirm the LSN up to which their store is durable.

    synchronised   1 2 3 4 5 6 7 8 9            lsn        added by sync
    results        1 2 3 4 5 6                  executed   known here; in the journal soon
    probe          . . . . . . > > >            gets Execute for 7..9
    other worker   . . . > > >                  gets Apply for 4..6

A lagging worker is sent again the items after its confirmed LSN, and exactly the ranges that it requests; no state about a worker
must survive a restart. Workers in sync take turns as probe (`probe_turn` transactions each), unless one is dedicated. The next one
replaces a probe that died: it executes the same LSNs and gets the same results, because execution depends only on state, id and
timestamp.

Invariants: results are taken in without a gap; a worker is never sent an effect beyond `executed`, nor a transaction that is not
durable in the synchronised queue (R7); the confirmed LSN of a worker never moves backwards within its journal.
"""

from __future__ import annotations

from functools import partial
from itertools import chain

from brokerha.following.leader import NEVER, Followed
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.operations import NO_OPERATIONS
from brokerha.model.records import History, Outcomes
from brokerha.model.wire.messages import Apply, Execute, Executed, Outgoing, Progress, RangeMissing, Request
from brokerha.replication.site.config import FeedConfig, WorkerFeed
from brokerha.replication.site.site import Site

FOR_EVER = 2**62
BODIES_READ = 64
"""Number of bodies read from the journal at once."""


class Feed:
    """Sends missing items to all workers of one master."""

    def __init__(self, config: FeedConfig, history: History, site: Site, lsn: Lsn, executed: Lsn) -> None:
        self.config = config
        self._window, self._gone_ms = config.under_way, config.gone_ms
        self.history = history
        self.site = site
        self.lsn = lsn
        """Length of the durable synchronised queue."""
        self.executed = executed
        self.executed_before: set[TxId] = set()
        """Transactions in the content without a result: they are executed without their operations (lineages.py)."""
        self.awaited_lsn: Lsn = 0
        """Highest LSN for which a client's write, a reader or an operator waits."""
        self.lingers_after: Lsn | None = None
        """The probe gets entries after this LSN a little later; None when none lingers."""
        self._linger_due_ms: int | None = None
        """Latest time to send lingering entries; None when none lingers."""
        self._probe: NodeId | None = None
        self._turn_ends: Lsn = 0
        self.workers: dict[NodeId, WorkerFeed] = site.workers
        """All workers, by name, in the order of the configuration."""
        self.holds_after: Lsn | None = None
        """LSN at which workers that are not beyond it wait for now; None when none is held."""
        self._to_greet = list(site.workers)
        self._greeted_ms: dict[NodeId, int] = {}
        """When each worker was last asked for its position."""
        self._look_ms = FOR_EVER
        """When the broker may have to be asked about a worker; later news can only postpone it."""

    # ---- inputs

    def on_executed(self, sender: NodeId, report: Executed, mono_ms: int) -> Outcomes | None:
        """Take in results; return the record of new ones, or None."""
        worker = self.workers.get(sender)
        if worker is None or worker.condemned:
            return None
        if report.journal != worker.journal or report.lineage != self.site.lineages.number:
            # From an earlier copy of this worker, or one that is not judged yet; or of a log that is void.
            return None
        self._confirm(worker, report.applied_lsn, mono_ms)
        worker.executed_lsn, worker.executed_fingerprint = report.applied_lsn, report.fingerprint
        worker.executed_items = report.items
        skip = self.executed + 1 - report.first_lsn
        if skip < 0:
            # Ask once, not for each later report: a worker that resends out of order would be asked ever more often.
            if worker.results_asked(self.executed + 1, mono_ms, self.config.retransmit_ms):
                worker.want(self.executed + 1, report.first_lsn - 1)
            return None
        fresh = report.results[skip:]
        if not fresh:
            return None
        first = self.executed + 1
        if first + len(fresh) - 1 > self.lsn:
            return None
        if self.executed_before:
            self._have_results(len(fresh))
        self.executed += len(fresh)
        if self.site.filling is not None:
            self.site.filling.lacking.clear()
        worker.moved_ms, worker.stalls = mono_ms, 0
        # A report in parts, or a repeated one, counts the items of a later LSN than its last result.
        items = report.items if report.applied_lsn == self.executed else 0
        return Outcomes(first, fresh, items)

    def _have_results(self, number: int) -> None:
        """Note that of what was executed before a split the next ``number`` have results: once ids are forgotten, others come under them."""
        self.executed_before.difference_update(txid for _, txid, _ in self.history.ordered(self.executed + 1, number))

    def on_progress(self, sender: NodeId, progress: Progress, mono_ms: int) -> None:
        """Take in a worker's heartbeat."""
        worker = self.workers.get(sender)
        if worker is None:
            self.site.dismiss(sender, progress)
            return
        self.site.on_progress(worker, progress, mono_ms)
        if worker.progress is progress:
            self._confirm(worker, progress.applied_lsn, mono_ms)

    def on_gone(self, node: NodeId, mono_ms: int) -> None:
        """Note that the process of a worker has ended: nothing waits for it until it is heard again."""
        worker = self.workers[node]
        worker.heard_ms = min(worker.heard_ms, mono_ms - self.config.dead_after_ms)

    def on_absence(self, node: NodeId, mono_ms: int) -> None:
        """Note that no process reads the inbox of a worker, as the broker says; one that was heard meanwhile is there."""
        if mono_ms - self.workers[node].heard_ms >= self.config.gone_ms:
            self.on_gone(node, mono_ms)

    def expect(self, lsn: Lsn) -> None:
        """End lingering up to this LSN: a client waits for a worker to apply it."""
        self.awaited_lsn = max(self.awaited_lsn, lsn)

    def on_request(self, sender: NodeId, request: Request) -> None:
        """Note that a worker requests exactly this range."""
        worker = self.workers.get(sender)
        if worker is not None:
            worker.want(request.first_lsn, request.last_lsn)

    def on_lines(self, sender: NodeId, lines: Apply, mono_ms: int) -> Outcomes | None:
        """Take in lines of another node's log that were requested because a good copy here is ahead of the results."""
        filling = self.site.filling
        if filling is None or sender != filling.source:
            return None
        skip = self.executed + 1 - lines.first_lsn
        fresh = lines.items[skip:] if skip >= 0 else ()
        ordered = self.history.ordered(self.executed + 1, min(len(fresh), self.lsn - self.executed))
        if not fresh or [(row[1], row[0]) for row in fresh[: len(ordered)]] != [row[:2] for row in ordered] or not ordered:
            return None
        first = self.executed + 1
        if self.executed_before:
            self._have_results(len(ordered))
        self.executed += len(ordered)
        filling.lacking.clear()
        filling.asked_ms = mono_ms if self.executed >= filling.last else NEVER
        return Outcomes(first, tuple(row[2:] for row in fresh[: len(ordered)]), 0)

    def on_lines_missing(self, sender: NodeId, missing: RangeMissing) -> None:
        """Ask the next node: this one does not have the requested lines."""
        filling, worker = self.site.filling, self.workers.get(sender)
        if filling is not None:
            if missing.first_lsn == self.executed + 1:
                filling.lacking.add(sender)
            # After the last one there is a pause, so that sources without them are not asked round and round.
            if sender == filling.source and (filling.place + 1) % len(filling.sources):
                filling.place, filling.asked_ms = filling.place + 1, NEVER
        elif worker is not None and worker.applied > self.executed:
            # A copy that is ahead of the results here and cannot report them.
            self.site.fill(worker, worker.applied)

    def _fill(self, mono_ms: int) -> list[Outgoing]:
        """Request results that a good copy here is ahead of; the next source follows a silent one."""
        filling = self.site.filling
        if filling is None:
            return []
        if self.executed >= filling.last:
            self.site.filling = None
            return []
        # Where the log here ends no result has a place: a master that was taken out would ask for ever.
        if self.executed >= self.lsn or mono_ms - filling.asked_ms < self.config.order_ms:
            return []
        if filling.asked_ms != NEVER:
            filling.place += 1
        filling.asked_ms = mono_ms
        return [Outgoing(filling.source, Request(self.executed + 1, filling.last))]

    def _confirm(self, worker: WorkerFeed, applied: Lsn, mono_ms: int) -> None:
        worker.heard_ms = mono_ms
        if self._look_ms == FOR_EVER:
            self._look_ms = mono_ms + self.config.silent_ms
        worker.confirm(applied, mono_ms)

    def rebase(self, lsn: Lsn) -> None:
        """Begin the log's results anew after ``lsn``."""
        self.executed = lsn
        self._probe = None
        for worker in self.workers.values():
            worker.rewind(worker.applied)

    def rewind(self, lsn: Lsn, lineage: int, mono_ms: int, content: str = "") -> None:
        """Let the log go another way after ``lsn``, with `Site.rewind`."""
        if lineage <= self.site.lineages.number:
            return
        self.lsn, self.executed = min(self.lsn, lsn), min(self.executed, lsn)
        self._probe = None
        self.site.rewind(lsn, lineage, mono_ms, content)
        for worker in self.workers.values():
            worker.rewind(min(worker.applied, lsn))

    def on_changed_workers(self) -> None:
        """Note that workers were added or removed."""
        if self._probe not in self.workers:
            self._probe = None

    # ---- output

    def messages(self, mono_ms: int) -> list[Outgoing]:
        """Return the messages for all live workers that are due."""
        orders = self.site.take_orders(mono_ms)
        self._choose_probe(mono_ms)
        # An empty Apply asks a worker for its position, so that a master that has just started need not wait for heartbeats. A
        # silent worker is asked again, because it may not know which process of this master acts now.
        outgoing = orders
        alive = [each for each in self.workers.values() if mono_ms - each.heard_ms < self.config.dead_after_ms]
        if self._to_greet or len(alive) < len(self.workers):
            silent = [node for node in self.workers if mono_ms >= self._greet_again_ms(node, mono_ms)]
            greeted = [*self._to_greet, *silent]
            outgoing = [*(Outgoing(node, Apply(self.executed + 1, (), self.site.view)) for node in greeted), *orders]
            self._greeted_ms.update((node, mono_ms) for node in greeted)
            self._to_greet = []
        if self.site.filling is not None:
            outgoing += self._fill(mono_ms)
        # `_lingers` sets these anew while entries linger: a lost probe, or a log that went back, leaves no trace.
        linger_due_ms, self._linger_due_ms, self.lingers_after = self._linger_due_ms, None, None
        for worker in alive:
            if worker.is_following and not worker.condemned:
                if worker.wanted:
                    outgoing += self._answers_for(worker)
                outgoing += self._messages_for(worker, mono_ms, linger_due_ms)
        return outgoing

    def _greet_again_ms(self, node: NodeId, mono_ms: int) -> int:
        """Return when to ask a worker again; in the future for one that is heard, or is asked in this turn."""
        if self.is_alive(node, mono_ms) or node not in self._greeted_ms:
            return mono_ms + self.config.dead_after_ms
        return self._greeted_ms[node] + self.config.dead_after_ms

    def greet(self, node: NodeId) -> None:
        """Ask a worker for its position."""
        self._to_greet.append(node)

    def _choose_probe(self, mono_ms: int) -> None:
        """Keep the probe for its turn while it lives; else the next worker in sync takes over."""
        if self._probe is not None and self._may_execute(self._probe, mono_ms) and self._is_its_turn(mono_ms):
            return
        names = list(self.workers)
        start = names.index(self._probe) + 1 if self._probe in self.workers else 0
        ring = names[start:] + names[:start]
        able = [node for node in ring if self._may_execute(node, mono_ms)]
        able.sort(key=self._unfitness)
        before, self._probe = self._probe, able[0] if able else None
        self._turn_ends = self.executed + self.config.probe_turn
        if self._probe is not None and self._probe != before:
            worker = self.workers[self._probe]
            worker.rewind(min(worker.sent, max(worker.applied, self.executed)))
        for node, worker in self.workers.items():
            worker.is_probe = node == self._probe

    def _unfitness(self, node: NodeId) -> tuple[bool, ...]:
        """Return a sort key: a lagging worker executes only as the last resort, one that gives its copy only before that."""
        worker = self.workers[node]
        return not worker.is_on, bool(worker.task), node != self.config.probe, worker.is_giving

    def _may_execute(self, node: NodeId, mono_ms: int) -> bool:
        worker = self.workers.get(node)
        return worker is not None and worker.is_following and not worker.condemned and self.site.is_alive(worker, mono_ms)

    def _is_its_turn(self, mono_ms: int) -> bool:
        """Tell whether the probe continues: a turn ends when it is used up and another worker in sync waits for its own."""
        worker = self.workers[self._probe] if self._probe is not None else None
        if worker is None:
            return False
        if len(self.workers) == 1:
            return True
        others = [each for each in self.site.in_sync(mono_ms) if each is not worker and not each.task]
        if not others:
            return True
        if not worker.is_on or worker.task:
            return False
        if self.config.probe:
            return self._probe == self.config.probe or self.config.probe not in [each.node for each in others]
        return self.executed < self._turn_ends

    def _probe_goal(self, mono_ms: int) -> Lsn:
        """Return where the probe stops: at the end of its turn when another one follows, so that not both execute the same."""
        is_shared = not self.config.probe and len(self.workers) > 1 and len(self.site.in_sync(mono_ms)) > 1
        return min(self.lsn, self._turn_ends) if is_shared else self.lsn

    def _base(self, worker: WorkerFeed) -> Lsn:
        """Return the confirmed LSN; for the probe that of its results, which may be lost although it has applied them."""
        return min(worker.applied, self.executed) if worker.node == self._probe else worker.applied

    def _answers_for(self, worker: WorkerFeed) -> list[Outgoing]:
        """Return exactly the requested ranges, as far as a window allows; the worker requests the rest again."""
        outgoing: list[Outgoing] = []
        kept_from = self.history.results_from()
        for first, last in worker.take_wanted():
            if first <= self.executed and first < kept_from:
                outgoing.append(Outgoing(worker.node, RangeMissing(first, last, kept_from)))
                continue
            answer = Followed(worker.node, applied=first - 1, sent=first - 1)
            outgoing += answer.push(first - 1, last, self._window, partial(self._part, worker), 0)
        return outgoing

    def is_held(self, worker: WorkerFeed) -> bool:
        """Tell whether a worker gets nothing after `holds_after` yet."""
        return self.holds_after is not None and worker.applied <= self.holds_after

    def _messages_for(self, worker: WorkerFeed, mono_ms: int, linger_due_ms: int | None) -> list[Outgoing]:
        base = self._base(worker)
        goal = self._probe_goal(mono_ms) if worker.node == self._probe else self.executed
        if self.holds_after is not None and self.is_held(worker):
            goal = min(goal, self.holds_after)
        if base >= goal:
            worker.moved_ms = mono_ms
            return []
        worker.resend(base, self._window, mono_ms)
        if base + 1 < self.history.results_from() and base < self.executed:
            # The log does not reach back to it any more: its next heartbeat is judged accordingly.
            return []
        if worker.node == self._probe and self._lingers(worker, max(worker.sent, base), mono_ms, linger_due_ms):
            return []
        self._look_ms = min(self._look_ms, mono_ms + self._gone_ms)
        return worker.push(base, goal, self._window, partial(self._part, worker), mono_ms)

    def _lingers(self, probe: WorkerFeed, sent: Lsn, mono_ms: int, due_ms: int | None) -> bool:
        """Tell whether the probe gets the entries after ``sent`` later: they are few, and no client waits for them.

        ``due_ms``: when it gets those that linger already; None when there are none.
        """
        is_new = max(self.executed, probe.applied) <= sent < self.lsn
        if not is_new or self.awaited_lsn > sent:
            return False
        due_ms = mono_ms + self.config.linger_ms if due_ms is None else due_ms
        if self.lsn - sent >= self.config.linger_items or mono_ms >= due_ms:
            # Entries linger only once, even if the window takes only a part of them.
            self.expect(self.lsn)
            return False
        self.lingers_after, self._linger_due_ms = sent, due_ms
        return True

    def _part(self, worker: WorkerFeed, first: Lsn, last: Lsn, limit_bytes: int) -> tuple[Outgoing, Lsn, int] | None:
        """Return lines of the log as far as there are results; beyond, for the probe only, transactions to execute."""
        last = min(last, first + self.config.message_items - 1)
        limit_bytes = min(limit_bytes, self.config.message_bytes)
        found: tuple[Apply | Execute, int] | None = None
        if first <= self.executed and worker.applied < first:
            found = self._apply(first, min(last, self.executed), limit_bytes)
        elif worker.node == self._probe:
            found = self._execute(first, min(last, self.lsn), limit_bytes)
        if found is None:
            return None
        message, size = found
        return Outgoing(worker.node, message), first + len(message.items) - 1, size

    def _apply(self, first: Lsn, last: Lsn, limit_bytes: int) -> tuple[Apply, int] | None:
        items: list[tuple[str, int, str, str, bytes, bytes]] = []
        size = 0
        results = self.history.results(first, last - first + 1)
        for (timestamp, txid, _), result in zip(self.history.ordered(first, len(results)), results, strict=False):
            items.append((txid, timestamp, *result))
            size += len(result.effect)
            if size >= limit_bytes:
                break
        return (Apply(first, tuple(items), self.site.view, self.site.lineages.number), size) if items else None

    def _execute(self, first: Lsn, last: Lsn, limit_bytes: int) -> tuple[Execute, int] | None:
        items = []
        size = 0
        ordered = self.history.ordered(first, last - first + 1)
        names = [(origin, txid) for _, txid, origin in ordered]
        # A few at a time: large ones fill the message soon.
        bodies = chain.from_iterable(self.history.bodies(names[at : at + BODIES_READ]) for at in range(0, len(names), BODIES_READ))
        for (timestamp, txid, _), body in zip(ordered, bodies, strict=True):
            if body is None:
                break
            items.append((txid, timestamp, NO_OPERATIONS if txid in self.executed_before else body))
            size += len(body)
            if size >= limit_bytes:
                break
        return (Execute(first, tuple(items), self.site.view, self.site.lineages.number), size) if items else None

    def looks(self, mono_ms: int) -> list[NodeId]:
        """Return silent workers, not dead yet, for which the broker is to be asked now whether a process reads their inbox."""
        if mono_ms < self._look_ms:
            return []
        alive = [each for each in self.workers.values() if self.site.is_alive(each, mono_ms)]
        due = [worker for worker in alive if mono_ms >= self._look_at_ms(worker)]
        for worker in due:
            worker.looked_ms = mono_ms
        self._look_ms = min([self._look_at_ms(worker) for worker in alive], default=FOR_EVER)
        return [worker.node for worker in due]

    def _look_at_ms(self, worker: WorkerFeed) -> int:
        """Return when to ask about a live worker: sooner where its confirmation is awaited."""
        is_awaited = worker.is_following and worker.sent > self._base(worker)
        patience_ms = self.config.gone_ms if is_awaited else self.config.silent_ms
        return max(worker.heard_ms + patience_ms, worker.looked_ms + self.config.gone_ms)

    # ---- questions

    def is_alive(self, node: NodeId, mono_ms: int) -> bool:
        """Tell whether this worker was heard recently."""
        return self.site.is_alive(self.workers[node], mono_ms)

    def alive(self, mono_ms: int) -> list[NodeId]:
        """Return workers that were heard recently, in the order of the configuration."""
        return [node for node in self.workers if self.is_alive(node, mono_ms)]

    def readable(self, mono_ms: int) -> list[NodeId]:
        """Return workers that can be read."""
        return self.site.readable(mono_ms)

    @property
    def probe(self) -> NodeId | None:
        """Return the worker that executes now."""
        return self._probe

    def applied_by(self, copies: int) -> Lsn:
        """Return the highest LSN that at least ``copies`` workers have applied; 0 when there are not that many."""
        applied = sorted((worker.applied for worker in self.workers.values() if not worker.condemned), reverse=True)
        return min(applied[copies - 1], self.executed) if 1 <= copies <= len(applied) else 0

    def deadline_ms(self, mono_ms: int) -> int | None:
        """Return when a message is to be repeated, or a silent worker becomes dead; None when neither is due."""
        due = []
        if self.lingers_after is not None and self._linger_due_ms is not None:
            due.append(mono_ms if self.awaited_lsn > self.lingers_after else self._linger_due_ms)
        if self.site.filling is not None and self.executed < self.lsn:
            due.append(max(self.site.filling.asked_ms + self.config.order_ms, mono_ms))
        for worker in self.workers.values():
            if mono_ms - worker.heard_ms >= self.config.dead_after_ms:
                due.append(self._greet_again_ms(worker.node, mono_ms))
                continue
            if worker.sent > self._base(worker) and worker.is_following:
                due.append(max(worker.resend_at_ms(self._window), mono_ms + 1))
            due.append(worker.heard_ms + self.config.dead_after_ms)
        if self._look_ms != FOR_EVER:
            due.append(self._look_ms)
        return min(due, default=None)
