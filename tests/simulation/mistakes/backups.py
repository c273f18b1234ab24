"""Planted mistakes about masters with backups and about transactions, for `catalogue.py`, which makes them.

Like the others each switches off one rule in the shipped code, and the simulator has to notice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from brokerha.master.primary import Primary
from brokerha.master.transacting import Transacting
from brokerha.model.ids import Instant
from brokerha.model.records import MasterState
from brokerha.model.requests import TxCommand
from brokerha.model.wire.process_messages import Candidate
from brokerha.nodes.master.runner import MasterRunner
from brokerha.replication.journal import line as line_module
from brokerha.replication.journal.follower import JournalFollower
from brokerha.replication.journal.line import JournalLine, Placed
from brokerha.replication.role import role as role_module
from brokerha.replication.role.gate import Gate
from brokerha.replication.role.role import Role, Standing, Verdict, judge
from brokerha.replication.role.table import RoleState
from brokerha.transactions.coordinator import Coordinator
from brokerha.transactions.deciding import Deciding
from brokerha.transactions.locks import Locks
from brokerha.transactions.participant import Participant
from brokerha.transactions.transaction import Transaction
from tests.simulation.mistakes.patches import Patch, always, never, nothing
from tests.simulator.disk import SimJournal

# The replacements below take ``self`` of classes whose insides they must touch.


def _keep_no_promise(self: SimJournal, view: int) -> None:
    self.process.world.checkers.on_promise(self.process, view)


def _judge_without_looking(candidate: Candidate, own: Standing) -> Verdict:
    return _judge(candidate, replace(own, last=(0, 0)))


_judge = judge


def _vote_again(candidate: Candidate, own: Standing) -> Verdict:
    return _judge(candidate, replace(own, promised=0))


def _obey_anybody(self: JournalFollower, sender: str, message: Any, now: Instant) -> bool:
    self.view, self.primary = min(self.view, message.view), self.primary or sender
    return _on_replicate(self, sender, message, now)


_on_replicate = JournalFollower.on_replicate


def _never_parted(self: JournalLine, previous: tuple[int, int], items: Any, *, is_full: bool) -> Placed:
    placed = _place(self, previous, items, is_full=is_full)
    return Placed.KNOWN if placed is Placed.PARTED else placed


_place = JournalLine.place


def _votes_do_not_matter(_self: Role) -> int:
    return 1


def _decide_at_once(self: Deciding, transaction: Transaction) -> str:
    del self, transaction
    return ""


def _lost_counts(self: Deciding, transaction: Transaction, backup: str, reason: str, now: Instant) -> None:
    del reason
    if transaction.feed is not None:
        transaction.feed.on_prepared(backup)
        self.count_votes(transaction, now)


def _recover_nothing(self: Coordinator, state: MasterState) -> None:
    state.prepared = {txid: each for txid, each in state.prepared.items() if not each.xid}
    _recover(self, state)


_recover = Coordinator._recover


def _recover_without_locks(self: Coordinator, state: MasterState) -> None:
    _recover(self, state)
    self.book.locks = Locks()


def _say_prepared_early(self: Participant, joined: Any, kind: str, data: bytes) -> None:
    _on_event(self, joined, kind, data)
    self._on_durable(joined)


_on_event = Participant._on_event


def _leave_body_empty(self: JournalLine, entry: Any) -> bool:
    _fill(self, entry)
    return True


_fill = JournalLine._fill


def _forget_rollback(self: Deciding, transaction: Transaction, reason: str, *, is_kept: bool = True) -> None:
    transaction.is_recorded = False
    _abort(self, transaction, reason, is_kept=is_kept)


_abort = Deciding.abort


def _drop_held(self: Primary, number: int, ready: Any, messages: Any, now: Instant) -> None:
    """Shows messages at once, holds answers only."""
    self.gate._free_messages.extend(messages)
    _hold(self, number, ready, (), now)


_hold = Primary.hold


def _halves(_self: object) -> bool:
    return False


def _stay(self: Role, view: int, now: Instant) -> None:
    if self.state is not RoleState.PRIMARY:
        _on_view(self, view, now)


_on_view = Role.on_view


def _commit_again(self: Deciding, command: TxCommand, ask: Any, now: Instant) -> None:
    self._book.answer(command.ticket, command.txid, state="committed", lsn=0)
    del ask, now


def _show(self: MasterRunner, show: Callable[[], None]) -> None:
    del self
    show()


BACKUP_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "gate left open": lambda: [(Gate, "is_through", always)],
    "messages not held for backups": lambda: [(Primary, "hold", _drop_held)],
    "outcomes told before they are safe": lambda: [(MasterRunner, "when_safe", _show)],
    "older view obeyed": lambda: [
        (JournalFollower, "on_replicate", _obey_anybody),
        (Role, "obeys", always),
        (JournalFollower, "refuse_below", nothing),
    ],
    "promise forgotten over a restart": lambda: [(SimJournal, "promise", _keep_no_promise)],
    "vote without looking at the last record": lambda: [(role_module, "judge", _judge_without_looking)],
    "two votes for one view": lambda: [(role_module, "judge", _vote_again)],
    "primary without votes": lambda: [(Role, "votes_needed", property(_votes_do_not_matter))],
    "tail that parted is kept": lambda: [(JournalLine, "place", _never_parted)],
    "body left empty": lambda: [(JournalLine, "_fill", _leave_body_empty)],
    "halves of a turn written": lambda: [(line_module._Halves, "are_open", property(_halves))],
    "decided before it is prepared": lambda: [(Deciding, "_lacking", _decide_at_once)],
    "prepared said before it is durable": lambda: [(Participant, "_on_event", _say_prepared_early)],
    "lost backup counts as prepared": lambda: [(Deciding, "lose", _lost_counts)],
    "prepared transactions lost at fail-over": lambda: [(Coordinator, "_recover", _recover_nothing)],
    "locks released at fail-over": lambda: [(Coordinator, "_recover", _recover_without_locks)],
    "rollback of a prepared one not written": lambda: [(Deciding, "abort", _forget_rollback)],
    "presumed without looking at the log": lambda: [(Transacting, "is_known", never)],
    "second commit answered blindly": lambda: [(Deciding, "_commit_again", _commit_again)],
    "former primary goes on": lambda: [(Role, "on_view", _stay)],
}
"""Every mistake about backups and transactions, by what goes wrong."""
