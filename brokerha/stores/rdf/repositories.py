"""The RDF repositories of one worker: which there are, what waits for each, and how far each is durable.

    listed     repositories that exist for the next transaction          name -> Repository
    fresh      made by a transaction that is not committed yet           its directory is there, the record of it is not
    retired    removed by a transaction that is not committed yet        the record of it is there
    drafts     copies in which something is done that nobody sees yet (drafts.py); one takes the place of its repository, or is deleted

The record in LMDB is what counts. A directory without a record is left over from a crash and is deleted when the
store opens; directory names are numbered and never used twice, so that a repository made again begins empty whatever
still reads the old one. Changes wait in `pending` until LMDB has them durably, then `commit` hands each engine its net
change: an engine is never ahead of the record, and when it is behind the effects log knows what it lacks.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

from brokerha.model.errors import StoreDamaged
from brokerha.model.ids import Lsn
from brokerha.model.invariants import invariant
from brokerha.stores.comparing.fingerprint import packed_digest, quads_digest
from brokerha.stores.execution.state import RepositoryState
from brokerha.stores.rdf.change import PendingQuads
from brokerha.stores.rdf.repository import RdfRepository

OpenEngine = Callable[[Path], RdfRepository]
"""Opens the engine of one repository in its directory; the directory may be new. Raises StoreError."""


class Repository:
    """One repository with what waits for it."""

    __slots__ = (
        "base_lsn",
        "digest",
        "directory",
        "engine",
        "flushed_position",
        "is_dirty",
        "items",
        "name",
        "pending",
        "waded_lines",
    )

    def __init__(self, name: str, engine: RdfRepository, state: RepositoryState) -> None:
        self.name = name
        self.engine = engine
        self.directory = state.directory
        self.flushed_position = state.flushed_position
        self.base_lsn = state.base_lsn
        self.items = state.items
        self.digest = int.from_bytes(state.digest, "big")
        """XOR of those of its quads."""
        self.pending = PendingQuads()
        self.waded_lines = 0
        """Waiting lines that operations went through since the last commit, counted each time (execution/evaluation.py)."""
        self.is_dirty = False
        """Whether the engine has commits that are not durable in it yet."""

    def state(self) -> RepositoryState:
        """What the store's state row says of it."""
        return RepositoryState(self.directory, self.flushed_position, self.base_lsn, self.items, packed_digest(self.digest))

    def lines(self) -> set[str]:
        """All quads, those that wait included."""
        held = set(self.engine.lines())
        held -= self.pending.removed
        held |= self.pending.added
        return held


class Repositories:
    """All of them; used by the writing thread only."""

    def __init__(self, home: Path, open_engine: OpenEngine, crash_point: Callable[[str], None]) -> None:
        self.listed: dict[str, Repository] = {}
        self._home = home
        self._open_engine = open_engine
        self._crash_point = crash_point
        self._fresh: list[Repository] = []
        self._retired: list[Repository] = []
        self._next_number = 0

    def open(self, states: dict[str, RepositoryState]) -> None:
        """Delete what there is no record of, open the rest. Raises StoreDamaged when one is behind what it was, StoreError."""
        recorded = {state.directory for state in states.values()}
        there = {path.name for path in self._home.iterdir()}
        # One that was lost with the power is made again below.
        self._next_number = 1 + max(map(_number_of, recorded | there), default=-1)
        for name in there - recorded:
            shutil.rmtree(self._home / name, ignore_errors=True)
        for name, state in states.items():
            repository = Repository(name, self._open_engine(self._home / state.directory), state)
            self.listed[name] = repository
            position = repository.engine.position
            # What an earlier process committed may still wait for the disk.
            repository.is_dirty = position > state.flushed_position
            if position < state.flushed_position:
                raise StoreDamaged(
                    f"repository {name} is at LSN {position} and has been at {state.flushed_position} before: files are "
                    "missing or older than the rest; take the content from another worker"
                )

    def know_digests(self, states: dict[str, RepositoryState]) -> None:
        """Compute what the state of an older version does not say; all engines are where it says. Raises StoreDamaged."""
        for name, state in states.items():
            if not state.digest:
                self.listed[name].digest = quads_digest(name, self.listed[name].engine.lines())

    def make(self, name: str, lsn: Lsn) -> Repository:
        """Make a repository for the transaction at ``lsn``. It exists for others once it is in `listed`, and committed."""
        directory = f"{name}.{self._next_number}"
        self._next_number += 1
        state = RepositoryState(directory, flushed_position=0, base_lsn=lsn - 1, items=0)
        repository = Repository(name, self._open_engine(self._home / directory), state)
        self._fresh.append(repository)
        return repository

    def unmake(self, repository: Repository) -> None:
        """Take `make` back."""
        self._fresh.remove(repository)
        self._delete(repository)

    def retire(self, name: str) -> None:
        """Take a repository out of the list; its files go once that is committed."""
        self._retired.append(self.listed.pop(name))

    def draft(self, name: str, lsn: Lsn, *, is_empty: bool = False) -> Repository:
        """A copy of a repository, all of it committed at ``lsn``, or an empty one, that nobody knows of until `replace`. Raises StoreError."""
        listed = self.listed[name]
        directory = f"{name}.{self._next_number}"
        self._next_number += 1
        if is_empty:
            state = RepositoryState(directory, flushed_position=0, base_lsn=lsn, items=0)
            return Repository(name, self._open_engine(self._home / directory), state)
        invariant(not listed.pending, "a copy is made of what is committed", repository=name, lsn=lsn)
        listed.engine.backup(self._home / directory)
        state = RepositoryState(
            directory, flushed_position=0, base_lsn=lsn, items=listed.items, digest=packed_digest(listed.digest)
        )
        return Repository(name, self._open_engine(self._home / directory), state)

    def drop_draft(self, repository: Repository) -> None:
        """Delete a copy that nobody knows of."""
        self._delete(repository)

    def replace(self, draft: Repository) -> None:
        """Let a copy be the repository; the files of the one before go when it is committed and nobody reads them any more."""
        self.retire(draft.name)
        self._fresh.append(draft)
        self.listed[draft.name] = draft
        self._crash_point("draft in place")

    def states(self) -> dict[str, RepositoryState]:
        """What the next state row says."""
        return {name: repository.state() for name, repository in self.listed.items()}

    def commit(self, lsn: Lsn) -> None:
        """Bring every engine to ``lsn``, which LMDB has durably. Raises StoreError; calling it again goes on from there."""
        # A transaction that is being evaluated may have made repositories; those stay fresh.
        done = [*self.listed.values(), *self._retired]
        self._fresh = [repository for repository in self._fresh if repository not in done]
        for repository in self.listed.values():
            pending = repository.pending
            if pending:
                repository.engine.commit(pending.removed, pending.added, lsn)
                repository.pending = PendingQuads()
                repository.waded_lines = 0
                repository.is_dirty = True
                self._crash_point("engine committed")
        while self._retired:
            retired = self._retired.pop()
            # Those who read it go on, with files that are opened late as well.
            weakref.finalize(retired.engine, shutil.rmtree, self._home / retired.directory, ignore_errors=True)

    def roll_back(self, states: dict[str, RepositoryState]) -> None:
        """Forget everything since the last commit; ``states`` is what that one wrote."""
        retired, self._retired = self._retired, []
        fresh, self._fresh = self._fresh, []
        for repository in fresh:
            if self.listed.get(repository.name) is repository:
                del self.listed[repository.name]
            self._delete(repository)
        for repository in retired:
            # One that was made and removed since then has no record to go back to.
            if repository not in fresh:
                self.listed[repository.name] = repository
        for name, repository in self.listed.items():
            repository.pending = PendingQuads()
            repository.items = states[name].items
            repository.digest = int.from_bytes(states[name].digest, "big")

    def flush(self, lsn: Lsn) -> None:
        """Make all engines durable; ``lsn`` is where they stand. The next state row must say so before the log is trimmed."""
        for repository in self.listed.values():
            if repository.is_dirty:
                repository.engine.flush()
                repository.is_dirty = False
                repository.flushed_position = repository.engine.position
            repository.base_lsn = lsn

    def disown_positions(self) -> None:
        """After a `flush`: nobody's position says any more what its files have to hold; that all is durable is said by `base_lsn`."""
        for repository in self.listed.values():
            repository.flushed_position = 0

    def move_to(self, lsn: Lsn) -> None:
        """Let all engines stand at a lower LSN with the content that they have, durably."""
        for repository in self.listed.values():
            if repository.engine.position > lsn:
                repository.engine.move_to(lsn)
                repository.engine.flush()
            repository.base_lsn = lsn

    def close(self) -> None:
        """Close all engines."""
        for repository in [*self.listed.values(), *self._fresh, *self._retired]:
            repository.engine.close()

    def _delete(self, repository: Repository) -> None:
        repository.engine.close()
        shutil.rmtree(self._home / repository.directory, ignore_errors=True)


def _number_of(directory: str) -> int:
    """The number at the end of the name of a repository's directory; -1 for a stray name."""
    number = directory.rpartition(".")[2]
    return int(number) if number.isdecimal() else -1
