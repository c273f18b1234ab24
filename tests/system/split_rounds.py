"""Rounds of a split (split_shapes.py) under load: loads with many writes in flight, and a ledger that checks what became of them.

    load at m1 ┐                 cut … seconds … heal, one epoch, loads end          ledger
    load at m2 ├─ AMQP, closed loop, a window each ──────────────────────────> all logs line by line, every copy against them
    load at m3 ┘

Each load writes at its own site, over the broker of that site, and sends again under the same transaction id whatever was not
answered. The ledger reads what the logs got since the last round: every line is the same in all of them, and each acknowledged write
is there once, with a majority at the LSN that its client was told, else perhaps at another one. What a copy holds is what the log says, key by key; the counters of the
slow writers beside the loads tell whether an effect was applied twice.

Counts are asserted by whoever runs a round; times are only told.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgpack

import brokerha
from brokerha.client.outcomes import error_of_reply
from brokerha.model.operations import pack_operations
from brokerha.model.requests import Reply
from tests.system.copies import check_books
from tests.system.split_shapes import Shape, pass_through
from tests.system.split_sites import MASTERS, SETTINGS, SplitSites, writers_at
from tests.system.writers import AGAIN, GIVE_UP_S, Writer, told

TABLE: Final = "load"
_KEYS: Final = 2000
"""Keys of a load: few, so that the copies stay small and each key is written over and over."""
_VALUE: Final = b"v" * 100
_LOG_PART: Final = 10_000
_KEPT_LINES: Final = 1_000_000
"""Far more than one round has."""
_ROWS_PART: Final = 1000
_ANSWERS_S: Final = 120.0
LOADED_S: Final = 60.0
"""The loads go on so long after the heal, and no longer, if there is not one epoch of all before."""


# ---- load


class LoadedSites(SplitSites):
    """Sites with a door for loads, and logs that are kept until the ledger has read them."""

    def _toml(self) -> str:
        return super()._toml().replace(SETTINGS, f"{SETTINGS}tx-log-max-size = {_KEPT_LINES}\n")

    def door(self, master: str) -> str:
        """The broker of a site, to which apps of that site connect."""
        return self._source.url_of(self.vhosts[master])

    def ask(self, node: str, path: str) -> bytes:
        """One answer as msgpack. Raises what the HTTP client raises."""
        answer = self._http.get(self.url(node) + path, headers={"Accept": "application/x-msgpack"}, timeout=60)
        answer.raise_for_status()
        return bytes(answer.content)


class Load:
    """One client that keeps a window of puts under way at one site, until it is told to stop."""

    def __init__(self, url: str, name: str, window: int, level: str = "synchronised", timeout_s: float = 20.0) -> None:
        """``url`` is the door, over AMQP or HTTP; a write that has no answer after ``timeout_s`` is sent again."""
        self.name = name
        self.acknowledged: dict[str, int] = {}
        """Transaction id and LSN, as the client was told."""
        self.times: list[float] = []
        """When each of them was acknowledged, by the monotonic clock."""
        self.latencies: list[float] = []
        """Seconds of each from when it was sent last."""
        self.resent = 0
        self._url, self._window, self._level, self._timeout_ms = url, window, level, round(timeout_s * 1000)
        self._number = 0
        self._again: deque[tuple[str, bytes]] = deque()
        self._done: queue.SimpleQueue[tuple[float, float, tuple[str, bytes], Future[Reply]]] = queue.SimpleQueue()
        self._under_way = 0
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"load {name}", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no new write."""
        self._stop.set()

    def finish(self, within_s: float = _ANSWERS_S) -> None:
        """Begin no new write; wait until everything under way is acknowledged. Raises what went wrong."""
        self.stop()
        self._thread.join(within_s)
        if self._fault is not None:
            raise self._fault
        assert not self._thread.is_alive(), f"load {self.name} has {self._under_way} writes without an answer"

    def _run(self) -> None:
        try:
            with brokerha.connect(self._url) as db:
                while not self._stop.is_set() or self._under_way or self._again:
                    self._send(db.wire)
                    self._take()
                    while not self._done.empty():
                        self._take()
        except BaseException as fault:  # noqa: BLE001  (told by finish)
            self._fault = fault

    def _send(self, wire: Any) -> None:
        writes: list[tuple[str, bytes]] = []
        while self._under_way + len(writes) < self._window:
            if self._again:
                writes.append(self._again.popleft())
            elif self._stop.is_set():
                break
            else:
                self._number += 1
                txid = f"{self.name}-{self._number}"
                key = f"{self.name.rpartition('-')[2]}-{self._number % _KEYS}"
                writes.append((txid, pack_operations([("put", TABLE, key.encode(), txid.encode() + _VALUE)])))
        if writes:
            self._under_way += len(writes)
            sent = time.monotonic()
            for write, future in zip(writes, wire.submit(writes, self._level, 1, self._timeout_ms), strict=True):
                future.add_done_callback(partial(self._note, sent, write))

    def _note(self, sent: float, write: tuple[str, bytes], future: Future[Reply]) -> None:
        self._done.put((time.monotonic(), sent, write, future))

    def _take(self) -> None:
        if not self._under_way:
            return
        now, sent, write, future = self._done.get(timeout=GIVE_UP_S)
        self._under_way -= 1
        error = future.exception() or error_of_reply(future.result())
        if error is None:
            self.acknowledged[write[0]] = future.result().lsn
            self.times.append(now)
            self.latencies.append(now - sent)
        elif isinstance(error, AGAIN):
            self.resent += 1
            self._again.append(write)
            if len(self._again) == 1:
                time.sleep(0.02)
        else:
            raise error

    # ---- figures

    def count(self, begin: float, end: float) -> int:
        """Writes acknowledged between two moments."""
        return sum(begin <= at < end for at in self.times)

    def longest_pause(self, begin: float, end: float) -> float:
        """The longest time between these moments in which nothing was acknowledged."""
        times = [begin, *(at for at in self.times if begin <= at < end), end]
        return max(after - before for before, after in itertools.pairwise(times))


@contextlib.contextmanager
def loads_at(sites: LoadedSites, name: str, window: int, masters: Collection[str] = MASTERS) -> Iterator[dict[str, Load]]:
    """A load at each of these sites; at the end all links are healed, and each load has got its answers."""
    loads = {master: Load(sites.door(master), f"{name}-{master}", window) for master in masters}
    for load in loads.values():
        load.start()
    try:
        yield loads
    finally:
        sites.links.heal()
        for load in loads.values():
            load.stop()
        for load in loads.values():
            load.finish()


def await_all_told(sites: LoadedSites, loads: Collection[Load], count: int, within_s: float = 60.0) -> None:
    """Wait until each of these got so many more answers."""
    goals = {load.name: len(load.acknowledged) + count for load in loads}

    def slow() -> list[str]:
        return [load.name for load in loads if len(load.acknowledged) < goals[load.name]]

    sites.until(lambda: not slow(), lambda: f"answers at {slow()}: {list(map(sites.epoch, MASTERS))}", within_s)


# ---- the ledger


@dataclass
class Counts:
    """What became of the writes of a round."""

    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    """Acknowledged at another LSN than the one where it is."""
    back: list[str] = field(default_factory=list)
    """With a timestamp below the one before it."""
    lines: int = 0

    def check(self, mode: str) -> None:
        """Nothing is lost or twice; and with a majority nothing is at another place than it was."""
        for what, found in (
            ("lost", self.lost),
            ("twice", self.twice),
            ("stamped before the line above", self.back),
            ("re-ordered", self.reordered if mode == "quorum" else []),
        ):
            assert not found, f"{len(found)} of {self.acknowledged} acknowledged writes {what}, such as {found[:5]}"


class Ledger:
    """All that was synchronised so far, read from the logs of all sites."""

    def __init__(self, sites: LoadedSites) -> None:
        self._sites = sites
        self._last = 0
        self._at: dict[str, int] = {}
        self._content: dict[bytes, bytes] = {}
        self._timestamp = 0

    def check(self, loads: Collection[Load], writers: Sequence[Writer]) -> Counts:
        """Read on and compare. Fails when logs or copies differ; returns the counts of these loads."""
        counts = Counts(sum(len(load.acknowledged) for load in loads))
        self._read_on(counts)
        for load in loads:
            for txid, lsn in load.acknowledged.items():
                found = self._at.get(txid)
                if found is None:
                    counts.lost.append(txid)
                elif lsn != found:
                    counts.reordered.append(f"{txid}: told {lsn}, is at {found}")
        self._check_copies()
        if writers:
            check_books(self._sites, writers, with_others=True)
        counts.acknowledged += told(writers)
        return counts

    def _read_on(self, counts: Counts) -> None:
        while True:
            first = self._last + 1
            parts = [self._part(master, first) for master in MASTERS]
            for others in parts[1:]:
                place = next((n for n, (a, b) in enumerate(zip(parts[0], others, strict=False)) if a != b), None)
                assert place is None, f"logs differ: {parts[0][place or 0]}, {others[place or 0]}"
            lengths = [len(part) for part in parts]
            assert len(set(lengths)) == 1, f"logs end at different LSNs, after {first} by {lengths}"
            for lsn, (txid, _, timestamp) in enumerate(parts[0], first):
                if txid in self._at:
                    counts.twice.append(f"{txid}: at {self._at[txid]} and at {lsn}")
                if timestamp < self._timestamp:
                    counts.back.append(f"{txid}: at {lsn}")
                self._at[txid], self._timestamp = lsn, timestamp
                if txid.startswith("load-"):
                    _, _, rest = txid.partition("-")
                    _, site, number = rest.rsplit("-", 2)
                    self._content[f"{site}-{int(number) % _KEYS}".encode()] = txid.encode() + _VALUE
            self._last += lengths[0]
            counts.lines += lengths[0]
            if lengths[0] < _LOG_PART:
                return

    def _part(self, master: str, first: int) -> list[tuple[str, str, int]]:
        answer = self._sites.ask(master, f"/cluster/log?from={first}&to={first + _LOG_PART - 1}")
        lines = msgpack.unpackb(answer)
        assert not lines or lines[0]["lsn"] == first, f"{master} does not keep the log from {first} on but from {lines[0]['lsn']}"
        return [(line["txid"], line["origin"], line["timestamp"]) for line in lines]

    def _check_copies(self) -> None:
        for worker in self._sites.workers:
            held = self._rows(worker)
            differing = [key for key in held.keys() | self._content.keys() if held.get(key) != self._content.get(key)]
            assert not differing, f"{worker} holds other values than the log says, such as at {sorted(differing)[:5]}"

    def _rows(self, worker: str) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        after = ""
        while True:
            rows = msgpack.unpackb(self._sites.ask(worker, f"/kv/{TABLE}?from={after}&limit={_ROWS_PART}"))
            fresh = {bytes(key): bytes(value) for key, value in rows if bytes(key) not in found}
            if not fresh:
                return found
            found.update(fresh)
            after = max(fresh).decode()


# ---- one round


@dataclass(frozen=True)
class Round:
    """What one split was like. Times are in seconds; None where there is nothing to say."""

    shape: Shape
    counts: Counts
    before_s: float
    """Writes acknowledged per second before the split, at all sites."""
    during_s: float
    """The same while it lasted."""
    resumed_s: float | None
    """The longest pause during the split of a site that goes on: of the majority; of any site where each side goes on."""
    one_epoch_s: float
    """From heal until all masters are in one epoch."""
    equal_s: float
    """From heal until all copies are equal, or have executed everything (none); the loads end with one epoch."""
    epochs: int
    """How many were begun from the cut to the end."""
    is_under_load: bool
    """Whether they were in one epoch while the loads still wrote."""


def run_round(
    sites: LoadedSites, ledger: Ledger, shape: Shape, name: str, seconds: float, window: int, draw: random.Random
) -> Round:
    """One round; ``name`` is used once, without a dash. Fails when logs or copies differ in the end."""
    before = sites.await_epoch(MASTERS)
    with writers_at(sites, f"slow-{name}", MASTERS) as writers, loads_at(sites, f"load-{name}", window) as loads:
        await_all_told(sites, list(loads.values()), 2 * window)
        began = time.monotonic()
        time.sleep(min(3.0, seconds))
        cut = time.monotonic()
        pass_through(sites, shape, seconds, draw)
        sites.links.heal()
        healed = time.monotonic()
        is_under_load = _is_one_epoch(sites, healed + LOADED_S)
        for load in loads.values():
            load.stop()
        epoch = sites.await_epoch(MASTERS)
        one_epoch_s = time.monotonic() - healed
    sites.await_settled(120.0)
    equal_s = time.monotonic() - healed
    counts = ledger.check(list(loads.values()), writers)
    going_on = shape.majority if sites.mode == "quorum" else MASTERS
    pauses = [loads[master].longest_pause(cut, healed) for master in going_on]
    return Round(
        shape,
        counts,
        sum(load.count(began, cut) for load in loads.values()) / (cut - began),
        sum(load.count(cut, healed) for load in loads.values()) / (healed - cut),
        max(pauses) if pauses else None,
        one_epoch_s,
        equal_s,
        epoch.number - before.number,
        is_under_load,
    )


def _is_one_epoch(sites: LoadedSites, deadline: float) -> bool:
    """Wait until then for one epoch of all; who reads no faster than the others write does not come back while they do."""
    while time.monotonic() < deadline:
        found = {sites.epoch(master) for master in MASTERS}
        if len(found) == 1 and found.pop().members == MASTERS:
            return True
        time.sleep(0.05)
    return False


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lines of a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines)
