"""The repository side of one transaction while it is evaluated: what it would change, with nothing changed yet.

    add(number, operation) ...  finish()   ->   changes    repositories that come, quads, repositories that go, the control suite
                                                presence   which repositories exist now
                                                control    what became of the control suite

A transaction that fails is dropped as this object, so that it leaves no trace; only the directory of a repository that it
made has to be taken back (`discard`). A large repository that is emptied is replaced by an empty one, in one step whatever its size: what
follows in the transaction is evaluated on that. A repository sees only its own operations, so these are evaluated together and in
order, however they were mixed with others.

Must not write anywhere, and must not depend on anything but the content, the transaction id, the timestamp and the operations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from brokerha.model.control import Check
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.operations import (
    Add,
    Change,
    Checked,
    Clear,
    Cleared,
    ControlAdd,
    ControlRemove,
    CreateRepository,
    Delete,
    OnQuads,
    Put,
    QuadsChanged,
    Remove,
    RemoveRepository,
    Update,
)
from brokerha.model.reserved.about import repository_of
from brokerha.stores.control.suite import ControlChange, Suite
from brokerha.stores.execution.presence import Presence
from brokerha.stores.rdf.change import PendingQuads, QuadChange
from brokerha.stores.rdf.repositories import Repositories, Repository
from brokerha.stores.rdf.repository import RdfRepository

LINES_BEFORE_COMMIT = 400
"""How many waiting lines are put under operations that need the engine, all in all, before they are committed instead.

Each such operation has to wade through what waits (about 7 us a line), and a commit ends that for about the price
of this many lines. So the price of waiting is never more than twice what it could be, whatever comes."""
CLEAR_ABOVE_QUADS = 10_000
CLEAR_ABOVE_CHARACTERS = 1024 * 1024
"""When all of a repository goes that holds more, the effect names none of its quads."""


class Evaluation:
    """Evaluates the operations of one transaction."""

    __slots__ = (
        "_clear_above",
        "_cleared",
        "_commit_earlier",
        "_is_union",
        "_lsn",
        "_made",
        "_repositories",
        "_timestamp",
        "_txid",
        "_waiting",
        "changes",
        "control",
        "presence",
        "quads",
    )

    def __init__(
        self,
        repositories: Repositories,
        lsn: Lsn,
        txid: TxId,
        timestamp: Timestamp,
        commit_earlier: Callable[[], None],
        suite: Suite,
        is_union: Callable[[str], bool],
        clear_above: int,
    ) -> None:
        """``is_union`` says of a repository whether its default graph is the union of all, before the transaction.

        ``clear_above``: where more quads than that go with all of a repository, no effect names them.
        """
        self.presence = Presence(repositories.listed)
        self.quads: dict[str, QuadChange] = {}
        self.control = ControlChange(suite)
        self.changes: list[Change] = []
        """What it would change, from `finish` on: repositories that come, quads, repositories that go, the control suite."""
        self._repositories = repositories
        self._lsn = lsn
        self._txid = txid
        self._timestamp = timestamp
        self._commit_earlier = commit_earlier
        self._is_union = is_union
        self._clear_above = clear_above
        self._cleared: dict[str, int] = {}
        """Repositories whose content before the transaction goes unnamed, and how many quads that is."""
        self._made: dict[str, Repository] = {}
        self._waiting: dict[str, list[tuple[int, OnQuads]]] = {}

    def add(self, number: int, operation: Checked) -> None:
        """Take in an operation; ``number`` is its place in the transaction. Raises Rejected, StoreError.

        Of those on keys it wants only what is kept about repositories: they have to exist.
        """
        match operation:
            case ControlAdd() | ControlRemove():
                self.control.add(operation)
            case Put() | Delete():
                self.presence.check(repository_of(operation.key))
            case CreateRepository():
                self._create(operation.repository)
            case RemoveRepository():
                self._remove(operation.repository)
            case Update() | Add() | Remove() | Clear():
                self.presence.check(operation.repository)
                self._waiting.setdefault(operation.repository, []).append((number, operation))

    def finish(self) -> None:
        """Evaluate what was taken in. Raises Rejected when an operation fails, StoreError."""
        for name in list(self._waiting):
            self._evaluate(name)
        created, removed = self.presence.created(), self.presence.removed()
        changes: list[Change] = [Cleared("clear", name, quads) for name, quads in self._cleared.items()]
        changes += [CreateRepository("create-repository", name) for name in created]
        for name, change in self.quads.items():
            if (change.removed or change.added) and (self.presence.exists(name) or name in removed):
                changes.append(QuadsChanged("quads", name, change.removed, change.added))
        changes += [RemoveRepository("remove-repository", name) for name in removed]
        self.changes = [*changes, *self.control.changes()]

    def repository(self, name: str) -> Repository:
        """The repository of that name as the transaction has it: listed, or made by it."""
        return self._made.get(name) or self._repositories.listed[name]

    def touched(self) -> list[str]:
        """Repositories that come, go, or have other content after the transaction."""
        return [
            change.repository
            for change in self.changes
            if isinstance(change, (QuadsChanged, Cleared, CreateRepository, RemoveRepository))
        ]

    def problems(self, name: str, checks: list[Check]) -> dict[str, str]:
        """Which of these checks about a repository do not hold after the transaction, and why. Raises Rejected, StoreError."""
        if not self.presence.exists(name):
            return {check.name: f"repository {name!r} does not exist" for check in checks}
        repository = self.repository(name)
        if repository.pending:
            self._wade(repository)
        # Such a graph is gone for good with a commit only; until then GRAPH ?g would still find it.
        if repository.engine.must_commit_first(checks, repository.pending):
            self._commit_earlier()
        state = repository.pending.copy()
        state.include(self.quads.get(name, QuadChange()))
        return repository.engine.problems(checks, state)

    def discard(self) -> None:
        """Take back what is on disk already."""
        for repository in self._made.values():
            self._repositories.unmake(repository)
        self._made.clear()

    def discard_unused(self) -> None:
        """Take back what the transaction made and removed again."""
        # An emptied one goes by the change that removes it.
        for name in [name for name in self._made if not self.presence.exists(name) and name not in self._cleared]:
            self._repositories.unmake(self._made.pop(name))
            self.quads.pop(name, None)

    def _create(self, name: str) -> None:
        self.presence.create(name)
        # Removed and made again within one transaction is the same repository, emptied: what counts is the net change.
        if name not in self._repositories.listed and name not in self._made:
            self._make(name)

    def _remove(self, name: str) -> None:
        self.presence.check(name)
        self._evaluate(name, is_last=False)
        self._clear(name)
        repository = self.repository(name)
        before = self.quads.get(name, QuadChange())
        all_lines = (repository.lines() - set(before.removed)) | set(before.added)
        self._include(name, QuadChange(removed=tuple(sorted(all_lines))))
        self.presence.remove(name)

    def _evaluate(self, name: str, *, is_last: bool = True) -> None:
        operations = self._waiting.pop(name, None)
        if not operations:
            return
        repository = self.repository(name)
        engine = repository.engine
        union = self._is_union(name)
        if repository.pending and any(engine.needs_engine(operation) for _, operation in operations):
            if union:
                # Then the clause can be evaluated on the engine alone, which is far cheaper (sparql/union.py).
                self._commit_earlier()
            else:
                self._wade(repository)
        base = repository.pending
        if name in self.quads:
            base = base.copy()
            base.include(self.quads[name])
        clear = partial(self._clear, name)
        change = engine.change_of(operations, self._txid, self._timestamp, base, union=union, clear=clear, is_last=is_last)
        self._include(name, change)

    def _clear(self, name: str) -> RdfRepository | None:
        """Put an empty repository in the place of one that held too much for it to be named; returns its engine. None for a small one."""
        if name in self._made:
            return None
        before = self._repositories.listed[name]
        if before.items <= self._clear_above and sum(map(len, before.lines())) <= CLEAR_ABOVE_CHARACTERS:
            return None
        self._cleared[name] = before.items
        self.quads[name] = QuadChange()
        return self._make(name).engine

    def _make(self, name: str) -> Repository:
        made = self._made[name] = self._repositories.make(name, self._lsn)
        return made

    def _wade(self, repository: Repository) -> None:
        """What waits is to be put under an operation; commit it instead when that has become too much."""
        repository.waded_lines += len(repository.pending.removed) + len(repository.pending.added)
        if repository.waded_lines > LINES_BEFORE_COMMIT:
            self._commit_earlier()

    def _include(self, name: str, change: QuadChange) -> None:
        before = self.quads.get(name)
        if before is not None:
            both = PendingQuads()
            both.include(before)
            both.include(change)
            change = both.change()
        self.quads[name] = change
