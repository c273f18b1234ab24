"""A store without files: the model in the contract tests, and the store of the simulator.

It is as simple as the rules allow: dictionaries, one transaction after the other, no engine. Keys and repositories work as in
`WorkerStore`, to the last byte of effect, reason and fingerprint; of RDF it knows adding and removing N-Quads lines,
which it takes as they are, and refuses SPARQL.

A simulated crash takes `image`, the durable state, and `from_image` starts again from it: whatever `execute` or `apply`
returned from is in the image. No clock, no randomness, no file, and no order that depends on hashing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import xor
from typing import cast

import msgpack

from brokerha.model.control import Check
from brokerha.model.errors import InvalidRequest, NotFound, Rejected, StoreDiffers, UnknownRepository
from brokerha.model.fingerprints import UNKNOWN, differs, packed
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.invariants import invariant
from brokerha.model.operations import (
    APPLIED,
    REJECTED,
    Change,
    Logged,
    LoggedRow,
    Operation,
    Result,
    pack_effect,
    unpack_effect,
    unpack_operations,
)
from brokerha.ports.store import Applied, ReadAnswer
from brokerha.stores.control import EMPTY, ON_CONTROL, ControlChange, Suite
from brokerha.stores.control_judge import judge
from brokerha.stores.fingerprint import key_digest, quads_digest, report, repository_digest, text_of
from brokerha.stores.key_range import KeyRange, in_pieces, row_key_of, wanted_row_key
from brokerha.stores.presence import Presence, reason_of

_ON_KEYS = frozenset({"put", "delete"})
_PACE_ITEMS = 1000
NO_SPARQL = "this store holds quads but does not evaluate SPARQL"


@dataclass(slots=True)
class _Image:
    """Everything durable."""

    keys: dict[bytes, bytes] = field(default_factory=dict)
    """Values by row key."""
    repositories: dict[str, set[str]] = field(default_factory=lambda: {"main": set()})
    fingerprint: int = repository_digest("main")
    suite: Suite = EMPTY
    items: int = 0
    lsn: Lsn = 0
    first_kept: Lsn = 1
    """LSN of the first of `lines`."""
    lines: list[Logged] = field(default_factory=list)
    executed: list[tuple[TxId, Lsn]] = field(default_factory=list)

    def copy(self) -> _Image:
        """An independent copy; what the containers hold never changes."""
        repositories = {name: set(lines) for name, lines in self.repositories.items()}
        return replace(
            self,
            keys=dict(self.keys),
            repositories=repositories,
            lines=list(self.lines),
            executed=list(self.executed),
        )


class _Overlay:
    """What a transaction does to the lines of one repository, which stay as they are meanwhile."""

    def __init__(self, lines: set[str]) -> None:
        self._lines = lines
        self.removed: set[str] = set()
        self.added: set[str] = set()

    def clear(self) -> None:
        """Take all lines away."""
        self.removed = set(self._lines)
        self.added = set()

    def change(self, kind: str, lines: Iterator[str]) -> None:
        """Add or remove lines, each net of what was done before."""
        gone, come = (self.removed, self.added) if kind == "add" else (self.added, self.removed)
        for line in lines:
            if line in gone:
                gone.discard(line)
            elif (line in self._lines) is (kind == "remove"):
                come.add(line)


class MemoryStore:
    """All data of one worker, in memory. Fulfils `ports.store.Store`."""

    def __init__(self, keep_results: int = 100_000) -> None:
        self._keep_results = keep_results
        self._image = _Image()

    @classmethod
    def from_image(cls, image: object, keep_results: int = 100_000) -> MemoryStore:
        """A store that stands where `image` was taken; the image stays as it is."""
        invariant(isinstance(image, _Image), "an image comes from MemoryStore.image")
        store = cls(keep_results)
        store._image = cast("_Image", image).copy()
        return store

    def image(self) -> object:
        """A copy of everything durable, for `from_image`."""
        return self._image.copy()

    @property
    def executed(self) -> Iterator[tuple[TxId, Lsn]]:
        """(transaction id, LSN) of everything executed here, in order; applied effects carry no transaction id."""
        return iter(self._image.executed)

    def execute(self, first_lsn: Lsn, items: Sequence[tuple[TxId, Timestamp, bytes]]) -> list[Result]:
        """Execute transactions in order; those applied already are answered again."""
        skipped = min(self._skipped(first_lsn), len(items))
        known = self.logged(first_lsn, first_lsn + skipped - 1) if skipped else []
        invariant(len(known) == skipped, "results of what is executed again are kept", first_lsn=first_lsn)
        results = [Result(line.outcome, line.reason, line.effect, line.fingerprint) for line in known]
        image = self._image
        for txid, timestamp, body in items[skipped:]:
            outcome, reason, effect = self._execute(body)
            result = Result(outcome, reason, effect, packed(image.fingerprint))
            self._advance(Logged(txid, timestamp, *result))
            image.executed.append((txid, image.lsn))
            results.append(result)
        return results

    def apply(self, first_lsn: Lsn, items: Sequence[LoggedRow]) -> None:
        """Apply lines of the log in order, leaving out those at or below the applied LSN.

        Raises StoreDiffers at the first line that leads to another content than it says: all before it is kept, nothing
        from it on.
        """
        for row in items[self._skipped(first_lsn) :]:
            line = Logged(*row)
            changes = unpack_effect(line.effect)
            self._check(changes, line.fingerprint)
            for change in changes:
                self._apply(change)
            self._advance(line)

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[Logged]:
        """Lines that are kept; none when ``first_lsn`` was trimmed."""
        image = self._image
        if first_lsn < image.first_kept:
            return []
        return image.lines[first_lsn - image.first_kept : last_lsn - image.first_kept + 1]

    def logged_from(self) -> Lsn:
        """Lowest LSN whose line is kept."""
        return self._image.first_kept

    def applied(self) -> Applied:
        """Where the store stands."""
        return Applied(self._image.lsn, text_of(self._image.fingerprint), self._image.items)

    def read(
        self, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool] = lambda: True
    ) -> ReadAnswer:
        """Answer a read: ``get``, ``range``, ``size``, ``statements``, ``fingerprint``, ``repositories`` or ``control``."""
        del may_go_on
        image = self._image
        if kind == "fingerprint":
            counts = {repository: len(lines) for repository, lines in image.repositories.items()}
            body, content_type = report(image.lsn, image.fingerprint, image.items, counts), "application/json"
        elif kind == "repositories":
            body, content_type = json.dumps(sorted(image.repositories)).encode(), "application/json"
        elif kind == "control":
            body, content_type = image.suite.report(), "application/json"
        elif kind == "get":
            body, content_type = self._get(wanted_row_key(name, arguments)), "application/octet-stream"
        elif kind == "range":
            body, content_type = msgpack.packb(self._range(KeyRange(name, arguments))), "application/x-msgpack"
        elif kind in {"size", "statements"}:
            lines = image.repositories.get(name)
            if lines is None:
                raise UnknownRepository(f"repository {name!r} does not exist")
            text = str(len(lines)) if kind == "size" else "".join(f"{line} .\n" for line in sorted(lines))
            body, content_type = text.encode(), "text/plain" if kind == "size" else "application/n-quads"
        else:
            raise InvalidRequest(NO_SPARQL)
        return ReadAnswer(content_type, image.lsn, in_pieces(body))

    def recompute(self, paced: Callable[[int], None] = lambda _items: None) -> Applied:
        """Fingerprint and count from the data itself; ``paced`` hears how many items were looked at."""
        image = self._image
        fingerprint, items = image.suite.fingerprint(), 0
        for row_key, value in image.keys.items():
            if items % _PACE_ITEMS == 0:
                paced(items)
            fingerprint ^= int.from_bytes(key_digest(row_key, value), "big")
            items += 1
        for name, lines in image.repositories.items():
            fingerprint ^= repository_digest(name) ^ quads_digest(name, _paced(lines, items, paced))
            items += len(lines)
        return Applied(image.lsn, text_of(fingerprint), items)

    def close(self) -> None:
        """Nothing to release."""

    def _skipped(self, first_lsn: Lsn) -> int:
        next_lsn = self._image.lsn + 1
        invariant(1 <= first_lsn <= next_lsn, "batches follow each other without a gap", first=first_lsn, next=next_lsn)
        return next_lsn - first_lsn

    def _advance(self, line: Logged) -> None:
        image = self._image
        image.lsn += 1
        image.lines.append(line)
        # Dropping many at once keeps the price of dropping small.
        if len(image.lines) >= 2 * self._keep_results:
            del image.lines[: -self._keep_results]
            image.first_kept = image.lsn - self._keep_results + 1

    def _check(self, changes: list[Change], wanted: bytes) -> None:
        """Raise StoreDiffers when these changes do not fit, or lead to another fingerprint; nothing is changed yet."""
        image = self._image
        lsn, fingerprint = image.lsn + 1, image.fingerprint
        made = {change[1] for change in changes if change[0] == "create-repository"}
        for change in changes:
            if change[0] in {"quads", "remove-repository"} and change[1] not in made | image.repositories.keys():
                raise StoreDiffers(f"LSN {lsn} changes repository {change[1]!r}, which is not here", lsn, UNKNOWN)
            fingerprint ^= self._difference(change)
        if differs(packed(fingerprint), wanted):
            raise StoreDiffers(f"LSN {lsn} leads to another content here than the log says", lsn, packed(fingerprint))

    def _execute(self, body: bytes) -> tuple[str, str, bytes]:
        try:
            changes = self._changes(unpack_operations(body))
        except (InvalidRequest, Rejected) as error:
            return REJECTED, reason_of(error), b""
        for change in changes:
            self._apply(change)
        return APPLIED, "", pack_effect(changes)

    def _changes(self, operations: list[Operation]) -> list[Change]:
        """What the operations would change, minimal and sorted by kind, name and key; nothing is changed yet."""
        keys: dict[bytes, Operation] = {}
        on_repositories: list[Operation] = []
        control = ControlChange(self._image.suite)
        for operation in operations:
            if operation[0] in _ON_KEYS:
                keys[row_key_of(operation[1], operation[2])] = operation
            else:
                on_repositories.append(operation)
        changes: list[Change] = []
        if on_repositories:
            changes = self._changes_of_repositories(on_repositories, control)
        for row_key, operation in keys.items():
            before = self._image.keys.get(row_key)
            if before is not None if operation[0] == "delete" else before != operation[3]:
                changes.append(operation)
        self._judge(control, keys, changes)
        changes += control.changes()
        if len(changes) > 1:
            changes.sort(key=lambda change: change[:3] if change[0] in _ON_KEYS else change[:2])
        return changes

    def _judge(self, control: ControlChange, keys: dict[bytes, Operation], changes: list[Change]) -> None:
        """Raise Rejected when a check that is touched does not hold any more, or could not be evaluated here."""

        def value_of(row_key: bytes) -> bytes | None:
            operation = keys.get(row_key)
            if operation is None:
                return self._image.keys.get(row_key)
            return cast("bytes", operation[3]) if operation[0] == "put" else None

        def problems_of(_repository: str, _checks: list[Check]) -> dict[str, str]:
            raise Rejected(NO_SPARQL)

        after = control.after()
        touched = after.touched(keys.keys(), [change[1] for change in changes if change[0] not in _ON_KEYS])
        judge(after, touched | control.added(), value_of, problems_of)

    def _changes_of_repositories(self, operations: list[Operation], control: ControlChange) -> list[Change]:
        quads: dict[str, _Overlay] = {}
        presence = Presence(self._image.repositories)
        for operation in operations:
            kind, name = operation[0], operation[1]
            if kind in ON_CONTROL:
                control.add(operation)
                continue
            if kind == "create-repository":
                presence.create(name)
                continue
            presence.check(name)
            if name not in quads:
                quads[name] = _Overlay(self._image.repositories.get(name, set()))
            if kind == "update":
                raise Rejected(NO_SPARQL)
            if kind == "remove-repository":
                presence.remove(name)
                quads[name].clear()
            else:
                quads[name].change(kind, _lines_of(operation[2]))
        changes: list[Change] = [("create-repository", name) for name in presence.created()]
        changes += [("remove-repository", name) for name in presence.removed()]
        for name, overlay in quads.items():
            if overlay.removed or overlay.added:
                changes.append(("quads", name, sorted(overlay.removed), sorted(overlay.added)))
        return changes

    def _difference(self, change: Change) -> int:
        """What a change would do to the fingerprint."""
        kind, name = change[0], change[1]
        if kind in _ON_KEYS:
            row_key = row_key_of(name, change[2])
            digests = [key_digest(row_key, change[3])] if kind == "put" else []
            old = self._image.keys.get(row_key)
            if old is not None:
                digests.append(key_digest(row_key, old))
            return reduce(xor, (int.from_bytes(digest, "big") for digest in digests), 0)
        if kind == "quads":
            return quads_digest(name, change[2]) ^ quads_digest(name, change[3])
        if kind in ON_CONTROL:
            suite = self._image.suite
            return suite.fingerprint() ^ suite.changed(change).fingerprint()
        return repository_digest(name)

    def _apply(self, change: Change) -> None:
        image = self._image
        image.fingerprint ^= self._difference(change)
        kind, name = change[0], change[1]
        if kind == "put":
            row_key = row_key_of(name, change[2])
            image.items += row_key not in image.keys
            image.keys[row_key] = change[3]
        elif kind == "delete":
            image.items -= image.keys.pop(row_key_of(name, change[2]), None) is not None
        elif kind == "quads":
            lines = image.repositories[name]
            lines -= set(change[2])
            lines |= set(change[3])
            image.items += len(change[3]) - len(change[2])
        elif kind in ON_CONTROL:
            image.suite = image.suite.changed(change)
        elif kind == "create-repository":
            image.repositories[name] = set()
        else:
            del image.repositories[name]

    def _get(self, row_key: bytes) -> bytes:
        value = self._image.keys.get(row_key)
        if value is None:
            raise NotFound("there is no such key")
        return value

    def _range(self, wanted: KeyRange) -> list[tuple[bytes, bytes]]:
        found = sorted(row_key for row_key in self._image.keys if wanted.low <= row_key < wanted.high)
        if wanted.is_reverse:
            found.reverse()
        return [(row_key[wanted.skip :], self._image.keys[row_key]) for row_key in found[: wanted.limit]]


def _paced(lines: set[str], before: int, paced: Callable[[int], None]) -> Iterator[str]:
    """The same lines; says how many there were now and then, those of elsewhere before them included."""
    for number, line in enumerate(lines):
        if number % _PACE_ITEMS == 0:
            paced(before + number)
        yield line


def _lines_of(text: str) -> Iterator[str]:
    """The lines of N-Quads text without their final dots. Raises Rejected for a line without one."""
    for number, line in enumerate(text.splitlines(), 1):
        quad = line.strip()
        if not quad or quad.startswith("#"):
            continue
        if not quad.endswith("."):
            raise Rejected(f"line {number} of the quads does not end with a dot")
        yield quad[:-1].rstrip()
