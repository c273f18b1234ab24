"""A synthetic log of any length, for measuring and for tests: what many clients would have written, with the fingerprints that follow.

    entries(200_000)                       LogEntry 1, 2, … of three masters
    write_backup(directory, 200_000)       the same as lines of a cluster backup, which `SourceSpec(backup=…)` reads

| of 100 entries | what |
|---|---|
| 50 | one key put, of half as many keys as there are entries, 20 to 200 bytes of value |
| 5 | several keys put |
| 4 | one key deleted |
| 24 | one to three quads added, sometimes one removed with them |
| 8, 6 | a message published, the oldest one of its queue accepted |
| 3 | rejected, or without a change |

Now and then a repository is made, and dropped with its quads in it; checks come and go. An effect only holds what really changed,
as those of a worker do. The same number and seed give the same log, byte for byte; a log is no beginning of a longer one.

Memory is that of the content at the end. Must never be used for anything but measuring and tests.

>>> [entry.lsn for entry in entries(3)]
[1, 2, 3]
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

from brokerha.model import fingerprints
from brokerha.model.control import Check
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.model.operations import APPLIED, REJECTED, Change, LoggedRow, pack_effect
from brokerha.pipeline.entries import LogEntry
from brokerha.stores.backup.directory import write_manifest
from brokerha.stores.backup.lines import write_lines
from brokerha.stores.backup.manifest import LOG, Manifest, Segment
from brokerha.stores.comparing.fingerprint import (
    control_digest,
    counts_digest,
    key_digest,
    message_digest,
    repository_digest,
)
from brokerha.stores.tables.key_range import row_key_of
from brokerha.stores.tables.queue_change import NEVER_USED, Counts, Message

CLUSTER: Final = "synthetic"
MASTERS: Final = ("m1", "m2", "m3")
BEGIN_US: Final = 1_700_000_000_000_000
_STEP_US: Final = 20_000
"""At most between two entries."""
_TABLES: Final = ("prices", "stock", "sessions")
_QUEUES: Final = ("orders", "mail")
_REPOSITORY: Final = "main"
_PASSING: Final = "import"
"""The repository that comes and goes."""
_PASSING_EVERY: Final = 5_000
_CHECK_EVERY: Final = 7_000
_POOL_BYTES: Final = 1 << 16
_EVERY_KIND: Final = (
    ("put", 50), ("puts", 5), ("delete", 4), ("quads", 24), ("publish", 8), ("accept", 6), ("nothing", 3),
)  # fmt: skip


def entries(number: int, seed: int = 1) -> Iterator[LogEntry]:
    """Entries 1 to ``number``."""
    return _Log(number, random.Random(seed)).entries()


def write_backup(
    directory: Path, number: int, seed: int = 1, tell: Callable[[int], None] = lambda _entries: None
) -> Manifest:
    """Write them as the lines of a cluster backup without a copy, into a new directory; ``tell`` gets how many more are done.

    Raises OSError.
    """
    (directory / LOG).mkdir(parents=True)
    partial = directory / LOG / "new"

    def lines() -> Iterator[tuple[int, LoggedRow]]:
        for lsn, txid, _, timestamp, _, outcome, reason, effect, fingerprint in entries(number, seed):
            yield lsn, (txid, timestamp, outcome, reason, effect, fingerprint)
            if lsn % 1_000 == 0:
                tell(1_000)

    with partial.open("wb") as file:
        written = write_lines(file, lines())
        file.flush()
        os.fsync(file.fileno())
    txid, timestamp, _, _, _, fingerprint = written.last
    text = fingerprints.text_of(fingerprint)
    segment = Segment(
        1, written.last_lsn, txid, timestamp, text, written.size_bytes, written.sha256, "synthetic", timestamp
    )
    partial.rename(directory / segment.path)
    manifest = Manifest(
        directory.name, CLUSTER, "synthetic", 0, fingerprint=fingerprints.text_of(fingerprints.EMPTY), segments=(segment,),
        masters=MASTERS, made_us=timestamp,
    )  # fmt: skip
    write_manifest(directory, manifest)
    return manifest


class _Log:
    """What was written so far, as digests: enough to know what an entry changes."""

    def __init__(self, number: int, chance: random.Random) -> None:
        self._number = number
        self._chance = chance
        self._pool = chance.randbytes(_POOL_BYTES)
        self._keys = max(10, number // 2)
        self._subjects = max(10, number // 10)
        self._total = repository_digest(_REPOSITORY)
        self._of_key: dict[tuple[str, bytes], int] = {}
        self._lines: dict[str, int] = {}
        """Quads that are there, with their digests; the places of `_in_order`."""
        self._in_order: list[str] = []
        self._waiting: dict[str, deque[tuple[str, int]]] = {name: deque() for name in _QUEUES}
        self._counts: dict[str, Counts] = {}
        self._passing: list[str] | None = None
        self._check: Check | None = None
        self._beginnings = {name: _beginning(name) for name in (_REPOSITORY, _PASSING)}

    def entries(self) -> Iterator[LogEntry]:
        """All of them."""
        chance = self._chance
        kinds = [getattr(self, f"_{kind}") for kind, weight in _EVERY_KIND for _ in range(weight)]
        timestamp = BEGIN_US
        for lsn in range(1, self._number + 1):
            drawn = chance.getrandbits(64)
            timestamp += 1 + drawn % _STEP_US
            txid = f"client-{drawn >> 60:x}-{drawn:016x}"
            origin = MASTERS[drawn % len(MASTERS)]
            reason = ""
            if lsn % _PASSING_EVERY == 0:
                changes = self._pass()
            elif lsn % _CHECK_EVERY == 0:
                changes = self._check_changed()
            else:
                changes = kinds[int(chance.random() * len(kinds))](txid)
                if not changes and drawn & 1:
                    reason = "expectation 1: the key has another ETag"
            outcome = REJECTED if reason else APPLIED
            yield LogEntry(
                lsn, txid, origin, timestamp, 1, outcome, reason, pack_effect(changes), fingerprints.packed(self._total)
            )

    def _nothing(self, _txid: str) -> list[Change]:
        return []

    def _put(self, _txid: str) -> list[Change]:
        return [self._put_key(*self._key())]

    def _puts(self, _txid: str) -> list[Change]:
        # An effect names each key once.
        return [self._put_key(*each) for each in {self._key() for _ in range(4)}]

    def _put_key(self, table: str, key: bytes) -> Change:
        begin = int(self._chance.random() * (_POOL_BYTES - 200))
        value = self._pool[begin : begin + 20 + begin % 181]
        digest = int.from_bytes(key_digest(row_key_of(table, key), value), "big")
        self._total ^= self._of_key.get((table, key), 0) ^ digest
        self._of_key[table, key] = digest
        return "put", table, key, value

    def _delete(self, _txid: str) -> list[Change]:
        key = self._key()
        digest = self._of_key.pop(key, None)
        if digest is None:
            return []
        self._total ^= digest
        return [("delete", *key)]

    def _key(self) -> tuple[str, bytes]:
        number = int(self._chance.random() * self._keys)
        return _TABLES[number % len(_TABLES)], b"item-%08d" % number

    def _quads(self, _txid: str) -> list[Change]:
        chance = self._chance
        removed = []
        if self._in_order and chance.random() < 0.2:
            place = int(chance.random() * len(self._in_order))
            self._in_order[place], self._in_order[-1] = self._in_order[-1], self._in_order[place]
            removed.append(self._in_order.pop())
            self._total ^= self._lines.pop(removed[0])
        added = []
        for _ in range(1 + int(chance.random() * 3)):
            line = self._line()
            if line not in self._lines and line not in removed:
                self._lines[line] = self._digest(_REPOSITORY, line)
                self._total ^= self._lines[line]
                self._in_order.append(line)
                added.append(line)
        return [("quads", _REPOSITORY, removed, sorted(added))] if removed or added else []

    def _line(self) -> str:
        drawn = self._chance.getrandbits(48)
        subject = f"<https://example.org/thing/{drawn % self._subjects}>"
        predicate = f"<https://example.org/vocabulary#p{(drawn >> 20) % 24}>"
        if drawn & 3:
            return f'{subject} {predicate} "text {drawn >> 28} of some length"'
        other = f"<https://example.org/thing/{(drawn >> 8) % self._subjects}>"
        return f"{subject} {predicate} {other}" + (" <https://example.org/graph>" if drawn & 4 else "")

    def _digest(self, repository: str, line: str) -> int:
        state = self._beginnings[repository].copy()
        state.update(line.encode())
        return int.from_bytes(state.digest(), "big")

    def _publish(self, txid: str) -> list[Change]:
        queue = _QUEUES[int(self._chance.random() * len(_QUEUES))]
        begin = int(self._chance.random() * (_POOL_BYTES - 300))
        message = Message(f"{txid}.1", "application/octet-stream", self._pool[begin : begin + begin % 300])
        counts = self._counts.get(queue, NEVER_USED)
        now = Counts(counts.published + 1, counts.accepted)
        digest = message_digest(queue, now.published, message)
        self._waiting[queue].append((message.id, digest))
        self._total ^= digest
        self._count(queue, now)
        return [("publish", queue, *message)]

    def _accept(self, _txid: str) -> list[Change]:
        queue = _QUEUES[int(self._chance.random() * len(_QUEUES))]
        if not self._waiting[queue]:
            return []
        message_id, digest = self._waiting[queue].popleft()
        self._total ^= digest
        counts = self._counts[queue]
        self._count(queue, Counts(counts.published, counts.accepted + 1))
        return [("accept", queue, message_id)]

    def _count(self, queue: str, now: Counts) -> None:
        before = self._counts.get(queue)
        if before is not None:
            self._total ^= counts_digest(queue, before)
        self._counts[queue] = now
        self._total ^= counts_digest(queue, now)

    def _pass(self) -> list[Change]:
        """Make a repository with quads in it, or drop it with them."""
        self._total ^= repository_digest(_PASSING)
        lines = self._passing or sorted({self._line() for _ in range(20)})
        for line in lines:
            self._total ^= self._digest(_PASSING, line)
        if self._passing is None:
            self._passing = lines
            return [("create-repository", _PASSING), ("quads", _PASSING, [], lines)]
        self._passing = None
        # As a worker does: quads go one by one before their repository.
        return [("quads", _PASSING, lines, []), ("remove-repository", _PASSING)]

    def _check_changed(self) -> list[Change]:
        before = self._check
        if before is not None:
            self._total ^= control_digest(before)
            self._check = None
            return [("control-remove", before.name)]
        self._check = Check("never-there", "key", _TABLES[0], "never", "absent")
        self._total ^= control_digest(self._check)
        return [("control-add", *self._check)]


def _beginning(repository: str) -> blake2b:
    """As in stores/comparing/fingerprint.py: what all quads of a repository have in common is hashed once."""
    return blake2b(b"q" + repository.encode() + b"\0", digest_size=DIGEST_BYTES)
