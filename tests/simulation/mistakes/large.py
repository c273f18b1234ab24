"""Planted mistakes about large transactions (stores/execution/staged.py, stores/rdf/drafts.py); for `catalogue.py`, which makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from brokerha.model import unfolding
from brokerha.model.ids import Lsn, TxId
from brokerha.model.operations import Change
from brokerha.model.reserved.pieces import Body
from brokerha.stores.execution import staged as staged_module
from brokerha.stores.execution.staged import Parts
from brokerha.stores.rdf import drafts as drafts_module
from brokerha.stores.rdf.change import PendingQuads
from brokerha.stores.rdf.drafts import Draft
from tests.simulation.mistakes.workers import Patch

# The replacements below take ``self`` of classes whose insides they must touch.


def _follow_nothing(self: Draft, _others: PendingQuads, _said: set[str], lsn: Lsn) -> None:
    self.repository.engine.commit((), (), lsn)
    self.lsn = lsn


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

LARGE_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "what others changed is not made in a draft": lambda: [(Draft, "follow", _follow_nothing)],
    "what a large transaction says is not looked for": lambda: [(drafts_module, "_said", _say_nothing)],
    "parts stay after the commit": lambda: [(Parts, "deletes", _leave_rows)],
    "the pieces of a message go with the commit": lambda: [(Parts, "deletes", _leave_none)],
    "the pieces of a message stay when it is taken": lambda: [(Parts, "left_by", _leave_pieces)],
    "messages of each part are numbered anew": lambda: [(staged_module, "changes_in", _number_anew)],
}
