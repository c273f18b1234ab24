"""A worker's directory made from a backup: copy loaded, lines applied, fingerprints compared, then renamed into place.

    check_backup                       reads the whole backup and compares it with the manifest; changes nothing
    <dir>.restoring/inside/            a worker's directory in the making (copies/worker_copy.py); no node opens it
      load  ─>  lines of the log, each with its fingerprint  ─>  fingerprint computed from the data itself
    rename to <dir>                    from here on a node can open it

A kill at any moment leaves the old state of ``<dir>``. The next run with the same purpose continues; one with another purpose
starts again. Chunks and lines that are there already are not written again. restore_target.py has the rename into place.

`replay` compares each line with its fingerprint:

    lines of any source ──> in order, without a gap? ──> batches ──> store.apply ──> fingerprint as the line says

The store skips lines that it has. The last skipped line is compared too, so that another history is found before any line is
applied. Lines applied before an error stay, and the same call continues from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from brokerha.model.errors import InvalidRequest, StoreDamaged, StoreDiffers
from brokerha.model.fingerprints import EMPTY, differs, from_text, text_of
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.operations import LoggedRow
from brokerha.ports.copies import Snapshot
from brokerha.ports.store import Applied, Store
from brokerha.stores.backup.directory import BackupDirectory, Progress, no_progress
from brokerha.stores.backup.lines import LinesMissing
from brokerha.stores.backup.manifest import CopyFile, Manifest
from brokerha.stores.backup.restore_target import Placing, Target
from brokerha.stores.backup.writing import check_space
from brokerha.stores.copies.worker_copy import WorkerCopy
from brokerha.stores.files.durable import delete_tree, no_crash
from brokerha.stores.files.environment import store_errors
from brokerha.stores.tables.key_range import in_batches

BATCH_LINES = 512
BATCH_BYTES = 1024 * 1024
"""A batch ends with the line that reaches either limit."""


def replay(
    store: Store,
    lines: Iterable[tuple[Lsn, LoggedRow]],
    first_lsn: Lsn,
    last_lsn: Lsn,
    note: Callable[[int], None] = lambda _lines: None,
) -> int:
    """Apply the lines of a range, both ends included; return how many of them were new.

    ``note`` is called with the number of lines of each batch. Raises InvalidRequest (the store lacks lines before the first one),
    LinesMissing (a gap, or an end before the last line), StoreDiffers, StoreError.
    """
    applied = store.applied()
    if applied.lsn + 1 < first_lsn:
        raise InvalidRequest(f"the data is at LSN {applied.lsn}, so lines from {applied.lsn + 1} on come next, not {first_lsn}")
    following = first_lsn

    def fresh() -> Iterator[LoggedRow]:
        nonlocal following
        for lsn, row in lines:
            if lsn > last_lsn:
                return
            if lsn != following:
                raise LinesMissing(f"LSN {following} is missing: the next line that there is has LSN {lsn}")
            following += 1
            if lsn > applied.lsn:
                yield row
            else:
                _check_same(lsn, row, applied.lsn, applied.fingerprint)

    for batch in in_batches(fresh(), lambda row: len(row[4]), BATCH_LINES, BATCH_BYTES):
        store.apply(following - len(batch), batch)
        note(len(batch))
    if following <= last_lsn:
        raise LinesMissing(f"the lines end with LSN {following - 1}, before {last_lsn}")
    return max(0, last_lsn - applied.lsn)


def check_end(store: Store, lsn: Lsn, fingerprint: bytes) -> None:
    """Raise StoreDiffers unless the store is at this LSN with this fingerprint; an unknown one (empty) matches any."""
    applied = store.applied()
    wanted = fingerprint if lsn else EMPTY
    if applied.lsn != lsn or differs(from_text(applied.fingerprint), wanted):
        raise StoreDiffers(
            f"the data is at LSN {applied.lsn} with {applied.fingerprint}, and should be at {lsn} with {text_of(wanted)}", lsn
        )


def _check_same(lsn: Lsn, row: LoggedRow, applied_lsn: Lsn, fingerprint: str) -> None:
    if lsn == applied_lsn and differs(row[5], from_text(fingerprint)):
        raise StoreDiffers(
            f"at LSN {lsn} the data has {fingerprint}, and these lines {text_of(row[5])}: they are not of one history", lsn
        )


def check_backup(backup: BackupDirectory, manifest: Manifest, note: Progress = no_progress) -> Snapshot:
    """Read a whole backup and compare it with its manifest; return its copy as a snapshot. Raises StoreDamaged."""
    with store_errors(f"cannot read the backup {manifest.name}"):
        files = tuple(
            (file.path, file.size_bytes, _checked_sums(backup, file, manifest.chunk_bytes, note)) for file in manifest.files
        )
        for segment in manifest.segments:
            for problem in backup.verify_segment(backup.path / segment.path, segment, note):
                raise StoreDamaged(f"the backup {manifest.name} is damaged: {problem}; use another one")
    return Snapshot(manifest.lsn, manifest.fingerprint, manifest.items, manifest.chunk_bytes, files)


def _checked_sums(backup: BackupDirectory, file: CopyFile, chunk_bytes: int, note: Progress) -> bytes:
    digest, sums, size_bytes = hashlib.sha256(), [], 0
    for chunk in _chunks(backup, file, chunk_bytes):
        digest.update(chunk)
        sums.append(hashlib.sha256(chunk).digest())
        size_bytes += len(chunk)
        note(len(chunk))
    if (size_bytes, digest.hexdigest()) != (file.size_bytes, file.sha256):
        raise StoreDamaged(f"{file.path} of the backup is damaged: its SHA-256 is not that of the manifest; use another backup")
    return b"".join(sums)


def _chunks(backup: BackupDirectory, file: CopyFile, chunk_bytes: int) -> Iterator[bytes]:
    with backup.copy_file(file.path).open("rb") as source:
        while chunk := source.read(chunk_bytes):
            yield chunk


class Restore:
    """The restore of one worker's directory: `prepare`, then `placing.place` and `placing.finish`."""

    def __init__(
        self,
        backup: BackupDirectory,
        manifest: Manifest,
        target: Target,
        directory: Path,
        *,
        cluster: str,
        node: NodeId,
        crash_point: Callable[[str], None] = no_crash,
    ) -> None:
        self.target = target
        self.placing = Placing(directory, purpose_of(manifest, target, cluster, node), crash_point)
        self._backup = backup
        self._manifest = manifest
        self._cluster = cluster
        self._node = node
        self._crash_point = crash_point

    def prepare(self, snapshot: Snapshot, note_bytes: Progress = no_progress, note_lines: Progress = no_progress) -> Applied:
        """Make all of it beside its place; return its LSN, fingerprint and count. Continues the work of a killed run.

        Raises StoreError (no space, another run makes the same), StoreDiffers (a line led to other content), StoreDamaged.
        """
        with self.placing.claimed():
            if not self.placing.inside.exists():
                check_space(self.placing.inside.parent, self._manifest.size_bytes)
            copy = self._opened()
            try:
                if copy.applied().lsn < self.target.base_lsn:
                    self._load(copy, snapshot, note_bytes)
                    self._crash_point("loaded")
                self._apply(copy, note_lines)
                self._crash_point("lines applied")
                found, wanted = copy.recompute(), copy.applied()
            finally:
                copy.close()
            if found != wanted:
                raise StoreDamaged(
                    f"the restored data has fingerprint {found.fingerprint} and {found.items} items, and should have "
                    f"{wanted.fingerprint} and {wanted.items}: the copy was damaged when it was backed up; use another backup"
                )
            self.placing.make_durable()
        return found

    def _opened(self) -> WorkerCopy:
        """Return the copy in the making; a new one when the present one is unusable."""
        home = self.placing.inside
        copy = self._copy_in(home)
        if not copy.trouble and copy.applied().lsn <= self.target.lsn:
            return copy
        copy.close()
        delete_tree(home)
        return self._copy_in(home)

    def _copy_in(self, home: Path) -> WorkerCopy:
        return WorkerCopy(home, cluster=self._cluster, node=self._node, from_cluster=self._manifest.cluster)

    def _load(self, copy: WorkerCopy, snapshot: Snapshot, note: Progress) -> None:
        there = copy.begin_load(self._manifest.checksum, snapshot)
        number = 0
        for file in self._manifest.files:
            with store_errors(f"cannot read the backup {self._manifest.name}"):
                for chunk in _chunks(self._backup, file, self._manifest.chunk_bytes):
                    if number not in there and not copy.keep_chunk(number, chunk):
                        raise StoreDamaged(f"{file.path} of the backup has changed since it was checked: use another backup")
                    self._crash_point("chunk kept")
                    number += 1
                    note(len(chunk))
        copy.open_load()

    def _apply(self, copy: WorkerCopy, note: Progress) -> None:
        if copy.lineage:
            # Journals made from the same backup start a log of lineage 0; a log that continues knows the end of lineage 0.
            copy.begin_lineage(0)
        first_lsn = copy.applied().lsn + 1
        lines = self._backup.lines(self._manifest, first_lsn, self.target.lsn)
        if first_lsn <= self.target.lsn:
            replay(copy, lines, first_lsn, self.target.lsn, self._noting(note))
        check_end(copy, self.target.lsn, self.target.fingerprint)

    def _noting(self, note: Progress) -> Progress:
        def noted(lines: int) -> None:
            self._crash_point("batch applied")
            note(lines)

        return noted


def purpose_of(manifest: Manifest, target: Target, cluster: str, node: NodeId) -> bytes:
    """Return the purpose that identifies a restore."""
    return json.dumps([manifest.checksum, target.lsn, text_of(target.fingerprint), cluster, node]).encode()
