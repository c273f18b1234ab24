"""A run: one file of transaction ids and reasons, sorted, written once and in pieces. Memory holds 8 bytes for each of its rows.

    blocks     64 rows each: xxh3-64 of the rest | LSN of each, u64 | where each row ends, u32 | the rows
    hashes     of the keys of all rows, u64 each, ascending
    places     where each block begins, and where the last one ends, u64 each
    the end    xxh3-64 of hashes and places | count

A row is a key, and for a rejection the reason after it. The key of a rejection is 0xff and the LSN, which no id begins with. Rows are in
the order of hash and key. A run is found by what the checkpoint keeps of it (`Run.packed`).

Must never: give a row whose block is not what was written.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from struct import Struct

from xxhash import xxh3_64_intdigest

from brokerha.log.frames import SUM, damaged
from brokerha.model.ids import Lsn
from brokerha.ports.disk import Disk

BLOCK_ROWS = 64
REJECTION = b"\xff"
REASON_KEY_BYTES = 9
_END = Struct("<QQ")

hash_of = xxh3_64_intdigest


def reason_key(lsn: Lsn) -> bytes:
    """The key of a rejection."""
    return REJECTION + lsn.to_bytes(8, "big")


def key_of(row: bytes) -> bytes:
    """The key of a row."""
    return row[:REASON_KEY_BYTES] if row[:1] == REJECTION else row


@dataclass(slots=True)
class Run:
    """One file of rows."""

    name: str
    count: int
    last_lsn: Lsn
    """The highest of its rows."""
    below: Lsn = 0
    """Rows with a lower LSN are forgotten."""
    voids: list[list[int]] = field(default_factory=list)
    """Rejections above the first and up to the second LSN of a pair are void."""
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    places: array[int] = field(default_factory=lambda: array("Q"))
    """Where each block begins, and where the last one ends."""

    def packed(self) -> list[object]:
        """What a checkpoint keeps of it."""
        return [self.name, self.count, self.last_lsn, self.below, self.voids, self.places[-1]]

    def is_dead(self, row: bytes, lsn: Lsn) -> bool:
        """Whether a row counts no more."""
        return 0 < lsn < self.below or (
            bool(self.voids) and row[:1] == REJECTION and any(low < lsn <= high for low, high in self.voids)
        )


def open_run(disk: Disk, path: str, packed: Sequence[object]) -> Run:
    """The run that a checkpoint names. Raises JournalDamaged, OSError."""
    name, count, last_lsn, below, voids, end = packed
    run = Run(name, count, last_lsn, below, [list(pair) for pair in voids])  # type: ignore[arg-type, attr-defined]
    size = 8 * (run.count + -(-run.count // BLOCK_ROWS) + 1)
    data = disk.read(path, end, size + _END.size)  # type: ignore[arg-type]
    if len(data) < size + _END.size or _END.unpack_from(data, size) != (hash_of(data[:size]), count):
        raise damaged(f"{disk.place}/{path}", "the ids that are known are not what was written")
    run.hashes.frombytes(data[: 8 * run.count])
    run.places.frombytes(data[8 * run.count : size])
    return run


class RunWriter:
    """A run on its way into its file: `add` rows in order, then `finish`; what it wrote until a crash is a file that nobody names."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._hashes = array("Q")
        self._lsns: list[Lsn] = []
        self._rows: list[bytes] = []
        self._places = array("Q", [0])
        self._last_lsn: Lsn = 0
        disk.create(path)

    def add(self, hashes: Sequence[int], lsns: Sequence[Lsn], rows: Sequence[bytes]) -> None:
        """Add rows after all others, and write the blocks that are whole."""
        self._hashes.extend(hashes)
        self._lsns += lsns
        self._rows += rows
        self._last_lsn = max(self._last_lsn, max(lsns, default=0))
        self._write(len(self._rows) // BLOCK_ROWS)

    def finish(self, name: str) -> Run:
        """Write the rest; the file has to be synced before a checkpoint names it."""
        self._write(-(-len(self._rows) // BLOCK_ROWS))
        data = self._hashes.tobytes() + self._places.tobytes()
        self._disk.write(self._path, self._places[-1], data + _END.pack(hash_of(data), len(self._hashes)))
        return Run(name, len(self._hashes), self._last_lsn, hashes=self._hashes, places=self._places)

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
    """LSNs and rows from one on and before another, ``start`` below ``end``. Raises JournalDamaged, OSError."""
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
            raise damaged(f"{disk.place}/{path}", f"rows {place * BLOCK_ROWS} on of the ids that are known are not what was written")
        lsns.frombytes(body[: 8 * count])
        ends = array("I", body[8 * count : 12 * count])
        blob = body[12 * count :]
        rows += [blob[begin:end] for begin, end in pairwise([0, *ends])]
    skip, size = start - first * BLOCK_ROWS, end - start
    return lsns[skip : skip + size].tolist(), rows[skip : skip + size]


def find_in(disk: Disk, path: str, run: Run, hashed: int, key: bytes) -> tuple[Lsn, bytes] | None:
    """LSN and row of a key, or None. Raises JournalDamaged, OSError."""
    at = bisect_left(run.hashes, hashed)
    while at < run.count and run.hashes[at] == hashed:
        lsns, rows = rows_of(disk, path, run, at, at + 1)
        if key_of(rows[0]) == key:
            return lsns[0], rows[0]
        at += 1
    return None


def problems_of(disk: Disk, path: str, run: Run) -> Iterator[str]:
    """Every block that is not what was written, each as a sentence."""
    for start in range(0, run.count, BLOCK_ROWS):
        end = min(start + BLOCK_ROWS, run.count)
        try:
            _, rows = rows_of(disk, path, run, start, end)
        except Exception as error:  # noqa: BLE001
            yield str(error)
            continue
        if [hash_of(key_of(row)) for row in rows] != run.hashes[start:end].tolist():
            yield f"{disk.place}/{path}: ids {start} to {end} are not in the order of their hashes"


Columns = tuple[list[int], list[Lsn], list[bytes]]
"""Hashes, LSNs, rows."""


def sorted_rows(hashes: list[int], lsns: list[Lsn], rows: list[bytes]) -> Columns:
    """Rows in the order of hash and key; of rows with one key only the first that was given."""
    order = sorted(range(len(hashes)), key=hashes.__getitem__)
    if len(set(hashes)) < len(hashes):
        order.sort(key=lambda at: (hashes[at], key_of(rows[at])))
        order = [at for before, at in pairwise([-1, *order]) if before < 0 or key_of(rows[before]) != key_of(rows[at])]
    return [hashes[at] for at in order], [lsns[at] for at in order], [rows[at] for at in order]
