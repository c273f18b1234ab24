"""Planted mistakes about what is prepared (transactions, sections 3 and 5); for `catalogue.py`, which makes them.

Each promises too early, forgets a promise, keeps what is over, or lets others spoil what was promised; the simulator has to notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from brokerha.master.transacting import Transacting
from brokerha.model.ids import TxId
from brokerha.model.operations import APPLIED, Change, ResultRow
from brokerha.model.records import MasterState
from brokerha.model.reserved.branches import ROLLBACK
from brokerha.stores.execution.prepared import Prepared
from brokerha.transactions.book import Book
from brokerha.transactions.coordinator import Coordinator
from brokerha.transactions.states import Phase
from brokerha.transactions.transaction import Transaction
from tests.simulation.mistakes.workers import Patch

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
