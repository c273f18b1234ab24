"""Deciding: prepare, commit, rollback, forget. No other part of brokerha decides about a transaction.

    commit of an open one without participants     accepted at once, like any write
    commit of an open one with participants        prepared first, decided when they have it
    prepare, then commit or rollback               decided by the holder of the xid; each has its place in the order
    by hand                                        decided by a person: kept and reported until it is forgotten

A prepare is answered when it was judged at its place (model/reserved/branches.py): from then on the commit cannot fail.

A commit is ONE turn of the master: the record of the decision and the acceptance of the body are written together or not at all. So
it is never decided and then lost. A rollback of a transaction that is not prepared needs no record.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerha.model.errors import Aborted, InvalidRequest, NotFound, NotReady, UnknownTransaction, WrongState, aborted, error_named
from brokerha.model.ids import Instant, Lsn, NodeId, Ordered, TxId
from brokerha.model.operations import REJECTED, ResultRow
from brokerha.model.outside.authors import packed_by
from brokerha.model.records import TxDecided, TxForgotten, TxPrepared
from brokerha.model.requests import APPLIED_LEVEL, LEVELS, TxCommand
from brokerha.model.reserved import branches
from brokerha.transactions.book import ABORTED, COMMITTED, Book
from brokerha.transactions.collecting import add_pieces, flag, number, text
from brokerha.transactions.config import ABORT
from brokerha.transactions.states import Phase, Step
from brokerha.transactions.transaction import Ask, Transaction, digest_of
from brokerha.transactions.tx_feed import COMMIT, PREPARE, ROLLBACK

IN_USE = frozenset({Phase.OPEN, Phase.PREPARING})
READ_ONLY = "read-only"
BY_HAND = "decided by hand"
TAKEN = "its id came first with another transaction"


class Deciding:
    """The deciding half of the coordinator. Each action raises an error of model/errors.py, or answers, at once or later."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._lsns: dict[Lsn, TxId] = {}
        """LSNs of transactions that are decided and not executed."""

    # ---- actions

    def prepare(self, command: TxCommand, now: Instant) -> None:
        """Make sure that it can be committed, whichever process dies; its transaction manager decides later."""
        book, transaction = self._book, self._book.find(command.txid, now)
        _check_session(transaction, command)
        if not transaction.xid:
            raise WrongState(f"transaction {command.txid} has no xid: its commit prepares it")
        if transaction.phase is Phase.OPEN and transaction.count and not book.log.can_judge():
            raise NotReady(
                f"master {book.node} has no worker that could judge whether transaction {command.txid} can be committed: "
                "commit it in one phase, or roll it back and prepare it at another master"
            )
        if transaction.phase is Phase.PREPARED:
            book.answer(command.ticket, command.txid, state=Phase.PREPARED.value)
        elif transaction.phase is Phase.HEURISTIC:
            raise WrongState(f"transaction {command.txid} was {transaction.reason}: forget it")
        elif transaction.phase is Phase.OPEN and not transaction.count:
            book.take(transaction, Step.NOTHING)
            book.finish(transaction, COMMITTED, "nothing was done in it")
            book.answer(command.ticket, command.txid, state=READ_ONLY)
        elif transaction.phase is Phase.PREPARING and not transaction.is_two_phase:
            raise WrongState(f"transaction {command.txid} is being committed")
        else:
            transaction.asks.append(_ask(command, now))
            if transaction.phase is Phase.OPEN:
                self._close(transaction, now, is_two_phase=True)

    def commit(self, command: TxCommand, now: Instant) -> None:
        """Commit: an open one in one phase, a prepared one in its second."""
        book, ask = self._book, _ask(command, now)
        wrong = book.log.wrong_terms(ask.level, ask.copies)
        if wrong:
            raise InvalidRequest(wrong)
        transaction = book.table.get(command.txid)
        if transaction is None:
            self._commit_again(command, ask, now)
            return
        _check_session(transaction, command)
        _check_phases(transaction, command)
        if transaction.phase is Phase.HEURISTIC:
            if not transaction.is_committed:
                raise aborted(transaction.reason)
            book.answer(command.ticket, command.txid, state=COMMITTED, lsn=0, reason=transaction.reason)
        elif transaction.phase is Phase.PREPARED:
            self._commit_prepared(transaction, ask, now, is_by_hand=flag(command, "by_hand", False))
        elif transaction.phase in (Phase.PREPARING, Phase.PLACED):
            transaction.asks.append(ask)
        elif not transaction.count:
            book.take(transaction, Step.NOTHING)
            book.finish(transaction, COMMITTED, "nothing was done in it")
            book.answer(command.ticket, command.txid, state=COMMITTED, lsn=0)
        else:
            if transaction.reads is not None:
                # Only the execution shows whether its reads still hold.
                ask = ask._replace(level=APPLIED_LEVEL)
            transaction.asks.append(ask)
            self._close(transaction, now, is_two_phase=False)

    def rollback(self, command: TxCommand, now: Instant) -> None:
        """Roll back. A transaction that is over does not change; the answer says how it ended."""
        book = self._book
        try:
            transaction = book.find(command.txid, now)
        except Aborted as error:
            book.answer(command.ticket, command.txid, state=ABORTED, reason=str(error))
            return
        except NotFound:
            if not flag(command, "by_hand", False):
                raise
            self._end_of_another(command)
            return
        _check_session(transaction, command)
        is_by_hand = flag(command, "by_hand", False)
        if transaction.phase is Phase.HEURISTIC:
            state = COMMITTED if transaction.is_committed else ABORTED
            book.answer(command.ticket, command.txid, state=state, reason=transaction.reason)
            return
        if is_by_hand:
            _check_by_hand(transaction, (Phase.PREPARED, Phase.PLACED))
            reason = f"heuristic rollback: {BY_HAND}"
            book.take(transaction, Step.BY_HAND)
            book.place(transaction.txid, branches.ROLLBACK)
            self._refuse_asks(transaction, reason)
            self._keep(transaction, reason, is_committed=False)
            book.locks.release(transaction.txid)
            book.end_feed(transaction, ROLLBACK, reason)
        else:
            self.abort(transaction, "rolled back by its client")
        book.answer(command.ticket, command.txid, state=ABORTED)

    def forget(self, command: TxCommand, now: Instant) -> None:
        """Forget a decision by hand: it needs no report any more."""
        book = self._book
        transaction = book.find(command.txid, now)
        if transaction.phase is not Phase.HEURISTIC:
            raise WrongState(f"transaction {command.txid} is {transaction.phase.value}: only what was decided by hand is forgotten")
        book.take(transaction, Step.FORGET)
        book.records.append(TxForgotten(transaction.txid))
        if transaction.is_committed:
            book.remove(transaction)
        else:
            book.finish(transaction, ABORTED, transaction.reason)
        book.answer(command.ticket, command.txid, state=Phase.FORGOTTEN.value)

    # ---- on the way

    def _close(self, transaction: Transaction, now: Instant, *, is_two_phase: bool) -> None:
        """Close it: no more operations; prepare it if others have to hold it."""
        book = self._book
        refusal = book.log.refusal(now)
        if refusal is not None:
            self.abort(transaction, refusal[1])
            return
        transaction.is_two_phase = is_two_phase
        if transaction.reads is not None:
            add_pieces(book, transaction, transaction.reads.demands(transaction.pieces))
            book.open_bytes -= transaction.reads.size
            transaction.reads = None
        if transaction.user:
            add_pieces(book, transaction, [packed_by(transaction.user)])
        transaction.close(now.mono_ms, now.wall_us)
        if not is_two_phase and not transaction.participants:
            self._decide(transaction, now)
            return
        book.take(transaction, Step.CLOSE)
        # Without its xid it is rolled back when its primary dies: no other process would ever decide it.
        xid = transaction.xid if is_two_phase else ""
        prepared = TxPrepared(transaction.txid, xid, transaction.body, transaction.participants, transaction.prepared_us)
        book.records.append(prepared)
        transaction.is_recorded = True
        if transaction.feed is not None:
            transaction.feed.add([(PREPARE, digest_of(transaction.body))])
        self.count_votes(transaction, now)

    def count_votes(self, transaction: Transaction, now: Instant) -> None:
        """Continue when all participants have it, and they are enough."""
        if transaction.phase is not Phase.PREPARING or self._lacking(transaction):
            return
        if not transaction.is_two_phase:
            self._book.take(transaction, Step.VOTED)
            self._decide(transaction, now)
        elif refusal := self._book.log.refusal(now):
            self.abort(transaction, refusal[1])
        else:
            self._book.take(transaction, Step.PLACE)
            self._book.place(transaction.txid, branches.PREPARE, transaction.body)

    def look(self, now: Instant) -> None:
        """Continue those whose prepare was judged. One without a place, because its primary died before that, gets one."""
        book = self._book
        for txid, transaction in list(book.placed.items()):
            if book.log.is_known(txid) or book.log.is_known(branches.rollback_id(txid)):
                self._end_as_in_the_log(transaction, now)
                continue
            book.place(txid, branches.PREPARE, transaction.body)
            result = book.log.result_of(branches.prepare_id(txid))
            if result is not None and result[0] == REJECTED:
                self.abort(transaction, result[1], is_kept=False)
            elif result is not None:
                self._prepared(transaction, now)

    def _prepared(self, transaction: Transaction, now: Instant) -> None:
        """Answer that it can be committed from now on, and commit if a client has asked for that meanwhile."""
        book = self._book
        book.take(transaction, Step.JUDGED)
        # The body is in the order: the next primary reads it from the journal.
        transaction.body = b""
        asks, transaction.asks = transaction.asks, []
        for ask in asks:
            if ask.action == "prepare":
                book.answer(ask.ticket, transaction.txid, state=Phase.PREPARED.value)
        commits = [ask for ask in asks if ask.action == "commit"]
        if not commits:
            return
        if refusal := book.log.refusal(now):
            for ask in commits:
                book.refuse(ask.ticket, transaction.txid, refusal[0], f"{refusal[1]}; the transaction stays prepared")
            return
        transaction.asks = commits
        self._decide(transaction, now)

    def _end_as_in_the_log(self, transaction: Transaction, now: Instant) -> None:
        """End it as the log says, which the journal does not know: the last record of the former primary was lost."""
        book = self._book
        if not book.log.is_known(transaction.txid):
            self.abort(transaction, "rolled back by its client")
            return
        if book.log.is_other(transaction.txid, branches.packed(branches.COMMIT, transaction.txid)):
            self.abort(transaction, TAKEN)
            return
        book.records.append(TxDecided(transaction.txid, True, "", False, transaction.xid))
        book.take(transaction, Step.JUDGED)
        book.take(transaction, Step.COMMIT)
        book.remove(transaction)
        book.locks.release(transaction.txid)
        asks, transaction.asks = transaction.asks, []
        for ask in asks:
            if ask.action == "commit":
                book.log.wait(ask, transaction.txid, None, now)
            else:
                book.refuse(ask.ticket, transaction.txid, "WrongState", f"transaction {transaction.txid} is committed already")

    def _lacking(self, transaction: Transaction) -> str:
        """Return the reason why a prepare still waits, or an empty string."""
        feed = transaction.feed
        if feed is None or not transaction.participants:
            return ""
        if feed.unprepared:
            return f"{', '.join(feed.unprepared)} did not answer"
        # A later ready backup has the prepare record, or it would not be ready.
        others = [backup for backup in self._book.backups if backup not in transaction.participants]
        count = len(feed.backups) + len(others)
        if count < self._book.config.sync_n:
            return f"{count} backups have it, {self._book.config.sync_n} are needed"
        return ""

    def lose(self, transaction: Transaction, backup: NodeId, reason: str, now: Instant) -> None:
        """Remove a participant that is lost before the decision."""
        book = self._book
        if transaction.feed is None or not transaction.feed.lose(backup):
            return
        book.dirty[transaction.txid] = None
        book.counts["participants_lost"] += 1
        if book.config.lost_backup == ABORT and transaction.phase in IN_USE:
            self.abort(transaction, f"backup {backup} was lost: {reason}")
        else:
            self.count_votes(transaction, now)

    def give_up_waiting(self, transaction: Transaction, now: Instant) -> None:
        """End the wait for a prepare: silent participants are lost, and without enough others it is rolled back."""
        silent = transaction.feed.unprepared if transaction.feed is not None else ()
        for backup in silent:
            reason = f"no answer to the prepare of {transaction.txid} for {self._book.config.prepare_ms} ms"
            self._book.silent_backups[backup] = reason
            self.lose(transaction, backup, reason, now)
        if transaction.phase is Phase.PREPARING:
            self.abort(transaction, f"not prepared in time: {self._lacking(transaction)}")

    def abort(self, transaction: Transaction, reason: str, *, is_kept: bool = True) -> None:
        """Roll back an open or prepared one, and tell its clients; give the rollback a place if the order may keep the prepare."""
        book = self._book
        if transaction.is_recorded:
            book.records.append(TxDecided(transaction.txid, False, reason, False, transaction.xid))
        if is_kept and transaction.is_two_phase and transaction.phase in (Phase.PLACED, Phase.PREPARED):
            book.place(transaction.txid, branches.ROLLBACK)
        book.take(transaction, Step.ROLLBACK)
        book.end_feed(transaction, ROLLBACK, reason)
        book.finish(transaction, ABORTED, reason)
        self._refuse_asks(transaction, reason)

    def _refuse_asks(self, transaction: Transaction, reason: str) -> None:
        """Tell waiting clients that it was rolled back."""
        for ask in transaction.asks:
            self._book.refuse(ask.ticket, transaction.txid, type(aborted(reason)).__name__, reason)
        transaction.asks = []

    def _end_of_another(self, command: TxCommand) -> None:
        """Roll back, on a person's command, a transaction prepared by a master that no longer exists."""
        book = self._book
        if reason := book.log.ends_here(command.txid):
            raise NotFound(reason)
        book.place(command.txid, branches.ROLLBACK)
        book.answer(command.ticket, command.txid, state=ABORTED)

    # ---- the decision to commit

    def _commit_prepared(self, transaction: Transaction, ask: Ask, now: Instant, *, is_by_hand: bool) -> None:
        refusal = self._book.log.refusal(now)
        if refusal is not None:
            # A prepared transaction is promised to be committable: it stays prepared until it can be committed.
            raise error_named(refusal[0], f"{refusal[1]}; the transaction stays prepared")
        transaction.asks.append(ask)
        self._decide(transaction, now, is_by_hand=is_by_hand)

    def _decide(self, transaction: Transaction, now: Instant, *, is_by_hand: bool = False) -> None:
        """Commit now: from here on it is an ordinary write."""
        book, txid = self._book, transaction.txid
        refusal = book.log.refusal(now)
        if refusal is not None:
            self.abort(transaction, refusal[1])
            return
        asks, transaction.asks = transaction.asks, []
        body = branches.packed(branches.COMMIT, txid) if transaction.is_two_phase else transaction.body
        is_new = not book.log.is_known(txid)
        reason = "" if is_new else TAKEN
        if is_by_hand:
            book.take(transaction, Step.BY_HAND)
            told = f"heuristic commit: {BY_HAND}" if is_new else f"heuristic rollback: {reason}"
            self._keep(transaction, told, is_committed=is_new)
        elif transaction.is_recorded:
            book.records.append(TxDecided(txid, is_new, reason, False, transaction.xid))
        if is_new:
            book.take(transaction, Step.COMMIT)
            book.log.accept(txid, body)
            self._await_execution(transaction)
            book.counts[COMMITTED] += 1
        else:
            if transaction.is_two_phase:
                book.place(txid, branches.ROLLBACK)
            book.take(transaction, Step.ROLLBACK)
            book.locks.release(txid)
        book.end_feed(transaction, COMMIT if is_new else ROLLBACK)
        if not is_by_hand:
            book.remove(transaction)
        for ask in asks:
            book.log.wait(ask, txid, body, now)

    def _commit_again(self, command: TxCommand, ask: Ask, now: Instant) -> None:
        """Answer a repeated commit, whose first answer was lost."""
        book, txid = self._book, command.txid
        end = book.end_of(txid, now)
        if end is not None and end.state == ABORTED:
            raise aborted(end.reason)
        if end is not None:
            book.answer(command.ticket, txid, state=COMMITTED, lsn=0)
        elif book.log.is_known(txid):
            book.log.wait(ask, txid, None, now)
        else:
            raise UnknownTransaction(f"no transaction {txid} is open here: it was never begun, or is long over; begin one")

    def _keep(self, transaction: Transaction, reason: str, *, is_committed: bool) -> None:
        """Remember and report an end that its transaction manager did not decide, until it is forgotten."""
        transaction.is_committed, transaction.reason = is_committed, reason
        self._book.records.append(TxDecided(transaction.txid, is_committed, reason, True, transaction.xid))

    # ---- results in the log

    def _await_execution(self, transaction: Transaction) -> None:
        book = self._book
        if not book.locks.has(transaction.txid) and not transaction.is_two_phase:
            return
        book.executing[transaction.txid] = transaction
        while len(book.executing) > book.config.finished_limit:
            # The probe would reject a second one that accepts the same message; the lock only spares the attempt.
            oldest = next(iter(book.executing))
            del book.executing[oldest]
            book.locks.release(oldest)

    def on_added(self, first_lsn: Lsn, added: tuple[Ordered, ...]) -> None:
        """Note that transactions got their LSNs."""
        if self._book.executing:
            for lsn, (_, txid, _) in enumerate(added, first_lsn):
                if txid in self._book.executing:
                    self._lsns[lsn] = txid

    def go_back(self, lsn: Lsn) -> None:
        """Note that LSNs above this one are void."""
        self._lsns = {at: txid for at, txid in self._lsns.items() if at <= lsn}
        self._book.locks.go_back(lsn)

    def on_state(self, lsn: Lsn, result_of: Callable[[Lsn], ResultRow]) -> None:
        """Note that every LSN up to this one has a result now, which came with the state of another master."""
        for at in [at for at in self._lsns if at <= lsn]:
            self.on_results(at, (result_of(at),))

    def on_results(self, first_lsn: Lsn, results: tuple[ResultRow, ...]) -> None:
        """Note that transactions were executed."""
        if not self._lsns:
            return
        for lsn, (outcome, reason, *_) in enumerate(results, first_lsn):
            transaction = self._book.executing.pop(self._lsns.pop(lsn, ""), None)
            if transaction is None:
                continue
            self._book.locks.release(transaction.txid, lsn if outcome != REJECTED else 0)
            if outcome == REJECTED and transaction.is_two_phase and transaction.phase is not Phase.FORGOTTEN:
                self._overrule(transaction, f"heuristic rollback: {reason}")
            elif transaction.phase is not Phase.HEURISTIC:
                self._book.take(transaction, Step.REJECTED if outcome == REJECTED else Step.APPLIED)

    def _overrule(self, transaction: Transaction, reason: str) -> None:
        self._book.take(transaction, Step.OVERRULED)
        if transaction.txid not in self._book.table:
            transaction.size = 0
            self._book.add(transaction)
        self._keep(transaction, reason, is_committed=False)


def _ask(command: TxCommand, now: Instant) -> Ask:
    level = text(command, "level") or APPLIED_LEVEL
    if level not in LEVELS:
        raise InvalidRequest(f"level {level!r}: write one of {', '.join(LEVELS)}")
    deadline_ms = now.mono_ms + max(0, command.timeout_ms)
    return Ask(command.ticket, command.action, level, number(command, "copies", 1), deadline_ms)


def _check_session(transaction: Transaction, command: TxCommand) -> None:
    """Raise WrongState when another session is still using it."""
    if transaction.phase in IN_USE and transaction.session and text(command, "session") != transaction.session:
        raise WrongState(f"{command.action}: transaction {command.txid} is {transaction.phase.value} and in use by another session")


def _check_phases(transaction: Transaction, command: TxCommand) -> None:
    """Raise WrongState when the commit is for one phase and it has two, or the other way round."""
    phase, is_by_hand = transaction.phase, flag(command, "by_hand", False)
    is_closed = phase in (Phase.PLACED, Phase.PREPARED)
    is_as_it_stands = command.arguments.get("one_phase", False) is None
    is_one_phase = not is_closed if is_as_it_stands else flag(command, "one_phase", not transaction.xid)
    if phase is Phase.HEURISTIC:
        return
    if is_by_hand:
        _check_by_hand(transaction, (Phase.PREPARED,))
    elif is_one_phase and (is_closed or transaction.is_two_phase):
        raise WrongState(f"commit in one phase: transaction {command.txid} is {phase.value}; commit it in its second phase")
    elif transaction.xid and not is_one_phase and not is_closed:
        raise WrongState(f"commit in two phases: transaction {command.txid} is {phase.value}, not prepared; prepare it first")


def _check_by_hand(transaction: Transaction, phases: tuple[Phase, ...]) -> None:
    if transaction.phase not in phases:
        raise WrongState(f"transaction {transaction.txid} is {transaction.phase.value}: only prepared ones are decided by hand")
