"""Log: the durable record of one master, append-only (FORMAT.md), which also answers a core's questions about its own past.

    log = Log(FileDisk(Path("data/m1")), cluster="orders", node="m1")
    state = log.state()                                # the state that the core begins from
    log.append([Started(state.incarnation + 1)])       # durable from here on: one write, one sync
    log.keep(below=state.lsn - 100_000)                # one bounded step of forgetting, in the event loop

    append, follow --> frame and content (content.py) for each record --> one write, one sync (segments.py)
    start          --> checkpoint --> the same for each later frame --> the last segment is rewritten

Memory is updated before the write, because records of one turn build on each other. After an error it is read back from the disk,
up to the durable end. One thread appends and forgets, any thread reads. A read waits while an `append` is being synced, so that
readers see only durable records, and deferred ones.

Must never write after a failed sync, or treat unsynced bytes as durable.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import msgpack

from brokerha.log.content import Content
from brokerha.log.current import Beginning
from brokerha.log.disks import CROWDED, FULL, FileDisk
from brokerha.log.frames import LAST, RECORD, TRIMMED, Frame, damaged, sealed, unsealed
from brokerha.log.history import LogHistory, Recent, Unpacked
from brokerha.log.ids import Ids
from brokerha.log.limits import CACHE_BYTES, IDS_HELD, ROOM_BYTES, SEGMENT_BYTES, TRIM_LSNS, TRIM_RECORDS, UNPACKED_BYTES
from brokerha.log.segments import CHECKPOINT, Segments
from brokerha.log.split_book import SplitBook
from brokerha.model.errors import JournalError, JournalForeign, JournalFull, ProtocolError
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.records import Added, EpochInstalled, Outcomes, Record, Rest, Rewound, StateTaken
from brokerha.model.wire.codec import decode_record, encode_record
from brokerha.ports.disk import Disk

FORMAT = 5
CURRENT, PROMISE, REST = "current", "promise", "rest"
OLD = "data.mdb"
OF_A_WORKER = "present"
"""A file in the directory of every worker (stores/copies/directory.py), and of no journal."""


class Log(LogHistory):
    """A `ports.Journal` on a disk, for one node of one cluster; both are empty for a reader of any log.

    ``name`` is that of a new log, random by default; ``begin_at`` lets a new one begin after an LSN. The bounds are those of
    limits.py. Raises JournalForeign, JournalDamaged, JournalError, and then closes the disk unless it ``keeps_disk``;
    JournalInUse comes from the disk, which `close` closes.
    """

    def __init__(
        self,
        disk: Disk,
        cluster: str = "",
        node: NodeId = "",
        *,
        name: str = "",
        begin_at: Beginning | None = None,
        folder: str = "",
        is_read_only: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        cache_bytes: int = CACHE_BYTES,
        ids_held: int = IDS_HELD,
        keeps_disk: bool = False,
    ) -> None:
        self.disk = disk
        self.cluster, self.node = cluster, node
        self._is_read_only = is_read_only
        self._segment_bytes, self._cache_bytes, self._ids_held = segment_bytes, cache_bytes, ids_held
        self._lock = Lock()
        self._is_closed = False
        self._refusal = ""
        """Reason why writes are refused; empty while there is none."""
        self._lately = {}
        self._promised = 0
        self._rest = Rest()
        self._checkpoint_at = 0
        """Segment at which a start begins."""
        self._named: list[str] = []
        """Files that the checkpoint on disk names, beside segments."""
        self._pinned: Counter[str] = Counter()
        """Files of snapshots, with the number of uses; they survive a reload of memory."""
        try:
            with self._disk_errors("cannot be opened"):
                self.folder = folder or self._found(is_new=begin_at is not None)
                if not self.folder:
                    self._create(name or secrets.token_hex(8), begin_at)
                self._promised, self._rest = self._read_promise(), self._read_rest()
                self._load()
                if not is_read_only:
                    self._make_durable()
        except BaseException:
            if not keeps_disk:
                disk.close()
            raise

    # ------------------------------------------------------------------------- opening

    def _found(self, *, is_new: bool) -> str:
        """Return the folder of the existing log; empty when there is none."""
        names = self.disk.names()
        if OLD in names:
            raise JournalError(
                f"{self.disk.place} holds a journal of brokerha 0.1 ({OLD}), which this version does not read: write a backup with 0.1 and "
                "restore it with this version (brokerha restore NAME --all), or move the directory away and let the node begin anew"
            )
        if CURRENT in names and is_new:
            raise JournalError(f"there is a journal in {self.disk.place} already: a backup is restored into a new directory")
        if CURRENT in names:
            return str(unsealed(self.disk.read(CURRENT, 0, 4_096), f"{self.disk.place}/{CURRENT}"))
        if self._is_read_only:
            raise JournalError(f"there is no journal in {self.disk.place}")
        if OF_A_WORKER in names:
            raise JournalForeign(f"{self.disk.place} holds the copy of a worker: give this node a directory of its own")
        for name in (PROMISE, REST):
            if name in names:
                raise damaged(self.disk.place, f"there is a {name} of this process and no log")
        return ""

    def _create(self, name: str, begin_at: Beginning | None) -> None:
        self.folder = "1"
        for left in self.disk.names():
            # A crash left these files of a new log; other files in the directory are foreign.
            if left.startswith(f"{self.folder}/"):
                self.disk.remove(left)
        self._prepare(name)
        if begin_at is not None:
            content = self._content
            content.current = begin_at.current()
            content.ids.note(dict(begin_at.ids))
            content.ids.rejected.update(begin_at.rejections)
            content.marks = [(begin_at.lsn, begin_at.last[0])]
        self._segments.begin(1)
        self._write_checkpoint()
        self._write_sealed(CURRENT, self.folder)

    def _prepare(self, name: str) -> None:
        """Empty the memory."""
        self._name = name
        self._segments = Segments(self.disk, self.folder, name, self._segment_bytes)
        ids = Ids(self.disk, self.folder, self._ids_held)
        book = SplitBook(self.disk, self.folder)
        self._content = Content(self.node, self._segments.index, ids, book, self._record, self.disk.place)
        self._recent = Recent(self.node, self._cache_bytes)
        self._unpacked = Unpacked(UNPACKED_BYTES)
        self._lately = {}

    def _load(self, known_end: tuple[int, int] | None = None) -> None:
        """Read memory back from the disk, up to (segment, length) if that is known."""
        self._prepare("")
        values = self._segments.read_checkpoint()
        try:
            version, cluster, node, name, content, ids, book = values
        except ValueError:
            raise damaged(self.disk.place, "the checkpoint is not what was written") from None
        self._check_identity(version, cluster, node)
        self._segments.journal = self._name = name
        self._content.node = self.node
        self._content.read(content)
        self._content.ids.read(ids)
        self._content.book.read(book)
        self._recent = Recent(self.node, self._cache_bytes)
        self._note_checkpoint()
        self._segments.replay(self._replay, known_end)

    def _check_identity(self, version: int, cluster: str, node: NodeId) -> None:
        if version != FORMAT:
            what_to_do = (
                "start a later version" if version > FORMAT else "write a backup with the version that made it, and restore that"
            )
            raise JournalError(f"the journal in {self.disk.place} has format {version}, this version reads {FORMAT}: {what_to_do}")
        self.cluster, self.node = self.cluster or cluster, self.node or node
        if cluster != self.cluster:
            raise JournalForeign(f"the journal in {self.disk.place} belongs to cluster {cluster}, not to {self.cluster}")
        if node != self.node:
            raise JournalForeign(f"the journal in {self.disk.place} belongs to node {node}, not to node {self.node}")

    def _replay(self, frame: Frame) -> None:
        kind = frame.kind & ~LAST
        if kind == RECORD:
            try:
                record = decode_record(frame.payload)
            except ProtocolError as error:
                raise damaged(self.disk.place, f"record {frame.number} is none that this version knows ({error})") from error
            self._take(frame.number, record, len(frame.payload))
        elif kind == TRIMMED:
            self._trim_to(*msgpack.unpackb(frame.payload))

    def _take(self, number: int, record: Record, size_bytes: int) -> None:
        self._recent.add(number, record, size_bytes)
        content = self._content
        content.take(number, record)
        kind = type(record)
        if kind is Added or kind is EpochInstalled:
            self._segments.need(content.oldest, content.oldest_to)
        elif kind is Outcomes:
            self._segments.need(number, content.current.executed_lsn)
        elif kind is StateTaken or kind is Rewound:
            if kind is Rewound:
                # Trimming reads the record, with the next LSN at the earliest.
                self._segments.need(number, content.current.lsn + 1)
            # Memory must not keep records that it supersedes.
            self._recent.clear()
            self._unpacked.clear()
            self._lately = {}

    def _make_durable(self) -> None:
        """Make durable what a start has read, before any other node learns of it; remove half-written files."""
        for name in (f"{CURRENT}.new", f"{PROMISE}.new", f"{REST}.new"):
            self.disk.remove(name)
        self._segments.make_durable()
        if self._segments.active.place != self._checkpoint_at:
            self._grow(is_due=True)
        else:
            self._tidy()

    def _read_promise(self) -> int:
        if PROMISE not in self.disk.names():
            return 0
        view = unsealed(self.disk.read(PROMISE, 0, 4_096), f"{self.disk.place}/{PROMISE}")
        return int(view)

    def _read_rest(self) -> Rest:
        if REST not in self.disk.names():
            return Rest()
        return Rest(*unsealed(self.disk.read(REST, 0, 4_096), f"{self.disk.place}/{REST}"))

    # ------------------------------------------------------------------------- writing

    def append(self, records: Sequence[Record]) -> None:
        """Write and sync all records of a turn, and deferred ones, in one write.

        Raises JournalFull or JournalError; then no record was written, and the log stays readable.
        """
        if records:
            self._write(list(enumerate(records, self._content.next_number)), is_deferred=False)

    def defer(self, records: Sequence[Record]) -> None:
        """Take records that become durable with the next write. Raises as `append` does; then all deferred records are lost."""
        if records:
            self._write(list(enumerate(records, self._content.next_number)), is_deferred=True)

    def follow(self, records: Sequence[tuple[int, Record]]) -> None:
        """Write records of another process under its numbers, which grow. Raises as `append` does."""
        if records:
            self._write(records, is_deferred=False)

    def settle(self) -> None:
        """Make deferred records durable, if there are any. Raises as `append` does; then they are lost."""
        with self._lock:
            self._settle()

    def _write(self, records: Sequence[tuple[int, Record]], *, is_deferred: bool) -> None:
        with self._lock:
            self._check_writable()
            add, left = self._segments.add, len(records)
            try:
                for number, record in records:
                    left -= 1
                    data = encode_record(record)
                    add(number, data, is_last=not (left or is_deferred))
                    self._take(number, record, len(data))
                if not is_deferred:
                    self._commit()
            except BaseException as error:
                self._recover_from(error)
                raise

    def torn(self, records: Sequence[tuple[int, Record]]) -> tuple[str, int, bytes]:
        """Return file, offset and bytes of the write that `append` would make with deferred records, for simulated crashes."""
        segments = self._segments
        for at, (number, record) in enumerate(records, 1):
            segments.add(number, encode_record(record), is_last=at == len(records))
        return segments.name(segments.active.place), segments.active.length, bytes(segments.pending)

    def _commit(self) -> None:
        segments = self._segments
        try:
            segments.commit()
        except OSError as error:
            raise self._error("cannot be written", error) from error
        if segments.all[-1].length >= segments.roll_at or self._content.ids.is_full:
            self._grow()

    def _settle(self) -> None:
        if not self._segments.pending:
            return
        self._check_writable()
        try:
            self._commit()
        except BaseException as error:
            self._recover_from(error)
            raise

    def _grow(self, *, is_due: bool = False) -> None:
        """Begin another segment, or write ids, when due; a full disk, or no free descriptor, postpones it: the segment has all records."""
        segments = self._segments
        try:
            if self._content.ids.is_full:
                self._content.ids.flush()
            if is_due or segments.active.length >= segments.roll_at:
                self._roll()
        except OSError as error:
            if error.errno not in FULL | CROWDED:
                self._refuse(error)
            segments.roll_at = segments.active.length + self._segment_bytes // 16

    def _roll(self) -> None:
        """Close the active segment, begin another one, and let a start begin there."""
        segments = self._segments
        segments.close_active()
        segments.begin(self._content.next_number)
        self._write_checkpoint()
        self._tidy()

    def _write_checkpoint(self) -> None:
        """Let a start begin here, without segments that are no longer needed."""
        content, current = self._content, self._content.current
        gone = []
        if self._segments.all[0].last <= current.lacking_to:
            gone = self._segments.unneeded(current.lacking_to, current.first_lsn, content.needed())
        values = [FORMAT, self.cluster, self.node, self._name, content.packed(), content.ids.packed(), content.book.packed()]
        self._segments.write_checkpoint(values, [*content.ids.unsynced, *content.book.write()], gone)
        self._segments.drop(gone)
        content.ids.unsynced = []
        content.book.written()
        self._note_checkpoint()

    def _note_checkpoint(self) -> None:
        self._checkpoint_at = self._segments.active.place
        self._named = [*self._content.ids.files(), *self._content.book.files()]

    def _tidy(self) -> None:
        # The next checkpoint names files written after this one.
        ids = self._content.ids
        self._segments.tidy([*self._named, *ids.files(), *ids.making(), *self._content.book.files(), *self._pinned])

    def promise(self, view: int) -> None:
        """Record durably the promise of this process to a view, beside the log. Raises JournalFull, JournalError."""
        with self._lock:
            self._check_writable()
            if view > self._promised:
                with self._disk_errors("cannot keep the promise of this process"):
                    self._write_sealed(PROMISE, view)
                self._promised = view

    def rest(self, rest: Rest) -> None:
        """Record durably the pause of this process by an operator, beside the log. Raises JournalFull, JournalError."""
        with self._lock:
            self._check_writable()
            if rest != self._rest:
                with self._disk_errors("cannot keep that this process is paused, or is not"):
                    self._write_sealed(REST, list(rest))
                self._rest = rest

    def _write_sealed(self, name: str, value: Any) -> None:
        new = f"{name}.new"
        self.disk.create(new)
        self.disk.write(new, 0, sealed(value))
        self.disk.sync(new)
        self.disk.rename(new, name)
        self.disk.sync_names()

    def _check_writable(self) -> None:
        if self._is_closed:
            raise JournalError(f"the journal in {self.disk.place} is closed")
        if self._refusal:
            raise JournalError(self._refusal)
        if self._is_read_only:
            raise JournalError(f"the journal in {self.disk.place} is open for reading only")

    def _refuse(self, error: BaseException) -> None:
        self._refusal = f"{error}; nothing more is written until the node is started again"

    def _recover_from(self, error: BaseException) -> None:
        """Bring memory back to the durable state after a failed write."""
        if isinstance(error, JournalError) and not isinstance(error, JournalFull):
            # After a failed sync the content of the page cache is unknown.
            self._refuse(error)
        try:
            with self._disk_errors("cannot be read back"):
                active = self._segments.active
                if not self._refusal:
                    self._segments.take_back()
                self._load((active.place, active.length))
        except JournalError as second:
            self._refuse(second)

    @contextmanager
    def _disk_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(what, error) from error

    def _error(self, what: str, error: OSError) -> JournalError:
        kind = JournalFull if error.errno in FULL else JournalError
        name = f" ({error.filename})" if error.filename else ""
        return kind(f"the journal in {self.disk.place} {what}: {error.strerror}{name}")

    # ---------------------------------------------------------------------- forgetting

    def trim(self, below: Lsn) -> int:
        """Forget bodies, entries and results below an LSN, by whole records, and ids that no longer count. Return the number of LSNs dropped.

        At most `TRIM_LSNS` (or one record's) in a call; call it again in later turns. Disk space is freed by whole segments.
        Raises JournalFull or JournalError; then nothing was dropped.
        """
        with self._lock:
            self._check_writable()
            content = self._content
            old = content.current.first_lsn, content.last_trimmed
            plan = content.plan(below, TRIM_LSNS, TRIM_RECORDS)
            if plan == old:
                self._settle()
                return 0
            try:
                self._trim_to(*plan)
                self._segments.add(0, msgpack.packb(plan), TRIMMED, is_last=True)
                self._commit()
            except BaseException as error:
                self._recover_from(error)
                raise
            return plan[0] - old[0]

    def _trim_to(self, first: Lsn, last: int) -> None:
        self._content.trim_to(first, last)
        self._recent.forget_below(last)
        self._lately = {}

    def keep(self, below: Lsn) -> bool:
        """Take one bounded step of forgetting: trim below an LSN, or free disk space.

        Return whether there is more to do at once; nearly free when there is nothing. Attests the present last write.
        Raises JournalFull or JournalError.
        """
        is_trimmed = self.trim(below) > 0
        with self._lock, self._disk_errors("cannot merge its ids"):
            is_more = self._content.ids.merge_some()
            if not is_trimmed:
                self._give_back()
            self._attest()
        return is_trimmed or is_more

    def _attest(self) -> None:
        """Prove the last write durable: a start can then tell its damage from a torn write. The next write can take hours."""
        try:
            self._segments.attest()
        except OSError as error:
            failure = self._error("cannot be written", error)
            self._recover_from(failure)
            raise failure from error

    def _give_back(self) -> None:
        """Close a segment early if that frees much space."""
        segments, current = self._segments, self._content.current
        if len(segments.all) < 2 or segments.all[0].last > current.lacking_to or self._refusal:
            return
        room = sum(segment.length for segment in segments.all[:-1] if segment.last <= current.lacking_to)
        if room < ROOM_BYTES:
            return
        gone = segments.unneeded(current.lacking_to, current.first_lsn, self._content.needed())
        if sum(segment.length for segment in gone) >= ROOM_BYTES:
            self._settle()
            self._grow(is_due=True)

    def hold_files(self) -> tuple[int, bytes, list[tuple[str, int]]]:
        """Return number of the last record, checkpoint, and (file, size) of a copy of the log; the files stay until `let_go`."""
        with self._lock:
            self._check_writable()
            self._settle()
            segments = self._segments
            name = f"{self.folder}/{CHECKPOINT}"
            checkpoint = self.disk.read(name, 0, self.disk.size(name))
            names = [*self._named, *segments.files()]
            active = segments.name(segments.active.place)
            lengths = [segments.active.length if name == active else self.disk.size(name) for name in names]
            self._pinned.update(names)
            return self.last_number, checkpoint, [(name.partition("/")[2], size) for name, size in zip(names, lengths, strict=True)]

    def let_go(self, names: list[str]) -> None:
        """Release the files of `hold_files`; the next checkpoint removes unneeded ones."""
        with self._lock:
            self._pinned -= Counter(names)

    def end(self) -> None:
        """Stop writing; deferred records become durable if possible; the disk stays open. Idempotent."""
        with self._lock:
            if not self._is_closed:
                with suppress(JournalError):
                    self._settle()
                    if not (self._refusal or self._is_read_only):
                        self._attest()
                self._is_closed = True

    def close(self) -> None:
        """Release the directory; deferred records become durable if possible. Idempotent."""
        self.end()
        self.disk.close()


@contextmanager
def open_log(directory: Path, cluster: str = "", node: NodeId = "") -> Iterator[Log]:
    """Open the log in a directory for reading, while the block runs; other readers can open it, and no process can write to it.

    Without ``cluster`` and ``node`` any log is accepted. Raises JournalForeign, JournalInUse, JournalDamaged, JournalError.
    """
    if not (directory / CURRENT).exists() and not (directory / OLD).exists():
        raise JournalError(f"there is no journal in {directory}")
    log = Log(FileDisk(directory, is_read_only=True), cluster, node, is_read_only=True)
    try:
        yield log
    finally:
        log.close()
