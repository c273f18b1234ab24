"""Which LSN a transaction id has, and why one was rejected; known for longer than the entries of the log, and for millions of them.

What came last is in two dictionaries. `IDS_HELD` rows of them at a time become a run (runs.py). Runs of one size are merged four at a
time, in small steps, each of them a range of hashes.

A row is found by its hash, the newest run first. An id whose LSN was given up has a row with LSN 0. What became void in a range of LSNs
is void in all runs that were there (`voids`), as ids below an LSN are forgotten in all of them (`below`); a run goes when all of its rows
are.

Runs are named by checkpoints: the log deletes a file only when no checkpoint needs it any more, and syncs one before the first that does.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from brokerha.log.limits import IDS_HELD, MERGED_AT_ONCE, RUN_LIMIT, RUNS_MERGED
from brokerha.log.runs import (
    BLOCK_ROWS,
    REASON_KEY_BYTES,
    REJECTION,
    Columns,
    Run,
    RunWriter,
    find_in,
    hash_of,
    key_of,
    open_run,
    problems_of,
    reason_key,
    rows_of,
    sorted_rows,
)
from brokerha.model.ids import Lsn, Ordered, TxId
from brokerha.model.records import Remembered
from brokerha.ports.disk import Disk

Item = tuple[int, bytes, int, Lsn, bool]
"""A row: hash, key, age of its run, LSN, and whether it counts no more."""


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
        self._making: list[str] = []

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
        keys = [txid.encode() for txid in self.lsns]
        hashes = list(map(hash_of, keys))
        lsns = list(self.lsns.values())
        for lsn, why in self.rejected.items():
            key = reason_key(lsn)
            hashes.append(hash_of(key))
            lsns.append(lsn)
            keys.append(key + why.encode())
        writer, name = self._begun()
        writer.add(*sorted_rows(hashes, lsns, keys))
        self.runs.append(self._finished(writer, name))
        self.lsns, self.rejected = {}, {}

    def _begun(self) -> tuple[RunWriter, str]:
        self._made += 1
        name = f"ids-{self._made:08}"
        return RunWriter(self._disk, self._path(name)), name

    def _finished(self, writer: RunWriter, name: str) -> Run:
        run = writer.finish(name)
        self.unsynced.append(self._path(name))
        return run

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
        """The newest runs of about one size, when there are enough of them: from one, to after another. The largest stay as they are."""
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
        # In each step a part of every run, so that all of it together is bounded.
        steps = [max(1, MERGED_AT_ONCE * run.count // sum(run.count for run in old)) for run in newest_first]
        writer, name = self._begun()
        self._making = [self._path(name)]
        at = [0] * len(old)
        while bounds := [run.hashes[min(a + step, run.count) - 1] for run, a, step in zip(newest_first, at, steps, strict=True) if a < run.count]:
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
                # What hides an older row has to stay while there is one.
                kept = [place for place, lsn in enumerate(merged[1]) if lsn]
                merged = [merged[0][k] for k in kept], [merged[1][k] for k in kept], [merged[2][k] for k in kept]
            writer.add(*merged)
            at = ends
            yield
        run = self._finished(writer, name)
        self._making = []
        # What was forgotten meanwhile was forgotten in all of them.
        run.below = min(each.below for each in old)
        run.voids = [pair for pair in old[0].voids if all(pair in each.voids for each in old)]
        self.runs[first:end] = [run]

    def _live(self, run: Run, start: int, end: int) -> Columns:
        """Rows of a run that still count."""
        hashes = run.hashes[start:end].tolist()
        lsns, rows = rows_of(self._disk, self._path(run.name), run, start, end)
        if run.below or run.voids:
            kept = [at for at, (row, lsn) in enumerate(zip(rows, lsns, strict=True)) if not run.is_dead(row, lsn)]
            return [hashes[at] for at in kept], [lsns[at] for at in kept], [rows[at] for at in kept]
        return hashes, lsns, rows

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

    def known(self, txids: Iterable[TxId]) -> set[TxId]:
        """Those that have an LSN."""
        find = self.find if self.runs else self.lsns.get
        return {txid for txid in txids if find(txid)}

    def rejection(self, lsn: Lsn) -> str | None:
        """Why the transaction at an LSN was rejected, or None."""
        reason = self.rejected.get(lsn)
        if reason is not None or not self.runs:
            return reason
        found = self._find(reason_key(lsn)) if lsn > 0 else None
        return None if found is None else found[1][REASON_KEY_BYTES:].decode()

    def _find(self, key: bytes) -> tuple[Lsn, bytes] | None:
        hashed = hash_of(key)
        for run in reversed(self.runs):
            found = find_in(self._disk, self._path(run.name), run, hashed, key)
            if found is not None and not run.is_dead(found[1], found[0]):
                return found
        return None

    def _items(self, run: Run, start: int, age: int) -> Iterator[Item]:
        for at in range(start, run.count, 4 * BLOCK_ROWS):
            end = min(at + 4 * BLOCK_ROWS, run.count)
            lsns, rows = rows_of(self._disk, self._path(run.name), run, at, end)
            for hashed, lsn, row in zip(run.hashes[at:end], lsns, rows, strict=True):
                yield hashed, key_of(row), age, lsn, run.is_dead(row, lsn)

    def page(self, cursor: bytes, up_to: Lsn, limit: int) -> Remembered:
        """The remembered ids up to an LSN, ``limit`` of all looked at, from a cursor on; in the order of their hashes."""
        after = (int.from_bytes(cursor[:8], "big"), cursor[8:]) if cursor else (-1, b"")
        fresh = sorted((hash_of(key := txid.encode()), key, 0, lsn, False) for txid, lsn in self.lsns.items())
        streams: list[Iterable[Item]] = [fresh]
        for age, run in enumerate(reversed(self.runs), 1):
            streams.append(self._items(run, bisect_left(run.hashes, max(after[0], 0)), age))
        ids: list[tuple[TxId, Lsn]] = []
        looked, last = 0, after
        for hashed, key, _, lsn, is_dead in heapq.merge(*streams):
            # Of rows with one key the newest comes first; what is older is hidden by it, even where it is forgotten.
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
        """What a checkpoint keeps."""
        return [self._made, list(self.lsns.items()), list(self.rejected.items()), [run.packed() for run in self.runs]]

    def read(self, packed: Any) -> None:
        """Take over what `packed` gave; reads the hashes. Raises JournalDamaged."""
        self._made, lsns, rejected, runs = packed
        self.lsns, self.rejected, self._merge, self.unsynced = dict(lsns), dict(rejected), None, []
        self._making = []
        self.runs = [open_run(self._disk, self._path(run[0]), run) for run in runs]

    def files(self) -> list[str]:
        """Files of all runs."""
        return [self._path(run.name) for run in self.runs]

    def making(self) -> list[str]:
        """Files that are being written, and that no checkpoint may name yet."""
        return self._making

    def problems(self) -> Iterator[str]:
        """Every row that is not what was written."""
        for run in self.runs:
            yield from problems_of(self._disk, self._path(run.name), run)
