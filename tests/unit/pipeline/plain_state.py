"""The state at an LSN, folded from the entries up to it in plain Python: what the jobs on Spark must come to as well.

    entries 1, 2, … L ──> changes ──> last change of each item ──> items that live, counters ──> fingerprint of L

    item        16 bytes that name a quad, key, message, check or repository (stores/comparing/items.py)
    place       number of a message among all that were ever published to its queue: the count of `publish` before it, from 1
    counters    published and accepted of each queue, content too
    `main`      exists from the start: no entry made it

Each entry says what fingerprint it led to, so a fold proves itself entry by entry: `take` raises where it does not fit. An entry that
drops a repository takes its quads out before that, one by one or all at once, as changes of the same entry; nothing goes by itself.

One dictionary for all items, so memory is that of the state. No Spark and no pyarrow in here.

>>> state = State()
>>> state.fingerprint == fingerprints.EMPTY, [held.name for held in state.items.values()]
(True, ['main'])
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple

import msgpack

from brokerha.model import fingerprints
from brokerha.model.control import Check
from brokerha.model.errors import StoreDiffers
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.model.ids import Lsn
from brokerha.model.operations import (
    Accept,
    Change,
    Cleared,
    ControlAdd,
    ControlRemove,
    CreateRepository,
    Delete,
    Published,
    Put,
    QuadsChanged,
    RemoveRepository,
    Staged,
    unpack_effect,
)
from brokerha.model.reserved import staging
from brokerha.model.unfolding import changes_in
from brokerha.pipeline.entries import LogEntry
from brokerha.stores.backup.lines import LinesMissing
from brokerha.stores.comparing.fingerprint import control_digest, counts_digest, key_digest, message_digest, repository_digest
from brokerha.stores.comparing.items import CONTROL, GRAPH, QUEUE, TABLE, check_item, key_item, message_item
from brokerha.stores.tables.key_range import row_key_of
from brokerha.stores.tables.queue_change import NEVER_USED, Counts, Message

MAIN: Final = "main"
"""The repository that exists from the start."""


class Held(NamedTuple):
    """One item as it is at an LSN."""

    store: str
    name: str
    """Of the repository, table, queue or check."""
    key: bytes
    """Key, message id, or the line of a quad; empty for a check and for a repository itself."""
    value: bytes
    """Value put, body published, fields of a check (msgpack list of kind, target, text, expected); else empty."""
    content_type: str
    place: int
    """Of a message, from 1; else 0."""
    digest: int
    """Its part of the fingerprint, 128 bits."""
    lsn: Lsn
    """Of its last change; 0 for what exists from the start."""


class State:
    """The content after some entries; `take` the next one."""

    __slots__ = ("_total", "counts", "items", "lsn")

    def __init__(self) -> None:
        digest = repository_digest(MAIN)
        self._total = digest
        self.lsn: Lsn = 0
        self.items: dict[bytes, Held] = {digest.to_bytes(DIGEST_BYTES, "big"): Held(GRAPH, MAIN, b"", b"", "", 0, digest, 0)}
        """What lives, by item; repositories and checks included."""
        self.counts: dict[str, Counts] = {}
        """Counters of each queue that was ever used."""

    @property
    def fingerprint(self) -> bytes:
        """Of the content, as lines of the log give it."""
        return fingerprints.packed(self._total)

    def take(self, entry: LogEntry) -> None:
        """Go on by one entry.

        Raises LinesMissing when it is not the next one, StoreDiffers when it leads to another content than it says. After
        an error the state is of no LSN.
        """
        lsn = entry.lsn
        if lsn != self.lsn + 1:
            raise LinesMissing(f"the state is at LSN {self.lsn}, so entry {self.lsn + 1} comes next, not {lsn}")
        self.lsn = lsn
        if entry.effect:
            for change in unpack_effect(entry.effect):
                self._change(change, lsn)
        if fingerprints.differs(self.fingerprint, entry.fingerprint):
            raise StoreDiffers(
                f"LSN {lsn} leads to {fingerprints.text_of(self.fingerprint)}, and the entry says "
                f"{fingerprints.text_of(entry.fingerprint)}",
                lsn,
                self.fingerprint,
            )

    def recomputed(self) -> bytes:
        """The fingerprint from all items and counters, not from what was added up on the way."""
        total = 0
        for held in self.items.values():
            total ^= held.digest
        for queue, counts in self.counts.items():
            total ^= counts_digest(queue, counts)
        return fingerprints.packed(total)

    def repositories(self) -> list[str]:
        """Names of the repositories that exist, sorted."""
        return sorted(held.name for held in self.items.values() if held.store == GRAPH and not held.key)

    def _change(self, change: Change, lsn: Lsn) -> None:
        name = change[1]
        match change:
            case Put():
                row_key = row_key_of(change.table, change.key)
                digest = int.from_bytes(key_digest(row_key, change.value), "big")
                self._hold(key_item(row_key), Held(TABLE, name, change.key, change.value, "", 0, digest, lsn))
            case Delete():
                self._drop(key_item(row_key_of(change.table, change.key)))
            case QuadsChanged():
                self._quads(name, change.removed, change.added, lsn)
            case Published():
                self._publish(change, lsn)
            case Staged():
                self._unfold(change, lsn)
            case Accept():
                if self._drop(message_item(name, change.message_id)):
                    published, accepted = self.counts[name]
                    self._count(name, Counts(published, accepted + 1))
            case ControlAdd():
                digest = control_digest(Check(*change[1:]))
                held = Held(CONTROL, name, b"", msgpack.packb(change[2:]), "", 0, digest, lsn)
                self._hold(check_item(name), held)
            case ControlRemove():
                self._drop(check_item(name))
            case CreateRepository() | RemoveRepository() | Cleared():
                self._repository(change, lsn)

    def _repository(self, change: CreateRepository | RemoveRepository | Cleared, lsn: Lsn) -> None:
        name = change.repository
        digest = repository_digest(name)
        item = digest.to_bytes(DIGEST_BYTES, "big")
        if isinstance(change, CreateRepository):
            self._hold(item, Held(GRAPH, name, b"", b"", "", 0, digest, lsn))
        elif isinstance(change, RemoveRepository):
            self._drop(item)
        else:
            gone = [item for item, held in self.items.items() if held.store == GRAPH and held.name == name and held.key]
            # Of a large transaction, the change of its part does not say it.
            assert change.quads in {0, len(gone)}
            for item in gone:
                self._drop(item)

    def _unfold(self, change: Staged, lsn: Lsn) -> None:
        for number, (_, published) in enumerate(change.parts, 1):
            row_key = row_key_of(staging.TABLE, staging.part_key(change.name, number))
            for each in changes_in(change.name, self.items[key_item(row_key)].value, published):
                self._change(each, lsn)

    def _hold(self, item: bytes, held: Held) -> None:
        before = self.items.get(item)
        if before is not None:
            self._total ^= before.digest
        self.items[item] = held
        self._total ^= held.digest

    def _drop(self, item: bytes) -> bool:
        before = self.items.pop(item, None)
        if before is None:
            return False
        self._total ^= before.digest
        return True

    def _quads(self, repository: str, removed: Iterable[str], added: Iterable[str], lsn: Lsn) -> None:
        # The digest of a quad is its item, so one hash does for both, and the beginning is the same for all.
        beginning = blake2b(b"q" + repository.encode() + b"\0", digest_size=DIGEST_BYTES)
        for line in removed:
            state = beginning.copy()
            state.update(line.encode())
            self._drop(state.digest())
        for line in added:
            state = beginning.copy()
            text = line.encode()
            state.update(text)
            item = state.digest()
            self._hold(item, Held(GRAPH, repository, text, b"", "", 0, int.from_bytes(item, "big"), lsn))

    def _publish(self, change: Published, lsn: Lsn) -> None:
        _, queue, message_id, content_type, body = change
        item = message_item(queue, message_id)
        if item in self.items:
            return
        published, accepted = self.counts.get(queue, NEVER_USED)
        place = published + 1
        digest = message_digest(queue, place, Message(message_id, content_type, body))
        self._hold(item, Held(QUEUE, queue, message_id.encode(), body, content_type, place, digest, lsn))
        self._count(queue, Counts(place, accepted))

    def _count(self, queue: str, now: Counts) -> None:
        before = self.counts.get(queue)
        if before is not None:
            self._total ^= counts_digest(queue, before)
        self.counts[queue] = now
        self._total ^= counts_digest(queue, now)


def state_at(entries: Iterable[LogEntry], lsn: Lsn) -> State:
    """The state after the entries up to an LSN; 0 is the state of a new copy. What follows is left alone.

    Raises LinesMissing when the entries do not begin with LSN 1, have a gap or end before it, StoreDiffers.
    """
    state = State()
    for entry in entries if lsn else ():
        state.take(entry)
        if state.lsn >= lsn:
            break
    if state.lsn < lsn:
        raise LinesMissing(f"the entries end with LSN {state.lsn}, before {lsn}")
    return state
