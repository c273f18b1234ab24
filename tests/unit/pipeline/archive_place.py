"""A log that can be archived without any node: lines in the directory of a backup; and one archive with its jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from brokerha.model.fingerprints import EMPTY, text_of
from brokerha.pipeline.archive import Archive, ArchiveState
from brokerha.pipeline.archive_job import ArchiveOptions, ArchiveReport, Around, run
from brokerha.pipeline.archive_tasks import Tasks, TasksHere
from brokerha.pipeline.archive_writing import no_crash
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.rows import entries_of
from brokerha.pipeline.sources import SourceSpec
from brokerha.stores.backup_directory import write_manifest
from brokerha.stores.backup_lines import write_lines
from brokerha.stores.backup_manifest import LOG, Manifest, Segment

NOW_US = 1_800_000_000_000_000


class Killed(BaseException):
    """What `kill -9` is to a test: nothing after it runs."""


class Log:
    """Lines that grow, as a source that tasks can open."""

    def __init__(self, path: Path, entries: Sequence[LogEntry] = (), cluster: str = "orders") -> None:
        self.path = path
        self.spec = SourceSpec(backup=str(path))
        before = entries[0].lsn - 1 if entries else 0
        (path / LOG).mkdir(parents=True)
        self.manifest = Manifest(path.name, cluster, "w1", before, fingerprint=text_of(EMPTY))
        self.entries: list[LogEntry] = []
        self.add(entries)

    def add(self, entries: Sequence[LogEntry]) -> None:
        """More of it."""
        if entries:
            first, last = entries[0], entries[-1]
            part = self.path / "part"
            with part.open("wb") as file:
                written = write_lines(file, ((each.lsn, (each.txid, each.timestamp, *each[5:])) for each in entries))
            segment = Segment(
                first.lsn, last.lsn, last.txid, last.timestamp, text_of(last.fingerprint), written.size_bytes, written.sha256, "w1", 1
            )  # fmt: skip
            part.rename(self.path / segment.path)
            self.manifest = self.manifest.with_segment(segment)
            # A backup does not know origins and epochs.
            self.entries += [each._replace(origin="", epoch=0) for each in entries]
        write_manifest(self.path, self.manifest)


class Place:
    """An archive, the log that goes into it, and what its jobs were told."""

    def __init__(self, path: Path, log: Log) -> None:
        self.path = path
        self.log = log
        self.archive = Archive(path)
        self.now_us = NOW_US
        self.step_us = 1000
        self.spark_starts = 0
        self.pauses: list[float] = []
        self.told: list[tuple[int, int]] = []
        self.warnings: list[str] = []
        self.on_pause: Callable[[], bool] = lambda: True
        self.spark: Tasks = TasksHere()

    def run(
        self, *, cluster: Any = None, crash_point: Callable[[str], None] = no_crash, **options: Any
    ) -> ArchiveReport:
        """One job."""
        given = {"into": self.path, "source": self.log.spec, "file_entries": 100, **options}
        around = Around(
            spark=self._spark,
            tell=lambda done, total: self.told.append((done, total)),
            cluster=cluster,
            warn=self.warnings.append,
            now_us=self._clock,
            pause=self._pause,
            crash_point=crash_point,
        )
        return run(ArchiveOptions(**given), around)

    def _clock(self) -> int:
        self.now_us += self.step_us
        return self.now_us

    def _pause(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now_us += round(seconds * 1e6)
        return self.on_pause()

    @contextmanager
    def _spark(self) -> Iterator[Tasks]:
        self.spark_starts += 1
        yield self.spark

    @property
    def state(self) -> ArchiveState:
        return self.archive.state()

    def entries(self) -> list[LogEntry]:
        """All that the archive holds, decoded from its rows."""
        return [entry for file in self.state.files for entry in entries_of(self.archive.table(file))]

    def check(self) -> None:
        """Every file is what the manifest says, and what it holds is the log so far, once."""
        state = self.state
        assert list(self.archive.verify()) == []
        assert self.entries() == [each for each in self.log.entries if state.first_lsn <= each.lsn <= state.last_lsn]
        assert state.rows == sum(self.archive.table(file, ["lsn"]).num_rows for file in state.files)

    def paths(self) -> set[str]:
        """All Parquet files on the disk, relative to the archive."""
        return {str(path.relative_to(self.path)) for path in self.path.rglob("*.parquet")}


def sha_of_entries(table: pa.Table) -> str:
    """The digest of the entry hashes of whole entries, computed in the plainest way."""
    hashes = dict(zip(table["lsn"].to_pylist(), table["entry_hash"].to_pylist(), strict=True))
    return hashlib.sha256(b"".join(hashes.values())).hexdigest()
