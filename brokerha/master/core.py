"""MasterCore: one master as one state machine (architecture, section 3).

    Submit ------> admission --> sync --> synchronised queue --> feed --> workers
    Post, Bodies, Fetch ------->                                   ^
    Executed, Progress --------------------------------------------+--> replies

`step` takes note of an input, `wake` serves deadlines, `take_ready` runs one round and returns its results. The runner carries a
Ready out completely before it asks for the next one. So at the start of `take_ready` all results returned before are durable, or
can be worked out again (deferring.py); only then do workers get them (rule R7).

The core never blocks. It reads only its own journal (`History`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from brokerha.master import belonging
from brokerha.master.admission import Waiters, is_other_body, is_other_origin
from brokerha.master.config import MasterConfig
from brokerha.master.deferring import Deferring
from brokerha.master.parting import Parting
from brokerha.master.pins import DurablePins, pins_of
from brokerha.master.retention import Facts, Owner, Retention, Step
from brokerha.master.state_words import apart_reason, state_of
from brokerha.master.transacting import Transacting
from brokerha.model import forgetting
from brokerha.model.fingerprints import from_text, text_of
from brokerha.model.ids import Instant, Lsn, NodeId, Ordered, TxId
from brokerha.model.log_lineages import rewinds_of
from brokerha.model.operations import APPLIED, REJECTED, ResultRow
from brokerha.model.ready import Ready
from brokerha.model.records import History, MasterState, Outcomes, Rebased, Record, Started
from brokerha.model.requests import REFUSE, Absence, Submit, TxCommand
from brokerha.model.wire.epoch_messages import Leave
from brokerha.model.wire.messages import Apply, Bodies, Envelope, Executed, Fetch, Post, Progress, RangeMissing, Request, TaskReport
from brokerha.model.wire.process_messages import TxAnswer
from brokerha.replication.site.config import Standing, Trust
from brokerha.replication.site.feed import Feed
from brokerha.replication.site.judging import SiteComparison
from brokerha.replication.site.site import Site
from brokerha.replication.site.tasks import Tasks
from brokerha.sync.core import SyncCore
from brokerha.sync.epochs.epochs import EPOCH_MESSAGES
from brokerha.sync.round import RoundResult

NOTHING = Ready()


class TakingOver:
    """Follows the rounds of one master.

    Steps of a master that has taken over the state of another one (R16): its site begins anew after it.

        in that turn              results known so far are void, and plans for them are given up; the record is written
        once it is durable        clients that wait for known transactions get answers; copies below it are condemned, and healed

    All copies of the site lack entries that are no longer in the log, so none heals another one: they load from other sites.

    Must never: answer a client, or judge a copy, by a state that is not durable yet.
    """

    def __init__(self) -> None:
        self._round: RoundResult | None = None
        """The round that brought a state which is not known to be durable yet."""

    def on_round(self, core: MasterCore, result: RoundResult) -> None:
        """Take note of a round that is about to be written."""
        if result.state is not None:
            self._round = result
            site = core.site
            site.adopted = site.overruled = site.filling = None
            site.disagreement = ""
            core.go_on_after(result.state.lsn)

    def settle(self, core: MasterCore, now: Instant) -> None:
        """Use the state once it is durable."""
        result, self._round = self._round, None
        if result is None or result.state is None:
            return
        lsn = result.state.lsn
        core.waiters.on_state(lsn, result.known, core.history.rejection)
        core.transacting.on_state(lsn, result.known)
        _condemn_below(core.site, lsn, now.mono_ms)


def _condemn_below(site: Site, lsn: Lsn, mono_ms: int) -> None:
    """Condemn copies below an LSN: none can follow any more, and none can heal another one."""
    behind = [worker for worker in site.workers.values() if worker.progress is not None and worker.applied < lsn]
    for worker in behind:
        if not worker.condemned:
            worker.condemn(f"it is at LSN {worker.applied}, the log begins after {lsn}", worker.applied)
        worker.standing, worker.reason, worker.trust = Standing.OUT_OF_SYNC, worker.condemned, Trust.NONE
    for worker in behind:
        site.judge(worker, mono_ms)


class MasterCore:
    """Sync, feed and admission of one master."""

    def __init__(self, config: MasterConfig, state: MasterState, history: History) -> None:
        state.incarnation = state.next_incarnation
        self.config = config
        self.history = history
        self.sync = SyncCore(config.sync, state, history)
        self.deferring = Deferring(config.defer, self.sync)
        named = tuple((node, node not in config.feed.unreadable, True) for node in config.feed.workers)
        workers = state.workers if state.workers is not None else named
        self.view = state.views[-1][0] if state.views else 1
        """View of this primary; workers obey the highest one that they know."""
        self.site = Site(config.feed, history, workers, self.view, rewinds_of(history.splits()))
        self.site.lsn, self.site.executed, self.site.reach = state.lsn, state.executed_lsn, self.deferring.reach()
        self.sync.content = self._posted_fingerprint
        self.feed = Feed(config.feed, history, self.site, state.lsn, state.executed_lsn)
        self.tasks = Tasks(self.site)
        self.retention = Retention(config.retention)
        self.pins = DurablePins(state.pins)
        self.dropped_pins: tuple[Owner, ...] = ()
        """Pins that need more of the log than is kept; their owners have to begin anew from a snapshot."""
        self.needs_of_backups: dict[NodeId, Lsn] = {}
        """Lowest LSN whose records each backup of this master still needs; set before `forgetting` is called."""
        self.sites = SiteComparison()
        self.waiters = Waiters(self.sync.node)
        self._taking_over = TakingOver()
        self.parting = Parting(self, self.site.splits.keeping, state.taken_splits)
        self.ignored: Counter[str] = Counter()
        self.withheld = ""
        """Why no reply can be sent now, and so no write is taken: too few backups confirm. Empty otherwise."""
        self._carried_lsn: Lsn = state.lsn
        """End of the order that can be told: the last batch is durable, or can be worked out again (R18)."""
        self._written_executed: Lsn = state.executed_lsn
        """Last LSN with its result in the journal once the last batch is written."""
        self._added: tuple[Lsn, tuple[Ordered, ...]] = (0, ())
        """Entries that the last batch added; clients learn of them once they and their bodies are durable."""
        self.to_write: list[Record] = [Started(state.incarnation)]
        """Records that wait for the next batch, whatever else it has."""
        self._outcomes: list[Outcomes] = []
        """Results that are durable at a worker and not yet in the journal here."""
        self._outcomes_due_ms: int | None = None
        self._settled_at: Instant | None = None
        """When there was nothing left to do: another call in the same instant, without new input, returns at once."""
        self._room = 0
        """Number of further writes in a row that can be taken in without a new check."""
        self._forgetting_below: Lsn = 0
        """LSN below which an entry forgets ids that this process proposed last."""
        self._agreed_at: Instant | None = None
        """When a round left sync nothing to do, except what its records release once they are durable."""
        self.bodies: dict[str, bytes] = {}
        """Bodies accepted in this turn, which are not in the journal yet."""
        self.transacting = Transacting(self, state)
        self._handlers: dict[type, Callable[[Any, Instant], None]] = {
            Post: self._on_post,
            Bodies: lambda item, _: self.sync.on_bodies(item.sender, item.message),
            Fetch: lambda item, _: self.sync.on_fetch(item.sender, item.message),
            Executed: lambda item, now: self._take_in(self.feed.on_executed(item.sender, item.message, now.mono_ms), now),
            Progress: lambda item, now: self.feed.on_progress(item.sender, item.message, now.mono_ms),
            Request: lambda item, _: self.feed.on_request(item.sender, item.message),
            Leave: self._on_leave,
            Apply: lambda item, now: self._take_in(self.feed.on_lines(item.sender, item.message, now.mono_ms), now),
            RangeMissing: lambda item, _: self.feed.on_lines_missing(item.sender, item.message),
            TaskReport: lambda item, now: self.tasks.on_report(item.sender, item.message, now),
            TxAnswer: self.transacting.on_answer,
            **dict.fromkeys(
                EPOCH_MESSAGES, lambda item, now: self.sync.epochs.on_message(self.sync, item.sender, item.message, now)
            ),
        }

    # ---- inputs

    def step(self, item: Envelope | Submit | TxCommand | Absence, now: Instant) -> None:
        """Take in a message of a node, a write of a client, a step of its transaction, or the broker's answer about a node."""
        self._settled_at = self._agreed_at = None
        if isinstance(item, Submit):
            self._on_submit(item, now)
            return
        self._room = 0
        if isinstance(item, TxCommand):
            self.transacting.step(item, now)
            return
        if isinstance(item, Absence):
            if item.node in self.feed.workers:
                self.feed.on_absence(item.node, now.mono_ms)
            else:
                self.sync.epochs.on_absence(self.sync, item.node, now)
            return
        handler = self._handlers.get(type(item.message))
        if handler is None:
            self.ignored["not_for_a_master"] += 1
        else:
            handler(item, now)

    def _on_post(self, envelope: Envelope, now: Instant) -> None:
        self.sync.on_post(envelope.sender, envelope.message, now)  # type: ignore[arg-type]
        row = envelope.message.row  # type: ignore[union-attr]
        is_comparable = not self.sync.keeps_sides or row.epoch == self.sync.epoch.id
        if row.fingerprint and is_comparable and envelope.sender in self.sync.peers.peers:
            self.sites.on_row(envelope.sender, row.fingerprint_lsn, from_text(row.fingerprint))

    def _take_in(self, outcomes: Outcomes | None, now: Instant) -> None:
        if outcomes is not None:
            self._outcomes.append(outcomes)
            if self._outcomes_due_ms is None:
                self._outcomes_due_ms = now.mono_ms + self.config.outcomes_wait_ms
            self.waiters.on_results(outcomes.first_lsn, outcomes.results)
            self.transacting.on_results(outcomes.first_lsn, outcomes.results)

    def _on_leave(self, envelope: Envelope, now: Instant) -> None:
        if envelope.sender in self.feed.workers:
            self.feed.on_gone(envelope.sender, now.mono_ms)
        else:
            self.sync.epochs.on_leave(self.sync, envelope.sender, envelope.incarnation, now)

    def _on_submit(self, submit: Submit, now: Instant) -> None:
        if self.sync.lost:
            self.waiters.refuse(submit, "ReadOnly", self.sync.lost)
            return
        if self.sync.retired and submit.txid in self.sync.pending:
            self.waiters.unknown(submit, belonging.unknown(self.sync, submit.txid))
            return
        if self.transacting.is_known(submit.txid):
            self.attend(submit, now, is_compared=True)
            return
        refusal = None
        if self._room <= 0 and (refusal := self.transacting.refusal(now)) is None:
            self._room = self.transacting.room()
        refusal = refusal or self.transacting.refusal_of(submit)
        if refusal is not None:
            self.waiters.refuse(submit, *refusal)
            return
        if submit.apart == REFUSE and (reason := apart_reason(self.sync, now.mono_ms)):
            self.waiters.refuse(submit, "ReadOnly", reason)
            return
        self.admit(submit.txid, submit.body)
        self.waiters.add(submit, now.mono_ms, 0, None)

    def admit(self, txid: TxId, body: bytes) -> None:
        """Take in a transaction that is not known here."""
        self._room -= 1
        self.sync.accept(txid, body)
        self.bodies[txid] = body

    def attend(self, submit: Submit, now: Instant, *, is_compared: bool) -> None:
        """Let a client wait for a known transaction; if ``is_compared``, other operations under its id are refused."""
        lsn = self.history.lsn_of(submit.txid) or 0
        if is_compared and is_other_body(self.bodies, self.history, self.sync.node, submit, lsn):
            self.waiters.refuse(submit, "KeyReused", f"transaction id {submit.txid} belongs to other operations: use a new key")
        elif wrong := self.transacting.wrong_terms(submit.level, submit.copies):
            # It may take effect all the same, so it is not refused.
            self.waiters.unknown(submit, f"{wrong}; the transaction is known already, and goes on by itself")
        else:
            self.waiters.add(submit, now.mono_ms, lsn, self.result_of(lsn))

    def wake(self, now: Instant) -> None:
        """Act on expired deadlines."""
        self._settled_at = self._agreed_at = None
        self._room = 0
        self.waiters.expire(now.mono_ms)
        self.transacting.wake(now)

    def deadline_ms(self, now: Instant) -> int | None:
        """Return when the core needs to be woken."""
        is_silent = self.sync.lost or self.sync.is_joiner()
        due = (
            self.sync.deadline_ms(),
            # A master that sends nothing to workers need not wake up for them.
            *(() if is_silent else (self.feed.deadline_ms(now.mono_ms), self.tasks.deadline_ms())),
            self.retention.deadline_ms(),
            self.waiters.deadline_ms(),
            self.transacting.coordinator.deadline_ms(),
            self._outcomes_due_ms,
            self.deferring.deadline_ms(),
            self.parting.deadline_ms(),
        )
        return min([at for at in due if at is not None], default=None)

    # ---- output

    def take_ready(self, now: Instant) -> Ready:
        """Run one round and return one batch of results; the runner asks again until there is none.

        Answers about applied transactions come first: the worker has them durably, and their places are durable here. Then come
        records with the messages that they allow. Messages that need these records to be durable come with the next batch.
        """
        if self._settled_at == now:
            return NOTHING
        self.feed.lsn = self.site.lsn = self._carried_lsn
        self.site.executed, self.site.reach = self._written_executed, self.deferring.reach()
        self.deferring.begin()
        self.sites.compare(self.history, self._written_executed)
        self._taking_over.settle(self, now)
        self.parting.look(now)
        if self.sync.retired:
            self.waiters.give_up(lambda txid: belonging.unknown(self.sync, txid))
        (first_lsn, added), self._added = self._added, (0, ())
        if added:
            self.waiters.on_added(first_lsn, added, partial(is_other_origin, self.history, self.sync.node))
            self.transacting.on_added(first_lsn, added)
        if self.transacting.is_look_due:
            self.transacting.look(now)
        if len(self.waiters):
            self.waiters.settle(self.feed.applied_by)
        if self.waiters.ready_replies:
            replies, tx_replies = self.transacting.split(self.waiters.ready_replies)
            self.waiters.ready_replies = []
            if replies or tx_replies:
                return Ready(replies=replies, tx_replies=tx_replies)
        if self._agreed_at == now and self.sync.is_settled():
            round_ = RoundResult()
        else:
            round_, self._agreed_at = self.sync.collect(now), now
            self.bodies, self._added = {}, (round_.first_lsn, round_.added)
            self._taking_over.on_round(self, round_)
        if self.site.overruled is not None or self.site.adopted is not None:
            self._rebase()
        is_transacting = not self.transacting.is_quiet
        waiting, self.to_write = [*self.to_write, *(self.transacting.records(now) if is_transacting else ())], []
        outcomes = self._due_outcomes(bool(waiting or round_.records), now) if self._outcomes else []
        after = self.parting.on_round(round_, now) if round_.rewound is not None else []
        records: tuple[Record, ...] = (*waiting, *outcomes, *round_.records, *after)
        self._carried_lsn = self.sync.lsn
        messages, queues, tx_replies = self.transacting.outgoing() if is_transacting else ([], (), ())
        messages += round_.messages
        if not records and not self.sync.lost and not self.sync.is_joiner():
            # A master without its own disk, or with an empty one, must not tell good workers to take other copies.
            self.feed.expect(self.waiters.awaited_lsn)
            messages += self.feed.messages(now.mono_ms)
            messages += self.tasks.messages(now)
        if not records and not self.sync.posting.has_more:
            self._settled_at = now
        replies, answers = self.transacting.split(self.waiters.replies) if self.waiters.replies else ((), ())
        self.waiters.replies = []
        waits = self.deferring.decide(records, now)
        return Ready(
            records,
            tuple(messages),
            (),
            replies,
            queues,
            (*tx_replies, *answers),
            *waits,
            (*round_.looks, *self.feed.looks(now.mono_ms)),
        )

    def _due_outcomes(self, is_written_anyway: bool, now: Instant) -> list[Outcomes]:
        """Return results to write now: with other records, when another worker needs them, or after a timeout.

        Until then the executing worker has them durably; after a crash it would be asked again.
        """
        if self._outcomes_due_ms is None:
            return []
        is_needed = len(self.feed.workers) > 1 or now.mono_ms >= self._outcomes_due_ms
        if not is_written_anyway and not is_needed:
            return []
        outcomes, self._outcomes, self._outcomes_due_ms = self._outcomes, [], None
        self._written_executed = self.feed.executed
        return outcomes

    def _posted_fingerprint(self) -> tuple[Lsn, str]:
        """Return the content that own posts tell of this site: an LSN, and the fingerprint there."""
        return self._written_executed, text_of(self.history.fingerprint_at(self._written_executed))

    def _rebase(self) -> None:
        """Begin the results of this site anew: from a chosen copy, or before a line that copies overruled."""
        votes = self.site.settle_overruled()
        if votes is not None and votes.lsn <= self._written_executed:
            before = votes.lsn - 1
            reason = f"a majority of the copies came to another content at LSN {votes.lsn}"
            self._begin_anew(Rebased(before, self.history.fingerprint_at(before), 0, reason))
        adopted, written = self.site.adopted, self._written_executed
        # A copy ahead of the results here is adopted only where they cannot be had; known results are written before.
        if adopted is not None and (adopted[0] <= written or written == self.feed.executed):
            self.site.adopted = None
            self._begin_anew(Rebased(*adopted))

    def _begin_anew(self, rebased: Rebased) -> None:
        self.to_write.append(rebased)
        self.go_on_after(rebased.lsn)

    def forget_results(self, lsn: Lsn) -> None:
        """Make results after an LSN void with the records of this turn; older results are written before them."""
        self._written_executed = min(self._written_executed, lsn)

    def go_on_after(self, lsn: Lsn) -> None:
        """Begin the results of this site anew at an LSN, with the records of this turn."""
        self.feed.rebase(lsn)
        self._outcomes, self._outcomes_due_ms = [], None
        self._written_executed = lsn

    @property
    def _is_executing(self) -> bool:
        return bool(self.site.workers or self.config.feed.workers)

    @property
    def disposable(self) -> Lsn:
        """Return the LSN up to which the site needs nothing of the journal; all of it where nothing is ever executed."""
        return self._written_executed if self._is_executing or self._written_executed else self._carried_lsn

    def forgetting(self, now: Instant) -> Step | None:
        """Return how much of the log the journal can forget in this turn, or None; propose to forget ids, if it is time for that.

        The caller then calls `retention.done`.
        """
        if not self.retention.is_due(now):
            return None
        executed = self.disposable
        # A site that lost its last worker may get it back, and keeps the entries for that up to the limit.
        if not self._is_executing:
            executed = max(executed, self._carried_lsn - self.config.retention.most)
        # A master that is left behind takes over a state; a site that never executed has none to give.
        gives_way = self._is_executing or self._written_executed > 0
        step = self.retention.step(self.history, now, Facts(self._carried_lsn, executed, *pins_of(self, now), gives_way))
        if step is not None:
            self.dropped_pins = step.dropped
            self._forget_ids(step.ids_below, now)
        return step

    def _forget_ids(self, below: Lsn, now: Instant) -> None:
        """Propose an entry that forgets ids below an LSN, if it is worth it and the other masters leave it to this one."""
        masters = self.sync.peers
        # A master that comes back tells of entries of an older epoch: whether they are in the order is told by their ids alone.
        # One that is to be added reads entries that the others hold no more.
        if not self.sync.is_whole() or masters.outside:
            return
        done = max(self.history.ids_from(self._carried_lsn), self._forgetting_below)
        least = max(self.config.retention.ids_at_once, (self._carried_lsn - done) // 8)
        if below - done < least or self.withheld or self.transacting.refusal(now) is not None:
            return
        needed = [peer.row.ids_from for peer in masters.peers.values() if peer.row is not None]
        below = min([below, self.sync.ids_needed_from(), *needed])
        if below - done < least:
            return
        if self.sync.node == min([self.sync.node, *masters.heard_of([*masters.peers], now.mono_ms)]):
            txid = forgetting.forgetting_id(below)
            if not self.transacting.is_known(txid):
                self.admit(txid, forgetting.BODY)
            self._forgetting_below = below

    def result_of(self, lsn: Lsn) -> ResultRow | None:
        """Return the result of a transaction by its LSN, without a trimmed effect; None when it is not executed yet."""
        if not lsn or lsn > self.feed.executed:
            return None
        for outcomes in self._outcomes:
            place = lsn - outcomes.first_lsn
            if 0 <= place < len(outcomes.results):
                return outcomes.results[place]
        found = self.history.results(lsn, 1)
        if found:
            return found[0]
        # A trimmed result was applied, unless it is remembered as rejected.
        rejection = self.history.rejection(lsn)
        return (APPLIED, "", b"", b"") if rejection is None else (REJECTED, rejection, b"", b"")

    def unwritten_results(self) -> dict[Lsn, ResultRow]:
        """Return results by LSN that answers have told and the log does not have yet (see `_due_outcomes`)."""
        return {lsn: result for outcomes in self._outcomes for lsn, result in enumerate(outcomes.results, outcomes.first_lsn)}

    # ---- questions

    def refusal(self, now: Instant) -> str:
        """Return why new writes are refused; empty when they are taken."""
        return self.sync.lost or belonging.refusal(self.sync) or self.withheld or self.site.read_only_reason(now.mono_ms)

    def state(self, now: Instant) -> tuple[str, str]:
        """Return state word and reason, without the runner's knowledge of broker and disk."""
        return state_of(self.sync, self.feed, self.sites, now)
