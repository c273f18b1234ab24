"""Which LSN a transaction id has, and why one was rejected; known for longer than the entries of the log, and for millions of them.

What came last is in two dictionaries. `IDS_HELD` rows of them at a time become a run: a file with the rows in the order of their
hashes, of which memory holds the hashes only, eight bytes a row. Runs of one size are merged four at a time, in small steps.

    run     xxh3-64 of the rest | count | hashes, u64 each | rows: LSN, offset of the key, length of the key | keys and reasons

A row is found by its hash, the newest run first. An id whose LSN was given up has a row with LSN 0. A key that begins with 0xff is a
rejection, by its LSN; what became void in a range of LSNs is void in all runs that were there (`voids`), as ids below an LSN are
forgotten in all of them (`below`); a run goes when all of its rows are.

Runs are named by checkpoints: the log deletes a file only when no checkpoint needs it any more, and syncs one before the first that does.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Any

from xxhash import xxh3_64_intdigest

from brokerha.log.frames import SUM, damaged
from brokerha.log.limits import IDS_HELD, MERGED_AT_ONCE, RUN_LIMIT, RUNS_MERGED
from brokerha.model.ids import Lsn, Ordered, TxId
from brokerha.model.records import Remembered
from brokerha.ports.disk import Disk

ROW = Struct("<QQI")
_COUNT = Struct("<QQ")
REJECTION = b"\xff"
Item = tuple[int, bytes, Lsn, bytes]
"""Hash, key, LSN, and why it was rejected."""


def _hashed(key: bytes) -> int:
    return xxh3_64_intdigest(key)


def _reason_key(lsn: Lsn) -> bytes:
    return REJECTION + lsn.to_bytes(8, "big")


@dataclass(slots=True)
class Run:
    """One file of rows, sorted by hash and key."""

    name: str
    count: int
    last_lsn: Lsn
    """The highest of its rows."""
    below: Lsn = 0
    """Rows with a lower LSN are forgotten."""
    voids: list[list[int]] = field(default_factory=list)
    """Rejections above the first and up to the second LSN of a pair are void."""
    hashes: array[int] = field(default_factory=lambda: array("Q"))

    def packed(self) -> list[Any]:
        """What a checkpoint keeps of it."""
        return [self.name, self.count, self.last_lsn, self.below, self.voids]

    def is_dead(self, key: bytes, lsn: Lsn) -> bool:
        """Whether a row counts no more."""
        return 0 < lsn < self.below or (
            bool(self.voids) and key[:1] == REJECTION and any(low < lsn <= high for low, high in self.voids)
        )


class _Rows:
    """Rows on their way into a file, in the order of their hashes and keys."""

    def __init__(self) -> None:
        self.hashes = array("Q")
        self.last_lsn: Lsn = 0
        self._heads = bytearray()
        self._blob = bytearray()

    def add(self, hashed: int, key: bytes, lsn: Lsn, why: bytes) -> None:
        """Add one."""
        self.hashes.append(hashed)
        self._heads += ROW.pack(lsn, len(self._blob), len(key) << 16 | _check(key, lsn, why))
        self._blob += key
        self._blob += why
        self.last_lsn = max(lsn, self.last_lsn)

    def packed(self) -> bytes:
        """The bytes of the file; behind the last row one more says where the last key ends."""
        hashes = self.hashes.tobytes()
        head = _COUNT.pack(len(self.hashes), xxh3_64_intdigest(hashes))
        return b"".join((SUM.pack(xxh3_64_intdigest(head)), head, hashes, self._heads, ROW.pack(0, len(self._blob), 0), self._blob))


class Ids:
    """The ids of one log, in files of ``folder``. Raises OSError, JournalDamaged."""

    def __init__(self, disk: Disk, folder: str, held: int = IDS_HELD) -> None:
        self._disk = disk
        self._folder = folder
        self._limit = held
        self.lsns: dict[TxId, Lsn] = {}
        """What no run has yet; 0 for an id that has no LSN any more."""
        self.rejected: dict[Lsn, str] = {}
        self.runs: list[Run] = []
        """Oldest first."""
        self.unsynced: list[str] = []
        """Files that no checkpoint named yet."""
        self._made = 0
        self._merge: Iterator[None] | None = None

    # ------------------------------------------------------------------------ changing

    def add(self, first_lsn: Lsn, entries: Iterable[Ordered]) -> None:
        """Take in entries of the synchronised queue, from an LSN on."""
        lsns = self.lsns
        for lsn, (_, txid, _) in enumerate(entries, first_lsn):
            lsns[txid] = lsn

    def void_rejections(self, above: Lsn, up_to: Lsn) -> None:
        """Forget what was rejected above an LSN and up to another."""
        self.rejected = {lsn: why for lsn, why in self.rejected.items() if not above < lsn <= up_to}
        for run in self.runs:
            run.voids.append([above, up_to])

    def forget(self, below: Lsn) -> None:
        """Forget everything that has a lower LSN."""
        self.lsns = {txid: lsn for txid, lsn in self.lsns.items() if not 0 < lsn < below}
        self.rejected = {lsn: why for lsn, why in self.rejected.items() if lsn >= below}
        for run in self.runs:
            run.below = max(below, run.below)
        self._drop_dead()

    def _drop_dead(self) -> None:
        """Drop the oldest runs in which nothing counts any more."""
        while self.runs and self.runs[0].last_lsn < self.runs[0].below and self._merge is None:
            # An id that was given up hides what is older, and nothing is.
            self.runs.pop(0)

    @property
    def count(self) -> int:
        """About how many rows there are."""
        return len(self.lsns) + sum(run.count for run in self.runs)

    @property
    def is_full(self) -> bool:
        """Whether what memory holds has to become a run."""
        return len(self.lsns) + len(self.rejected) >= self._limit

    def flush(self) -> None:
        """Write what memory holds into a run, which the next checkpoint has to name."""
        items = [(_hashed(key := txid.encode()), key, lsn, b"") for txid, lsn in self.lsns.items()]
        for lsn, why in self.rejected.items():
            key = _reason_key(lsn)
            items.append((_hashed(key), key, lsn, why.encode()))
        items.sort()
        self.runs.append(self._written(items))
        self.lsns, self.rejected = {}, {}

    def _written(self, items: Iterable[Item]) -> Run:
        rows = _Rows()
        for item in items:
            rows.add(*item)
        return self._placed(rows)

    def _placed(self, rows: _Rows) -> Run:
        self._made += 1
        name = f"ids-{self._made:08}"
        self._disk.create(self._path(name))
        self._disk.write(self._path(name), 0, rows.packed())
        self.unsynced.append(self._path(name))
        return Run(name, len(rows.hashes), rows.last_lsn, hashes=rows.hashes)

    def merge_some(self) -> bool:
        """Go on with making runs fewer, by one step; whether there is more to do at once."""
        if self._merge is None:
            self._drop_dead()
            chosen = self._crowded()
            if chosen is None:
                return False
            self._merge = self._merging(*chosen)
        try:
            next(self._merge)
        except StopIteration:
            self._merge = None
        return self._merge is not None or self._crowded() is not None

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _crowded(self) -> tuple[int, int] | None:
        """The newest runs of about one size, when there are enough of them: from one, to behind another. The largest stay as they are."""
        end = len(self.runs)
        while end >= RUNS_MERGED:
            size, first = self.runs[end - 1].count, end - 1
            while first and self.runs[first - 1].count < RUNS_MERGED * max(size, 1):
                first -= 1
            if end - first >= RUNS_MERGED and sum(run.count for run in self.runs[first:end]) <= RUN_LIMIT:
                return first, end
            end = first
        return None

    def _merging(self, first: int, end: int) -> Iterator[None]:
        old = self.runs[first:end]
        found: dict[bytes, None] = {}
        rows = _Rows()
        last_hash = -1
        streams = [self._items(run, 0, age) for age, run in enumerate(reversed(old))]
        for done, (hashed, _, key, lsn, why, is_dead) in enumerate(heapq.merge(*streams)):
            if done % MERGED_AT_ONCE == MERGED_AT_ONCE - 1:
                yield
            if hashed != last_hash:
                found, last_hash = {}, hashed
            if key not in found:
                found[key] = None
                # What hides an older row has to stay while there is one.
                if not is_dead and (lsn or first):
                    rows.add(hashed, key, lsn, why)
        merged = self._placed(rows)
        # What was forgotten meanwhile was forgotten in all of them.
        merged.below = min(run.below for run in old)
        merged.voids = [pair for pair in old[0].voids if all(pair in run.voids for run in old)]
        self.runs[first:end] = [merged]

    # ------------------------------------------------------------------------ asking

    def find(self, txid: TxId) -> Lsn | None:
        """The LSN of an id, or None."""
        lsn = self.lsns.get(txid)
        if lsn is None:
            if not self.runs:
                return None
            found = self._find(txid.encode())
            lsn = 0 if found is None else found[0]
        return lsn or None

    def rejection(self, lsn: Lsn) -> str | None:
        """Why the transaction at an LSN was rejected, or None."""
        reason = self.rejected.get(lsn)
        if reason is not None or not self.runs:
            return reason
        found = self._find(_reason_key(lsn)) if lsn > 0 else None
        return None if found is None else found[1].decode()

    def _find(self, key: bytes) -> tuple[Lsn, bytes] | None:
        hashed = _hashed(key)
        for run in reversed(self.runs):
            at = bisect_left(run.hashes, hashed)
            while at < run.count and run.hashes[at] == hashed:
                found, lsn, why = self._row(run, at)
                if found == key:
                    if not run.is_dead(key, lsn):
                        return lsn, why
                    break
                at += 1
        return None

    def _row(self, run: Run, at: int) -> tuple[bytes, Lsn, bytes]:
        """One row, as `_rows` gives it."""
        path = self._path(run.name)
        base = SUM.size + _COUNT.size + 8 * run.count
        heads = self._disk.read(path, base + ROW.size * at, 2 * ROW.size)
        if len(heads) == 2 * ROW.size:
            lsn, offset, length = ROW.unpack_from(heads)
            size = ROW.unpack_from(heads, ROW.size)[1] - offset
            if length >> 16 <= size:
                blob = self._disk.read(path, base + ROW.size * (run.count + 1) + offset, size)
                key, why = blob[: length >> 16], blob[length >> 16 :]
                if length & 0xFFFF == _check(key, lsn, why):
                    return key, lsn, why
        raise damaged(f"{self._disk.place}/{path}", f"row {at} of known ids is not what was written")

    def _rows(self, run: Run, start: int, end: int) -> list[tuple[bytes, Lsn, bytes]]:
        """Rows of a run: key, LSN, reason. Raises JournalDamaged."""
        base = SUM.size + _COUNT.size + 8 * run.count
        heads = self._disk.read(self._path(run.name), base + ROW.size * start, ROW.size * (end - start + 1))
        try:
            fields = list(ROW.iter_unpack(heads))
            first, last = fields[0][1], fields[end - start][1]
            blob = self._disk.read(self._path(run.name), base + ROW.size * (run.count + 1) + first, last - first)
            found = []
            for (lsn, offset, length), (_, behind, _) in pairwise(fields):
                key, why = blob[offset - first : offset - first + (length >> 16)], blob[offset - first + (length >> 16) : behind - first]
                found.append((key, lsn, why, length & 0xFFFF == _check(key, lsn, why) and offset + (length >> 16) <= behind))
        except (StructError, IndexError, ValueError):
            found = [(b"", 0, b"", False)]
        if not all(row[3] for row in found) or len(found) != end - start:
            raise damaged(f"{self._disk.place}/{self._path(run.name)}", f"row {start} of known ids is not what was written")
        return [row[:3] for row in found]

    def _items(self, run: Run, start: int, age: int) -> Iterator[tuple[int, int, bytes, Lsn, bytes, bool]]:
        """Rows from one on: hash, age, key, LSN, reason, whether it counts no more."""
        for at in range(start, run.count, 256):
            end = min(at + 256, run.count)
            for hashed, (key, lsn, why) in zip(run.hashes[at:end], self._rows(run, at, end), strict=True):
                yield hashed, age, key, lsn, why, run.is_dead(key, lsn)

    def page(self, cursor: bytes, up_to: Lsn, limit: int) -> Remembered:
        """The remembered ids up to an LSN, ``limit`` of all looked at, from a cursor on; in the order of their hashes."""
        after = (int.from_bytes(cursor[:8], "big"), cursor[8:]) if cursor else (-1, b"")
        fresh = sorted((_hashed(key := txid.encode()), 0, key, lsn, b"", False) for txid, lsn in self.lsns.items())
        streams: list[Iterable[tuple[int, int, bytes, Lsn, bytes, bool]]] = [fresh]
        for age, run in enumerate(reversed(self.runs), 1):
            streams.append(self._items(run, bisect_left(run.hashes, max(after[0], 0)), age))
        ids: list[tuple[TxId, Lsn]] = []
        seen: set[bytes] = set()
        looked, last = 0, (-1, b"")
        last_hash = -1
        for hashed, _, key, lsn, _, is_dead in heapq.merge(*streams):
            if hashed != last_hash:
                seen, last_hash = set(), hashed
            if (hashed, key) <= after or key in seen or key[:1] == REJECTION:
                continue
            if looked == limit:
                break
            seen.add(key)
            if is_dead:
                # It is forgotten; an older row of the same id is forgotten as well.
                continue
            last = (hashed, key)
            if lsn:
                looked += 1
                if lsn <= up_to:
                    ids.append((key.decode(), lsn))
        else:
            last = (-1, b"")
        reasons = [(lsn, self.rejection(lsn)) for _, lsn in ids]
        found = tuple((lsn, reason) for lsn, reason in reasons if reason is not None)
        return Remembered(tuple(ids), found, last[0].to_bytes(8, "big") + last[1] if last[0] >= 0 else b"")

    # ------------------------------------------------------------------------ checkpoints

    def packed(self) -> Any:
        """What a checkpoint keeps."""
        return [self._made, list(self.lsns.items()), list(self.rejected.items()), [run.packed() for run in self.runs]]

    def read(self, packed: Any) -> None:
        """Take over what `packed` gave; reads the hashes. Raises JournalDamaged."""
        self._made, lsns, rejected, runs = packed
        self.lsns, self.rejected, self._merge, self.unsynced = dict(lsns), dict(rejected), None, []
        self.runs = []
        for name, count, last_lsn, below, voids in runs:
            run = Run(name, count, last_lsn, below, [list(pair) for pair in voids])
            head = self._disk.read(self._path(name), 0, SUM.size + _COUNT.size)
            data = self._disk.read(self._path(name), SUM.size + _COUNT.size, 8 * count)
            is_whole = len(head) == SUM.size + _COUNT.size and xxh3_64_intdigest(head[SUM.size :]) == SUM.unpack_from(head)[0]
            if not is_whole or _COUNT.unpack_from(head, SUM.size) != (count, xxh3_64_intdigest(data)):
                raise damaged(f"{self._disk.place}/{self._path(name)}", "the ids that are known are not what was written")
            run.hashes.frombytes(data)
            self.runs.append(run)

    def files(self) -> list[str]:
        """Files of all runs."""
        return [self._path(run.name) for run in self.runs]

    def problems(self) -> Iterator[str]:
        """Every row that is not what was written."""
        for run in self.runs:
            for at in range(0, run.count, 256):
                end = min(at + 256, run.count)
                try:
                    rows = self._rows(run, at, end)
                except Exception as error:  # noqa: BLE001
                    yield str(error)
                    continue
                if any(_hashed(key) != hashed for (key, _, _), hashed in zip(rows, run.hashes[at:end], strict=True)):
                    yield f"{self._disk.place}/{self._path(run.name)}: ids {at} to {end} are not in the order of their hashes"


def _check(key: bytes, lsn: Lsn, why: bytes) -> int:
    return xxh3_64_intdigest(key + lsn.to_bytes(8, "little") + why) & 0xFFFF
