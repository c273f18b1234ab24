"""The repository side of one transaction, before any change is made.

    add(number, operation) ...  finish()   ->   changes    new repositories, quads, removed repositories, the control suite
                                                presence   which repositories exist now
                                                control    changes of the control suite

A failed transaction is dropped with this object and leaves no trace; only the directory of a repository that it made must be
deleted (`discard`). An emptied large repository is replaced by an empty one, in one step whatever its size; later operations of
the transaction are evaluated on that. A repository sees only its own operations, so these are evaluated together and in order,
however they were mixed with others.

Must not write anywhere. Must depend on the content, the transaction id, the timestamp and the operations alone.

`Presence` knows which repositories exist for a transaction, and its limits: rules that must be identical in every store.

>>> presence = Presence({"main"})
>>> presence.create("new"), presence.remove("main"), presence.create("main")
(None, None, None)
>>> presence.created(), presence.removed()
(['new'], [])
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from brokerha.model.control import Check
from brokerha.model.errors import TOO_MUCH, Rejected
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.operations import (
    EFFECT_LIMIT_BYTES,
    Add,
    Change,
    Checked,
    Clear,
    Cleared,
    ControlAdd,
    ControlRemove,
    CreateRepository,
    Delete,
    OnKey,
    OnQuads,
    Put,
    QuadsChanged,
    Remove,
    RemoveRepository,
    Update,
    pack_effect,
)
from brokerha.model.reserved.about import repository_of
from brokerha.stores.control.suite import ControlChange, Suite
from brokerha.stores.rdf.change import PendingQuads, QuadChange
from brokerha.stores.rdf.repositories import Repositories, Repository
from brokerha.stores.rdf.repository import RdfRepository

REPOSITORY_LIMIT = 256
"""Limit of repositories in one cluster; each has an engine with its own files and threads on every worker."""
REASON_LIMIT = 2000
"""Limit of characters of a reason; an error can quote the whole statement."""
LINES_BEFORE_COMMIT = 400
"""Pending lines put under operations that need the engine, in total, before they are committed instead.

Each such operation has to work through the pending lines (about 7 us a line), and a commit ends that at about the price of this
many lines. So the total price is at most twice the optimum."""
CLEAR_ABOVE_QUADS = 10_000
CLEAR_ABOVE_CHARACTERS = 1024 * 1024
"""Above one of these limits, the effect that empties a repository names none of its quads."""


def check_size(on_keys: Iterable[OnKey], rest: Collection[Change]) -> None:
    """Raise Rejected when these changes exceed the limit of one effect.

    Operations on keys stand for their changes: alone they are not larger than the body that they came in.
    """
    if rest and (size_bytes := len(pack_effect([*on_keys, *rest]))) > EFFECT_LIMIT_BYTES:
        raise Rejected(
            f"{TOO_MUCH}the transaction changes {size_bytes} bytes; the limit is {EFFECT_LIMIT_BYTES}: split it, "
            "for instance by DELETE WHERE over SELECT ... LIMIT 50000"
        )


class Presence:
    """The existing names: those listed before the transaction, with its own changes on top."""

    __slots__ = ("_changed", "_listed")

    def __init__(self, listed: Collection[str]) -> None:
        self._listed = listed
        self._changed: dict[str, bool] = {}

    def exists(self, name: str) -> bool:
        """Tell whether the repository exists for the next operation."""
        changed = self._changed.get(name)
        return name in self._listed if changed is None else changed

    def check(self, name: str) -> None:
        """Raise Rejected unless it exists."""
        if not self.exists(name):
            raise Rejected(f"repository {name!r} does not exist")

    def create(self, name: str) -> None:
        """Take note of a new repository. Raises Rejected when it exists, or when there are too many."""
        if self.exists(name):
            raise Rejected(f"repository {name!r} exists already")
        if len(self._listed) + len(self.created()) - len(self.removed()) >= REPOSITORY_LIMIT:
            raise Rejected(f"there are {REPOSITORY_LIMIT} repositories, which is the limit")
        self._changed[name] = True

    def remove(self, name: str) -> None:
        """Take note of a removed repository. Raises Rejected unless it exists."""
        self.check(name)
        self._changed[name] = False

    def created(self) -> list[str]:
        """Return the names that exist after the transaction and did not before, sorted."""
        return sorted(name for name, exists in self._changed.items() if exists and name not in self._listed)

    def removed(self) -> list[str]:
        """Return the names that existed before the transaction and do not after it, sorted."""
        return sorted(name for name, exists in self._changed.items() if not exists and name in self._listed)


def reason_of(error: Exception) -> str:
    """Return the reason of a rejection. It must not depend on the machine, because it is the same on every site."""
    return str(error)[:REASON_LIMIT]


class Evaluation:
    """Evaluation of the operations of one transaction."""

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
        """``is_union`` tells whether the default graph of a repository is the union of all its graphs, before the transaction.

        ``clear_above``: an operation that empties a repository with more quads has an effect without them.
        """
        self.presence = Presence(repositories.listed)
        self.quads: dict[str, QuadChange] = {}
        self.control = ControlChange(suite)
        self.changes: list[Change] = []
        """The changes, after `finish`: new repositories, quads, removed repositories, the control suite."""
        self._repositories = repositories
        self._lsn = lsn
        self._txid = txid
        self._timestamp = timestamp
        self._commit_earlier = commit_earlier
        self._is_union = is_union
        self._clear_above = clear_above
        self._cleared: dict[str, int] = {}
        """Repositories that are emptied without naming their quads, and how many quads they had."""
        self._made: dict[str, Repository] = {}
        self._waiting: dict[str, list[tuple[int, OnQuads]]] = {}

    def add(self, number: int, operation: Checked) -> None:
        """Take in an operation; ``number`` is its place in the transaction. Raises Rejected, StoreError.

        Of operations on keys it takes only those about repositories, which must exist.
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
        """Evaluate the operations. Raises Rejected when one fails, StoreError."""
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
        """Return the repository as the transaction has it: listed, or made by it."""
        return self._made.get(name) or self._repositories.listed[name]

    def touched(self) -> list[str]:
        """Return repositories that the transaction creates, removes or changes."""
        return [
            change.repository
            for change in self.changes
            if isinstance(change, (QuadsChanged, Cleared, CreateRepository, RemoveRepository))
        ]

    def problems(self, name: str, checks: list[Check]) -> dict[str, str]:
        """Return the checks about a repository that fail after the transaction: name -> reason. Raises Rejected, StoreError."""
        if not self.presence.exists(name):
            return {check.name: f"repository {name!r} does not exist" for check in checks}
        repository = self.repository(name)
        if repository.pending:
            self._wade(repository)
        # Only a commit removes such a graph; until then GRAPH ?g would still find it.
        if repository.engine.must_commit_first(checks, repository.pending):
            self._commit_earlier()
        state = repository.pending.copy()
        state.include(self.quads.get(name, QuadChange()))
        return repository.engine.problems(checks, state)

    def discard(self) -> None:
        """Delete what is on disk already."""
        for repository in self._made.values():
            self._repositories.unmake(repository)
        self._made.clear()

    def discard_unused(self) -> None:
        """Delete repositories that the transaction made and removed again."""
        # The change that removes an emptied repository deletes it.
        for name in [name for name in self._made if not self.presence.exists(name) and name not in self._cleared]:
            self._repositories.unmake(self._made.pop(name))
            self.quads.pop(name, None)

    def _create(self, name: str) -> None:
        self.presence.create(name)
        # A repository that is removed and made again in one transaction is the same one, emptied: the net change counts.
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
                # After a commit the clause can be evaluated on the engine alone, which is far cheaper (sparql/union.py).
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
        """Replace a repository that is too large to name its quads by an empty one; return its engine. None for a small one."""
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
        """Count pending lines that go under an operation; commit them when the total is above the limit."""
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
