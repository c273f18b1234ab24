"""Drafts: copies of repositories that receive a large transaction while it is staged, so that its commit is short.

    stage part 1      a draft is made with hard links to the files of the engine; part 1 is applied to it
    stage part 2      part 2 is applied
    ...               others write to the repository meanwhile
    commit            their changes are applied to the draft too, except to quads that the transaction itself sets;
                      then the draft becomes the repository

If the transaction empties a repository first, its draft begins empty and ignores the changes of others.

A draft is not durable and has no readers. After a restart, and after a failed batch, it is made again from the parts in the
reserved table. The result depends on these and the content alone: it is the same net change, whenever the draft began.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgpack

from brokerha.model.ids import Lsn, TxId
from brokerha.model.operations import Add, Checked, Clear, QuadsChanged, Remove, unpack_effect
from brokerha.model.unfolding import lines_of
from brokerha.stores.comparing.fingerprint import quads_digest
from brokerha.stores.rdf.change import PendingQuads, QuadChange
from brokerha.stores.rdf.repositories import Repositories, Repository

PARTS_AT_ONCE = 3
"""Limit of parts applied to a draft when one part is staged; a late draft catches up with it."""
FLUSH_QUADS = 200_000
"""Number of quads after which a draft is flushed: the engine holds unflushed ones in memory, about 350 bytes each."""
CATCH_UP_LSNS = 50_000
"""Number of LSNs after which changes of others are applied to a draft, to bound their memory."""

Part = Callable[[int], list[Checked] | None]
"""Operations of the part with a number; None when it is not staged."""
Effects = Callable[[Lsn], Iterator[bytes]]
"""Effects from an LSN to the last; fewer when the log does not reach back."""
_OF_QUADS = msgpack.packb("quads")


class Draft:
    """One repository with the changes of one large transaction."""

    __slots__ = ("_unflushed", "digest", "is_cleared", "items", "lsn", "origin", "repository")

    def __init__(self, repository: Repository, origin: str, lsn: Lsn, *, is_cleared: bool) -> None:
        self.repository = repository
        self.origin = origin
        """Directory of the repository that it copies."""
        self.is_cleared = is_cleared
        """Whether it began empty; then it replaces the content of the repository."""
        self.lsn = lsn
        """LSN up to which it has the changes of others."""
        self.digest = 0
        """Change of the repository's digest by the transaction."""
        self.items = 0
        """Change of the number of quads."""
        self._unflushed = 0

    def make(self, operation: Add | Remove) -> None:
        """Apply an operation of the transaction. Raises StoreError."""
        is_added = isinstance(operation, Add)
        engine, lines = self.repository.engine, lines_of(operation.text)
        changed = engine.include(lines, is_added=is_added)
        self._unflushed += len(lines)
        if self._unflushed > FLUSH_QUADS:
            engine.flush()
            self._unflushed = 0
        self.digest ^= quads_digest(self.repository.name, changed)
        self.items += len(changed) if is_added else -len(changed)

    def follow(self, others: PendingQuads, said: set[str], lsn: Lsn) -> None:
        """Apply the changes of others, except to quads that the transaction itself sets (``said``)."""
        # For such a quad the net effect of the transaction is reversed: a change becomes none, or none a change.
        self.digest ^= quads_digest(self.repository.name, said)
        self.items -= sum(1 if line in others.added else -1 for line in said)
        self.repository.engine.commit(others.removed - said, others.added - said, lsn)
        self.lsn = lsn


class _Transaction:
    """The drafts of one large transaction."""

    __slots__ = ("drafts", "is_short", "made")

    def __init__(self) -> None:
        self.drafts: dict[str, Draft] = {}
        self.is_short = False
        """Whether an operation was skipped, as its repository did not exist yet."""
        self.made = 0
        """Number of parts applied, from the first on."""


class Drafts:
    """The drafts of one store; used by the writing thread only."""

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories
        self.transactions: dict[TxId, _Transaction] = {}
        """Transactions with drafts; usually empty."""

    def stage(self, name: TxId, part: Part, effects: Effects, lsn: Lsn) -> None:
        """Apply more parts after one was staged. All changes before ``lsn`` are committed. Raises StoreError."""
        known = self.transactions.setdefault(name, _Transaction())
        self._make(known, part, known.made + PARTS_AT_ONCE, lsn)
        if any(lsn - draft.lsn > CATCH_UP_LSNS for draft in known.drafts.values()):
            self._follow(known, part, effects, lsn)

    def finished(self, name: TxId, parts: int, part: Part, effects: Effects, lsn: Lsn) -> list[Draft]:
        """Return the repositories after the transaction at ``lsn``; all earlier changes are committed. Raises StoreError."""
        known = self.transactions.setdefault(name, _Transaction())
        self._make(known, part, parts, lsn)
        if known.is_short or not self._follow(known, part, effects, lsn):
            # A repository was recreated, or the log is too short: start again from the present content.
            self.drop(name)
            known = self.transactions[name] = _Transaction()
            self._make(known, part, parts, lsn)
        return list(known.drafts.values())

    def taken(self, name: TxId) -> None:
        """Forget the drafts of a transaction, which have become repositories."""
        self.transactions.pop(name, None)

    def drop(self, name: TxId) -> None:
        """Delete the drafts of a transaction."""
        known = self.transactions.pop(name, None)
        for draft in known.drafts.values() if known else ():
            self._repositories.drop_draft(draft.repository)

    def clear(self) -> None:
        """Delete all drafts; staged transactions get new ones."""
        for name in list(self.transactions):
            self.drop(name)

    def keep(self, names: Collection[TxId]) -> None:
        """Delete the drafts of all other transactions."""
        for name in [name for name in self.transactions if name not in names]:
            self.drop(name)

    def _make(self, known: _Transaction, part: Part, last: int, lsn: Lsn) -> None:
        while known.made < last and (operations := part(known.made + 1)) is not None:
            for operation in operations:
                if not isinstance(operation, (Clear, Add, Remove)):
                    continue
                if operation.repository not in self._repositories.listed:
                    known.is_short = True
                    continue
                draft = self._draft(known, operation.repository, lsn, is_cleared=isinstance(operation, Clear))
                if not isinstance(operation, Clear):
                    draft.make(operation)
            known.made += 1

    def _draft(self, known: _Transaction, repository: str, lsn: Lsn, *, is_cleared: bool) -> Draft:
        draft = known.drafts.get(repository)
        if draft is None:
            origin = self._repositories.listed[repository].directory
            copy = self._repositories.draft(repository, lsn, is_empty=is_cleared)
            draft = known.drafts[repository] = Draft(copy, origin, lsn, is_cleared=is_cleared)
        return draft

    def _follow(self, known: _Transaction, part: Part, effects: Effects, lsn: Lsn) -> bool:
        """Apply the changes of others to all drafts; return False when they are not known."""
        listed = self._repositories.listed
        for repository, draft in known.drafts.items():
            if repository not in listed or (listed[repository].directory != draft.origin and not draft.is_cleared):
                return False
            if draft.is_cleared:
                draft.lsn = lsn
                continue
            others, reached = PendingQuads(), draft.lsn
            for effect in effects(draft.lsn + 1):
                reached += 1
                for change in unpack_effect(effect) if _OF_QUADS in effect else ():
                    if isinstance(change, QuadsChanged) and change.repository == repository:
                        others.include(QuadChange(change.removed, change.added))
            if reached != lsn:
                return False
            draft.follow(others, _said(repository, others, _parts(part, known.made)), lsn)
        return True


def _parts(part: Part, last: int) -> Iterator[list[Checked]]:
    for number in range(1, last + 1):
        yield part(number) or []


def _said(repository: str, others: PendingQuads, parts: Iterator[list[Checked]]) -> set[str]:
    """Return the quads changed by others that the transaction adds or removes itself."""
    changed = others.removed | others.added
    said: set[str] = set()
    for operations in parts if changed else ():
        for operation in operations:
            if isinstance(operation, (Add, Remove)) and operation.repository == repository:
                said |= changed.intersection(lines_of(operation.text))
    return said
