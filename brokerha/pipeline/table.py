"""The archive: a Delta Lake table of the log, which Spark, DuckDB, Polars, Trino and pandas can read without brokerha.

    table = LogTable(place("s3://bucket/archive"))
    state = table.state()                    # LogState: cluster, first_lsn, last_lsn, fingerprint, chain, files
    table.rows(state, 1, 500, ["lsn", "key"])

Rows are those of `rows.SCHEMA`. A file that brokerha writes holds whole entries, sorted by (lsn, operation, part), and is named by
its SHA-256. Files that another program has merged (OPTIMIZE) are neither, and are read too. Each commit by brokerha holds the
state of the log (`Head`) in its metadata, under `brokerha`, and its last LSN as the version of the application transaction
`brokerha`. So two writers cannot both continue from the same LSN: delta-rs refuses the second one. The table alone determines how
far the archive reaches; any process can be killed, and the next run continues after the last commit.

**Chain.** Entries are grouped into blocks of `BLOCK`, from the first LSN on. The digest of a block is the SHA-256 of the entry
hashes (in hexadecimal, upper case) of its entries; the chain after a block is the SHA-256 of the chain before it and the digest of
the block. The last block can be incomplete at any LSN, and is hashed as it is. So the chain depends only on the rows, not on
commits and files. A person who noted it at some LSN can prove years later that no earlier entry was changed.

Must never import Spark.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.fingerprints import EMPTY, from_text, text_of
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.reserved.staging import TABLE as STAGED_TABLE
from brokerha.pipeline.places import (
    add_action,
    begin_table,
    check_table,
    committing,
    delta_url,
    file_system,
    first_line,
    fsync,
    is_local,
    reading,
    sha256_of,
    spark_path,
    write_table,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

APPLICATION: Final = "brokerha"
"""Name of the application transaction, and key of brokerha's metadata."""
BLOCK: Final = 1000
FORMAT: Final = 3
_DICTIONARY: Final = ["origin", "outcome", "reason", "user", "store", "name", "kind", "predicate", "graph", "content_type"]
"""Columns with few distinct values; in others a dictionary would be built and thrown away again."""
_STATISTICS: Final = ["lsn", "timestamp", "store", "name", "kind"]
_ORDER: Final = ("lsn", "operation", "part")
_BATCH_ROWS: Final = 10_000
TARGET_ROWS: Final = 2_000_000
TARGET_BYTES: Final = 256 * 1024 * 1024
"""Rows and bytes of a file that is not merged any more; no group is made larger."""
_BEGINNING: Final = datetime.fromtimestamp(0, UTC)
"""The zero of timestamps."""
_OLD_MANIFEST: Final = "manifest.json"
_OURS: Final = ("_delta_log", "_observations")


class Written(NamedTuple):
    """A file that a task has written: all rows of the entries of a range. It joins the table with its commit."""

    name: str
    size_bytes: int
    rows: int
    first_lsn: Lsn
    last_lsn: Lsn
    first_us: Timestamp
    last_us: Timestamp
    txid: TxId
    """Transaction id of the last entry; the fingerprint is that entry's too."""
    fingerprint: bytes
    hashes: bytes
    """Entry hashes of all its entries, one after the other."""


WRITTEN_SCHEMA: Final = (
    "name string, size_bytes bigint, rows bigint, first_lsn bigint, last_lsn bigint, first_us bigint, last_us bigint, txid string, "
    "fingerprint binary, hashes binary"
)


@dataclass(frozen=True, slots=True)
class Head:
    """State of the log at a commit."""

    cluster: str = ""
    """Empty until a source reports it."""
    first_lsn: Lsn = 1
    last_lsn: Lsn = 0
    last_us: Timestamp = 0
    txid: TxId = ""
    fingerprint: str = text_of(EMPTY)
    """Fingerprint of the whole content after the last entry."""
    lineage: int = 0
    """Lineage of the log at its end (model/log_lineages.py)."""
    blocks: str = ""
    """Chain after the last complete block, hex; empty before the first one is complete."""
    chain: str = ""
    """Chain after the last entry."""
    format: int = FORMAT

    @property
    def block_begin(self) -> Lsn:
        """The first LSN of the incomplete block."""
        return self.last_lsn + 1 - (self.last_lsn + 1 - self.first_lsn) % BLOCK


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the table."""

    path: str
    """Relative to the table."""
    size_bytes: int
    rows: int
    first_lsn: Lsn
    last_lsn: Lsn
    first_us: Timestamp
    last_us: Timestamp


@dataclass(frozen=True, slots=True)
class LogState:
    """Content of an archive, by one version of its table."""

    head: Head = Head()
    id: str = ""
    """Id of the table; it names the retention pin of this archive. Empty while there is no table."""
    version: int = -1
    files: tuple[LogFile, ...] = ()
    """In the order of their LSNs."""

    @property
    def rows(self) -> int:
        """Number of rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Total size of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def holds_every_state(self) -> bool:
        """Tell whether the content at each LSN can be computed, because the archive has the log from its beginning."""
        return self.head.first_lsn == 1

    def files_of(self, first_lsn: Lsn, last_lsn: Lsn) -> tuple[LogFile, ...]:
        """Return the files with entries of a range, both ends included, in order."""
        return tuple(each for each in self.files if each.last_lsn >= first_lsn and each.first_lsn <= last_lsn)


def groups(files: Sequence[LogFile], target_rows: int = TARGET_ROWS, target_bytes: int = TARGET_BYTES) -> list[tuple[LogFile, ...]]:
    """Return groups of adjacent files worth merging: each becomes one file of at least twice the size of its largest.

    So each merge at least doubles the file size of a row, and files of full size stay unchanged.

    >>> one, two = (LogFile("a", 1, 10, 1, 10, 0, 0), LogFile("b", 1, 10, 11, 20, 0, 0))
    >>> groups([one, two]) == [(one, two)], groups([dataclasses.replace(one, rows=15), two]), groups([one, two], 15)
    (True, [], [])
    """
    found: list[tuple[LogFile, ...]] = []
    group: list[LogFile] = []
    rows = size_bytes = 0
    for file in files:
        if group and (rows + file.rows > target_rows or size_bytes + file.size_bytes > target_bytes):
            found += _worthwhile(group)
            group, rows, size_bytes = [], 0, 0
        group.append(file)
        rows, size_bytes = rows + file.rows, size_bytes + file.size_bytes
    return found + _worthwhile(group)


def _worthwhile(group: Sequence[LogFile]) -> list[tuple[LogFile, ...]]:
    """Return the group, or the parts worth merging beside its largest file: less than half of it, so recursion ends soon."""
    if len(group) < 2:
        return []
    largest = max(group, key=lambda file: file.rows)
    if sum(file.rows for file in group) >= 2 * largest.rows:
        return [tuple(group)]
    place = group.index(largest)
    return [*_worthwhile(group[:place]), *_worthwhile(group[place + 1 :])]


def extended(head: Head, open_hashes: bytes, hashes: bytes) -> Head:
    """Return the head with the chain after more entries; `open_hashes` are those of the incomplete block.

    >>> one = extended(Head(), b"", bytes(32) * 1500)
    >>> one.last_lsn, one == extended(extended(Head(), b"", bytes(32) * 7), bytes(32) * 7, bytes(32) * 1493)
    (1500, True)
    """
    size = hashlib.sha256().digest_size
    blocks, rest = head.blocks, open_hashes + hashes
    while len(rest) >= BLOCK * size:
        blocks, rest = next_chain(blocks, block_digest(rest[: BLOCK * size])), rest[BLOCK * size :]
    chain = next_chain(blocks, block_digest(rest)) if rest else blocks
    return dataclasses.replace(head, last_lsn=head.last_lsn + len(hashes) // size, blocks=blocks, chain=chain)


def block_digest(hashes: bytes) -> str:
    """Return the digest of the entry hashes of a block, or of the beginning of one."""
    return hashlib.sha256(hashes.hex().upper().encode()).hexdigest()


def next_chain(chain: str, digest: str) -> str:
    """Return the chain after a block; ``chain`` is empty before the first one."""
    return hashlib.sha256(bytes.fromhex(chain + digest)).hexdigest()


def write_log(where: str, batches: Iterable[pa.RecordBatch]) -> Written | None:
    """Write rows of whole entries, in order, into one file, as a task. Raises StoreDamaged at a gap, StoreError."""
    from brokerha.pipeline.rows import SCHEMA

    noted = _Noted()
    kept = write_table(where, SCHEMA, map(noted.note, batches), _DICTIONARY, _STATISTICS)
    if kept is None:
        return None
    lsn, time_us, txid, fingerprint = noted.last
    return Written(
        kept.name, kept.size_bytes, kept.rows, noted.first_lsn, lsn, noted.first_us, time_us, txid, fingerprint, b"".join(noted.hashes)
    )  # fmt: skip


class _Noted:
    """Observer of passing rows: their order, the hashes of their entries, and both ends."""

    def __init__(self) -> None:
        self.first_lsn: Lsn = 0
        self.first_us = 0
        self.last: tuple[Lsn, Timestamp, TxId, bytes] = (0, 0, "", b"")
        self.hashes: list[bytes] = []

    def note(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import numpy as np
        import pyarrow as pa

        if not batch.num_rows:
            return batch
        lsns = batch["lsn"].to_numpy()
        stamped = batch["timestamp"].cast(pa.int64())
        if not self.first_lsn:
            self.first_lsn, self.first_us = int(lsns[0]), stamped[0].as_py()
            self.last = (self.first_lsn - 1, 0, "", b"")
        steps = np.diff(lsns, prepend=self.last[0])
        if steps.min() < 0 or steps.max() > 1:
            raise StoreDamaged(f"the source gave rows after LSN {self.last[0]} that are not in the order of their LSNs")
        self.hashes += batch["entry_hash"].filter(pa.array(steps == 1)).to_pylist()
        txid, fingerprint = batch["txid"][-1].as_py(), batch["fingerprint"][-1].as_py()
        self.last = int(lsns[-1]), stamped[-1].as_py(), txid, fingerprint
        return batch


class LogTable:
    """One archive, by its place (`places.place`)."""

    def __init__(self, where: str) -> None:
        self.where = where

    def exists(self) -> bool:
        """Tell whether there is an archive. Raises StoreError for content that prevents a new one."""
        return self._opened() is not None

    def state(self) -> LogState:
        """Return the current state. Raises StoreError without an archive, StoreDamaged when it cannot be trusted."""
        table = self._opened()
        if table is None:
            raise StoreError(f"there is no archive in {self.where}: make one with brokerha pipeline archive --into {self.where}")
        return LogState(self._head(table), str(table.metadata().id), table.version(), tuple(_files(table)))

    def state_or_new(self) -> LogState:
        """Return the current state, or that of a new archive."""
        return self.state() if self.exists() else LogState()

    def begin(self, head: Head) -> LogState:
        """Create the empty table. Raises StoreError."""
        from brokerha.pipeline.rows import SCHEMA

        begin_table(
            self.where, SCHEMA, [], head.cluster, description="the log of a cluster of brokerha",
            # Statistics of other columns would be as large as small files.
            configuration={"delta.dataSkippingStatsColumns": "lsn,timestamp"}, commit_properties=_properties(head),
        )  # fmt: skip
        return self.state()

    def append(self, state: LogState, written: Sequence[Written], lineage: int = 0, cluster: str = "") -> LogState:
        """Commit files that continue at the end of the archive, atomically. Raises StoreDamaged at a gap, StoreError."""
        from deltalake.exceptions import CommitFailedError

        files = sorted(written, key=lambda file: file.first_lsn)
        following = state.head.last_lsn + 1
        for file in files:
            if file.first_lsn != following:
                raise StoreDamaged(
                    f"after LSN {following - 1} the source gave {file.first_lsn} to {file.last_lsn}: nothing was archived of it"
                )
            following = file.last_lsn + 1
        hashes = b"".join(file.hashes for file in files)
        head = extended(state.head, self.hashes(state, state.head.block_begin), hashes)
        last = files[-1]
        head = dataclasses.replace(
            head, cluster=head.cluster or cluster, last_us=last.last_us, txid=last.txid, fingerprint=text_of(last.fingerprint),
            lineage=max(lineage, head.lineage),
        )  # fmt: skip
        with committing(self.where):
            try:
                self._commit(state, [_action(each) for each in files], head)
            except CommitFailedError as error:
                if self.state().head.last_lsn > state.head.last_lsn:
                    raise StoreError(f"another job is writing into the archive {self.where}: wait for its end") from None
                raise StoreError(f"cannot commit to {self.where}: {first_line(error)}") from None
        state = self.state()
        fsync(self.where, f"_delta_log/{state.version:020}.json")
        return state

    def replace(self, state: LogState, merged: Sequence[tuple[Sequence[LogFile], Written]]) -> LogState:
        """Commit files that replace others with the same rows. Raises StoreDamaged when the rows differ, StoreError."""
        from deltalake.transaction import RemoveAction

        actions: list[Any] = []
        for files, written in merged:
            if (written.first_lsn, written.last_lsn, written.rows) != (
                files[0].first_lsn, files[-1].last_lsn, sum(file.rows for file in files),
            ):  # fmt: skip
                raise StoreDamaged(f"{self.path(files[0])} to {files[-1].path} do not hold what the table says")
            now_ms = int(time.time() * 1000)
            actions += [
                RemoveAction(file.path, data_change=False, partition_values={}, size=file.size_bytes, deletion_timestamp=now_ms)
                for file in files
            ]
            actions.append(_action(written, is_new=False))
        with committing(self.where):
            self._commit(state, actions, state.head)
        return self.state()

    def _commit(self, state: LogState, actions: list[Any], head: Head) -> None:
        """Commit after the version of a state. Raises delta-rs's error when another writer was faster."""
        from deltalake import DeltaTable, Schema

        from brokerha.pipeline.rows import SCHEMA

        table = DeltaTable(delta_url(self.where), version=state.version)
        table.create_write_transaction(actions, "append", Schema.from_arrow(SCHEMA), commit_properties=_properties(head))

    def vacuum(self, keep_s: float, *, is_dry_run: bool = False) -> int:
        """Delete files that no version of the last ``keep_s`` seconds names; return their number. Files of running tasks stay."""
        hours = int(keep_s // 3600)
        with committing(self.where):
            found = self._table().vacuum(hours, dry_run=is_dry_run, enforce_retention_duration=False, full=hours > 0)
        return len(found)

    # ---- rows

    def path(self, file: LogFile) -> str:
        """Return the location of a file, for people."""
        return f"{self.where}/{file.path}"

    def spark_paths(self, files: Iterable[LogFile]) -> list[str]:
        """Return the locations of files, for Spark."""
        return [spark_path(self.where, file.path) for file in files]

    def check_there(self, files: Sequence[LogFile]) -> None:
        """Raise StoreDamaged for a file that is missing or empty: Spark takes an empty one for one without rows."""
        found = file_system(self.where).get_file_info([file.path for file in files])
        for file in (file for file, info in zip(files, found, strict=True) if not info.size):
            raise StoreDamaged(f"{self.path(file)} is missing or empty: use a copy of this archive")

    def read(self, file: LogFile, columns: Sequence[str] | None = None, filters: Any = None) -> pa.Table:
        """Return the rows of one file. Raises StoreDamaged when it is missing or unreadable."""
        import pyarrow.parquet as pq

        with reading(self.path(file)), file_system(self.where).open_input_file(file.path) as opened:
            wanted = None if columns is None else list(columns)
            return pq.read_table(opened, columns=wanted, filters=filters, page_checksum_verification=True, partitioning=None)

    def rows(self, state: LogState, first_lsn: Lsn, last_lsn: Lsn, columns: Sequence[str]) -> pa.Table:
        """Return the rows of a range in memory, in the order of (lsn, operation, part). Raises StoreError, StoreDamaged."""
        import pyarrow as pa

        head = state.head
        if first_lsn < head.first_lsn or last_lsn > head.last_lsn:
            raise StoreError(
                f"the archive in {self.where} holds LSN {head.first_lsn} to {head.last_lsn}, and {first_lsn} to {last_lsn} is asked for"
            )
        wanted = list(dict.fromkeys([*columns, *_ORDER]))
        filters = [("lsn", ">=", first_lsn), ("lsn", "<=", last_lsn)]
        found = pa.concat_tables(self.read(file, wanted, filters) for file in state.files_of(first_lsn, last_lsn))
        return found.sort_by([(name, "ascending") for name in _ORDER]).select(list(columns))

    def batches(
        self, state: LogState, first_lsn: Lsn, last_lsn: Lsn, columns: Sequence[str], stores: frozenset[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range in the order of its files, one row group at a time; ``stores`` as in `rows.table_of`. Raises StoreDamaged."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from brokerha.pipeline.rows import STAGED

        wanted = list(dict.fromkeys([*columns, *_ORDER, *(["store", "name"] if stores is not None else [])]))
        for file in state.files_of(first_lsn, last_lsn):
            if not sha256_of(file.path):
                # Another program has merged it, in any order.
                found = self.read(file, wanted).sort_by([(name, "ascending") for name in _ORDER]).to_batches(_BATCH_ROWS)
            else:
                found = self._groups(file, first_lsn, last_lsn, wanted)
            for batch in found:
                is_wanted = pc.and_(pc.greater_equal(batch["lsn"], first_lsn), pc.less_equal(batch["lsn"], last_lsn))
                if stores is not None:
                    # A large transaction can change any store, and says so only in its parts.
                    is_of_store = pc.is_in(batch["store"], pa.array(sorted({*stores, STAGED}), pa.string()))
                    is_part = pc.fill_null(pc.equal(batch["name"], STAGED_TABLE), fill_value=False)
                    is_wanted = pc.and_(is_wanted, pc.or_(is_of_store, is_part))
                yield batch.filter(is_wanted).select(list(columns))

    def _groups(self, file: LogFile, first_lsn: Lsn, last_lsn: Lsn, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of those row groups of a file that overlap a range."""
        import pyarrow.parquet as pq

        with reading(self.path(file)), file_system(self.where).open_input_file(file.path) as opened:
            parquet = pq.ParquetFile(opened, page_checksum_verification=True)
            for number in range(parquet.num_row_groups):
                told = parquet.metadata.row_group(number).column(0).statistics
                if told is None or (told.max >= first_lsn and told.min <= last_lsn):
                    yield from parquet.iter_batches(_BATCH_ROWS, row_groups=[number], columns=columns)

    def hashes(self, state: LogState, first_lsn: Lsn) -> bytes:
        """Return the entry hashes from an LSN on, one after the other."""
        if first_lsn > state.head.last_lsn:
            return b""
        table = self.rows(state, first_lsn, state.head.last_lsn, ["lsn", "entry_hash"])
        return b"".join(dict(zip(table["lsn"].to_pylist(), table["entry_hash"].to_pylist(), strict=True)).values())

    def fingerprint_at(self, state: LogState, lsn: Lsn) -> bytes:
        """Return the fingerprint of the whole content at an LSN, from its entry; of the empty content at 0. Raises StoreError."""
        if lsn == 0 and state.holds_every_state:
            return EMPTY
        if lsn == state.head.last_lsn:
            return from_text(state.head.fingerprint)
        return bytes(self._one(state, lsn, "fingerprint"))

    def timestamp_at(self, state: LogState, lsn: Lsn) -> Timestamp:
        """Return the timestamp of the entry of an LSN: microseconds since 1970. Raises StoreError."""
        return int((self._one(state, lsn, "timestamp") - _BEGINNING) // timedelta(microseconds=1))

    def lsn_at(self, state: LogState, time_us: Timestamp) -> Lsn:
        """Return the last LSN whose entry was stamped at or before a time; one less than the first LSN when there is none.

        Entries are in the order of their timestamps, so this is the state that the cluster agreed on for that time.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        found = state.head.first_lsn - 1
        for file in state.files:
            if file.last_us < time_us - 1000:
                found = max(found, file.last_lsn)
            elif file.first_us - 1000 <= time_us:
                # Other programs round time statistics to milliseconds, so the exact times come from the rows.
                table = self.read(file, ["lsn", "timestamp"])
                lsns = table.filter(pc.less_equal(table["timestamp"].cast(pa.int64()), time_us))["lsn"]
                found = max(found, pc.max(lsns).as_py() or found)
        return found

    # ---- the table

    def _one(self, state: LogState, lsn: Lsn, column: str) -> Any:
        table = self.rows(state, lsn, lsn, [column])
        if not table.num_rows:
            raise StoreDamaged(f"the archive in {self.where} has no row of LSN {lsn}: see brokerha pipeline audit")
        return table[column][0].as_py()

    def _opened(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        self._refuse_others()
        try:
            return DeltaTable(delta_url(self.where))
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise StoreDamaged(f"the archive in {self.where} cannot be read: {first_line(error)}") from None

    def _table(self) -> DeltaTable:
        table = self._opened()
        if table is None:
            raise StoreError(f"there is no archive in {self.where}")
        return table

    def _refuse_others(self) -> None:
        """Raise StoreError for a folder with foreign content, InvalidRequest for one that can hold no table."""
        check_table(self.where)
        folder = Path(self.where)
        if not is_local(self.where) or not folder.exists():
            return
        if not folder.is_dir():
            raise StoreError(f"{self.where} is no folder: choose another place for the archive")
        if (folder / _OLD_MANIFEST).exists():
            raise StoreError(
                f"the archive in {self.where} is of brokerha 0.1, which later versions do not read: archive the log again into another folder"
            )
        names = {each.name for each in folder.iterdir()}
        foreign = sorted(name for name in names if name not in _OURS and not name.endswith(".parquet"))
        if "_delta_log" not in names and foreign:
            raise StoreError(f"{self.where} is no archive and not empty (it has {foreign[0]}): choose another folder")

    def _head(self, table: DeltaTable) -> Head:
        for limit in (1, 50, None):
            for commit in table.history(limit):
                if APPLICATION in commit:
                    fields: dict[str, Any] = json.loads(commit[APPLICATION])
                    if (found := fields.get("format")) != FORMAT:
                        is_older = isinstance(found, int) and found < FORMAT
                        todo = "archive the log again into another folder" if is_older else "use a later brokerha"
                        raise StoreError(f"the archive in {self.where} has format {found}, this program knows {FORMAT}: {todo}")
                    return Head(**fields)
        raise StoreDamaged(f"the table in {self.where} is no archive of brokerha: none of its commits says what it holds")


def _properties(head: Head) -> Any:
    from deltalake import CommitProperties, Transaction

    transactions = [Transaction(APPLICATION, head.last_lsn)]
    return CommitProperties(custom_metadata={APPLICATION: json.dumps(dataclasses.asdict(head))}, app_transactions=transactions)


def _action(file: Written, *, is_new: bool = True) -> Any:
    return add_action(
        file.name, file.size_bytes, file.rows, is_new=is_new,
        minValues={"lsn": file.first_lsn, "timestamp": _iso(file.first_us)},
        maxValues={"lsn": file.last_lsn, "timestamp": _iso(file.last_us)},
        nullCount={"lsn": 0, "timestamp": 0},
    )  # fmt: skip


def _iso(time_us: Timestamp) -> str:
    return (_BEGINNING + timedelta(microseconds=time_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _files(table: DeltaTable) -> list[LogFile]:
    import pyarrow as pa

    found = pa.table(table.get_add_actions(flatten=True))
    if not found.num_rows:
        return []
    times = (
        found[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist() for name in ("min.timestamp", "max.timestamp")
    )
    columns = [found[name].to_pylist() for name in ("path", "size_bytes", "num_records", "min.lsn", "max.lsn")]
    return sorted(map(LogFile, *columns, *times), key=lambda file: (file.first_lsn, file.last_lsn, file.path))
