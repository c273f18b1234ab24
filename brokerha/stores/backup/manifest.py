"""The manifest of a backup: its content, as one JSON file whose last field is the checksum of the others (BACKUP.md).

    Manifest
      lsn, txid, timestamp, fingerprint, items    state of the copy
      files                                       files of the copy, each with its size and SHA-256
      segments                                    lines of the log: those before the copy, if the worker had all of them,
                                                  and those after it, one file for each incremental backup

Every fault of a manifest becomes a StoreDamaged or StoreError here, so that a `Manifest` is always valid. Must never touch
another file, nor return a path that leads out of the directory of its backup.

>>> Manifest(name="monday", cluster="orders", node="w1", lsn=7).last_lsn
7
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from brokerha.model.errors import InvalidRequest, StoreDamaged, StoreError
from brokerha.model.fingerprints import from_text
from brokerha.model.ids import Lsn, NodeId, Timestamp, TxId
from brokerha.ports.copies import CHUNK_BYTES

FORMAT = 1
MANIFEST = "manifest.json"
COPY = "copy"
LOG = "log"
RESERVED_NAMES = frozenset({"list", "make", "verify"})
"""Names that are commands of the CLI."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}\Z")


def is_name(name: str) -> bool:
    """Tell whether a backup can have this name."""
    return _NAME.match(name) is not None and name not in RESERVED_NAMES


def check_name(name: str) -> str:
    """Return a valid name of a backup. Raises InvalidRequest."""
    if not is_name(name):
        reserved = ", ".join(sorted(RESERVED_NAMES))
        message = f"{name!r} is no name for a backup: 1 to 64 of A-Z a-z 0-9 _ - . without a dot first, and not {reserved}"
        raise InvalidRequest(message)
    return name


@dataclass(frozen=True, slots=True)
class CopyFile:
    """One file of the copy."""

    path: str
    """Relative to the folder of the copy, with ``/``."""
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A file with lines of the log: all those before the copy, or those that one incremental backup added."""

    first_lsn: Lsn
    last_lsn: Lsn
    txid: TxId
    """Id of the last transaction; the next two fields are of it too."""
    timestamp: Timestamp
    fingerprint: str
    size_bytes: int
    sha256: str
    node: NodeId
    """Worker that gave the lines."""
    made_us: int
    """Microseconds since 1970."""
    request: str = ""
    """Id of the task that made it: a repeated task finds its work done."""

    @property
    def path(self) -> str:
        """The path, relative to the directory of the backup."""
        return f"{LOG}/{self.first_lsn}-{self.last_lsn}.lines"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a backup."""

    name: str
    cluster: str
    node: NodeId
    """Worker that gave the copy."""
    lsn: Lsn
    """LSN of the copy."""
    txid: TxId = ""
    """Of the transaction at that LSN, as is the timestamp; empty and 0 if the worker's log no longer had it."""
    timestamp: Timestamp = 0
    fingerprint: str = ""
    """Of the content of the copy, beginning with the version of its algorithm."""
    items: int = 0
    masters: tuple[NodeId, ...] = ()
    control_suite: tuple[Any, ...] = ()
    files: tuple[CopyFile, ...] = ()
    segments: tuple[Segment, ...] = ()
    chunk_bytes: int = CHUNK_BYTES
    made_us: int = 0
    """Microseconds since 1970."""
    request: str = ""
    format: int = FORMAT
    lineage: int = 0
    """Lineage of the log at its end (model/log_lineages.py); the file omits lineage 0."""

    @property
    def log_first_lsn(self) -> Lsn:
        """LSN of its first line of the log; one more than the last LSN when it has no lines."""
        return self.segments[0].first_lsn if self.segments else self.lsn + 1

    @property
    def least_lsn(self) -> Lsn:
        """LSN of the earliest state to restore: that of the copy, or 0 when it has all lines."""
        return 0 if self.log_first_lsn == 1 else self.lsn

    @property
    def last_lsn(self) -> Lsn:
        """LSN of its end."""
        return self.segments[-1].last_lsn if self.segments else self.lsn

    @property
    def last_txid(self) -> TxId:
        """Id of the transaction at its end."""
        return self.segments[-1].txid if self.segments else self.txid

    @property
    def last_timestamp(self) -> Timestamp:
        """Timestamp of the transaction at its end."""
        return self.segments[-1].timestamp if self.segments else self.timestamp

    @property
    def last_fingerprint(self) -> str:
        """Fingerprint of the content at its end."""
        return self.segments[-1].fingerprint if self.segments else self.fingerprint

    @property
    def copy_bytes(self) -> int:
        """Size of the copy."""
        return sum(file.size_bytes for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Size of the copy and of all segments."""
        return self.copy_bytes + sum(segment.size_bytes for segment in self.segments)

    @property
    def checksum(self) -> str:
        """Checksum that identifies this backup in this state."""
        return _checksum(_plain(self))

    def with_segment(self, segment: Segment, lineage: int = 0) -> Manifest:
        """Return the manifest with one more segment, which is of this lineage."""
        return dataclasses.replace(self, segments=(*self.segments, segment), lineage=lineage)


def pack_manifest(manifest: Manifest) -> bytes:
    """Return the file of a manifest, readable for people too."""
    fields = _plain(manifest)
    made = datetime.fromtimestamp(manifest.made_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return json.dumps({**fields, "made": made, "checksum": _checksum(fields)}, indent=1).encode() + b"\n"


def read_manifest(data: bytes, where: str) -> Manifest:
    """Return the manifest in a file. Raises StoreDamaged, and StoreError for a format of a later version."""
    try:
        fields = json.loads(data)
        written = fields.pop("checksum")
        fields.pop("made")
        if fields["format"] != FORMAT:
            raise StoreError(f"{where} has format {fields['format']}, this program knows {FORMAT}: use a later brokerha")
        if written != _checksum(fields):
            raise StoreDamaged(f"{where} is damaged or was edited: its checksum differs; use another backup")
        manifest = _of_fields(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreDamaged(f"{where} is no manifest of a backup ({error}); use another backup") from None
    _check(manifest, where)
    return manifest


def _of_fields(fields: dict[str, Any]) -> Manifest:
    return Manifest(
        **{
            **fields,
            "masters": tuple(fields["masters"]),
            "control_suite": tuple(fields["control_suite"]),
            "files": tuple(CopyFile(**each) for each in fields["files"]),
            "segments": tuple(Segment(**each) for each in fields["segments"]),
        }
    )


def _check(manifest: Manifest, where: str) -> None:
    """Check the properties that the program relies on."""
    for file in manifest.files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in file.path:
            raise StoreDamaged(f"{where} names a file outside of the backup: {file.path!r}")
    lsn = manifest.least_lsn
    for segment in manifest.segments:
        is_in_order = segment.first_lsn == lsn + 1 and segment.last_lsn >= segment.first_lsn
        if not is_in_order or segment.first_lsn <= manifest.lsn < segment.last_lsn:
            raise StoreDamaged(f"{where} has a gap: after LSN {lsn} comes {segment.path}")
        lsn = segment.last_lsn
    if not from_text(manifest.last_fingerprint):
        raise StoreDamaged(f"{where} has no fingerprint at LSN {manifest.last_lsn}")


def _plain(manifest: Manifest) -> dict[str, Any]:
    fields = dataclasses.asdict(manifest)
    if not manifest.lineage:
        # The file stays as before lineages existed, for programs of that time.
        del fields["lineage"]
    return fields


def _checksum(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
