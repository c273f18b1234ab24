"""The copy of a simulated worker: the store of workers, on real files, with three changes.

    place of the files      in a folder of the world, in memory if the machine has such a place
    RDF                     the engine without a disk, because opening one with a disk takes longer than all other work of
                            a worker; a flush or a backup writes a file of lines
    end of a process        `crash` releases the files and writes nothing; the next copy is opened from them

So commits, the order of LMDB and engines, recovery at a start, snapshots, loads and copies kept over a split are the shipped code,
and a process can die between any two of its steps. Names of copies come from outside; no clock, no randomness.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp

from pyoxigraph import RdfFormat, Store

from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.operations import Put, Result
from brokerha.stores.copies.worker_copy import WorkerCopy
from brokerha.stores.execution.worker_store import StoreOptions
from brokerha.stores.rdf.repository import RdfRepository
from brokerha.stores.tables.key_range import row_key_of
from brokerha.stores.tables.key_value import put_row
from tests.simulator.checks.model import CLEAR_ABOVE_QUADS
from tests.simulator.network import CLUSTER

MEMORY = Path("/dev/shm")
"""Folder in memory, on machines that have it."""
QUADS = "quads.nq"
MAP_SIZE_BYTES = 64 * 1024 * 1024
TAIL_LSNS = 30
FLUSH_AFTER_LSNS = 8


class SimEngine(RdfRepository):
    """One repository in memory. A crash loses unflushed data, like a power cut."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = directory / QUADS
        store = Store()
        if self._file.exists():
            store.load(path=str(self._file), format=RdfFormat.N_QUADS)
        super().__init__(directory, store=store)

    def flush(self) -> None:
        """Write all lines into the file."""
        self._write_to(self._file)

    def backup(self, directory: Path) -> None:
        """Write all lines into a file in a new directory."""
        directory.mkdir(parents=True)
        self._write_to(directory / QUADS)

    def _write_to(self, file: Path) -> None:
        # In an order that does not depend on the history of the store.
        lines = sorted(str(quad) + " .\n" for quad in self._engine())
        fresh = file.with_suffix(".new")
        fresh.write_text("".join(lines), encoding="utf-8")
        fresh.replace(file)


class SimCopy(WorkerCopy):
    """All data of one simulated worker."""

    def __init__(
        self,
        home: Path,
        node: str,
        new_name: Callable[[], str],
        clock: Callable[[], float],
        *,
        chunk_bytes: int,
        keep_results: int,
        reach: Callable[[str], None],
        before: SimCopy | None = None,
    ) -> None:
        """Open or make a copy; ``before`` is that of an earlier process. ``reach`` can raise at any possible crash point."""
        self.home = home
        fresh: dict[str, list[tuple[TxId, Lsn]]] = defaultdict(list)
        self.executions: dict[str, list[tuple[TxId, Lsn]]] = fresh if before is None else before.executions
        """Executed transactions, by the name of the copy."""
        super().__init__(
            home,
            cluster=CLUSTER,
            node=node,
            options=StoreOptions(
                map_size_bytes=MAP_SIZE_BYTES,
                keep_results=keep_results,
                tail_lsns=TAIL_LSNS,
                flush_after_lsns=FLUSH_AFTER_LSNS,
                clear_above_quads=CLEAR_ABOVE_QUADS,
            ),
            open_engine=SimEngine,
            clock=clock,
            crash_point=reach,
            chunk_bytes=chunk_bytes,
            free_bytes=lambda _home: 2**40,
            new_name=new_name,
        )

    @property
    def executed(self) -> Iterator[tuple[TxId, Lsn]]:
        """Yields (transaction id, LSN) of all transactions that the current copy executed, in order."""
        return iter(self.executions[self.journal])

    def execute(self, first_lsn: Lsn, items: Sequence[tuple[TxId, Timestamp, bytes]]) -> list[Result]:
        """Execute as the store does, and remember the executed transactions."""
        fresh = items[max(0, self.applied().lsn + 1 - first_lsn) :]
        results = super().execute(first_lsn, items)
        last_lsn = self.applied().lsn
        self.executions[self.journal] += [(txid, lsn) for lsn, (txid, *_) in enumerate(fresh, last_lsn - len(fresh) + 1)]
        return results

    def crash(self) -> None:
        """Release all files, like the end of a process, without writing. Idempotent."""
        for generation in (*self._replaced, self._generation):
            generation.store.close()
        self._directory.close()

    def damage(self, change: Put) -> None:
        """Change data only, like a faulty disk. Fingerprint and number of items stay."""
        environment = self._generation.store._environment
        with environment.lmdb.begin(write=True) as transaction:
            put_row(transaction, environment.keys, row_key_of(change.table, change.key), change.value)


class Home:
    """The folder of a world, and its open copies."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="brokerha-world-", dir=MEMORY if MEMORY.is_dir() else None))
        self.open: dict[str, SimCopy] = {}
        """By worker."""

    def close(self) -> None:
        """Release all copies, and delete them. Idempotent."""
        for copy in self.open.values():
            copy.crash()
        self.open.clear()
        empty(self.path)


def spoil(home: Path) -> None:
    """Make a worker's copy unreadable."""
    for file in home.glob("copy.*/data/data.mdb"):
        file.write_bytes(b"\0" * file.stat().st_size)


def empty(home: Path) -> None:
    """Delete all files of a worker."""
    shutil.rmtree(home, ignore_errors=True)
