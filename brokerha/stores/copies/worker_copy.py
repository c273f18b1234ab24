"""The copy of one worker and its directory: given away as a snapshot, replaced by one, kept over a split.

    present copy   ---- make_snapshot -> read_chunk ... ---->   another worker
    next copy      <--- begin_load -> keep_chunk ... -> open_load     beside the present one, which goes on meanwhile
    kept copy      <--- keep ... restore_kept ... drop_kept           an earlier state of the present one (kept.py)

The WorkerStore of the present copy does all the work of a `Store`. Replacing the copy has one decisive moment, the replacement of
the pointer file (directory.py):

    chunks complete -> fsync -> this node's identity -> opened and compared with the snapshot -> POINTER -> old one deleted

A kill before it leaves the old copy, a kill after it the new one, complete; a restart finds the loaded chunks again. Reads and
long work that began on the old copy hold it until they end. A copy that is damaged at the start of the worker is moved aside and
replaced by an empty one, so that the worker can ask for a snapshot instead of failing for ever.

Must never touch the present copy before the next one is open, and never use an unchecked chunk.
"""

from __future__ import annotations

import gc
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from brokerha.model.errors import NotReady, StoreDamaged, StoreError, StoreFull, StoreStuck
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.operations import Logged, LoggedRow, Result
from brokerha.ports.copies import CHUNK_BYTES, Kept, Snapshot
from brokerha.ports.store import Applied, ReadAnswer
from brokerha.stores.copies.directory import CopyDirectory
from brokerha.stores.copies.kept import KeptFiles
from brokerha.stores.copies.lives import Lives
from brokerha.stores.copies.snapshots import MANIFEST, Load, Snapshots, compare, found_load
from brokerha.stores.execution.worker_store import StoreOptions, WorkerStore
from brokerha.stores.files.data_pages import check_pages
from brokerha.stores.files.durable import delete_tree, no_crash
from brokerha.stores.files.environment import adopt, random_name
from brokerha.stores.rdf.repositories import OpenEngine
from brokerha.stores.rdf.repository import RdfRepository


class Generation:
    """An open store with the number of its users.

    One of the successive open copies: it ends when it is replaced and its last reader is done.

        take -> read ... -> give_back        any number of readers, any threads
            replace                              refuses new readers
                             the last of these two closes the store and deletes its files

        So a read that began before the replacement finishes on its own data.
    """

    def __init__(self, store: WorkerStore, delete: Callable[[], None]) -> None:
        self.store = store
        self._delete = delete
        self._lock = threading.Lock()
        self._users = 0
        self._is_replaced = False
        self._is_ended = False

    @property
    def is_replaced(self) -> bool:
        """Tell whether another generation is the present one; long work on this one is useless."""
        return self._is_replaced

    @property
    def is_ended(self) -> bool:
        """Tell whether it is closed and deleted."""
        return self._is_ended

    def take(self) -> bool:
        """Begin to use it; return False when it was replaced: then take the next."""
        with self._lock:
            if self._is_replaced:
                return False
            self._users += 1
            return True

    def give_back(self) -> None:
        """End one use."""
        with self._lock:
            self._users -= 1
            is_last = self._is_replaced and self._users == 0
        if is_last:
            self._end()

    def replace(self) -> None:
        """Refuse new users; it ends now, or with its last user."""
        with self._lock:
            self._is_replaced = True
            is_last = self._users == 0
        if is_last:
            self._end()

    def _end(self) -> None:
        self.store.close()
        self._delete()
        self._is_ended = True


class HeldPieces:
    """The pieces of an answer; they hold their generation until they end or are dropped."""

    def __init__(self, pieces: Iterator[bytes], generation: Generation) -> None:
        self._pieces: Iterator[bytes] | None = pieces
        self._generation = generation

    def __iter__(self) -> HeldPieces:
        return self

    def __next__(self) -> bytes:
        if self._pieces is None:
            raise StopIteration
        try:
            return next(self._pieces)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop the remaining pieces. Idempotent."""
        if self._pieces is not None:
            # The iterator can still use the store, so drop it first.
            self._pieces = None
            self._generation.give_back()

    def __del__(self) -> None:
        self.close()


def _free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


class WorkerCopy:
    """All data of one worker, in one directory. Fulfils `ports.copies.WorkerCopy`."""

    def __init__(
        self,
        directory: Path,
        *,
        cluster: str,
        node: str,
        options: StoreOptions | None = None,
        open_engine: OpenEngine = RdfRepository,
        clock: Callable[[], float] = time.monotonic,
        crash_point: Callable[[str], None] = no_crash,
        chunk_bytes: int = CHUNK_BYTES,
        free_bytes: Callable[[Path], int] = _free_bytes,
        from_cluster: str = "",
        new_name: Callable[[], str] = random_name,
    ) -> None:
        """Open or make it. Raises StoreError: in use, foreign, of a later version, no space. Damage raises no error: see `trouble`.

        ``from_cluster`` is the cluster whose snapshots are accepted when a backup of another cluster is restored. ``new_name``
        makes the names of new copies.
        """
        self._from_cluster = from_cluster
        self._new_name = new_name
        self._cluster = cluster
        self._node = node
        self._options = options or StoreOptions()
        self._open_engine = open_engine
        self._clock = clock
        self._crash_point = crash_point
        self._free_bytes = free_bytes
        self._directory = CopyDirectory(directory, cluster, node, crash_point)
        self.lives = Lives(directory)
        """How earlier processes with this copy ended; only this object uses it until the copy is open."""
        try:
            self._load = found_load(directory)
            self._generation = self._generation_of(self._found())
            if self._load is None or self._load.generation == self._directory.present:
                # The load cannot be read, or it was opened and the process ended before it recorded that.
                self._forget_load()
            self._directory.delete_others(self._loading())
            self._snapshots = Snapshots(directory / "snapshots", chunk_bytes, crash_point, self._options.tail_lsns)
            self._kept = KeptFiles(directory, crash_point)
        except BaseException:
            self._directory.close()
            raise
        self._replaced: list[Generation] = []
        self._is_stuck = False
        """Whether writes must wait until the present copy is opened again."""
        self._is_shut = False
        """Whether it is closed for that; reads must wait too."""

    @property
    def journal(self) -> str:
        """The name of the present copy; a loaded copy has another name."""
        return self._generation.store.journal

    @property
    def trouble(self) -> str:
        """The reason why the copy found at the start could not be used; empty if it could, and after a load."""
        return self._directory.trouble

    @property
    def condemned(self) -> str:
        """The reason why the present copy is not trusted; else empty."""
        return self._directory.condemned

    @property
    def pending_load(self) -> str:
        """The name of the snapshot that is being loaded; empty when there is none."""
        return self._load.name if self._load is not None else ""

    @property
    def kept(self) -> Kept | None:
        """The copy kept beside the present one, or None. Any thread."""
        return self._kept.present

    @property
    def lineage(self) -> int:
        """The number of the log that the present copy followed. Any thread."""
        return self._generation.store.lineage

    def begin_lineage(self, lineage: int, lsn: Lsn = -1) -> None:
        """Do the same as `WorkerStore.begin_lineage`. Raises StoreError."""
        with self._writing() as store:
            store.begin_lineage(lineage, lsn)

    def execute(self, first_lsn: Lsn, items: Sequence[tuple[TxId, Timestamp, bytes]]) -> list[Result]:
        """Execute transactions in order; durable together when this returns. Raises StoreError."""
        with self._writing() as store:
            return store.execute(first_lsn, items)

    def apply(self, first_lsn: Lsn, items: Sequence[LoggedRow]) -> None:
        """Apply lines of the log in order; durable on return. Raises StoreDiffers, StoreError."""
        with self._writing() as store:
            store.apply(first_lsn, items)

    @contextmanager
    def _writing(self) -> Iterator[WorkerStore]:
        """Yield the store for a write; open it again if a write left it stuck. Raises StoreError."""
        if self._is_stuck:
            self._open_anew()
        try:
            yield self._generation.store
        except StoreStuck:
            self._is_stuck = True
            raise

    def _open_anew(self) -> None:
        """Open the present copy again after a write left it stuck. Raises StoreError; then the next write tries again."""
        # Opening needs room. Until there is some, the open copy can still be read.
        self._directory.check_room()
        self._is_shut = True
        self._generation.store.close()
        # The engine closes with its last reference. The traceback of its error holds one until it is collected.
        gc.collect()
        self._generation = self._generation_of(self._opened(self._directory.present))
        self._is_stuck = self._is_shut = False

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[Logged]:
        """Return lines of the log that the copy keeps; none from before it was loaded. Raises StoreError."""
        with self._held() as generation:
            return generation.store.logged(first_lsn, last_lsn)

    def logged_from(self) -> Lsn:
        """Return the lowest LSN that `logged` has; one more than the applied one when it has none."""
        with self._held() as generation:
            return generation.store.logged_from()

    def applied(self) -> Applied:
        """Return the applied LSN with fingerprint and count. Any thread."""
        return self._generation.store.applied()

    def read(self, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool] = lambda: True) -> ReadAnswer:
        """Answer a read (reads/reading.py lists the kinds) from the present copy alone. Raises NotReady, StoreError."""
        generation = self._taken()
        try:
            answer = generation.store.read(kind, name, arguments, may_go_on)
        except BaseException as error:
            generation.give_back()
            if isinstance(error, StoreStuck) or (self._is_shut and type(error) in {StoreError, StoreFull}):
                # Neither the read nor the copy is wrong: another worker answers, or this one a little later.
                raise NotReady(str(error)) from error
            raise
        return answer._replace(pieces=HeldPieces(answer.pieces, generation))

    def recompute(self, paced: Callable[[int], None] = lambda _items: None) -> Applied:
        """Compute fingerprint and count from the data itself. Any thread. Raises StoreError when the copy is replaced meanwhile."""
        with self._held() as generation:

            def paced_here(items: int) -> None:
                if generation.is_replaced:
                    raise StoreError("the copy was replaced while its fingerprint was computed")
                paced(items)

            return generation.store.recompute(paced_here)

    def free_bytes(self) -> int:
        """Return the free space on the disk of this directory; 0 when it is unknown. Any thread."""
        with suppress(OSError):
            return self._free_bytes(self._directory.home)
        return 0

    def condemn(self, reason: str) -> None:
        """Record durably that the present copy is not trusted. Raises StoreError."""
        self._directory.condemn(reason)

    def make_snapshot(self, name: str) -> Snapshot:
        """Make a snapshot at the applied LSN; writers wait only briefly. Any thread. Raises StoreError."""
        with self._held() as generation:
            return self._snapshots.make(name, generation.store)

    def read_chunk(self, name: str, number: int) -> bytes | None:
        """Return one chunk; None when there is no such snapshot or number. Any thread. Raises StoreError."""
        return self._snapshots.read(name, number)

    def drop_snapshot(self, name: str) -> None:
        """Delete a snapshot, finished or not. Idempotent."""
        self._snapshots.drop(name)

    def begin_load(self, name: str, snapshot: Snapshot) -> set[int]:
        """Make room beside the present copy, or resume a load after a restart; return the numbers of the right chunks.

        Raises StoreError for no space (with the needed and free bytes), and for a snapshot that leads out of the directory.
        """
        load = Load(name, self._directory.next_number(), snapshot)
        if self._load is not None and (self._load.name, self._load.snapshot) == (name, load.snapshot):
            load = self._load
        else:
            self.abandon_load()
        directory = self._directory.path(load.generation)
        load.resume(directory)
        self._directory.check_space("the snapshot", load.missing_bytes(), self._free_bytes)
        load.write(self._directory.home)
        self._load = load
        self._crash_point("load: begun")
        load.make_room(directory)
        return set(load.kept)

    def keep_chunk(self, number: int, data: bytes) -> bool:
        """Write a chunk to its place; return False when its SHA-256 differs. Raises StoreError."""
        load = self._begun_load()
        is_right = load.keep(self._directory.path(load.generation), number, data)
        self._crash_point("load: chunk kept")
        return is_right

    def open_load(self) -> None:
        """Make the loaded copy the present one; delete the old one after its last reader.

        Raises StoreError; then the old copy stays the present one.
        """
        load = self._begun_load()
        load.finish(self._directory.path(load.generation))
        self._crash_point("load: files durable")
        try:
            store = self._opened_as(load.generation, Applied(*load.snapshot[:3]), "load")
            self._switch_pointer(load.generation, store)
        except StoreDamaged:
            # The same chunks would fail again.
            self.abandon_load()
            raise
        except BaseException:
            # Opening changes files: `begin_load` must check them again.
            load.kept.clear()
            raise
        self._crash_point("load: pointer replaced")
        old = self._replaced_by(store)
        self._forget_load()
        self._crash_point("load: forgotten")
        old.replace()

    def abandon_load(self) -> None:
        """Delete the loaded chunks. Idempotent."""
        if self._load is not None:
            generation = self._load.generation
            self._forget_load()
            delete_tree(self._directory.path(generation))

    def keep(self, number: int, frozen: Callable[[], None] = lambda: None) -> Kept:
        """Keep the present content under a number; durable on return. On StoreError the previous kept copy stays.

        ``frozen`` is called when later writes are no longer part of it.
        """
        kept = self.kept
        if kept is not None and kept.number == number:
            return kept
        with self._held() as generation:
            self._directory.check_space("the copy to keep", generation.store.tables_bytes(), self._free_bytes)
            return self._kept.keep(number, lambda directory: self._snapshots.write(generation.store, directory, frozen))

    def drop_kept(self) -> None:
        """Delete the kept copy. Idempotent. Raises StoreError."""
        self._kept.drop()

    def restore_kept(self) -> None:
        """Replace the present copy, which ends with its last reader, by the kept one. Raises StoreError."""
        kept = self.kept
        if kept is None:
            raise StoreError("no copy is kept")
        self.abandon_load()
        self._directory.check_space("the kept copy", self._kept.own_bytes(), self._free_bytes)
        number = self._directory.next_number()
        try:
            self._kept.copy_to(self._directory.path(number))
            self._crash_point("restore: files durable")
            store = self._opened_as(number, Applied(kept.lsn, kept.fingerprint, kept.items), "restore")
        except BaseException as error:
            delete_tree(self._directory.path(number))
            if isinstance(error, StoreDamaged):
                # The same files would fail again.
                self.drop_kept()
            raise
        self._switch_pointer(number, store)
        self._crash_point("restore: pointer replaced")
        self._replaced_by(store).replace()

    def close(self) -> None:
        """Release the directory after the running reads. Idempotent."""
        self._snapshots.close()
        for generation in [*self._replaced, self._generation]:
            generation.store.close()
        self.lives.end()
        self._directory.close()

    def _found(self) -> WorkerStore:
        """Open the present copy, or an empty one instead of a damaged one. Raises StoreError."""
        try:
            self._directory.find()
            self.lives.begin(self._directory.present)
            if self.lives.bad_ends:
                # Check before LMDB reads: LMDB ends the process on an emptied page.
                check_pages(self._directory.path(self._directory.present) / "data" / "data.mdb")
            return self._opened(self._directory.present)
        except StoreDamaged as damage:
            self._directory.move_aside(str(damage), self._loading())
            self.lives.begin(self._directory.present)
            return self._opened(self._directory.present)

    def _opened(self, number: int, adopting: str = "") -> WorkerStore:
        with self._directory.opening(number):
            if adopting:
                path, size_bytes = self._directory.path(number), self._options.map_size_bytes
                adopt(path, self._cluster, self._node, size_bytes, self._from_cluster, self._new_name)
                self._crash_point(f"{adopting}: identity written")
            return WorkerStore(
                self._directory.path(number),
                cluster=self._cluster,
                node=self._node,
                options=self._options,
                open_engine=self._open_engine,
                clock=self._clock,
                crash_point=self._crash_point,
                new_name=self._new_name,
            )

    def _opened_as(self, number: int, promised: Applied, adopting: str) -> WorkerStore:
        """Adopt and open foreign files, and compare the copy with its promise. Raises StoreDamaged, StoreError."""
        store = self._opened(number, adopting)
        try:
            self._crash_point(f"{adopting}: opened")
            compare(store.applied(), promised)
        except BaseException:
            store.close()
            raise
        return store

    def _switch_pointer(self, number: int, store: WorkerStore) -> None:
        before = self._directory.present
        try:
            self._directory.point_to(number)
        except BaseException:
            store.close()
            # The pointer can name the new copy already. Both copies are complete, so a failure here is harmless.
            with suppress(StoreError):
                self._directory.point_to(before)
            raise

    def _replaced_by(self, store: WorkerStore) -> Generation:
        """Make the store that the pointer names the present one; return the old generation, which still has to end."""
        old = self._generation
        self._generation = self._generation_of(store)
        self._directory.trouble = ""
        self._replaced = [one for one in self._replaced if not one.is_ended]
        self._replaced.append(old)
        # From here on no step must raise; the next start deletes leftovers.
        with suppress(StoreError):
            self.lives.begin(self._directory.present)
        return old

    def _generation_of(self, store: WorkerStore) -> Generation:
        path = self._directory.path(self._directory.present)
        return Generation(store, lambda: delete_tree(path))

    def _taken(self) -> Generation:
        while not (generation := self._generation).take():
            # It was replaced after the look-up; the next one is there already.
            continue
        return generation

    @contextmanager
    def _held(self) -> Iterator[Generation]:
        generation = self._taken()
        try:
            yield generation
        finally:
            generation.give_back()

    def _loading(self) -> int | None:
        return None if self._load is None else self._load.generation

    def _begun_load(self) -> Load:
        if self._load is None:
            raise StoreError("no snapshot is being loaded")
        return self._load

    def _forget_load(self) -> None:
        self._load = None
        with suppress(OSError):
            (self._directory.home / MANIFEST).unlink(missing_ok=True)
