"""What tests of the audit share: the log of a cluster, copies that can be asked, and archives that are changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq

from brokerha.model.errors import BrokerhaError
from brokerha.model.log_lineages import Rewinds
from brokerha.model.operations import unpack_effect
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.audit import AuditOptions, AuditReport, run_audit
from brokerha.pipeline.audit_pieces import EngineOfPieces, TasksHere
from brokerha.pipeline.entries import LogEntry
from brokerha.stores.log_pages import LinesMissing
from brokerha.stores.memory import MemoryStore
from brokerha.stores.memory_image import MemoryImage
from tests.unit.pipeline.random_log import random_store

STORE, ENTRIES = random_store(7, 600)


class Log:
    """The log of a cluster, from an LSN on."""

    cluster = "orders"

    def __init__(self, entries: Sequence[LogEntry], first_lsn: int = 1) -> None:
        self.entries = {entry.lsn: entry for entry in entries if entry.lsn >= first_lsn}
        self.reads: list[tuple[int, int]] = []
        self.went_back: Rewinds = ()

    def first_lsn(self) -> int:
        return min(self.entries, default=1)

    def last_lsn(self) -> int:
        return max(self.entries, default=0)

    def rewinds(self) -> Rewinds:
        return self.went_back

    def read(self, first_lsn: int, last_lsn: int) -> Iterator[LogEntry]:
        self.reads.append((first_lsn, last_lsn))
        for lsn in range(first_lsn, last_lsn + 1):
            if lsn not in self.entries:
                raise LinesMissing(f"LSN {lsn} is not in the log")
            yield self.entries[lsn]

    def close(self) -> None:
        pass


class Copy:
    """A worker's copy, as a client of its node asks it."""

    def __init__(self, store: MemoryStore, between: Sequence[LogEntry] = ()) -> None:
        """``between`` is applied after the first answer."""
        self.store = store
        self.between = list(between)
        self.asked: list[Sequence[tuple[str, str, int]]] = []

    def digests(self, bits: int, *, timeout: float | None) -> dict[str, Any]:
        assert timeout
        told = self._read("digests", {"bits": bits})
        for entry in self.between:
            line = (entry.txid, entry.timestamp, entry.outcome, entry.reason, entry.effect, entry.fingerprint)
            self.store.apply(entry.lsn, [line])
        return told

    def bucket_items(
        self, buckets: Sequence[tuple[str, str, int]], bits: int, *, limit: int, timeout: float | None
    ) -> dict[str, Any]:
        assert timeout
        self.asked.append(buckets)
        return self._read("items", {"bits": bits, "buckets": [msgpack.packb(each) for each in buckets], "limit": limit})

    def _read(self, kind: str, arguments: dict[str, object]) -> dict[str, Any]:
        answer: dict[str, Any] = msgpack.unpackb(b"".join(self.store.read(kind, "", arguments).pieces), use_list=False)
        return answer


def image_of(store: MemoryStore) -> MemoryImage:
    """The data behind the back of a store."""
    return store._image


def copied(store: MemoryStore = STORE) -> Copy:
    return Copy(MemoryStore.from_image(store.image()))


def audit(
    archive: Archive, source: Log | None = None, copies: dict[str, Copy | BrokerhaError] | None = None, **options: Any
) -> AuditReport:
    given = copies or {}

    @contextlib.contextmanager
    def connect(url: str) -> Iterator[Copy]:
        copy = given[url.removeprefix("at ")]
        if isinstance(copy, BrokerhaError):
            raise copy
        yield copy

    chosen = AuditOptions(archive.directory, copies=tuple((name, f"at {name}") for name in given), **options)
    return run_audit(chosen, EngineOfPieces(archive, archive.state(), TasksHere()), source, connect)


def rewritten(archive: Archive, lsn: int, change: dict[str, Any], where: str = "") -> tuple[str, dict[str, Any]]:
    """Change cells of the first row of an LSN (of a kind) in its file; returns the file and the row as it was."""
    file = archive.state().files_of(lsn, lsn)[0]
    rows = archive.table(file).to_pylist()
    row = next(row for row in rows if row["lsn"] == lsn and (not where or row["kind"] == where))
    before = dict(row)
    row.update(change)
    schema = archive.table(file).schema
    pq.write_table(pa.Table.from_pylist(rows, schema), archive.path(file))
    return file.path, before


def lsn_with(kind: str, behind: int = 150) -> int:
    return next(
        entry.lsn
        for entry in ENTRIES
        if entry.lsn > behind and any(change[0] == kind for change in unpack_effect(entry.effect))
    )
