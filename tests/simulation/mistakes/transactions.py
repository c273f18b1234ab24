"""Planted mistakes about transactions: what is prepared, what isolated ones have read, and large ones; for `catalogue.py`, which makes them.

Each promises too early, forgets a promise, keeps what is over, lets others spoil what was promised, or does not judge what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from brokerha.master.transacting import Transacting
from brokerha.model import unfolding
from brokerha.model.ids import Lsn, TxId
from brokerha.model.operations import APPLIED, Change, Checked, Operation, ResultRow
from brokerha.model.outside.isolation import SNAPSHOT
from brokerha.model.records import MasterState
from brokerha.model.reserved.branches import ROLLBACK
from brokerha.model.reserved.pieces import Body
from brokerha.stores.execution import batch as batch_module
from brokerha.stores.execution import staged as staged_module
from brokerha.stores.execution.last_changes import Before
from brokerha.stores.execution.prepared import Prepared
from brokerha.stores.execution.staged import Parts
from brokerha.stores.rdf import drafts as drafts_module
from brokerha.stores.rdf.change import PendingQuads
from brokerha.stores.rdf.drafts import Draft, Drafts
from brokerha.stores.reads import observing
from brokerha.transactions.book import Book
from brokerha.transactions.coordinator import Coordinator
from brokerha.transactions.states import Phase
from brokerha.transactions.transaction import ReadSet, Transaction
from tests.simulation.mistakes.patches import Patch

# The replacements below take ``self`` of classes whose insides they must touch.


_JUDGED: ResultRow = (APPLIED, "", b"", b"")


def _at_once(_self: Transacting, _txid: TxId) -> ResultRow | None:
    return _JUDGED


def _whatever_the_result(self: Transacting, txid: TxId) -> ResultRow | None:
    return None if _result_of(self, txid) is None else _JUDGED


_result_of = Transacting.result_of


def _not_looked_at(self: Coordinator, state: MasterState) -> None:
    _recover(self, state)
    self.book.placed.clear()


def _taken_for_prepared(self: Coordinator, state: MasterState) -> None:
    _recover(self, state)
    for transaction in self.book.placed.values():
        transaction.phase = Phase.PREPARED
    self.book.placed.clear()


_recover = Coordinator._recover


def _no_rollback(self: Book, txid: TxId, step: str, body: bytes = b"") -> None:
    if step != ROLLBACK:
        _place(self, txid, step, body)


_place = Book.place


def _by_nobody(self: Transaction, mono_ms: int, wall_us: int) -> None:
    if self.user:
        del self.pieces[-1]
    _close(self, mono_ms, wall_us)


_close = Transaction.close


def _let_all_pass(_self: Prepared, _changes: Iterable[Change]) -> None:
    return


PREPARE_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "prepared before it is judged": lambda: [(Transacting, "result_of", _at_once)],
    "prepared although it was rejected": lambda: [(Transacting, "result_of", _whatever_the_result)],
    "placed and forgotten at a start": lambda: [(Coordinator, "_recover", _not_looked_at)],
    "placed and taken for prepared at a start": lambda: [(Coordinator, "_recover", _taken_for_prepared)],
    "rolled back and still kept": lambda: [(Book, "place", _no_rollback)],
    "who began it is forgotten": lambda: [(Transaction, "close", _by_nobody)],
    "what is prepared is spoilt": lambda: [(Prepared, "judge", _let_all_pass)],
}


def _demand_nothing(_self: ReadSet, _operations: Iterable[bytes]) -> list[bytes]:
    return []


def _demand_what_is_written(self: ReadSet, operations: Iterable[bytes]) -> list[bytes]:
    level, self.level = self.level, SNAPSHOT
    try:
        return _demands(self, operations)
    finally:
        self.level = level


_demands = ReadSet.demands


def _forget(_self: ReadSet, _found: Sequence[Operation], _lsn: Lsn = 0) -> None:
    return


def _judge_nothing(_operations: Iterable[Checked], _before: Before) -> None:
    return


def _only_the_last(self: ReadSet, found: Sequence[Operation], lsn: Lsn = 0) -> None:
    self._found.clear()
    _add(self, found, lsn)


_add = ReadSet.add

ISOLATION_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "nothing of what was read has to hold": lambda: [(ReadSet, "demands", _demand_nothing)],
    "serializable is snapshot": lambda: [(ReadSet, "demands", _demand_what_is_written)],
    "what was read is forgotten": lambda: [(ReadSet, "add", _forget)],
    "only the last read counts": lambda: [(ReadSet, "add", _only_the_last)],
    "earlier reads are not judged by later ones": lambda: [(observing, "judge_expectations", _judge_nothing)],
    "expectations are not judged at their place": lambda: [(batch_module, "judge_expectations", _judge_nothing)],
}


def _follow_nothing(self: Draft, _others: PendingQuads, _said: set[str], lsn: Lsn) -> None:
    self.repository.engine.commit((), (), lsn)
    self.lsn = lsn


def _draft_what_is_there(self: Drafts, known: Any, repository: str, lsn: Lsn, *, is_cleared: bool) -> Draft:
    draft = _draft(self, known, repository, lsn, is_cleared=False)
    draft.is_cleared = is_cleared
    return draft


def _say_nothing(*_: Any) -> set[str]:
    return set()


def _leave_rows(_self: Parts, _name: TxId, _bodies: Sequence[Body] = ()) -> list[Change]:
    return []


def _leave_none(self: Parts, name: TxId, _bodies: Sequence[Body] = ()) -> list[Change]:
    return _deletes(self, name)


def _leave_pieces(_self: Parts, _changes: Iterable[Change]) -> list[Change]:
    return []


def _number_anew(name: TxId, row: bytes, _published: int, *, with_quads: bool = True) -> Iterator[Change]:
    yield from _changes(name, row, 0, with_quads=with_quads)


_changes = unfolding.changes_in
_deletes = Parts.deletes
_draft = Drafts._draft

LARGE_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "draft of an emptied repository begins with what is there": lambda: [(Drafts, "_draft", _draft_what_is_there)],
    "what others changed is not made in a draft": lambda: [(Draft, "follow", _follow_nothing)],
    "what a large transaction says is not looked for": lambda: [(drafts_module, "_said", _say_nothing)],
    "parts stay after the commit": lambda: [(Parts, "deletes", _leave_rows)],
    "the pieces of a message go with the commit": lambda: [(Parts, "deletes", _leave_none)],
    "the pieces of a message stay when it is taken": lambda: [(Parts, "left_by", _leave_pieces)],
    "messages of each part are numbered anew": lambda: [(staged_module, "changes_in", _number_anew)],
}
