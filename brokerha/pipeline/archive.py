"""An archive as its readers see it: what it holds by its manifest, and single entries, in the order of their LSNs.

    archive = Archive(Path("/srv/archive"))
    state = archive.state()                          # ArchiveState: cluster, first_lsn, last_lsn, files, chain
    for file in state.files_of(1, 5000):             # ArchiveFile: Parquet in rows.SCHEMA
        table = archive.table(file, ["lsn", "key"])

Readers trust the manifest and nothing else: a file that it does not name is none. They take no lock, because files never change: one
that compaction took out stays on the disk for a time of grace (`archive_compacting`). Must never write.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.ids import Lsn
from brokerha.pipeline.archive_manifest import (
    MANIFEST,
    ArchiveFile,
    ArchiveState,
    ReplacedFile,
    read_manifest,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Archive", "ArchiveFile", "ArchiveState", "ReplacedFile"]


class Archive:
    """One archive, by its directory: on this machine, or on a file system that all processes of Spark see."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def exists(self) -> bool:
        """Whether something was ever archived here."""
        return (self.directory / MANIFEST).exists()

    def state(self) -> ArchiveState:
        """What it holds now. Raises StoreError when there is no archive here, StoreDamaged when it cannot be trusted."""
        path = self.directory / MANIFEST
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreError(
                f"there is no archive in {self.directory}: make one with brokerha pipeline archive --into {self.directory}"
            ) from None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from None
        return read_manifest(data, str(path))

    def path(self, file: ArchiveFile) -> Path:
        """Where a file lies."""
        return self.directory / file.path

    def table(self, file: ArchiveFile, columns: Sequence[str] | None = None, filters: Any = None) -> pa.Table:
        """Rows of one file, with all columns or some. Raises StoreDamaged when it is missing or cannot be read."""
        import pyarrow.parquet

        with reading(self.path(file)):
            return pyarrow.parquet.read_table(
                self.path(file), columns=columns and list(columns), filters=filters, partitioning=None
            )

    def fingerprint_at(self, lsn: Lsn) -> bytes:
        """Fingerprint of the whole content at an LSN, as its entry says; of the empty content at 0.

        Raises StoreError when the archive does not hold that LSN. Reads one file.
        """
        from brokerha.model.fingerprints import EMPTY

        state = self.state()
        if lsn == 0 and state.holds_every_state:
            return EMPTY
        found: bytes = self._rows_at(state, lsn, ["lsn", "fingerprint"])["fingerprint"][0].as_py()
        return found

    def timestamp_at(self, lsn: Lsn) -> int:
        """When the entry of an LSN was stamped: microseconds since 1970. Raises StoreError. Reads one file."""
        import pyarrow as pa

        stamped = self._rows_at(self.state(), lsn, ["lsn", "timestamp"])["timestamp"]
        found: int = stamped.cast(pa.int64())[0].as_py()
        return found

    def lsn_at(self, time_us: int) -> Lsn:
        """The last LSN whose entry was stamped at a time or before it; one less than the first LSN when there is none.

        Entries are in the order of their timestamps, so this is the state that the cluster agreed on for that time. Reads one file.
        """
        import numpy as np
        import pyarrow as pa

        state = self.state()
        place = bisect_right([file.first_timestamp for file in state.files], time_us) - 1
        if place < 0:
            return state.first_lsn - 1
        file = state.files[place]
        if file.last_timestamp <= time_us:
            return file.last_lsn
        table = self.table(file, ["lsn", "timestamp"])
        stamped = table["timestamp"].cast(pa.int64()).to_numpy()
        before = int(np.searchsorted(stamped, time_us, side="right"))
        found: int = table["lsn"][before - 1].as_py()
        return found

    def verify(self) -> Iterator[str]:
        """Read every byte; what is wrong, one sentence each that names the file. The rows are not decoded: audit does that."""
        for file in self.state().files:
            path = self.path(file)
            try:
                with path.open("rb") as opened:
                    size_bytes, found = path.stat().st_size, hashlib.file_digest(opened, "sha256").hexdigest()
            except FileNotFoundError:
                yield f"{file.path} is missing: it held LSN {file.first_lsn} to {file.last_lsn}"
                continue
            except OSError as error:
                yield f"{file.path} cannot be read: {error.strerror}"
                continue
            if size_bytes != file.size_bytes:
                yield f"{file.path} has {size_bytes} bytes instead of {file.size_bytes}"
            elif found != file.sha256:
                yield f"{file.path} is not what was written: its SHA-256 differs"

    def _rows_at(self, state: ArchiveState, lsn: Lsn, columns: list[str]) -> pa.Table:
        if not state.first_lsn <= lsn <= state.last_lsn:
            raise StoreError(
                f"the archive in {self.directory} does not hold LSN {lsn}: it has {state.first_lsn} to {state.last_lsn}"
            )
        file = state.files[bisect_left([each.last_lsn for each in state.files], lsn)]
        found = self.table(file, columns, [("lsn", "=", lsn)])
        if found.num_rows == 0:
            raise StoreDamaged(f"{self.path(file)} has no row of LSN {lsn}: see brokerha pipeline audit")
        return found


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what pyarrow raises about one file into a StoreDamaged that names it."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise StoreDamaged(f"{path} is missing: use a copy of this archive") from None
    except (OSError, pa.ArrowException) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise StoreDamaged(f"{path} cannot be read ({first}): use a copy of this archive") from None
