"""Transactions on their way to the next commit: one LMDB write transaction, and the changes that wait for the repositories.

    execute / apply   ...   execute / apply   commit
                                                |  results, keys, state row: one LMDB commit, one fsync
                                                |  then `committed`: the repositories follow, readers see it

Fingerprint and count are updated with each change. Each line of the log holds the fingerprint after it: executing writes it,
applying compares it. The owner abandons a batch that raised: all of it since the last commit is dropped. Must never hand a change
to a repository before the LMDB commit that records it. Must never commit a line that differs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from brokerha.model.errors import InvalidRequest, Rejected, StoreDiffers
from brokerha.model.fingerprints import UNKNOWN, differs, packed
from brokerha.model.fingerprints import text_of as shown
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.operation_checks import GRAPH, QUEUE
from brokerha.model.operations import (
    APPLIED,
    EXPECTATIONS,
    ON_KEYS,
    ON_QUEUES,
    ON_SNAPSHOTS,
    REJECTED,
    Accept,
    By,
    Change,
    Checked,
    Cleared,
    CommitStaged,
    ControlAdd,
    ControlRemove,
    CreateRepository,
    Delete,
    LoggedRow,
    OfQueue,
    OnControl,
    OnKey,
    Published,
    Put,
    QuadsChanged,
    RemoveRepository,
    Result,
    Staged,
    operations_to_execute,
    pack_effect,
    unpack_effect,
)
from brokerha.model.outside.authors import taken_author
from brokerha.model.reserved import about, branches, staging, table_snapshots
from brokerha.stores.comparing.fingerprint import quads_digest, repository_digest
from brokerha.stores.control.judge import judge, judge_evaluation
from brokerha.stores.control.suite import keep
from brokerha.stores.execution.effects_log import EffectsLog
from brokerha.stores.execution.evaluation import Evaluation, check_size, reason_of
from brokerha.stores.execution.last_changes import Before, LastChanges, judge_expectations, range_digest
from brokerha.stores.execution.prepared import Prepared, value_of
from brokerha.stores.execution.prepared import changes_in as changes_prepared
from brokerha.stores.execution.staged import Judged, Parts, changes_of_parts, judged, part_rows, parts_of
from brokerha.stores.execution.state import StoreState, write_state
from brokerha.stores.files.environment import Environment, WriteTransaction
from brokerha.stores.rdf.change import PendingQuads, QuadChange, read_nquads
from brokerha.stores.rdf.drafts import Draft, Drafts
from brokerha.stores.rdf.repositories import Repositories, Repository
from brokerha.stores.tables.key_range import row_key_of
from brokerha.stores.tables.key_value import (
    delete_row,
    keys_from,
    put_row,
    range_digests,
    rows_as_they_lie,
    stored_value,
    table_names,
)
from brokerha.stores.tables.queue_change import QueueChange, check_room, order_of
from brokerha.stores.tables.queues import Queues
from brokerha.stores.tables.snapshots import Content, Snapshots, changes_of, copies_of, named_in

COMMIT_LIMIT_BYTES = 64 * 1024 * 1024
"""A batch commits early when its effects reach this size, so that its memory is bounded."""

_NOTED = frozenset({branches.TABLE, staging.TABLE, table_snapshots.TABLE})
"""Tables whose content `Books` holds in memory too."""
_STAGING = staging.KINDS
"""Operations that begin or end a transaction about a large one."""
_BESIDE = (*ON_QUEUES, *EXPECTATIONS, *ON_SNAPSHOTS)
"""Operations that need no evaluation and are not on keys."""

_Judged = tuple[dict[bytes, OnKey], list[OfQueue], Evaluation | None, list[OnKey]]
"""An accepted transaction: its last operation on each key, its changes of queues, the evaluation of other operations (if any),
and its changes of the table of snapshots."""


class Books(NamedTuple):
    """Content of reserved tables in memory, in step with them."""

    prepared: Prepared
    snapshots: Snapshots
    parts: Parts


class Batch:
    """Execution or application of transactions in LSN order, with a common commit."""

    def __init__(
        self,
        environment: Environment,
        log: EffectsLog,
        repositories: Repositories,
        state: StoreState,
        books: Books,
        drafts: Drafts,
        committed: Callable[[StoreState], None],
        clear_above: int,
    ) -> None:
        self._environment = environment
        self._keys = environment.keys
        self._queues = Queues(environment)
        self._changes = LastChanges(environment.changes)
        self._log = log
        self._repositories = repositories
        self.books = books
        self._prepared, self._snapshots, self._parts = books
        self._drafts = drafts
        self._committed = committed
        self._clear_above = clear_above
        self._lsn = state.lsn
        self._fingerprint = state.fingerprint
        self._items = state.items
        self._suite = state.suite
        self._transaction: WriteTransaction | None = None
        self._lines: list[LoggedRow] = []
        self._size_bytes = 0
        self.staged: set[TxId] = set()
        """Large transactions with newly staged parts."""
        self.logged_bytes = 0
        """Bytes of effects committed by this batch."""

    def execute(self, txid: TxId, timestamp: Timestamp, body: bytes) -> Result:
        """Execute the transaction at the next LSN. Raises StoreError."""
        outcome, reason, effect = self._outcome(txid, timestamp, body)
        fingerprint = packed(self._fingerprint)
        self._advance((txid, timestamp, outcome, reason, effect, fingerprint))
        return Result(outcome, reason, effect, fingerprint)

    def _outcome(self, txid: TxId, timestamp: Timestamp, body: bytes) -> tuple[str, str, bytes]:
        """Put the changes of a transaction into the batch; return its outcome, reason and effect."""
        by: list[By] = []
        try:
            branch = branches.branch_of(body) if body[:1] == branches.FIRST else None
            # Only a prepare carries operations; the other two steps of a branch name it.
            has_none = branch is not None and not branch.body
            operations = [] if has_none else operations_to_execute(body if branch is None else branch.body)
            by = taken_author(operations)
            if branch is not None:
                return APPLIED, "", self._step_of(branch, timestamp, operations, by)
            if operations and (operations[0][0] in _STAGING or operations[-1][0] in _STAGING):
                return APPLIED, "", self._on_staged(txid, timestamp, operations, by)
            keys, queues, evaluation, snapshots = self._judged(txid, timestamp, operations)
        except (InvalidRequest, Rejected) as error:
            return REJECTED, reason_of(error), pack_effect(by)
        changes: list[Change] = [*self._keep_keys(keys)]
        for change in snapshots:
            self._make(change, self._lsn + 1)
            changes.append(change)
        for of_queue in queues:
            self._count(self._queues.keep(self._begun(), of_queue))
            changes.append(of_queue)
        # Few transactions take messages, and each call costs time.
        for left in self._parts.left_by(queues) if queues else ():
            self._make(left, self._lsn + 1)
            changes.append(left)
        if evaluation is not None:
            changes += self._keep_repositories(evaluation)
        if len(changes) > 1:
            # Kind, name and key suffice: no two changes of one effect share them.
            changes.sort(key=order_of)
        self._changes.note(changes, self._lsn + 1)
        return APPLIED, "", pack_effect([*changes, *by])

    def _judged(self, txid: TxId, timestamp: Timestamp, operations: list[Checked]) -> _Judged:
        """Judge a whole transaction, without keeping any change. Raises InvalidRequest, Rejected, StoreError."""
        # No operation reads keys, so only the last one on each key counts, and none of them can fail.
        keys: dict[bytes, OnKey] = {}
        queues: list[OfQueue] = []
        others: list[tuple[int, Checked]] = []
        for number, operation in enumerate(operations, 1):
            if isinstance(operation, ON_KEYS):
                keys[row_key_of(operation.table, operation.key)] = operation
                if operation.table == about.TABLE:
                    others.append((number, operation))
                continue
            if isinstance(operation, RemoveRepository):
                self._drop_about(operation.repository, keys)
            others.append((number, operation))
        # Most transactions are about keys only and need no evaluation.
        evaluation: Evaluation | None = None
        snapshots: list[OnKey] = []
        try:
            if others:
                queues = self._judged_beside(txid, others)
                evaluation = self._evaluated(txid, timestamp, others)
            if self._snapshots or any(isinstance(operation, ON_SNAPSHOTS) for _, operation in others):
                snapshots = self._of_snapshots(operations, keys)
            rest = queues + evaluation.changes if evaluation is not None else queues
            check_size(keys.values(), [*rest, *snapshots])
            if self._prepared.branches:
                tables, directory = named_in(operations, snapshots)
                self._prepared.judge([*keys.values(), *rest, *directory])
                self._prepared.judge_snapshot(tables)
            if evaluation is not None or not self._suite.row_keys.isdisjoint(keys):
                judge_evaluation(self._suite, keys, evaluation, self._stored)
        except (InvalidRequest, Rejected):
            if evaluation is not None:
                evaluation.discard()
            raise
        return keys, queues, evaluation, snapshots

    def _of_snapshots(self, operations: list[Checked], keys: dict[bytes, OnKey]) -> list[OnKey]:
        """Return a transaction's changes of the table of snapshots. Raises Rejected, StoreError."""
        transaction = self._begun()
        content = Content(
            self._stored,
            lambda beginning: rows_as_they_lie(transaction, self._keys, beginning),
            lambda: table_names(transaction, self._keys),
        )
        return changes_of(self._snapshots, operations, keys, self._lsn + 1, content)

    def _step_of(self, branch: branches.Branch, timestamp: Timestamp, operations: list[Checked], by: list[By]) -> bytes:
        """Take one step of a branch; return its effect. Raises InvalidRequest, Rejected, StoreError."""
        txid, key = branch.txid, branch.txid.encode()
        is_prepared = txid in self._prepared
        if branch.step == branches.PREPARE:
            # A repeated prepare, long after its id was forgotten, changes nothing.
            if is_prepared:
                return b""
            return self._made([Put("put", branches.TABLE, key, self._value_of(txid, timestamp, operations, by))], by)
        if not is_prepared:
            if branch.step == branches.COMMIT:
                raise Rejected(f"transaction {txid} is not prepared")
            return b""
        changes: list[Change] = [Delete("delete", branches.TABLE, key)]
        if branch.step == branches.COMMIT:
            kept = changes_prepared(self._stored(row_key_of(branches.TABLE, key)) or b"")
            by = taken_author(kept)
            changes += kept
            if self._snapshots:
                changes += copies_of(self._snapshots, kept, self._stored)
            changes += self._parts.left_by(kept)
        return self._made(sorted(changes, key=order_of), by)

    def _value_of(self, txid: TxId, timestamp: Timestamp, operations: list[Checked], by: list[By]) -> bytes:
        """Judge a branch, and return the value to keep. Raises InvalidRequest, Rejected, StoreError."""
        keys, queues, evaluation, _ = self._judged(txid, timestamp, operations)
        changes: list[Change] = [*queues]
        after = self._suite
        for row_key, operation in keys.items():
            before = self._stored(row_key)
            if before != operation.after:
                changes.append(operation)
        if evaluation is not None:
            changes += evaluation.changes
            after = evaluation.control.after()
            evaluation.discard()
        value = value_of(operations, [*sorted(changes, key=order_of), *by], after, read_nquads)
        self._prepared.judge_branch(txid, value)
        return value

    def _made(self, changes: list[Change], by: list[By]) -> bytes:
        """Make accepted changes; return them as an effect."""
        for change in changes:
            self._make(change, self._lsn + 1)
        self._changes.note(changes, self._lsn + 1)
        return pack_effect([*changes, *by])

    def apply(self, line: LoggedRow) -> None:
        """Apply the line of the log at the next LSN. Raises StoreError, StoreDiffers."""
        lsn = self._lsn + 1
        changes = unpack_effect(line[4])
        taken_author(changes)
        for change in changes:
            self._make(change, lsn)
        own = packed(self._fingerprint)
        if differs(own, line[5]):
            raise StoreDiffers(
                f"LSN {lsn} leads to fingerprint {shown(own)} here, the log says {shown(line[5])}: "
                "this copy is not like the others",
                lsn,
                own,
            )
        self._changes.note(changes, lsn)
        self._advance(line)

    def _make(self, change: Change, lsn: Lsn) -> None:
        """Make one change of an effect. Raises StoreError, StoreDiffers."""
        match change:
            case Put() | Delete():
                row_key = row_key_of(change.table, change.key)
                if isinstance(change, Put):
                    self._count(put_row(self._begun(), self._keys, row_key, change.value))
                else:
                    self._count(delete_row(self._begun(), self._keys, row_key))
                if change.table in _NOTED:
                    self._note(change)
            case QuadsChanged():
                self._include(self._known(change.repository, lsn), QuadChange(change.removed, change.added))
            case Cleared():
                self._clear(self._known(change.repository, lsn), self._repositories.make(change.repository, lsn))
            case CreateRepository():
                self._list(self._repositories.make(change.repository, lsn))
            case RemoveRepository():
                self._retire(self._known(change.repository, lsn).name)
            case Published() | Accept():
                self._count(self._queues.keep(self._begun(), change))
            case Staged():
                self._take_place(change, self._drafts_of(change))
            case ControlAdd() | ControlRemove():
                self._keep_control(change)

    def _note(self, change: OnKey) -> None:
        if change.table == branches.TABLE:
            self._prepared.note(change)
        elif change.table == staging.TABLE:
            self._parts.note(change)
            if isinstance(change, Put):
                self.staged.add(staging.part_of(change.key)[0])
        else:
            self._snapshots.note(change)

    # ---- large transactions

    def _on_staged(self, txid: TxId, timestamp: Timestamp, operations: list[Checked], by: list[By]) -> bytes:
        """Stage a part, drop or commit a large transaction; return the effect. Raises InvalidRequest, Rejected, StoreError."""
        last = operations[-1]
        if not isinstance(last, CommitStaged):
            return self._made(self._parts.changes_of(operations, self._lsn + 1, timestamp, by), by)
        lsns = self._parts.committed(last, txid, by)
        self._judged_beside(txid, list(enumerate(operations[:-1], 1)))
        rows = part_rows(self._stored, last.name, last.parts)
        held = {name: repository.items for name, repository in self._repositories.listed.items()}
        found = judged(last.name, lsns, rows, self._prepared, self._suite, self._snapshots, held)
        transaction = self._begun()
        new = sum(not self._queues.is_known(transaction, queue) for queue in found.named(QUEUE))
        check_room(new, self._queues.number(transaction))
        # The transaction has changed nothing yet, so waiting changes can be committed.
        drafts = self._drafts_of(found.change)
        self._judge_suite(drafts, found)
        deletes = self._parts.deletes(last.name, found.bodies)
        self._take_place(found.change, drafts)
        for change in deletes:
            self._make(change, self._lsn + 1)
        return pack_effect([found.change, *deletes, *by])

    def _judge_suite(self, drafts: list[Draft], found: Judged) -> None:
        """Raise Rejected when a check fails after a large transaction. Raises StoreError."""
        engines = {draft.repository.name: draft.repository.engine for draft in drafts}

        def value_of(row_key: bytes) -> bytes | None:
            operation = found.keys.get(row_key)
            return self._stored(row_key) if operation is None else operation.after

        names = self._suite.touched(found.keys.keys(), found.named(GRAPH))
        judge(self._suite, names, value_of, lambda name, checks: engines[name].problems(checks, PendingQuads()))

    def _drafts_of(self, staged: Staged) -> list[Draft]:
        """Return the repositories after a large transaction. Raises StoreError."""
        self.commit()
        name = staged.name
        return self._drafts.finished(
            name, len(staged.parts), parts_of(self._stored, name), partial(self._log.effects_from, self._begun()), self._lsn
        )

    def _take_place(self, staged: Staged, drafts: list[Draft]) -> None:
        """Make the changes of a staged large transaction, at the next LSN. Raises StoreError."""
        lsn = self._lsn + 1
        for draft in drafts:
            repository = draft.repository
            repository.engine.commit((), (), lsn)
            # The engine must be durable before the record that names it.
            repository.engine.flush()
            repository.flushed_position = repository.base_lsn = lsn
            before = self._repositories.listed[repository.name]
            repository.items = draft.items if draft.is_cleared else before.items + draft.items
            repository.digest = draft.digest if draft.is_cleared else before.digest ^ draft.digest
            self._repositories.replace(repository)
            self._count((before.digest ^ repository.digest, repository.items - before.items))
        self._drafts.taken(staged.name)
        rows = part_rows(self._stored, staged.name, len(staged.parts))
        for change in changes_of_parts(staged, rows, with_quads=False):
            if not isinstance(change, (QuadsChanged, Cleared)):
                self._make(change, lsn)
        self._changes.note_stores((store[:2] for store in staged.stores), lsn)

    def commit(self) -> None:
        """Make all changes so far durable and hand them on. Raises StoreError."""
        if not self._lines:
            return
        state = StoreState(self._lsn, self._fingerprint, self._items, self._repositories.states(), self._suite)
        transaction = self._begun()
        self._log.append(transaction, self._lsn - len(self._lines) + 1, self._lines)
        self._changes.write(transaction)
        write_state(transaction, self._environment.meta, state)
        transaction.commit()
        self._transaction = None
        self._lines = []
        self.logged_bytes += self._size_bytes
        self._size_bytes = 0
        self._committed(state)

    def abandon(self) -> None:
        """Drop all changes since the last commit from LMDB; the owner rolls the repositories back."""
        if self._transaction is not None:
            self._transaction.abort()
            self._transaction = None

    def _begun(self) -> WriteTransaction:
        if self._transaction is None:
            self._transaction = self._environment.lmdb.begin(write=True)
        return self._transaction

    def _advance(self, line: LoggedRow) -> None:
        self._lsn += 1
        self._lines.append(line)
        self._size_bytes += len(line[4])
        if self._size_bytes > COMMIT_LIMIT_BYTES:
            self.commit()

    def _evaluated(self, txid: TxId, timestamp: Timestamp, others: list[tuple[int, Checked]]) -> Evaluation | None:
        """Evaluate the operations on repositories and on the control suite, if any. Raises Rejected, StoreError."""
        operations = [(number, operation) for number, operation in others if not isinstance(operation, _BESIDE)]
        if not operations:
            return None
        evaluation = Evaluation(
            self._repositories, self._lsn + 1, txid, timestamp, self.commit, self._suite, self._is_union, self._clear_above
        )
        try:
            for number, operation in operations:
                evaluation.add(number, operation)
            evaluation.finish()
        except (InvalidRequest, Rejected):
            evaluation.discard()
            raise
        return evaluation

    def _is_union(self, repository: str) -> bool:
        return self._stored(row_key_of(about.TABLE, about.setting_key(repository, about.UNION))) is not None

    def _judged_beside(self, txid: TxId, others: list[tuple[int, Checked]]) -> list[OfQueue]:
        """Judge the expectations, then the operations on queues; return the changes of queues. Raises Rejected, StoreError."""
        beside = [(number, operation) for number, operation in others if isinstance(operation, _BESIDE)]
        if not beside:
            return []
        transaction = self._begun()
        before = Before(
            self._stored,
            lambda kind, name: self._changes.lsn_of(transaction, kind, name),
            packed(self._fingerprint),
            lambda low, high: range_digest(range_digests(transaction, self._keys, low, high)),
        )
        judge_expectations([operation for _, operation in beside], before)
        change = QueueChange(txid, lambda queue, message_id: self._queues.holds(transaction, queue, message_id))
        for number, operation in beside:
            if isinstance(operation, ON_QUEUES):
                change.add(number, operation)
        changes = change.changes()
        made = {each.queue for each in changes if isinstance(each, Published)}
        check_room(sum(not self._queues.is_known(transaction, queue) for queue in made), self._queues.number(transaction))
        return changes

    def _keep_keys(self, keys: dict[bytes, OnKey]) -> list[OnKey]:
        """Put the last operation on each key into the batch; return the operations that changed a value."""
        if not keys:
            return []
        transaction = self._begun()
        changes: list[OnKey] = []
        for row_key, operation in keys.items():
            if isinstance(operation, Put):
                difference = put_row(transaction, self._keys, row_key, operation.value)
            else:
                difference = delete_row(transaction, self._keys, row_key)
            if difference is not None:
                self._count(difference)
                changes.append(operation)
        return changes

    def _drop_about(self, repository: str, keys: dict[bytes, OnKey]) -> None:
        """Delete the namespaces and settings of a repository, including those of this transaction."""
        beginning = row_key_of(about.TABLE, about.beginning_of(repository))
        held = keys_from(self._begun(), self._keys, beginning)
        for row_key in [*held, *(row_key for row_key in keys if row_key.startswith(beginning))]:
            keys[row_key] = Delete("delete", about.TABLE, row_key[len(about.TABLE) + 1 :])

    def _keep_repositories(self, evaluation: Evaluation) -> list[Change]:
        """Put the result of an evaluation into the batch; return it as changes."""
        evaluation.discard_unused()
        for change in evaluation.changes:
            match change:
                case Cleared():
                    self._clear(self._repositories.listed[change.repository], evaluation.repository(change.repository))
                case CreateRepository():
                    self._list(evaluation.repository(change.repository))
                case QuadsChanged():
                    self._include(evaluation.repository(change.repository), QuadChange(change.removed, change.added))
                case RemoveRepository():
                    self._retire(change.repository)
                case ControlAdd() | ControlRemove():
                    self._keep_control(change)
        return evaluation.changes

    def _keep_control(self, change: OnControl) -> None:
        self._suite, difference = keep(self._begun(), self._environment.control, self._suite, change)
        self._count((difference, 0))

    def _stored(self, row_key: bytes) -> bytes | None:
        return stored_value(self._begun(), self._keys, row_key)

    def _known(self, name: str, lsn: Lsn) -> Repository:
        repository = self._repositories.listed.get(name)
        if repository is None:
            raise StoreDiffers(
                f"LSN {lsn} changes repository {name!r}, which is not here: this copy is not like the others", lsn, UNKNOWN
            )
        return repository

    def _count(self, difference: tuple[int, int] | None) -> None:
        if difference is not None:
            self._fingerprint ^= difference[0]
            self._items += difference[1]

    def _include(self, repository: Repository, change: QuadChange) -> None:
        repository.pending.include(change)
        digest = quads_digest(repository.name, change.removed) ^ quads_digest(repository.name, change.added)
        count = len(change.added) - len(change.removed)
        repository.items += count
        repository.digest ^= digest
        self._count((digest, count))

    def _clear(self, before: Repository, empty: Repository) -> None:
        """Replace a repository by an empty one; its files are deleted after the commit."""
        self._count((before.digest, -before.items))
        self._repositories.retire(before.name)
        self._repositories.listed[empty.name] = empty

    def _list(self, repository: Repository) -> None:
        self._repositories.listed[repository.name] = repository
        self._count((repository_digest(repository.name), 0))

    def _retire(self, name: str) -> None:
        self._repositories.retire(name)
        self._count((repository_digest(name), 0))
