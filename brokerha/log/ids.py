"""The LSN of each transaction id, and reasons of rejections; known for longer than the entries of the log, for millions of ids.

The latest ids are in two dictionaries. Each `IDS_HELD` of them become a run (below). Four runs of one size at a time are merged,
in small steps, each of them a range of hashes.

A row is found by its hash, in the newest run first. Nearly all requested ids are new: a few bits per row of each run show that a
hash is not there (`Marks`), without a search. A voided range of LSNs is recorded in all runs that existed then (`voids`). A run is
dropped when all of its rows are forgotten.

An id that was forgotten can come again (model/forgetting.py), so it can have several rows, and the newest counts. When the
queue goes back, the id gets a row with the LSN that it had there. LSN 0 in a row, or one that is forgotten for good (`below`), says
that it has none, whatever older rows say.

Checkpoints name runs: the log deletes a file only when no checkpoint needs it, and syncs one before the first that names it.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from struct import Struct
from typing import Any

from xxhash import xxh3_64_intdigest

from brokerha.log.frames import SUM, damaged
from brokerha.log.limits import IDS_HELD, MERGED_AT_ONCE, RUN_LIMIT, RUNS_MERGED
from brokerha.model.forgetting import MARK, forgotten_below
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
"""A row: hash, key, age of its run, LSN, and whether it is void."""


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
    voids: list[list[int]] = field(default_factory=list)
    """Rejections above the first and up to the second LSN of a pair are void; up to `ENDLESS`, ids too."""
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    places: array[int] = field(default_factory=lambda: array("Q"))
    """Start of each block, and end of the last one."""
    marks: Marks = field(default_factory=lambda: Marks(0))

    def packed(self) -> list[object]:
        """Return its part of a checkpoint."""
        return [self.name, self.count, self.last_lsn, self.voids, self.places[-1]]

    def is_void(self, row: bytes, lsn: Lsn) -> bool:
        """Tell whether a row does not count, so that an older one of its key does."""
        return any(low < lsn <= high and (high == ENDLESS or row[:1] == REJECTION) for low, high in self.voids)


def open_run(disk: Disk, path: str, packed: Sequence[object]) -> Run:
    """Open the run that a checkpoint names. Raises JournalDamaged, OSError."""
    name, count, last_lsn, voids, end = packed
    run = Run(name, count, last_lsn, [list(pair) for pair in voids])  # type: ignore[arg-type, attr-defined]
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


def find_in(disk: Disk, path: str, run: Run, hashed: int, key: bytes) -> Iterator[tuple[Lsn, bytes]]:
    """Yield LSN and row of each row of a key, the newest first. Raises JournalDamaged, OSError."""
    at = bisect_left(run.hashes, hashed)
    while at < run.count and run.hashes[at] == hashed:
        lsns, rows = rows_of(disk, path, run, at, at + 1)
        if key_of(rows[0]) == key:
            yield lsns[0], rows[0]
        at += 1


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
    """Return rows in the order of hash and key; rows with the same key, given newest first, stay in that order."""
    order = sorted(range(len(hashes)), key=hashes.__getitem__)
    if len(set(hashes)) < len(hashes):
        order.sort(key=lambda at: (hashes[at], key_of(rows[at])))
        order = [at for _, same in groupby(order, lambda at: key_of(rows[at])) for at in _counting(list(same), lsns, rows)]
    return [hashes[at] for at in order], [lsns[at] for at in order], [rows[at] for at in order]


def _counting(places: list[int], lsns: list[Lsn], rows: list[bytes]) -> list[int]:
    """Return the places of those rows of one key, given newest first, that another row does not hide for good."""
    if rows[places[0]][:1] == REJECTION:
        return places[:1]
    kept = [at for before, at in pairwise([-1, *places]) if before < 0 or lsns[before] != lsns[at]]
    ends = [number for number, at in enumerate(kept, 1) if not lsns[at]]
    return kept[: ends[0]] if ends else kept


def _not_below(values: list[Lsn], below: Lsn) -> list[Lsn]:
    """Return LSNs of one id, newest first, up to one that is forgotten, as 0."""
    ends = [number for number, lsn in enumerate(values) if lsn < below]
    return [*values[: ends[0]], 0] if ends else values


class Ids:
    """The ids of one log, in files of ``folder``. Raises OSError, JournalDamaged."""

    def __init__(self, disk: Disk, folder: str, held: int = IDS_HELD) -> None:
        self._disk = disk
        self._folder = folder
        self._limit = held
        self.lsns: dict[TxId, Lsn] = {}
        """Ids that are not in a run yet; 0 for an id that lost its LSN."""
        self.older: dict[TxId, list[Lsn]] = {}
        """Earlier LSNs of some of them, newest first."""
        self.floors: list[tuple[Lsn, Lsn]] = []
        """Of each entry that forgets ids: its LSN, and the LSN below which they are forgotten from there on."""
        self.below: Lsn = 0
        """Lower LSNs are forgotten for good: the queue cannot go back to where they counted."""
        self.rejected: dict[Lsn, str] = {}
        self.runs: list[Run] = []
        """Oldest first."""
        self.unsynced: list[str] = []
        """Files that no checkpoint names yet."""
        self._made = 0
        self._merge: Iterator[None] | None = None
        self._making: list[str] = []

    # ------------------------------------------------------------------------ changing

    def add(self, first_lsn: Lsn, entries: Sequence[Ordered]) -> None:
        """Add entries of the synchronised queue, from an LSN on."""
        found = {txid: lsn for lsn, (_, txid, _) in enumerate(entries, first_lsn)}
        if len(found) == len(entries):
            self.note(found)
            return
        # Entries of a tail: an id came, was forgotten, and came again.
        for lsn, (_, txid, _) in enumerate(entries, first_lsn):
            self.note({txid: lsn})

    def note(self, found: Mapping[TxId, Lsn]) -> None:
        """Add ids with their LSNs."""
        lsns = self.lsns
        if not lsns.keys().isdisjoint(found):
            for txid in lsns.keys() & found.keys():
                if lsns[txid] != found[txid]:
                    self.older.setdefault(txid, []).insert(0, lsns[txid])
        lsns.update(found)
        for txid in found:
            if MARK in txid:
                self.floors.append((found[txid], forgotten_below(txid)))

    def void_rejections(self, above: Lsn, up_to: Lsn) -> None:
        """Forget the rejections above an LSN and up to another."""
        self.rejected = {lsn: why for lsn, why in self.rejected.items() if not above < lsn <= up_to}
        for run in self.runs:
            run.voids.append([above, up_to])

    def go_back(self, txids: Iterable[TxId], end: Lsn) -> None:
        """Let ids have the LSNs that they had when the queue ended at ``end``."""
        self.floors = [(at, below) for at, below in self.floors if at <= end]
        for txid in txids:
            self._set(txid, [lsn for lsn in self._values(txid) if lsn <= end] or [self.find(txid, end) or 0])

    def _set(self, txid: TxId, values: list[Lsn]) -> None:
        self.lsns[txid] = values[0]
        self.older.pop(txid, None)
        if values[1:]:
            self.older[txid] = values[1:]

    def _values(self, txid: TxId) -> list[Lsn]:
        """Return the LSNs of an id that are in memory, newest first."""
        lsn = self.lsns.get(txid)
        return [] if lsn is None else [lsn, *self.older.get(txid, ())]

    def void_after(self, end: Lsn) -> None:
        """Forget all ids and rejections after the end of the queue: they came with pages of a state that it does not lead to any more."""
        if any(run.last_lsn > end for run in self.runs):
            for run in self.runs:
                run.voids.append([end, ENDLESS])
        self.go_back([txid for txid, lsn in self.lsns.items() if lsn > end], end)
        self.rejected = {lsn: why for lsn, why in self.rejected.items() if lsn <= end}

    def floor(self, end: Lsn) -> Lsn:
        """Return the LSN below which ids are forgotten, in a queue that ends at ``end``; 0 for none."""
        return max([below for at, below in self.floors if at <= end], default=0)

    def forget(self, first_lsn: Lsn) -> Lsn:
        """Forget all ids and rejections that no longer count, when no entry below an LSN is held. Return the LSN below which."""
        # The queue never goes back further than to what is held.
        below = self.floor(first_lsn - 1)
        if below > self.below:
            self.below = below
            self.floors = [(at, to) for at, to in self.floors if at >= first_lsn or to == below]
            for txid in [txid for txid, lsn in self.lsns.items() if lsn < below or txid in self.older]:
                self._set(txid, _not_below(self._values(txid), below))
            self.rejected = {lsn: why for lsn, why in self.rejected.items() if lsn >= below}
            self._drop_dead()
        return below

    def _drop_dead(self) -> None:
        """Drop the oldest runs whose rows no longer count."""
        while self.runs and self.runs[0].last_lsn < self.below and self._merge is None:
            # Such a row only hides older rows, and there are none.
            self.runs.pop(0)
        if not self.runs:
            self.lsns = {txid: lsn for txid, lsn in self.lsns.items() if lsn or txid in self.older}

    @property
    def is_full(self) -> bool:
        """Tell whether the ids in memory must become a run."""
        return len(self.lsns) + len(self.rejected) >= self._limit

    def flush(self) -> None:
        """Write the ids in memory to a run, which the next checkpoint must name."""
        keys = [txid.encode() for txid in self.lsns]
        lsns = list(self.lsns.values())
        for txid, older in self.older.items():
            keys += [txid.encode()] * len(older)
            lsns += older
        hashes = list(map(hash_of, keys))
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
        self.lsns, self.older, self.rejected = {}, {}, {}

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
        # LSNs that became void during the merge were void in all of these runs.
        run.voids = [pair for pair in old[0].voids if all(pair in each.voids for each in old)]
        self.runs[first:end] = [run]

    def _live(self, run: Run, start: int, end: int) -> Columns:
        """Return the rows of a run that still count, and those that hide older ones, with LSN 0."""
        hashes, below = run.hashes[start:end].tolist(), self.below
        lsns, rows = rows_of(self._disk, self._path(run.name), run, start, end)
        if not below and not run.voids:
            return hashes, lsns, rows
        kept = [
            at
            for at, (row, lsn) in enumerate(zip(rows, lsns, strict=True))
            if not run.is_void(row, lsn) and (lsn >= below or row[:1] != REJECTION)
        ]
        return [hashes[at] for at in kept], [lsns[at] * (lsns[at] >= below) for at in kept], [rows[at] for at in kept]

    # ------------------------------------------------------------------------ reading

    def find(self, txid: TxId, up_to: Lsn = ENDLESS) -> Lsn | None:
        """Return the newest LSN of an id, not above ``up_to``, or None; even if it is below the `floor`."""
        if txid in self.lsns:
            for lsn in self._values(txid):
                if lsn <= up_to:
                    return lsn or None
        if not self.runs:
            return None
        return next((lsn for lsn, _ in self._rows(txid.encode()) if lsn <= up_to), 0) or None

    def known(self, txids: Iterable[TxId]) -> dict[TxId, Lsn]:
        """Return the newest LSNs of those ids that have one, even below the `floor`."""
        find = self.find if self.runs else self.lsns.get
        return {txid: lsn for txid in txids if (lsn := find(txid))}

    def rejection(self, lsn: Lsn) -> str | None:
        """Return the reason of a rejection at an LSN, or None."""
        reason = self.rejected.get(lsn)
        if reason is not None or not self.runs or lsn < max(1, self.below):
            return reason
        found = next(self._rows(reason_key(lsn)), None)
        return None if found is None else found[1][REASON_KEY_BYTES:].decode()

    def _rows(self, key: bytes) -> Iterator[tuple[Lsn, bytes]]:
        """Yield LSN and row of each row of a key that counts, the newest first."""
        hashed = hash_of(key)
        for run in reversed(self.runs):
            marks = run.marks
            at = hashed >> marks.shift
            if marks.bits[at >> 3] >> (at & 7) & 1:
                for lsn, row in find_in(self._disk, self._path(run.name), run, hashed, key):
                    if not run.is_void(row, lsn):
                        yield lsn, row

    def _items(self, run: Run, start: int, age: int) -> Iterator[Item]:
        for at in range(start, run.count, 4 * BLOCK_ROWS):
            end = min(at + 4 * BLOCK_ROWS, run.count)
            lsns, rows = rows_of(self._disk, self._path(run.name), run, at, end)
            for hashed, lsn, row in zip(run.hashes[at:end], lsns, rows, strict=True):
                yield hashed, key_of(row), age, lsn, run.is_void(row, lsn)

    def page(self, cursor: bytes, up_to: Lsn, limit: int) -> Remembered:
        """Return remembered ids up to an LSN, from a cursor on, in the order of hashes; ``limit`` bounds the ones examined."""
        after = (int.from_bytes(cursor[:8], "big"), cursor[8:]) if cursor else (-1, b"")
        fresh: list[Item] = []
        for txid in self.lsns:
            key, values = txid.encode(), self._values(txid)
            fresh += [(hash_of(key), key, age, lsn, False) for age, lsn in enumerate(values, -len(values))]
        streams: list[Iterable[Item]] = [sorted(fresh)]
        for age, run in enumerate(reversed(self.runs)):
            streams.append(self._items(run, bisect_left(run.hashes, max(after[0], 0)), age))
        ids: list[tuple[TxId, Lsn]] = []
        looked, last, least = 0, after, max(1, self.floor(up_to))
        for (hashed, key), items in groupby(heapq.merge(*streams), itemgetter(0, 1)):
            if (hashed, key) <= last or key[:1] == REJECTION:
                continue
            if looked == limit:
                break
            last, looked = (hashed, key), looked + 1
            # The newest comes first.
            lsn = next((lsn for _, _, _, lsn, is_void in items if lsn <= up_to and not is_void), 0)
            if lsn >= least:
                ids.append((key.decode(), lsn))
        else:
            last = (-1, b"")
        reasons = [(lsn, self.rejection(lsn)) for _, lsn in ids]
        found = tuple((lsn, reason) for lsn, reason in reasons if reason is not None)
        return Remembered(tuple(ids), found, last[0].to_bytes(8, "big") + last[1] if last[0] >= 0 else b"")

    # ------------------------------------------------------------------------ checkpoints

    def packed(self) -> Any:
        """Return the part for a checkpoint."""
        runs = [run.packed() for run in self.runs]
        lsns, older, rejected = list(self.lsns.items()), list(self.older.items()), list(self.rejected.items())
        return [self._made, lsns, older, self.floors, self.below, rejected, runs]

    def read(self, packed: Any) -> None:
        """Restore the result of `packed`; reads the hashes. Raises JournalDamaged."""
        self._made, lsns, older, floors, self.below, rejected, runs = packed
        self.lsns, self.rejected, self._merge, self.unsynced = dict(lsns), dict(rejected), None, []
        self.older, self.floors = {txid: list(held) for txid, held in older}, [(at, below) for at, below in floors]
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
