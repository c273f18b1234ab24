"""The manifest of an archive: which files it consists of, as one JSON file whose last field is the checksum of the others (ARCHIVE.md).

    ArchiveState
      id, cluster, first_lsn, generation
      files       log/1-100000.parquet, log/100001-200000.parquet, …      adjacent, in order, none empty
      replaced    files that compaction took out: still on the disk for those who read an earlier manifest

Everything that may be wrong with a manifest becomes one StoreError or StoreDamaged here, so that whoever has an `ArchiveState` has one
without a gap and with a right chain. Must never touch any other file, and never give a path that leads out of the archive.

>>> ArchiveState(id="a", cluster="orders").last_lsn
0
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.ids import Lsn, Timestamp, TxId

FORMAT = 1
MANIFEST = "manifest.json"
LOG = "log"
FIRST_CHAIN = ""
"""What the chain of the first file goes on from."""


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """One Parquet file: all rows of the entries of a range, sorted by (lsn, operation, part)."""

    path: str
    """Relative to the directory of the archive, with ``/``."""
    first_lsn: Lsn
    last_lsn: Lsn
    rows: int
    size_bytes: int
    sha256: str
    """Of the file; hex, as all digests here."""
    entries_sha256: str
    """SHA-256 of the entry hashes of its entries, one after the other."""
    chain: str
    """SHA-256 of the chain of the file before it (32 bytes; nothing for the first) and ``entries_sha256``."""
    first_timestamp: Timestamp
    """Microseconds since 1970 of its first entry, and of its last one."""
    last_timestamp: Timestamp
    last_txid: TxId
    last_fingerprint: str
    """Of the whole content after its last entry, as `model.fingerprints.text_of` writes it."""

    @property
    def entries(self) -> int:
        """How many transactions."""
        return self.last_lsn - self.first_lsn + 1


@dataclass(frozen=True, slots=True)
class ReplacedFile:
    """A file that compaction took out, and that vacuum deletes."""

    path: str
    size_bytes: int
    replaced_us: int
    """Microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """What an archive holds, by one manifest."""

    id: str
    """Random; names the retention pin of this archive. Empty while nothing was written."""
    cluster: str = ""
    """Name of the cluster; empty as long as no source said it."""
    first_lsn: Lsn = 1
    """Of the first entry that it holds or will hold; above 1 for an archive of a log that was trimmed before."""
    generation: int = 0
    """Grows by one with each manifest; 0: there is none yet."""
    made_us: int = 0
    """Microseconds since 1970."""
    files: tuple[ArchiveFile, ...] = ()
    replaced: tuple[ReplacedFile, ...] = ()
    format: int = FORMAT
    lineage: int = 0
    """Of the log at its end (model/log_lineages.py); not in the file of one that is of lineage 0."""

    @property
    def last_lsn(self) -> Lsn:
        """Up to where it reaches; one less than its first LSN while it is empty."""
        return self.files[-1].last_lsn if self.files else self.first_lsn - 1

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Size of all files, those replaced not counted."""
        return sum(file.size_bytes for file in self.files)

    @property
    def chain(self) -> str:
        """Of the last file; empty while there is none."""
        return self.files[-1].chain if self.files else FIRST_CHAIN

    @property
    def holds_every_state(self) -> bool:
        """Whether the content at each LSN can be computed from it, because it holds the log from its beginning."""
        return self.first_lsn == 1

    def files_of(self, first_lsn: Lsn, last_lsn: Lsn) -> tuple[ArchiveFile, ...]:
        """The files with entries of a range, both ends included, in order."""
        return tuple(each for each in self.files if each.last_lsn >= first_lsn and each.first_lsn <= last_lsn)


def next_chain(chain: str, entries_sha256: str) -> str:
    """The chain of a file, from that of the file before it.

    >>> next_chain(FIRST_CHAIN, "00" * 32)[:16]
    '66687aadf862bd77'
    """
    return hashlib.sha256(bytes.fromhex(chain) + bytes.fromhex(entries_sha256)).hexdigest()


def chained(files: Iterable[ArchiveFile]) -> tuple[ArchiveFile, ...]:
    """The same files, each with its chain computed anew from the first one on."""
    chain = FIRST_CHAIN
    found = []
    for file in files:
        chain = next_chain(chain, file.entries_sha256)
        found.append(file if file.chain == chain else dataclasses.replace(file, chain=chain))
    return tuple(found)


def path_of(first_lsn: Lsn, last_lsn: Lsn) -> str:
    """Where the file of a range lies. No range is ever written twice, so no name is ever used again for other bytes."""
    return f"{LOG}/{first_lsn}-{last_lsn}.parquet"


def pack_manifest(state: ArchiveState) -> bytes:
    """The file of a manifest; also for people to read."""
    fields = dataclasses.asdict(state)
    if not state.lineage:
        # As it was before logs could go back, for programs of then.
        del fields["lineage"]
    return json.dumps({**fields, "checksum": _checksum(fields)}, indent=1).encode() + b"\n"


def read_manifest(data: bytes, where: str) -> ArchiveState:
    """The state in a file. Raises StoreDamaged, and StoreError for a format of a later version."""
    try:
        fields: dict[str, Any] = json.loads(data)
        written = fields.pop("checksum")
        if fields["format"] != FORMAT:
            raise StoreError(
                f"{where} has format {fields['format']}, this program knows {FORMAT}: use a later brokerha"
            )
        if written != _checksum(fields):
            raise StoreDamaged(f"{where} is damaged or was edited: its checksum differs; use a copy of this archive")
        state = _of_fields(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreDamaged(f"{where} is no manifest of an archive ({error}); use a copy of this archive") from None
    problem = next(problems_of(state), None)
    if problem is not None:
        raise StoreDamaged(f"{where}: {problem}")
    return state


def problems_of(state: ArchiveState) -> Iterator[str]:
    """What is wrong with a state by itself, one sentence each."""
    lsn, chain = state.first_lsn - 1, FIRST_CHAIN
    for file in state.files:
        if file.path != path_of(file.first_lsn, file.last_lsn):
            yield f"{file.path!r} is not the name of LSN {file.first_lsn} to {file.last_lsn}"
        if file.first_lsn != lsn + 1 or file.last_lsn < file.first_lsn:
            yield f"there is a gap: after LSN {lsn} comes {file.path}"
        chain = next_chain(chain, file.entries_sha256)
        if file.chain != chain:
            yield f"the hash chain is broken at {file.path}"
        lsn, chain = file.last_lsn, file.chain
    for old in state.replaced:
        if not old.path.startswith(f"{LOG}/") or "/" in old.path.removeprefix(f"{LOG}/"):
            yield f"it names a file outside of the archive: {old.path!r}"


def _of_fields(fields: dict[str, Any]) -> ArchiveState:
    return ArchiveState(
        **{
            **fields,
            "files": tuple(ArchiveFile(**each) for each in fields["files"]),
            "replaced": tuple(ReplacedFile(**each) for each in fields["replaced"]),
        }
    )


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
