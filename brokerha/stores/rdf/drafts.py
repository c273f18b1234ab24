"""Drafts: copies of repositories in which a large transaction is made while it is still staged, so that its commit need not wait for that.

    stage part 1      the draft is made: hard links to the files of the engine; the part is made in it
    stage part 2      and the next one
    ...               others write to the repository meanwhile
    commit            what they changed is made in the draft, too, unless the transaction says what becomes of that quad;
                      then the draft is the repository

Of a repository that the transaction empties first, the draft begins empty, and nothing that others change has to be made in it.

A draft is not durable and nobody reads it: after a restart, and whenever a batch failed, it is made anew from the parts in the reserved
table. What comes out depends on nothing but these and the content: the same net change, whenever the draft was begun.
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
"""Parts that are made in a draft, at most, when one is staged; a draft that is begun late gets along by that."""
FLUSH_QUADS = 200_000
"""A draft is flushed after so many: else the engine holds them in memory, about 350 bytes each."""
CATCH_UP_LSNS = 50_000
"""What others changed is made in a draft after so many LSNs, so that it need not be held in memory as a whole."""

Part = Callable[[int], list[Checked] | None]
"""Operations of the part of a number; None when it is not staged."""
Effects = Callable[[Lsn], Iterator[bytes]]
"""Effects from one LSN on, up to the last; fewer when the log does not reach back."""
_OF_QUADS = msgpack.packb("quads")


class Draft:
    """One repository as one large transaction leaves it."""

    __slots__ = ("_unflushed", "digest", "is_cleared", "items", "lsn", "origin", "repository")

    def __init__(self, repository: Repository, origin: str, lsn: Lsn, *, is_cleared: bool) -> None:
        self.repository = repository
        self.origin = origin
        """Directory of the repository that it is a copy of."""
        self.is_cleared = is_cleared
        """Whether it began empty: then it is what the repository is afterwards, whatever that held."""
        self.lsn = lsn
        """Up to which it holds what others changed."""
        self.digest = 0
        """What the transaction does to that of the repository's quads."""
        self.items = 0
        """And to the number of quads."""
        self._unflushed = 0

    def make(self, operation: Add | Remove) -> None:
        """Make an operation of the transaction. Raises StoreError."""
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
        """Make what others changed since, but for the quads of which the transaction itself says what becomes of them."""
        # If it changed such a quad it does not any more, or the other way round.
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
        """Whether something was not made, as its repository was not there yet."""
        self.made = 0
        """Parts that are made in them, the first ones."""


class Drafts:
    """Those of one store; used by the writing thread only."""

    def __init__(self, repositories: Repositories) -> None:
        self._repositories = repositories
        self.transactions: dict[TxId, _Transaction] = {}
        """What is known of each that has any; empty nearly always."""

    def stage(self, name: TxId, part: Part, effects: Effects, lsn: Lsn) -> None:
        """A part was staged: go on with what is there. All that is before ``lsn`` is committed. Raises StoreError."""
        known = self.transactions.setdefault(name, _Transaction())
        self._make(known, part, known.made + PARTS_AT_ONCE, lsn)
        if any(lsn - draft.lsn > CATCH_UP_LSNS for draft in known.drafts.values()):
            self._follow(known, part, effects, lsn)

    def finished(self, name: TxId, parts: int, part: Part, effects: Effects, lsn: Lsn) -> list[Draft]:
        """The repositories as the transaction of these parts leaves them at ``lsn``; all that is before is committed. Raises StoreError."""
        known = self.transactions.setdefault(name, _Transaction())
        self._make(known, part, parts, lsn)
        if known.is_short or not self._follow(known, part, effects, lsn):
            # Somebody made the repository anew, or the log is too short: begin anew, at the present content.
            self.drop(name)
            known = self.transactions[name] = _Transaction()
            self._make(known, part, parts, lsn)
        return list(known.drafts.values())

    def taken(self, name: TxId) -> None:
        """The drafts of a transaction are repositories now."""
        self.transactions.pop(name, None)

    def drop(self, name: TxId) -> None:
        """Delete the drafts of a transaction."""
        known = self.transactions.pop(name, None)
        for draft in known.drafts.values() if known else ():
            self._repositories.drop_draft(draft.repository)

    def clear(self) -> None:
        """Delete all drafts; what is staged gets new ones."""
        for name in list(self.transactions):
            self.drop(name)

    def keep(self, names: Collection[TxId]) -> None:
        """Delete the drafts of all transactions but these."""
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
        """Make what others changed in all drafts; False when that cannot be known."""
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
    """The quads that others changed and of which a transaction says whether they are there after it."""
    changed = others.removed | others.added
    said: set[str] = set()
    for operations in parts if changed else ():
        for operation in operations:
            if isinstance(operation, (Add, Remove)) and operation.repository == repository:
                said |= changed.intersection(lines_of(operation.text))
    return said
