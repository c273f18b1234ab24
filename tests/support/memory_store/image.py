"""What a memory store holds, and what the changes of effects do to it; nothing else changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import xor

from brokerha.model.fingerprints import packed
from brokerha.model.ids import Lsn
from brokerha.model.operations import (
    Accept,
    By,
    Change,
    Cleared,
    ControlAdd,
    ControlRemove,
    CreateRepository,
    Delete,
    Logged,
    OfQueue,
    Published,
    Put,
    QuadsChanged,
    RemoveRepository,
    Staged,
)
from brokerha.stores.comparing.fingerprint import counts_digest, key_digest, message_digest, quads_digest, repository_digest
from brokerha.stores.control.suite import EMPTY, Suite
from brokerha.stores.execution.last_changes import STORE_OF, Before, range_digest
from brokerha.stores.execution.staged import changes_of_parts, part_rows
from brokerha.stores.tables.key_range import row_key_of
from brokerha.stores.tables.queue_change import NEVER_USED, Counts, Message
from brokerha.stores.tables.snapshots import DIRECTORY, Content, Snapshots

_PACE_ITEMS = 1000


@dataclass(slots=True)
class MemoryQueue:
    """One queue."""

    counts: Counts = NEVER_USED
    messages: dict[str, tuple[int, Message]] = field(default_factory=dict)
    """Id -> place and message, in order."""

    def copy(self) -> MemoryQueue:
        """An independent copy."""
        return MemoryQueue(self.counts, dict(self.messages))

    def difference(self, change: OfQueue) -> int:
        """What a change would do to the fingerprint."""
        name = change.queue
        if (change.message_id in self.messages) is isinstance(change, Published):
            return 0
        published, accepted = self.counts
        if isinstance(change, Published):
            now = Counts(published + 1, accepted)
            digest = message_digest(name, published + 1, Message(*change[2:]))
        else:
            now = Counts(published, accepted + 1)
            digest = message_digest(name, *self.messages[change.message_id])
        return digest ^ counts_digest(name, now) ^ (counts_digest(name, self.counts) if published else 0)

    def apply(self, change: OfQueue) -> int:
        """Make a change; return by how many messages there are more. Doing it twice is the same as once."""
        if (change.message_id in self.messages) is isinstance(change, Published):
            return 0
        published, accepted = self.counts
        if isinstance(change, Published):
            self.counts = Counts(published + 1, accepted)
            self.messages[change.message_id] = published + 1, Message(*change[2:])
            return 1
        self.counts = Counts(published, accepted + 1)
        del self.messages[change.message_id]
        return -1

    def fingerprint(self, name: str) -> int:
        """XOR of the digests of all messages and of the counters."""
        total = counts_digest(name, self.counts) if self.counts != NEVER_USED else 0
        for place, message in self.messages.values():
            total ^= message_digest(name, place, message)
        return total


@dataclass(slots=True)
class MemoryImage:
    """Everything durable."""

    keys: dict[bytes, bytes] = field(default_factory=dict)
    """Values by row key."""
    queues: dict[str, MemoryQueue] = field(default_factory=dict)
    changed: dict[tuple[str | None, str], Lsn] = field(default_factory=dict)
    """LSN of the last change of each store, by kind and name."""
    repositories: dict[str, set[str]] = field(default_factory=lambda: {"main": set()})
    fingerprint: int = repository_digest("main")
    suite: Suite = EMPTY
    items: int = 0
    lsn: Lsn = 0
    lineage: int = 0
    first_kept: Lsn = 1
    """LSN of the first of `lines`."""
    lines: list[Logged] = field(default_factory=list)

    def before(self) -> Before:
        """This state, for expectations."""

        def between(low: bytes, high: bytes) -> bytes:
            return range_digest(key_digest(key, value) for key, value in self.keys.items() if low <= key < high)

        return Before(self.keys.get, lambda kind, name: self.changed.get((kind, name), 0), packed(self.fingerprint), between)

    def content(self) -> Content:
        """This state, for snapshots."""
        return Content(
            self.keys.get,
            lambda beginning: sorted(row for row in self.keys.items() if row[0].startswith(beginning)),
            lambda: {row_key.partition(b"\0")[0].decode() for row_key in self.keys},
        )

    def snapshots(self) -> Snapshots:
        """Its snapshots of tables."""
        return Snapshots(row for row in self.keys.items() if row[0].startswith(DIRECTORY))

    def copy(self) -> MemoryImage:
        """An independent copy; what the containers hold never changes."""
        repositories = {name: set(lines) for name, lines in self.repositories.items()}
        return replace(
            self,
            keys=dict(self.keys),
            repositories=repositories,
            queues={name: queue.copy() for name, queue in self.queues.items()},
            changed=dict(self.changed),
            lines=list(self.lines),
        )

    def difference(self, change: Change) -> int:
        """What a change would do to the fingerprint."""
        match change:
            case Put() | Delete():
                row_key = row_key_of(change.table, change.key)
                digests = [key_digest(row_key, change.value)] if isinstance(change, Put) else []
                old = self.keys.get(row_key)
                if old is not None:
                    digests.append(key_digest(row_key, old))
                return reduce(xor, (int.from_bytes(digest, "big") for digest in digests), 0)
            case Cleared():
                return quads_digest(change.repository, self.repositories[change.repository])
            case QuadsChanged():
                name = change.repository
                return quads_digest(name, change.removed) ^ quads_digest(name, change.added)
            case Published() | Accept():
                return self.queues.get(change.queue, MemoryQueue()).difference(change)
            case ControlAdd() | ControlRemove():
                suite = self.suite
                return suite.fingerprint() ^ suite.changed(change).fingerprint()
            case CreateRepository() | RemoveRepository():
                return repository_digest(change.repository)
            case Staged():
                after = self.copy()
                after.apply(change)
                return self.fingerprint ^ after.fingerprint
            case By():
                return 0

    def apply(self, change: Change) -> None:
        """Make a change of an effect."""
        if isinstance(change, Staged):
            for each in changes_of_parts(change, part_rows(self.keys.get, change.name, len(change.parts))):
                self.apply(self._net(each))
            return
        self.fingerprint ^= self.difference(change)
        match change:
            case Put():
                row_key = row_key_of(change.table, change.key)
                self.items += row_key not in self.keys
                self.keys[row_key] = change.value
            case Delete():
                self.items -= self.keys.pop(row_key_of(change.table, change.key), None) is not None
            case Cleared():
                self.items -= len(self.repositories[change.repository])
                self.repositories[change.repository] = set()
            case QuadsChanged():
                lines = self.repositories[change.repository]
                lines -= set(change.removed)
                lines |= set(change.added)
                self.items += len(change.added) - len(change.removed)
            case Published() | Accept():
                self.items += self.queues.setdefault(change.queue, MemoryQueue()).apply(change)
            case ControlAdd() | ControlRemove():
                self.suite = self.suite.changed(change)
            case CreateRepository():
                self.repositories[change.repository] = set()
            case RemoveRepository():
                del self.repositories[change.repository]

    def _net(self, change: Change) -> Change:
        if not isinstance(change, QuadsChanged):
            return change
        lines = self.repositories[change.repository]
        removed = tuple(line for line in change.removed if line in lines)
        return change._replace(removed=removed, added=tuple(line for line in change.added if line not in lines))

    def note(self, changes: list[Change]) -> None:
        """The transaction at the next LSN has these changes, which are not made yet."""
        for change in changes:
            if isinstance(change, Staged):
                self.note([*changes_of_parts(change, part_rows(self.keys.get, change.name, len(change.parts)))])
            self.changed[STORE_OF.get(change[0]), change[1]] = self.lsn + 1

    def recomputed(self, paced: Callable[[int], None]) -> tuple[int, int]:
        """(fingerprint, number of items) from the data itself; ``paced`` hears how many items were looked at."""
        fingerprint, items = self.suite.fingerprint(), 0
        for row_key, value in self.keys.items():
            if items % _PACE_ITEMS == 0:
                paced(items)
            fingerprint ^= int.from_bytes(key_digest(row_key, value), "big")
            items += 1
        for name, queue in self.queues.items():
            paced(items)
            fingerprint ^= queue.fingerprint(name)
            items += len(queue.messages)
        for name, lines in self.repositories.items():
            fingerprint ^= repository_digest(name) ^ quads_digest(name, _paced(lines, items, paced))
            items += len(lines)
        return fingerprint, items


def _paced(lines: set[str], before: int, paced: Callable[[int], None]) -> Iterator[str]:
    """The same lines; says how many there were now and then, those of elsewhere before them included."""
    for number, line in enumerate(lines):
        if number % _PACE_ITEMS == 0:
            paced(before + number)
        yield line
