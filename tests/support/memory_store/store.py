"""A store without files: the model in the contract tests.

It is as simple as the rules allow: dictionaries, one transaction after the other, no engine. Keys and repositories work as in
`WorkerStore`, to the last byte of effect, reason and fingerprint; of RDF it knows adding and removing N-Quads lines,
which it takes as they are, and refuses SPARQL.

No clock, no randomness, no file, and no order that depends on hashing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Self

from brokerha.model.control import Check
from brokerha.model.errors import InvalidRequest, Rejected, StoreDiffers
from brokerha.model.fingerprints import UNKNOWN, differs, packed
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.invariants import invariant
from brokerha.model.operation_checks import GRAPH, QUEUE
from brokerha.model.operations import (
    APPLIED,
    EXPECTATIONS,
    ON_KEYS,
    ON_QUEUES,
    ON_SNAPSHOTS,
    ON_STAGED,
    REJECTED,
    Accept,
    By,
    Change,
    Checked,
    Cleared,
    CommitStaged,
    CreateRepository,
    Delete,
    Logged,
    LoggedRow,
    OfQueue,
    OnKey,
    Published,
    Put,
    QuadsChanged,
    RemoveRepository,
    Result,
    operations_to_execute,
    pack_effect,
    unpack_effect,
)
from brokerha.model.outside.authors import taken_author
from brokerha.model.reserved import about, branches, staging, table_snapshots
from brokerha.ports.store import Applied, ReadAnswer
from brokerha.stores.comparing.fingerprint import text_of
from brokerha.stores.control.judge import judge
from brokerha.stores.control.suite import ControlChange, Suite
from brokerha.stores.execution.evaluation import CLEAR_ABOVE_QUADS, check_size, reason_of
from brokerha.stores.execution.last_changes import judge_expectations
from brokerha.stores.execution.prepared import BEGINNING, Prepared, changes_in, value_of
from brokerha.stores.execution.staged import BEGINNING as STAGED
from brokerha.stores.execution.staged import Parts, judged, part_rows
from brokerha.stores.tables.key_range import row_key_of
from brokerha.stores.tables.queue_change import QueueChange, check_room, order_of
from brokerha.stores.tables.snapshots import Snapshots, changes_of, copies_of, named_in
from tests.support.memory_store.image import MemoryImage, MemoryQueue
from tests.support.memory_store.quads import NO_SPARQL, changes_of_repositories, lines_of
from tests.support.memory_store.reading import read_image

_BY_COMMITS = {staging.TABLE, table_snapshots.TABLE}
_ELSEWHERE = (*ON_KEYS, *ON_QUEUES, *EXPECTATIONS, *ON_SNAPSHOTS)
"""Operations that are not about repositories or the control suite."""


class MemoryStore:
    """All data of one worker, in memory. Fulfils `ports.store.Store`."""

    def __init__(self, clear_above: int = CLEAR_ABOVE_QUADS) -> None:
        self._clear_above = clear_above
        self._stand_at(MemoryImage())

    def _stand_at(self, image: MemoryImage) -> None:
        self._image = image
        self._held: Prepared | None = None
        """What is prepared; None until it is looked for."""
        self._past: Snapshots | None = None
        """Its snapshots of tables, as well."""

    def restarted(self) -> Self:
        """The store after a crash: whatever `execute` or `apply` returned from is in it. This one is no part of it."""
        store = copy(self)
        store._stand_at(self._image.copy())
        return store

    @property
    def lineage(self) -> int:
        """Number of the log that this store followed."""
        return self._image.lineage

    def begin_lineage(self, lineage: int, lsn: Lsn = -1) -> None:
        """What comes from now on is of this lineage, and begins after ``lsn`` if that is lower than where this stands."""
        image = self._image
        image.lineage = lineage
        if 0 <= lsn < image.lsn:
            image.lsn, image.first_kept, image.lines = lsn, lsn + 1, []
            image.changed = {store: min(at, lsn) for store, at in image.changed.items()}

    def execute(self, first_lsn: Lsn, items: Sequence[tuple[TxId, Timestamp, bytes]]) -> list[Result]:
        """Execute transactions in order; those applied already are answered again."""
        skipped = min(self._skipped(first_lsn), len(items))
        known = self.logged(first_lsn, first_lsn + skipped - 1) if skipped else []
        invariant(len(known) == skipped, "results of what is executed again are kept", first_lsn=first_lsn)
        results = [Result(line.outcome, line.reason, line.effect, line.fingerprint) for line in known]
        image = self._image
        for txid, timestamp, body in items[skipped:]:
            outcome, reason, effect = self._execute(txid, timestamp, body)
            result = Result(outcome, reason, effect, packed(image.fingerprint))
            self._advance(Logged(txid, timestamp, *result))
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
            taken_author(changes)
            self._check(changes, line.fingerprint)
            self._make(changes)
            self._advance(line)

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[Logged]:
        """Lines that are there; none when ``first_lsn`` lies before them."""
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

    def read(self, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool] = lambda: True) -> ReadAnswer:
        """Answer a read of any kind but those that need SPARQL."""
        return read_image(self._image, kind, name, arguments, may_go_on)

    def recompute(self, paced: Callable[[int], None] = lambda _items: None) -> Applied:
        """Fingerprint and count from the data itself; ``paced`` hears how many items were looked at."""
        fingerprint, items = self._image.recomputed(paced)
        return Applied(self._image.lsn, text_of(fingerprint), items)

    def close(self) -> None:
        """Nothing to release."""

    def _skipped(self, first_lsn: Lsn) -> int:
        next_lsn = self._image.lsn + 1
        invariant(1 <= first_lsn <= next_lsn, "batches follow each other without a gap", first=first_lsn, next=next_lsn)
        return next_lsn - first_lsn

    def _advance(self, line: Logged) -> None:
        self._image.lsn += 1
        self._image.lines.append(line)

    def _check(self, changes: list[Change], wanted: bytes) -> None:
        """Raise StoreDiffers when these changes do not fit, or lead to another fingerprint; nothing is changed yet."""
        image = self._image
        lsn, fingerprint = image.lsn + 1, image.fingerprint
        queues: dict[str, MemoryQueue] = {}
        made = {change.repository for change in changes if isinstance(change, CreateRepository)}
        for change in changes:
            is_known = (
                not isinstance(change, (QuadsChanged, Cleared, RemoveRepository))
                or change.repository in made | image.repositories.keys()
            )
            if not is_known:
                raise StoreDiffers(f"LSN {lsn} changes repository {change[1]!r}, which is not here", lsn, UNKNOWN)
            if isinstance(change, (Published, Accept)):
                # Their counters go on with each change of one effect.
                queue = queues.setdefault(change.queue, image.queues.get(change.queue, MemoryQueue()).copy())
                fingerprint ^= queue.difference(change)
                queue.apply(change)
            else:
                fingerprint ^= image.difference(change)
        if differs(packed(fingerprint), wanted):
            raise StoreDiffers(f"LSN {lsn} leads to another content here than the log says", lsn, packed(fingerprint))

    def _execute(self, txid: TxId, timestamp: Timestamp, body: bytes) -> tuple[str, str, bytes]:
        by: list[By] = []
        try:
            branch = branches.branch_of(body)
            has_none = branch is not None and not branch.body
            operations = [] if has_none else operations_to_execute(body if branch is None else branch.body)
            by = taken_author(operations)
            if branch is None and any(isinstance(operation, ON_STAGED) for operation in operations):
                changes = self._changes_on_staged(txid, timestamp, operations, by)
            elif branch is None:
                changes, _ = self._changes(txid, operations)
            else:
                changes = self._changes_of_branch(branch, operations, by)
                by = taken_author(changes)
        except (InvalidRequest, Rejected) as error:
            return REJECTED, reason_of(error), pack_effect(by)
        self._make(changes)
        return APPLIED, "", pack_effect([*changes, *by])

    def _make(self, changes: list[Change]) -> None:
        self._image.note(changes)
        for change in changes:
            self._image.apply(change)
            if not isinstance(change, ON_KEYS):
                continue
            if self._held is not None and change.table == branches.TABLE:
                self._held.note(change)
            elif self._past is not None and change.table == table_snapshots.TABLE:
                self._past.note(change)

    @property
    def _prepared(self) -> Prepared:
        if self._held is None:
            self._held = Prepared(row for row in self._image.keys.items() if row[0].startswith(BEGINNING))
        return self._held

    @property
    def _snapshots(self) -> Snapshots:
        if self._past is None:
            self._past = self._image.snapshots()
        return self._past

    def _changes_of_branch(self, branch: branches.Branch, operations: list[Checked], by: list[By]) -> list[Change]:
        """What one step of a branch changes; nothing is changed yet. Raises Rejected, InvalidRequest."""
        key, prepared = branch.txid.encode(), self._prepared
        if branch.step == branches.PREPARE:
            if branch.txid in prepared:
                return []
            changes, after = self._changes(branch.txid, operations)
            # Copies for snapshots are made by the commit, and bodies of messages go with it.
            changes = [each for each in changes if not isinstance(each, ON_KEYS) or each.table not in _BY_COMMITS]
            value = value_of(operations, [*changes, *by], after, lines_of)
            prepared.judge_branch(branch.txid, value)
            return [Put("put", branches.TABLE, key, value), *by]
        if branch.txid not in prepared:
            if branch.step == branches.COMMIT:
                raise Rejected(f"transaction {branch.txid} is not prepared")
            return []
        kept = changes_in(self._image.keys[row_key_of(branches.TABLE, key)]) if branch.step == branches.COMMIT else []
        by = taken_author(kept)
        copies = copies_of(self._snapshots, kept, self._image.keys.get)
        left = self._parts().left_by(kept)
        return [*sorted([*kept, *copies, *left, Delete("delete", branches.TABLE, key)], key=order_of), *by]

    def _changes_on_staged(self, txid: TxId, timestamp: Timestamp, operations: list[Checked], by: list[By]) -> list[Change]:
        """What becomes of a large transaction; nothing is changed yet. Raises Rejected, InvalidRequest."""
        image, last = self._image, operations[-1]
        parts = self._parts()
        if not isinstance(last, CommitStaged):
            return parts.changes_of(operations, image.lsn + 1, timestamp, by)
        lsns = parts.committed(last, txid, by)
        self._judged_beside(txid, operations[:-1])
        rows = part_rows(image.keys.get, last.name, last.parts)
        held = {name: len(lines) for name, lines in image.repositories.items()}
        found = judged(last.name, lsns, rows, self._prepared, image.suite, self._snapshots, held)
        check_room(len(found.named(QUEUE) - image.queues.keys()), len(image.queues))
        changes: list[Change] = [QuadsChanged("quads", name, (), ()) for name in found.named(GRAPH)]
        self._judge(ControlChange(image.suite), found.keys, changes)
        return [found.change, *parts.deletes(last.name, found.bodies)]

    def _parts(self) -> Parts:
        return Parts(row for row in self._image.keys.items() if row[0].startswith(STAGED))

    def _changes(self, txid: TxId, operations: list[Checked]) -> tuple[list[Change], Suite]:
        """What the operations would change, minimal and sorted by kind, name and key, and the suite after it; nothing is changed yet."""
        keys: dict[bytes, OnKey] = {}
        on_repositories: list[Checked] = []
        control = ControlChange(self._image.suite)
        queues = self._judged_beside(txid, operations)
        for operation in operations:
            if isinstance(operation, ON_KEYS):
                keys[row_key_of(operation.table, operation.key)] = operation
                if operation.table == about.TABLE:
                    on_repositories.append(operation)
            elif isinstance(operation, RemoveRepository):
                self._drop_about(operation.repository, keys)
            if not isinstance(operation, _ELSEWHERE):
                on_repositories.append(operation)
        changes: list[Change] = []
        if on_repositories:
            changes = changes_of_repositories(self._image.repositories, on_repositories, control, self._clear_above)
        snapshots: list[OnKey] = []
        if self._snapshots or any(isinstance(operation, ON_SNAPSHOTS) for operation in operations):
            snapshots = changes_of(self._snapshots, operations, keys, self._image.lsn + 1, self._image.content())
        rest = [*queues, *changes, *control.changes()]
        check_size(keys.values(), [*rest, *snapshots])
        if self._prepared.branches:
            tables, directory = named_in(operations, snapshots)
            self._prepared.judge([*keys.values(), *rest, *directory])
            self._prepared.judge_snapshot(tables)
        for row_key, operation in keys.items():
            before = self._image.keys.get(row_key)
            if before != operation.after:
                changes.append(operation)
        self._judge(control, keys, changes)
        changes += [*control.changes(), *queues, *self._parts().left_by(queues), *snapshots]
        if len(changes) > 1:
            changes.sort(key=order_of)
        return changes, control.after()

    def _drop_about(self, repository: str, keys: dict[bytes, OnKey]) -> None:
        """What is kept about a repository goes with it, that of this transaction included."""
        beginning = row_key_of(about.TABLE, about.beginning_of(repository))
        for row_key in [row_key for row_key in (*self._image.keys, *keys) if row_key.startswith(beginning)]:
            keys[row_key] = Delete("delete", about.TABLE, row_key[len(about.TABLE) + 1 :])

    def _judged_beside(self, txid: TxId, operations: list[Checked]) -> list[OfQueue]:
        """Judge the expectations, then what becomes of queues; return their changes. Raises Rejected."""
        image = self._image
        judge_expectations(operations, image.before())
        change = QueueChange(txid, lambda queue, message_id: queue in image.queues and message_id in image.queues[queue].messages)
        for number, operation in enumerate(operations, 1):
            if isinstance(operation, ON_QUEUES):
                change.add(number, operation)
        changes = change.changes()
        check_room(len({each.queue for each in changes} - image.queues.keys()), len(image.queues))
        return changes

    def _judge(self, control: ControlChange, keys: dict[bytes, OnKey], changes: list[Change]) -> None:
        """Raise Rejected when a check that is touched does not hold any more, or could not be evaluated here."""

        def value_of(row_key: bytes) -> bytes | None:
            operation = keys.get(row_key)
            if operation is None:
                return self._image.keys.get(row_key)
            return operation.after

        def problems_of(_repository: str, _checks: list[Check]) -> dict[str, str]:
            raise Rejected(NO_SPARQL)

        after = control.after()
        touched = after.touched(keys.keys(), [change[1] for change in changes if not isinstance(change, ON_KEYS)])
        judge(after, touched | control.added(), value_of, problems_of)
