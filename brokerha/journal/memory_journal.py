"""MemoryJournal: a journal without a disk, for the simulator and for tests.

It behaves like `LmdbJournal`, record for record, and says how in the simplest words: lists and dictionaries, no
indexes to keep, nothing to recover. The two are compared with each other in the tests, so it is also the description
that the other one is measured by. It asks no operating system, no clock and no source of randomness, and its name is
given: equal inputs give equal answers in every process.

What `append` was given is "on disk" when it returns; a crash of the node loses what was not appended yet:

    journal = MemoryJournal("m1", "journal-of-m1")
    disk = journal.image()                  # may be taken at any time and used many times
    journal = MemoryJournal.from_image(disk)

`is_full` makes the next appends fail like a full disk: with `JournalFull`, and nothing written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from brokerha.journal.beginning import Beginning
from brokerha.journal.decisions import Decision
from brokerha.journal.limits import FORGET_AT_ONCE, MARK_LSNS, TRIM_LSNS, TRIM_RECORDS
from brokerha.journal.memory_content import Content, JournalImage, content_at
from brokerha.journal.memory_history import MemoryHistory
from brokerha.journal.memory_rewinds import forget_loose, go_back, in_order
from brokerha.model.codec import encode_record
from brokerha.model.errors import JournalError, JournalFull
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.invariants import invariant
from brokerha.model.operations import REJECTED, Result
from brokerha.model.records import (
    Accepted,
    Added,
    Appended,
    BodiesHeld,
    EpochInstalled,
    IdsTaken,
    MasterState,
    Outcomes,
    Rebased,
    Record,
    Rewound,
    StateTaken,
    StreamState,
    TxPrepared,
)


class MemoryJournal(MemoryHistory):
    """A `ports.Journal` of node ``node`` with the given journal name."""

    def __init__(self, node: NodeId, name: str, begin_at: Beginning | None = None) -> None:
        self._node = node
        self._name = name
        super().__init__(Content() if begin_at is None else content_at(begin_at))
        self._is_closed = False
        self._durable: Content | None = None
        """What a crash leaves, while records are deferred."""
        self._forgotten_below: Lsn = 0
        self.is_full = False
        """Whether appends fail, as on a full disk."""

    @classmethod
    def from_image(cls, image: JournalImage) -> MemoryJournal:
        """Return the journal that a restart finds; the image stays as it is."""
        journal = cls(image.node, image.name)
        journal._content = image.content.copy()
        return journal

    def image(self) -> JournalImage:
        """Return what is durable now; later appends do not change it."""
        durable = self._content if self._durable is None else self._durable
        return JournalImage(self._node, self._name, durable.copy())

    def append(self, records: Sequence[Record]) -> None:
        """Write all records of a turn. Raises JournalFull when `is_full`; InvariantBroken when they do not follow."""
        self._check_writable()
        for record in records:
            self._take(self._content.next_number, record)
        self._durable = None

    def defer(self, records: Sequence[Record]) -> None:
        """Take records that are durable with the next ones. Raises as `append` does."""
        self._check_writable()
        if self._durable is None:
            self._durable = self._content.copy()
        for record in records:
            self._take(self._content.next_number, record)

    def settle(self) -> None:
        """Make durable what was deferred. Raises JournalFull when `is_full`; then it is lost."""
        if self._durable is not None:
            self.append(())

    def follow(self, records: Sequence[tuple[int, Record]]) -> None:
        """Write records of another process under its numbers, which grow. Raises as `append` does."""
        self._check_writable()
        self.settle()
        for number, record in records:
            following = self._content.next_number
            invariant(number >= following, "numbers of records grow", number=number, following=following)
            self._take(number, record)

    def promise(self, view: int) -> None:
        """Remember that this process promised to a view. Raises JournalFull when `is_full`."""
        self._check_writable()
        self.settle()
        self._content.promised_view = max(view, self._content.promised_view)

    def _check_writable(self) -> None:
        if self._is_closed:
            raise JournalError(f"journal {self._name} is closed")
        if self.is_full:
            self._content, self._durable = self._durable or self._content, None
            raise JournalFull(f"journal {self._name} is full")

    def _take(self, number: int, record: Record) -> None:
        content = self._content
        if isinstance(record, Added):
            self._added(number, record)
        elif isinstance(record, EpochInstalled):
            self._installed(number, record)
        elif isinstance(record, StateTaken):
            self._taken(number, record)
        else:
            content.current.advance(record, number)
            if isinstance(record, Accepted):
                self._accepted(number, record)
            elif isinstance(record, BodiesHeld):
                self._held(number, record)
            elif isinstance(record, Appended):
                self._appended(record)
            elif isinstance(record, Outcomes):
                self._executed(record)
            elif isinstance(record, Rebased):
                self._rebased(record)
            elif isinstance(record, Rewound):
                go_back(content, self._node, number, record)
            elif isinstance(record, IdsTaken):
                content.lsns.update(record.ids)
                content.rejected.update(record.rejections)
            elif isinstance(record, Decision):
                content.decisions.take(number, record)
                content.decisions.forget_rows()
        content.records[number] = record
        content.next_number = number + 1

    def _accepted(self, number: int, record: Accepted) -> None:
        content, node = self._content, self._node
        for txid, body in record.items:
            if (node, txid) not in content.bodies:
                content.bodies[node, txid] = (number, body)
                content.parked[txid] = None

    def _held(self, number: int, record: BodiesHeld) -> None:
        bodies = self._content.bodies
        for origin, txid, body in record.items:
            bodies.setdefault((origin, txid), (number, body))

    def _appended(self, record: Appended) -> None:
        content = self._content
        content.streams.setdefault(record.origin, []).extend(record.entries)
        if record.origin == self._node:
            for _, txid in record.entries:
                content.parked.pop(txid, None)

    def _added(self, number: int, record: Added) -> None:
        content, current = self._content, self._content.current
        before = {origin: current.used.get(origin, 0) for origin in record.used}
        current.advance(record, number)
        # What comes before the streams' own entries (a tail, a recovered list) may be parked, or stand in a stream.
        for lsn, (_, txid, origin) in enumerate(record.entries, record.first_lsn):
            content.lsns[txid] = lsn
            content.settled[origin, txid] = lsn
            if origin == self._node:
                content.parked.pop(txid, None)
        content.ordered.extend(record.entries)
        for origin, used in record.used.items():
            for _, txid in self.stream(origin, before[origin], used - before[origin]):
                content.settled.setdefault((origin, txid), current.lsn)
                if origin == self._node:
                    # After going back it may be parked although it stands in the stream.
                    content.parked.pop(txid, None)

    def _installed(self, number: int, record: EpochInstalled) -> None:
        content, node = self._content, self._node
        unused = {origin: entries for origin, (_, entries) in self._unused().items() if origin != node}
        content.current.advance(record, number)
        recovered = {(origin, txid) for _, txid, origin in record.epoch.recovered}
        for body in [(origin, txid) for origin, entries in unused.items() for _, txid in entries]:
            if body in content.bodies and body not in recovered:
                content.settled.setdefault(body, content.current.lsn)
        waiting = [body for body in content.bodies if body not in content.settled and body not in recovered]
        content.parked = {txid: None for origin, txid in waiting if origin == node}
        content.streams.update({origin: [] for origin in record.epoch.starts})

    def _executed(self, record: Outcomes) -> None:
        content = self._content
        content.results.extend([Result(*result) for result in record.results])
        for lsn, result in enumerate(record.results, record.first_lsn):
            if result[0] == REJECTED:
                content.rejected[lsn] = result[1]
        self._forget_results()

    def _rebased(self, record: Rebased) -> None:
        content = self._content
        content.results.clear()
        content.first_result = record.lsn + 1
        end = content.current.lsn
        # What is behind the queue came with the state of another master, and is no result of this site.
        content.rejected = {lsn: why for lsn, why in content.rejected.items() if not record.lsn < lsn <= end}
        void = {n: r for n, r in content.records.items() if isinstance(r, Outcomes) and r.results}
        for number, outcomes in void.items():
            del content.records[number]
            # What was rejected stays known, and nothing else says it.
            if any(outcomes.first_lsn <= lsn < outcomes.first_lsn + len(outcomes.results) for lsn in content.rejected):
                content.current.lacking_to = max(content.current.lacking_to, number)
            if number < content.current.rewound_by:
                # A follower knows from it what had become of what was given up.
                content.current.lacking_to = max(content.current.lacking_to, number)
        content.rewinds.forget(content.records)

    def _taken(self, number: int, record: StateTaken) -> None:
        content = self._content
        content.streams = {origin: entries for origin, (_, entries) in self._unused().items()}
        content.current.advance(record, number)
        content.ordered, content.results, content.first_result = [], [], record.lsn + 1
        known = {body for body in content.bodies if content.lsns.get(body[1], record.lsn + 1) <= record.lsn}
        for body in known | content.settled.keys():
            content.bodies.pop(body, None)
            if body[0] == self._node:
                content.parked.pop(body[1], None)
        content.settled = {}
        content.marks.append((record.lsn, record.last[0]))
        content.last_trimmed = number - 1
        content.records = {n: r for n, r in content.records.items() if self._is_needed(n, r)}
        content.rewinds.rows = {}
        content.rewinds.forget(content.records)

    def _forget_results(self) -> None:
        content = self._content
        outdated = content.current.results_from - content.first_result
        del content.results[:outdated]
        content.first_result += outdated

    def state(self) -> MasterState:
        """What a restart begins from."""
        content = self._content
        state = content.current.master_state(self._name)
        state.parked = list(content.parked)
        state.streams = self._unused()
        state.last_number, state.promised_view = self.last_number, content.promised_view
        for txid, number in content.decisions.prepared.items():
            record = content.records[number]
            if isinstance(record, TxPrepared):
                state.prepared[txid] = record
        state.decided = content.decisions.remembered()
        installed = content.records.get(content.current.installed_by)
        if isinstance(installed, EpochInstalled):
            state.installed = installed.epoch
        return state

    def _unused(self) -> dict[NodeId, StreamState]:
        current, found = self._content.current, dict[NodeId, StreamState]()
        for origin, count in current.counts.items():
            used = current.used.get(origin, 0)
            found[origin] = StreamState(used, self.stream(origin, used, count - used))
        return found

    @property
    def last_number(self) -> int:
        """Number of the last record; 0 when there is none."""
        return self._content.next_number - 1

    def numbered(self, first: int, last: int, limit_bytes: int) -> list[tuple[int, bytes]] | None:
        """Encoded records with their numbers, as many as ``limit_bytes`` allow; None when some before are missing."""
        if first < self.numbered_from():
            return None
        found: list[tuple[int, bytes]] = []
        for number in range(first, min(last, self.last_number) + 1):
            record = self._content.records.get(number)
            if record is not None:
                found.append((number, encode_record(record)))
                limit_bytes -= len(found[-1][1])
                if limit_bytes < 0:
                    return found[:-1] or found
        return found

    def numbered_from(self) -> int:
        """Lowest number from which on nothing was trimmed."""
        return self._content.current.lacking_to + 1

    def records(self, start: int = 0) -> Iterator[tuple[int, Record]]:
        """All held records with their numbers, from number ``start`` on."""
        held = self._content.records
        return iter([(number, record) for number, record in held.items() if number >= start])

    def trim(self, below: Lsn) -> int:
        """Forget bodies, entries and results below an LSN, by whole records; returns the number of LSNs dropped."""
        self.settle()
        content, current = self._content, self._content.current
        first = old_first = current.first_lsn
        old_begins = {origin: current.stream_begin(origin) for origin in current.counts}
        old_last = content.last_trimmed
        for number, first_of_record, count, used in list(in_order(content))[:TRIM_RECORDS]:
            end = first_of_record + count
            if end > min(below, current.lsn + 1) or (first > old_first and end - old_first > TRIM_LSNS):
                break
            first, content.last_trimmed = end, number
            current.trimmed.update(used)
        if first == old_first and content.last_trimmed == old_last:
            return 0
        self._forget(first, old_begins)
        return first - old_first

    def _forget(self, first: Lsn, old_begins: dict[NodeId, int]) -> None:
        content, current = self._content, self._content.current
        last_mark, stamped = content.marks[-1] if content.marks else (0, 0)
        if first - 1 - last_mark >= MARK_LSNS:
            content.marks.append((first - 1, max(stamped, content.ordered[first - 1 - current.first_lsn][0])))
        del content.ordered[: first - current.first_lsn]
        current.first_lsn = first
        results_from = current.results_after_trim(first)
        current.base = self.fingerprint_at(results_from - 1)
        current.results_from = results_from
        self._forget_results()
        for origin, begin in old_begins.items():
            del content.streams.get(origin, [])[: current.stream_begin(origin) - begin]
        for body in [body for body, lsn in content.settled.items() if lsn < first]:
            del content.settled[body]
            content.bodies.pop(body, None)
        forget_loose(content, lambda: {(o, txid) for o, stream in self._unused().items() for _, txid in stream.entries})
        old, content.records = content.records, {n: r for n, r in content.records.items() if self._is_needed(n, r)}
        # A follower does not get what was cut, even where the record of the last epoch stays.
        current.lacking_to = max(current.lacking_to, content.last_trimmed, *(old.keys() - content.records.keys()))
        content.rewinds.forget(content.records)

    def _is_needed(self, number: int, record: Record) -> bool:
        """Whether a record still brings something at or above the first LSN, or something without an LSN."""
        content, node = self._content, self._node
        match record:
            case Accepted(items):
                bodies = [(node, txid) for txid, _ in items]
            case BodiesHeld(items):
                bodies = [(origin, txid) for origin, txid, _ in items]
            case Appended(origin, start, entries) if entries:
                return start + len(entries) > content.current.trimmed.get(origin, 0)
            case Outcomes(first_lsn, results) if results and number not in content.rewinds.given:
                return first_lsn + content.rewinds.count(number, results) > content.current.first_lsn
            case TxPrepared(txid) if content.decisions.prepared.get(txid) == number:
                return True
            case EpochInstalled() if content.current.installed_by == number:
                return True
            case _:
                bodies = []
        brings = any(content.bodies.get(body, (0,))[0] == number for body in bodies)
        return brings or number > content.last_trimmed

    def forget_ids(self, below: Lsn) -> bool:
        """Forget which LSN ids below an LSN have, as far as they are trimmed; returns False: nothing is left to do."""
        self.settle()
        content = self._content
        below = min(below, content.current.first_lsn)
        content.lsns = {txid: lsn for txid, lsn in content.lsns.items() if lsn >= below}
        content.rejected = {lsn: reason for lsn, reason in content.rejected.items() if lsn >= below}
        content.marks = [mark for mark in content.marks[:-1] if mark[0] >= below - 1] + content.marks[-1:]
        return False

    def keep(self, below: Lsn, ids_below: Lsn) -> bool:
        """Take one step of forgetting; returns whether there is more to do at once."""
        is_trimmed = self.trim(below) > 0
        below = min(ids_below, self._content.current.first_lsn)
        if below - self._forgotten_below >= FORGET_AT_ONCE:
            self.forget_ids(below)
            self._forgotten_below = below
        return is_trimmed

    def close(self) -> None:
        """Refuse further appends; what was deferred is durable. Idempotent."""
        if not self._is_closed and not self.is_full:
            self.settle()
        self._is_closed = True
