"""The LSN of each transaction id, and reasons of rejections; known for longer than the entries of the log, for millions of ids.

The latest ids are in two dictionaries. Each `IDS_HELD` of them become a run (below). Four runs of one size at a time are merged,
in small steps, each of them a range of hashes.

A row is found by its hash, in the newest run first. Nearly all requested ids are new: a few bits per row of each run show that a
hash is not there (`Marks`), without a search. An id whose LSN was given up has a row with LSN 0. A voided range of LSNs is
recorded in all runs that existed then (`voids`), as are forgotten ids below an LSN (`below`). A run is dropped when all of its
rows are forgotten.

Checkpoints name runs: the log deletes a file only when no checkpoint needs it, and syncs one before the first that names it.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any

from xxhash import xxh3_64_intdigest

from brokerha.log.frames import SUM, damaged
from brokerha.log.limits import IDS_HELD, MERGED_AT_ONCE, RUN_LIMIT, RUNS_MERGED
from brokerha.model.ids import Lsn, Ordered, TxId
from brokerha.model.records import Remembered
from brokerha.ports.disk import Disk

BLOCK_ROWS = 64
REJECTION = b"\xff"
REASON_KEY_BYTES = 9
ENDLESS: Lsn = 2**62
_END = Struct("<QQ")

hash_of = xxh3_64_intdigest
Columns = tuple[list[int], list[Lsn], list[bytes]]
"""Hashes, LSNs, rows."""
Item = tuple[int, bytes, int, Lsn, bool]
"""A row: hash, key, age of its run, LSN, and whether it no longer counts."""


def reason_key(lsn: Lsn) -> bytes:
    """Return the key of a rejection."""
    return REJECTION + lsn.to_bytes(8, "big")


def key_of(row: bytes) -> bytes:
    """Return the key of a row."""
    return row[:REASON_KEY_BYTES] if row[:1] == REJECTION else row


class Marks:
    """The hashes that a run can have: one bit of 16 to 32 for each row is set, in memory only. An unset bit proves absence."""

    __slots__ = ("bits", "shift")

    def __init__(self, most: int) -> None:
        """``most`` is the largest number of rows."""
        width = max(3, (16 * most - 1).bit_length())
        self.bits = bytearray(1 << (width - 3))
        self.shift = 64 - width

    def add(self, hashes: Iterable[int]) -> None:
        """Set the bits of these hashes."""
        bits, shift = self.bits, self.shift
        for hashed in hashes:
            at = hashed >> shift
            bits[at >> 3] |= 1 << (at & 7)


@dataclass(slots=True)
class Run:
    """One file of rows."""

    name: str
    count: int
    last_lsn: Lsn
    """Highest LSN of its rows."""
    below: Lsn = 0
    """Rows with a lower LSN are forgotten."""
    voids: list[list[int]] = field(default_factory=list)
    """Rejections above the first and up to the second LSN of a pair are void; up to `ENDLESS`, ids too."""
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    places: array[int] = field(default_factory=lambda: array("Q"))
    """Start of each block, and end of the last one."""
    marks: Marks = field(default_factory=lambda: Marks(0))

    def packed(self) -> list[object]:
        """Return its part of a checkpoint."""
        return [self.name, self.count, self.last_lsn, self.below, self.voids, self.places[-1]]

    def is_dead(self, row: bytes, lsn: Lsn) -> bool:
        """Tell whether a row no longer counts."""
        return 0 < lsn < self.below or (
            bool(self.voids) and row[:1] == REJECTION and any(low < lsn <= high for low, high in self.voids)
        )

    def lsn_in(self, lsn: Lsn) -> Lsn:
        """Return the LSN of a row; 0 when ids with it are void, because older rows of the id do not count either."""
        return 0 if self.voids and any(high == ENDLESS and low < lsn for low, high in self.voids) else lsn


def open_run(disk: Disk, path: str, packed: Sequence[object]) -> Run:
    """Open the run that a checkpoint names. Raises JournalDamaged, OSError."""
    name, count, last_lsn, below, voids, end = packed
    run = Run(name, count, last_lsn, below, [list(pair) for pair in voids])  # type: ignore[arg-type, attr-defined]
    size = 8 * (run.count + -(-run.count // BLOCK_ROWS) + 1)
    data = disk.read(path, end, size + _END.size)  # type: ignore[arg-type]
    if len(data) < size + _END.size or _END.unpack_from(data, size) != (hash_of(data[:size]), count):
        raise damaged(f"{disk.place}/{path}", "the ids that are known are not what was written")
    run.hashes.frombytes(data[: 8 * run.count])
    run.places.frombytes(data[8 * run.count : size])
    run.marks = Marks(run.count)
    run.marks.add(run.hashes)
    return run


class RunWriter:
    """A run that is being written: `add` rows in order, then `finish`. A crash leaves a file that no checkpoint names.

    A run is one file of transaction ids and reasons, sorted, written once and in pieces. Memory holds 8 bytes for each of its rows.

        blocks     64 rows each: xxh3-64 of the rest | LSN of each, u64 | end of each row, u32 | the rows
        hashes     of the keys of all rows, u64 each, ascending
        places     start of each block, and end of the last one, u64 each
        end        xxh3-64 of hashes and places | count

    A row is a key, followed by the reason of a rejection. The key of a rejection is 0xff and the LSN; no id begins with 0xff.
    Rows are in the order of hash and key. The checkpoint keeps the data to open a run (`Run.packed`).

    Must never return a row whose block is damaged.
    """

    def __init__(self, disk: Disk, path: str, most: int) -> None:
        """``most`` is the largest number of rows."""
        self._disk = disk
        self._path = path
        self._marks = Marks(most)
        self._hashes = array("Q")
        self._lsns: list[Lsn] = []
        self._rows: list[bytes] = []
        self._places = array("Q", [0])
        self._last_lsn: Lsn = 0
        disk.create(path)

    def add(self, hashes: Sequence[int], lsns: Sequence[Lsn], rows: Sequence[bytes]) -> None:
        """Add rows after all others, and write complete blocks."""
        self._hashes.extend(hashes)
        self._marks.add(hashes)
        self._lsns += lsns
        self._rows += rows
        self._last_lsn = max(self._last_lsn, max(lsns, default=0))
        self._write(len(self._rows) // BLOCK_ROWS)

    def finish(self, name: str) -> Run:
        """Write the rest; the file must be synced before a checkpoint names it."""
        self._write(-(-len(self._rows) // BLOCK_ROWS))
        data = self._hashes.tobytes() + self._places.tobytes()
        self._disk.write(self._path, self._places[-1], data + _END.pack(hash_of(data), len(self._hashes)))
        return Run(name, len(self._hashes), self._last_lsn, hashes=self._hashes, places=self._places, marks=self._marks)

    def _write(self, blocks: int) -> None:
        begin = end = self._places[-1]
        out: list[bytes] = []
        for at in range(0, blocks * BLOCK_ROWS, BLOCK_ROWS):
            rows = self._rows[at : at + BLOCK_ROWS]
            ends = array("I", accumulate(map(len, rows)))
            block = b"".join((array("Q", self._lsns[at : at + BLOCK_ROWS]).tobytes(), ends.tobytes(), *rows))
            out += SUM.pack(hash_of(block)), block
            end += SUM.size + len(block)
            self._places.append(end)
        if out:
            self._disk.write(self._path, begin, b"".join(out))
            del self._rows[: blocks * BLOCK_ROWS], self._lsns[: blocks * BLOCK_ROWS]


def rows_of(disk: Disk, path: str, run: Run, start: int, end: int) -> tuple[list[Lsn], list[bytes]]:
    """Return LSNs and rows from ``start`` to before ``end``, which is higher. Raises JournalDamaged, OSError."""
    first, last = start // BLOCK_ROWS, (end - 1) // BLOCK_ROWS
    base = run.places[first]
    data = disk.read(path, base, run.places[last + 1] - base)
    lsns = array("Q")
    rows: list[bytes] = []
    for place in range(first, last + 1):
        count = min(BLOCK_ROWS, run.count - place * BLOCK_ROWS)
        block = data[run.places[place] - base : run.places[place + 1] - base]
        body = block[SUM.size :]
        if len(block) < SUM.size + 12 * count or hash_of(body) != SUM.unpack_from(block)[0]:
            raise damaged(
                f"{disk.place}/{path}", f"rows {place * BLOCK_ROWS} on of the ids that are known are not what was written"
            )
        lsns.frombytes(body[: 8 * count])
        ends = array("I", body[8 * count : 12 * count])
        blob = body[12 * count :]
        rows += [blob[begin:end] for begin, end in pairwise([0, *ends])]
    skip, size = start - first * BLOCK_ROWS, end - start
    return lsns[skip : skip + size].tolist(), rows[skip : skip + size]


def find_in(disk: Disk, path: str, run: Run, hashed: int, key: bytes) -> tuple[Lsn, bytes] | None:
    """Return LSN and row of a key, or None. Raises JournalDamaged, OSError."""
    at = bisect_left(run.hashes, hashed)
    while at < run.count and run.hashes[at] == hashed:
        lsns, rows = rows_of(disk, path, run, at, at + 1)
        if key_of(rows[0]) == key:
            return lsns[0], rows[0]
        at += 1
    return None


def problems_of(disk: Disk, path: str, run: Run) -> Iterator[str]:
    """Yield every damaged block as a sentence."""
    for start in range(0, run.count, BLOCK_ROWS):
        end = min(start + BLOCK_ROWS, run.count)
        try:
            _, rows = rows_of(disk, path, run, start, end)
        except Exception as error:  # noqa: BLE001
            yield str(error)
            continue
        if [hash_of(key_of(row)) for row in rows] != run.hashes[start:end].tolist():
            yield f"{disk.place}/{path}: ids {start} to {end} are not in the order of their hashes"


def sorted_rows(hashes: list[int], lsns: list[Lsn], rows: list[bytes]) -> Columns:
    """Return rows in the order of hash and key; of rows with the same key only the first one given."""
    order = sorted(range(len(hashes)), key=hashes.__getitem__)
    if len(set(hashes)) < len(hashes):
        order.sort(key=lambda at: (hashes[at], key_of(rows[at])))
        order = [at for before, at in pairwise([-1, *order]) if before < 0 or key_of(rows[before]) != key_of(rows[at])]
    return [hashes[at] for at in order], [lsns[at] for at in order], [rows[at] for at in order]


class Ids:
    """The ids of one log, in files of ``folder``. Raises OSError, JournalDamaged."""

    def __init__(self, disk: Disk, folder: str, held: int = IDS_HELD) -> None:
        self._disk = disk
        self._folder = folder
        self._limit = held
        self.lsns: dict[TxId, Lsn] = {}
        """Ids that are not in a run yet; 0 for an id that lost its LSN."""
        self.rejected: dict[Lsn, str] = {}
        self.runs: list[Run] = []
        """Oldest first."""
        self.unsynced: list[str] = []
        """Files that no checkpoint names yet."""
        self._made = 0
        self._merge: Iterator[None] | None = None
        self._making: list[str] = []

    # ------------------------------------------------------------------------ changing

    def add(self, first_lsn: Lsn, entries: Iterable[Ordered]) -> None:
        """Add entries of the synchronised queue, from an LSN on."""
        lsns = self.lsns
        for lsn, (_, txid, _) in enumerate(entries, first_lsn):
            lsns[txid] = lsn

    def void_rejections(self, above: Lsn, up_to: Lsn) -> None:
        """Forget the rejections above an LSN and up to another."""
        self.rejected = {lsn: why for lsn, why in self.rejected.items() if not above < lsn <= up_to}
        for run in self.runs:
            run.voids.append([above, up_to])

    def void_after(self, end: Lsn) -> None:
        """Forget all ids and rejections after the end of the queue: they came with pages of a state that it does not lead to any more."""
        self.lsns = {txid: lsn if lsn <= end else 0 for txid, lsn in self.lsns.items()}
        self.rejected = {lsn: why for lsn, why in self.rejected.items() if lsn <= end}
        if any(run.last_lsn > end for run in self.runs):
            for run in self.runs:
                run.voids.append([end, ENDLESS])

    def forget(self, below: Lsn) -> None:
        """Forget all ids and rejections with a lower LSN."""
        self.lsns = {txid: lsn for txid, lsn in self.lsns.items() if not 0 < lsn < below}
        self.rejected = {lsn: why for lsn, why in self.rejected.items() if lsn >= below}
        for run in self.runs:
            run.below = max(below, run.below)
        self._drop_dead()

    def _drop_dead(self) -> None:
        """Drop the oldest runs whose rows no longer count."""
        while self.runs and self.runs[0].last_lsn < self.runs[0].below and self._merge is None:
            # A row with LSN 0 only hides older rows, and there are none.
            self.runs.pop(0)

    @property
    def is_full(self) -> bool:
        """Tell whether the ids in memory must become a run."""
        return len(self.lsns) + len(self.rejected) >= self._limit

    def flush(self) -> None:
        """Write the ids in memory to a run, which the next checkpoint must name."""
        keys = [txid.encode() for txid in self.lsns]
        hashes = list(map(hash_of, keys))
        lsns = list(self.lsns.values())
        for lsn, why in self.rejected.items():
            key = reason_key(lsn)
            hashes.append(hash_of(key))
            lsns.append(lsn)
            keys.append(key + why.encode())
        writer, name = self._begun(len(hashes))
        try:
            writer.add(*sorted_rows(hashes, lsns, keys))
            self.runs.append(self._finished(writer, name))
        except OSError:
            # On a nearly full disk each attempt would take more space.
            self._disk.remove(self._path(name))
            raise
        self.lsns, self.rejected = {}, {}

    def _begun(self, most: int) -> tuple[RunWriter, str]:
        self._made += 1
        name = f"ids-{self._made:08}"
        return RunWriter(self._disk, self._path(name), most), name

    def _finished(self, writer: RunWriter, name: str) -> Run:
        run = writer.finish(name)
        self.unsynced.append(self._path(name))
        return run

    def merge_some(self) -> bool:
        """Merge runs by one step; return whether there is more to do at once."""
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
        except Exception:
            for path in self._making:
                self._disk.remove(path)
            self._merge, self._making = None, []
            raise
        return self._merge is not None or self._crowded() is not None

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _crowded(self) -> tuple[int, int] | None:
        """Return the range (first, end) of the newest runs of about one size, if there are enough; the largest are never merged."""
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
        newest_first = old[::-1]
        # Each step takes a part of every run, so that the total is bounded.
        most = sum(run.count for run in old)
        steps = [max(1, MERGED_AT_ONCE * run.count // most) for run in newest_first]
        writer, name = self._begun(most)
        self._making = [self._path(name)]
        at = [0] * len(old)
        while bounds := [
            run.hashes[min(a + step, run.count) - 1] for run, a, step in zip(newest_first, at, steps, strict=True) if a < run.count
        ]:
            ends = [bisect_right(run.hashes, min(bounds), a) for run, a in zip(newest_first, at, strict=True)]
            found: Columns = [], [], []
            for run, a, e in zip(newest_first, at, ends, strict=True):
                if a < e:
                    hashes, lsns, rows = self._live(run, a, e)
                    found[0].extend(hashes)
                    found[1].extend(lsns)
                    found[2].extend(rows)
            merged = sorted_rows(*found)
            if not first and 0 in merged[1]:
                # A row with LSN 0 hides an older row, so it stays while there is one.
                kept = [place for place, lsn in enumerate(merged[1]) if lsn]
                merged = [merged[0][k] for k in kept], [merged[1][k] for k in kept], [merged[2][k] for k in kept]
            writer.add(*merged)
            at = ends
            yield
        run = self._finished(writer, name)
        self._making = []
        # LSNs forgotten during the merge were forgotten in all of these runs.
        run.below = min(each.below for each in old)
        run.voids = [pair for pair in old[0].voids if all(pair in each.voids for each in old)]
        self.runs[first:end] = [run]

    def _live(self, run: Run, start: int, end: int) -> Columns:
        """Return the rows of a run that still count."""
        hashes = run.hashes[start:end].tolist()
        lsns, rows = rows_of(self._disk, self._path(run.name), run, start, end)
        if run.below or run.voids:
            kept = [at for at, (row, lsn) in enumerate(zip(rows, lsns, strict=True)) if not run.is_dead(row, lsn)]
            return [hashes[at] for at in kept], [run.lsn_in(lsns[at]) for at in kept], [rows[at] for at in kept]
        return hashes, lsns, rows

    # ------------------------------------------------------------------------ reading

    def find(self, txid: TxId) -> Lsn | None:
        """Return the LSN of an id, or None."""
        lsn = self.lsns.get(txid)
        if lsn is None:
            if not self.runs:
                return None
            found = self._find(txid.encode())
            lsn = 0 if found is None else found[0]
        return lsn or None

    def known(self, txids: Iterable[TxId]) -> set[TxId]:
        """Return the ids that have an LSN."""
        find = self.find if self.runs else self.lsns.get
        return {txid for txid in txids if find(txid)}

    def rejection(self, lsn: Lsn) -> str | None:
        """Return the reason of a rejection at an LSN, or None."""
        reason = self.rejected.get(lsn)
        if reason is not None or not self.runs:
            return reason
        found = self._find(reason_key(lsn)) if lsn > 0 else None
        return None if found is None else found[1][REASON_KEY_BYTES:].decode()

    def _find(self, key: bytes) -> tuple[Lsn, bytes] | None:
        hashed = hash_of(key)
        for run in reversed(self.runs):
            marks = run.marks
            at = hashed >> marks.shift
            if not marks.bits[at >> 3] >> (at & 7) & 1:
                continue
            found = find_in(self._disk, self._path(run.name), run, hashed, key)
            if found is not None and not run.is_dead(found[1], found[0]):
                return run.lsn_in(found[0]), found[1]
        return None

    def _items(self, run: Run, start: int, age: int) -> Iterator[Item]:
        for at in range(start, run.count, 4 * BLOCK_ROWS):
            end = min(at + 4 * BLOCK_ROWS, run.count)
            lsns, rows = rows_of(self._disk, self._path(run.name), run, at, end)
            for hashed, lsn, row in zip(run.hashes[at:end], lsns, rows, strict=True):
                yield hashed, key_of(row), age, run.lsn_in(lsn), run.is_dead(row, lsn)

    def page(self, cursor: bytes, up_to: Lsn, limit: int) -> Remembered:
        """Return remembered ids up to an LSN, from a cursor on, in the order of hashes; ``limit`` bounds the ones examined."""
        after = (int.from_bytes(cursor[:8], "big"), cursor[8:]) if cursor else (-1, b"")
        fresh = sorted((hash_of(key := txid.encode()), key, 0, lsn, False) for txid, lsn in self.lsns.items())
        streams: list[Iterable[Item]] = [fresh]
        for age, run in enumerate(reversed(self.runs), 1):
            streams.append(self._items(run, bisect_left(run.hashes, max(after[0], 0)), age))
        ids: list[tuple[TxId, Lsn]] = []
        looked, last = 0, after
        for hashed, key, _, lsn, is_dead in heapq.merge(*streams):
            # Of rows with the same key the newest comes first; it hides older ones, even if it is forgotten.
            if (hashed, key) <= last or key[:1] == REJECTION:
                continue
            if looked == limit:
                break
            last = (hashed, key)
            if lsn and not is_dead:
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
        """Return the part for a checkpoint."""
        return [self._made, list(self.lsns.items()), list(self.rejected.items()), [run.packed() for run in self.runs]]

    def read(self, packed: Any) -> None:
        """Restore the result of `packed`; reads the hashes. Raises JournalDamaged."""
        self._made, lsns, rejected, runs = packed
        self.lsns, self.rejected, self._merge, self.unsynced = dict(lsns), dict(rejected), None, []
        self._making = []
        self.runs = [open_run(self._disk, self._path(run[0]), run) for run in runs]

    def files(self) -> list[str]:
        """Return the files of all runs."""
        return [self._path(run.name) for run in self.runs]

    def making(self) -> list[str]:
        """Return files that are being written, and that no checkpoint names yet."""
        return self._making

    def problems(self) -> Iterator[str]:
        """Yield every damaged block as a sentence."""
        for run in self.runs:
            yield from problems_of(self._disk, self._path(run.name), run)
