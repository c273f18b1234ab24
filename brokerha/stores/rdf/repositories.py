"""The RDF repositories of one worker, their pending changes, and how far each is durable.

    listed     repositories that exist for the next transaction          name -> Repository
    fresh      made by a transaction that is not committed yet           it has a directory and no record
    retired    removed by a transaction that is not committed yet        it still has a record
    drafts     copies with changes that are not visible yet (drafts.py); a draft replaces its repository, or is deleted

The record in LMDB decides. A start deletes directories without a record, which a crash left. Directory names are numbered and
never reused, so that a recreated repository begins empty even if an old reader still uses the former one. Changes wait in
`pending` until LMDB has them durably; then `commit` passes each engine its net change. So an engine is never ahead of the record,
and the effects log has the changes that an engine lacks.
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
"""Open the engine of one repository in its directory, new or old. Raises StoreError."""


class Repository:
    """One repository with its pending changes."""

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
        """XOR of the digests of its quads."""
        self.pending = PendingQuads()
        self.waded_lines = 0
        """Pending lines that operations worked through since the last commit, in total (execution/evaluation.py)."""
        self.is_dirty = False
        """Whether the engine has commits that are not yet durable in it."""

    def state(self) -> RepositoryState:
        """Return its part of the store's state row."""
        return RepositoryState(self.directory, self.flushed_position, self.base_lsn, self.items, packed_digest(self.digest))

    def lines(self) -> set[str]:
        """Return all quads, with the pending changes."""
        held = set(self.engine.lines())
        held -= self.pending.removed
        held |= self.pending.added
        return held


class Repositories:
    """All repositories of a store; used by the writing thread only."""

    def __init__(self, home: Path, open_engine: OpenEngine, crash_point: Callable[[str], None]) -> None:
        self.listed: dict[str, Repository] = {}
        self._home = home
        self._open_engine = open_engine
        self._crash_point = crash_point
        self._fresh: list[Repository] = []
        self._retired: list[Repository] = []
        self._next_number = 0

    def open(self, states: dict[str, RepositoryState]) -> None:
        """Delete directories without a record, open the rest. Raises StoreDamaged when one lost durable data, StoreError."""
        recorded = {state.directory for state in states.values()}
        there = {path.name for path in self._home.iterdir()}
        # A directory that was lost in a power failure is made again below.
        self._next_number = 1 + max(map(_number_of, recorded | there), default=-1)
        for name in there - recorded:
            shutil.rmtree(self._home / name, ignore_errors=True)
        for name, state in states.items():
            repository = Repository(name, self._open_engine(self._home / state.directory), state)
            self.listed[name] = repository
            position = repository.engine.position
            # Commits of an earlier process can still wait for the disk.
            repository.is_dirty = position > state.flushed_position
            if position < state.flushed_position:
                raise StoreDamaged(
                    f"repository {name} is at LSN {position} and has been at {state.flushed_position} before: files are "
                    "missing or older than the rest; take the content from another worker"
                )

    def know_digests(self, states: dict[str, RepositoryState]) -> None:
        """Compute digests missing in a state of an older version; all engines are at its position. Raises StoreDamaged."""
        for name, state in states.items():
            if not state.digest:
                self.listed[name].digest = quads_digest(name, self.listed[name].engine.lines())

    def make(self, name: str, lsn: Lsn) -> Repository:
        """Make a repository for the transaction at ``lsn``. It exists for others when it is in `listed` and committed."""
        directory = f"{name}.{self._next_number}"
        self._next_number += 1
        state = RepositoryState(directory, flushed_position=0, base_lsn=lsn - 1, items=0)
        repository = self._begun(name, state)
        self._fresh.append(repository)
        return repository

    def unmake(self, repository: Repository) -> None:
        """Undo `make`."""
        self._fresh.remove(repository)
        self._delete(repository)

    def retire(self, name: str) -> None:
        """Remove a repository from the list; the commit deletes its files."""
        self._retired.append(self.listed.pop(name))

    def draft(self, name: str, lsn: Lsn, *, is_empty: bool = False) -> Repository:
        """Return a private copy of a repository, all committed at ``lsn``, or an empty one. Raises StoreError."""
        listed = self.listed[name]
        directory = f"{name}.{self._next_number}"
        self._next_number += 1
        if is_empty:
            return self._begun(name, RepositoryState(directory, flushed_position=0, base_lsn=lsn, items=0))
        invariant(not listed.pending, "a copy is made of what is committed", repository=name, lsn=lsn)
        state = RepositoryState(
            directory, flushed_position=0, base_lsn=lsn, items=listed.items, digest=packed_digest(listed.digest)
        )
        return self._begun(name, state, listed.engine.backup)

    def drop_draft(self, repository: Repository) -> None:
        """Delete a private copy."""
        self._delete(repository)

    def replace(self, draft: Repository) -> None:
        """Replace the repository by a draft; the old files are deleted after the commit and the last reader."""
        self.retire(draft.name)
        self._fresh.append(draft)
        self.listed[draft.name] = draft
        self._crash_point("draft in place")

    def states(self) -> dict[str, RepositoryState]:
        """Return the states for the next state row."""
        return {name: repository.state() for name, repository in self.listed.items()}

    def commit(self, lsn: Lsn) -> None:
        """Bring every engine to ``lsn``, which LMDB has durably. Raises StoreError; a repeated call continues."""
        # A transaction under evaluation can have made repositories; those stay fresh.
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
            # Readers go on, and can open files later.
            weakref.finalize(retired.engine, shutil.rmtree, self._home / retired.directory, ignore_errors=True)

    def roll_back(self, states: dict[str, RepositoryState]) -> None:
        """Drop all changes since the last commit; ``states`` is what that one wrote."""
        retired, self._retired = self._retired, []
        fresh, self._fresh = self._fresh, []
        for repository in fresh:
            if self.listed.get(repository.name) is repository:
                del self.listed[repository.name]
            self._delete(repository)
        for repository in retired:
            # A repository made and removed since then has no record to return to.
            if repository not in fresh:
                self.listed[repository.name] = repository
        for name, repository in self.listed.items():
            repository.pending = PendingQuads()
            repository.items = states[name].items
            repository.digest = int.from_bytes(states[name].digest, "big")

    def flush(self, lsn: Lsn) -> None:
        """Make all engines durable; ``lsn`` is their position. The next state row must record it before the log is trimmed."""
        for repository in self.listed.values():
            if repository.is_dirty:
                repository.engine.flush()
                repository.is_dirty = False
                repository.flushed_position = repository.engine.position
            repository.base_lsn = lsn

    def disown_positions(self) -> None:
        """After a `flush`, let no position count as proof of durable data; `base_lsn` records that all is durable."""
        for repository in self.listed.values():
            repository.flushed_position = 0

    def move_to(self, lsn: Lsn) -> None:
        """Move all engines to a lower LSN with their present content, durably."""
        for repository in self.listed.values():
            if repository.engine.position > lsn:
                repository.engine.move_to(lsn)
                repository.engine.flush()
            repository.base_lsn = lsn

    def close(self) -> None:
        """Close all engines."""
        for repository in [*self.listed.values(), *self._fresh, *self._retired]:
            repository.engine.close()

    def _begun(self, name: str, state: RepositoryState, fill: Callable[[Path], None] = lambda _: None) -> Repository:
        """Open a new repository in a directory that ``fill`` fills. Raises StoreError."""
        directory = self._home / state.directory
        try:
            fill(directory)
            return Repository(name, self._open_engine(directory), state)
        except BaseException:
            # On a full disk this is repeated, and links of a backup keep the room of files that the engine has deleted.
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def _delete(self, repository: Repository) -> None:
        repository.engine.close()
        shutil.rmtree(self._home / repository.directory, ignore_errors=True)


def _number_of(directory: str) -> int:
    """Return the number at the end of a directory's name; -1 for a foreign name."""
    number = directory.rpartition(".")[2]
    return int(number) if number.isdecimal() else -1
