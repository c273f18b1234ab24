"""A synthetic log of any length, for measuring and for tests: like writes of many clients, executed by a worker.

    entries(200_000)                       LogEntry 1, 2, … of three masters
    write_backup(directory, 200_000)       the same as lines of a cluster backup, for `SourceSpec(backup=…)`

| of 100 entries | content |
|---|---|
| 50 | one key put, of half as many keys as there are entries, 20 to 200 bytes of value |
| 5 | several keys put |
| 4 | one key deleted |
| 24 | one to three quads added, sometimes one removed with them |
| 8, 6 | a message published, the oldest one of its queue accepted |
| 3 | rejected, or without a change |
Sometimes a repository is created, and dropped with its quads; checks come and go. The same number and seed give the same log, byte
for byte; a log is no prefix of a longer one. Must never be used for anything but measuring and tests.

>>> [entry.lsn for entry in entries(3)]
[1, 2, 3]
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from brokerha.model import etags, fingerprints
from brokerha.model.operations import LoggedRow, Operation, pack_operations
from brokerha.pipeline.entries import LogEntry
from brokerha.stores.backup.directory import write_manifest
from brokerha.stores.backup.lines import write_lines
from brokerha.stores.backup.manifest import LOG, Manifest, Segment
from brokerha.stores.copies.worker_copy import WorkerCopy

CLUSTER: Final = "synthetic"
MASTERS: Final = ("m1", "m2", "m3")
BEGIN_US: Final = 1_700_000_000_000_000
_STEP_US: Final = 20_000
"""Longest time between two entries, in microseconds."""
_AT_ONCE: Final = 1_000
"""Entries that are committed together."""
_TABLES: Final = ("prices", "stock", "sessions")
_QUEUES: Final = ("orders", "mail")
_REPOSITORY: Final = "main"
_PASSING: Final = "import"
"""The repository that comes and goes."""
_PASSING_EVERY: Final = 5_000
_CHECK_EVERY: Final = 7_000
_POOL_BYTES: Final = 1 << 16
_EVERY_KIND: Final = {"put": 50, "puts": 5, "delete": 4, "quads": 24, "publish": 8, "accept": 6, "nothing": 3}


def entries(number: int, seed: int = 1) -> Iterator[LogEntry]:
    """Yield entries 1 to ``number``."""
    clients, chance = _Clients(number, random.Random(seed)), random.Random(seed)
    timestamp = BEGIN_US
    with (
        tempfile.TemporaryDirectory(prefix="brokerha-bench-") as folder,
        closing(WorkerCopy(Path(folder) / "w1", cluster=CLUSTER, node="w1")) as copy,
    ):
        for first in range(1, number + 1, _AT_ONCE):
            items = []
            for lsn in range(first, min(first + _AT_ONCE, number + 1)):
                drawn = chance.getrandbits(64)
                timestamp += 1 + drawn % _STEP_US
                txid = f"client-{drawn >> 60:x}-{drawn:016x}"
                items.append((txid, timestamp, pack_operations(clients.transaction(lsn, txid))))
            results = copy.execute(first, items)
            for lsn, (txid, stamp, _), result in zip(range(first, number + 1), items, results, strict=False):
                yield LogEntry(lsn, txid, MASTERS[stamp % len(MASTERS)], stamp, 1, *result)


def write_backup(directory: Path, number: int, seed: int = 1) -> Manifest:
    """Write them as lines of a cluster backup without a copy, into a new directory. Raises OSError."""
    (directory / LOG).mkdir(parents=True)
    partial = directory / LOG / "new"

    def lines() -> Iterator[tuple[int, LoggedRow]]:
        for lsn, txid, _, timestamp, _, outcome, reason, effect, fingerprint in entries(number, seed):
            yield lsn, (txid, timestamp, outcome, reason, effect, fingerprint)

    with partial.open("wb") as file:
        written = write_lines(file, lines())
        file.flush()
        os.fsync(file.fileno())
    txid, timestamp, _, _, _, fingerprint = written.last
    text = fingerprints.text_of(fingerprint)
    segment = Segment(1, written.last_lsn, txid, timestamp, text, written.size_bytes, written.sha256, "synthetic", timestamp)
    partial.rename(directory / segment.path)
    manifest = Manifest(
        directory.name, CLUSTER, "synthetic", 0, fingerprint=fingerprints.text_of(fingerprints.EMPTY), segments=(segment,),
        masters=MASTERS, made_us=timestamp,
    )  # fmt: skip
    write_manifest(directory, manifest)
    return manifest


class _Clients:
    """The simulated clients. They know what they can remove: quads that they have added, and waiting messages."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self._chance = chance
        self._pool = chance.randbytes(_POOL_BYTES)
        self._keys = max(10, number // 2)
        self._subjects = max(10, number // 10)
        self._added: list[str] = []
        self._waiting: dict[str, deque[str]] = {name: deque() for name in _QUEUES}

    def transaction(self, lsn: int, txid: str) -> list[Operation]:
        """Return the operations of the next transaction."""
        if lsn % _PASSING_EVERY == 0:
            if lsn % (2 * _PASSING_EVERY) == 0:
                return [("remove-repository", _PASSING)]
            return [("create-repository", _PASSING), ("add", _PASSING, self._lines(20))]
        if lsn % _CHECK_EVERY == 0:
            if lsn % (2 * _CHECK_EVERY) == 0:
                return [("control-remove", "never-there")]
            return [("control-add", "never-there", "key", _TABLES[0], "never", "absent")]
        (kind,) = self._chance.choices(list(_EVERY_KIND), list(_EVERY_KIND.values()))
        operations: list[Operation] = getattr(self, f"_{kind}")(txid)
        return operations

    def _put(self, _txid: str) -> list[Operation]:
        return [("put", *self._key(), self._bytes(20, 200))]

    def _puts(self, txid: str) -> list[Operation]:
        return [self._put(txid)[0] for _ in range(4)]

    def _delete(self, _txid: str) -> list[Operation]:
        return [("delete", *self._key())]

    def _key(self) -> tuple[str, bytes]:
        number = self._chance.randrange(self._keys)
        return _TABLES[number % len(_TABLES)], b"item-%08d" % number

    def _bytes(self, least: int, most: int) -> bytes:
        begin = self._chance.randrange(_POOL_BYTES - most)
        return self._pool[begin : begin + self._chance.randint(least, most)]

    def _quads(self, _txid: str) -> list[Operation]:
        operations: list[Operation] = []
        if self._added and self._chance.random() < 0.2:
            place = self._chance.randrange(len(self._added))
            self._added[place], self._added[-1] = self._added[-1], self._added[place]
            operations.append(("remove", _REPOSITORY, self._added.pop()))
        lines = self._lines(self._chance.randint(1, 3))
        self._added += lines.splitlines()
        return [*operations, ("add", _REPOSITORY, lines)]

    def _lines(self, count: int) -> str:
        return "\n".join(self._line() for _ in range(count))

    def _line(self) -> str:
        drawn = self._chance.getrandbits(48)
        subject = f"<https://example.org/thing/{drawn % self._subjects}>"
        predicate = f"<https://example.org/vocabulary#p{(drawn >> 20) % 24}>"
        if drawn & 3:
            return f'{subject} {predicate} "text {drawn >> 28} of some length" .'
        graph = "<https://example.org/graph> " if drawn & 4 else ""
        return f"{subject} {predicate} <https://example.org/thing/{(drawn >> 8) % self._subjects}> {graph}."

    def _publish(self, txid: str) -> list[Operation]:
        queue = self._chance.choice(_QUEUES)
        self._waiting[queue].append(f"{txid}.1")
        return [("publish", queue, "application/octet-stream", self._bytes(0, 300))]

    def _accept(self, txid: str) -> list[Operation]:
        queue = self._chance.choice(_QUEUES)
        if not self._waiting[queue]:
            return self._nothing(txid)
        return [("accept", queue, self._waiting[queue].popleft())]

    def _nothing(self, _txid: str) -> list[Operation]:
        if self._chance.random() < 0.5:
            return [("expect-key", _TABLES[0], b"never", etags.etag_of(b"another value"))]
        return [("delete", _TABLES[0], b"never")]
