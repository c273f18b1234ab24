"""JournalFeed: the primary's half of following a journal: the records for each backup, its progress, whether it is ready.

    append a turn -> note -> messages -> Replicate
    Confirmed     -> on_confirmed -> confirmations (for the gate), ready (for transactions)
    RecordsWanted -> on_records_wanted -> Records, or RecordsMissing

One object serves one view: a process that becomes primary makes a new one, after its `ViewStarted` is durable. The holder calls
`messages` once in each turn, after all records of that turn were appended and noted, and again at `deadline_ms`.

Records are **pushed** to a backup within a window, from its confirmed number on; sent records come from memory, older ones from the
journal. A backup that makes no progress for too long is **paused**: heartbeats tell it the end of the journal, so that it requests
missing records at its own pace; none is left out silently. A backup with a diverged journal is told where the two part.

Invariants: records in flight to a backup, requested and held in memory are bounded; a confirmation for another view, another
journal, or another record under the same number does not count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256

from brokerha.following.leader import Window
from brokerha.following.machine import FOLLOWING
from brokerha.model.ids import Instant, Lsn, NodeId, TxId
from brokerha.model.records import Accepted, Record, TxDecided, TxPrepared
from brokerha.model.wire.codec import encode_record
from brokerha.model.wire.messages import Outgoing
from brokerha.model.wire.process_messages import Confirmed, Records, RecordsWanted, Replicate
from brokerha.replication.journal.backups import BackupFeed, BackupRow
from brokerha.replication.journal.log import MESSAGE_BYTES, AnswerLimits, Item, NumberedLog, Position, ViewHistory, answers

PREPARED_KEPT = 10_000
"""Limit of prepared transactions whose bodies can be left out; bodies of older ones are sent."""
PAUSE_AFTER = 3
"""Number of resends without any progress before a backup is paused."""
MARKS = 1_000
"""Limit of numbers whose LSN is remembered for backups that still need later records; beyond it, every second one is forgotten."""
FOREIGN_WORDS = 2
"""Number of messages for another journal after which a backup counts as one that lost its own: a single one may be late."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A backup, with what decides which bodies can be left out."""

    node: NodeId
    confirmed: int
    guard: int
    """It was fed live from here on: it can have the events of transactions prepared after that."""


@dataclass(slots=True)
class _Kept:
    data: bytes
    is_turn_end: bool
    participants: tuple[NodeId, ...] = ()
    without_body: bytes = b""
    """Set for a `TxPrepared` with participants."""
    accepted: Accepted | None = None
    skippable: tuple[tuple[int, int], ...] = ()
    """(place in `accepted`, number of the record that brought the same body)"""


@dataclass(frozen=True, slots=True)
class _Prepared:
    number: int
    digest: bytes


class Recent:
    """Records from `first` to `last`; none when ``first > last``.

    The newest records of a journal, encoded, so that feeding backups does not read the journal; also which bodies can be left out.

    **Skip set**: a participant has the operations of a transaction from its queue, so it gets the `TxPrepared` record without the
    body. A backup that confirmed that record has the body, so it gets the later `Accepted` without it, too. Only bodies that are
    known to be the same are left out, so that records end up identical.

    Invariants: numbers are contiguous; at most `limit_bytes` are held, and always the newest record.
    """

    def __init__(self, last_number: int, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.first = last_number + 1
        self.last = last_number
        self._kept: dict[int, _Kept] = {}
        self._held_bytes = 0
        self._prepared: OrderedDict[TxId, _Prepared] = OrderedDict()

    def note(self, first_number: int, records: Sequence[Record]) -> None:
        """Note that a turn was appended to the journal, from this number on."""
        if first_number != self.last + 1:
            self._kept.clear()
            self._held_bytes = 0
            self.first = first_number
        for number, record in enumerate(records, first_number):
            kept = self._keep(number, record)
            self._held_bytes += len(kept.data)
            self._kept[number] = kept
            self.last = number
        if records:
            self._kept[self.last].is_turn_end = True
        while self._held_bytes > self.limit_bytes and self.first < self.last:
            self._held_bytes -= len(self._kept.pop(self.first).data)
            self.first += 1

    def _keep(self, number: int, record: Record) -> _Kept:
        kept = _Kept(encode_record(record), is_turn_end=False)
        match record:
            case TxPrepared():
                self._prepared[record.txid] = _Prepared(number, sha256(record.body).digest())
                while len(self._prepared) > PREPARED_KEPT:
                    self._prepared.popitem(last=False)
                if record.participants and record.body:
                    kept.participants = record.participants
                    kept.without_body = encode_record(replace(record, body=b""))
            case TxDecided(is_commit=False):
                self._prepared.pop(record.txid, None)
            case Accepted():
                kept.skippable = tuple(self._skippable(record))
                kept.accepted = record if kept.skippable else None
        return kept

    def _skippable(self, record: Accepted) -> list[tuple[int, int]]:
        if not self._prepared:
            return []
        places = []
        for place, (txid, body) in enumerate(record.items):
            prepared = self._prepared.pop(txid, None)
            if prepared is not None and body and sha256(body).digest() == prepared.digest:
                places.append((place, prepared.number))
        return places

    def prepared_at(self, txid: TxId) -> int | None:
        """Return the number of the record that prepared a transaction, as long as it is not decided."""
        prepared = self._prepared.get(txid)
        return prepared.number if prepared is not None else None

    def read(self, first: int, last: int, limit_bytes: int, reader: Reader | None = None) -> list[Item] | None:
        """Return records ``first`` to ``last``, as many as the limit allows, at least one; None when they are not all held.

        With a ``reader``, bodies that it has are left out, and the last record ends a turn when the limit allows.
        """
        if first < self.first or first > last or last > self.last:
            return None
        items: list[Item] = []
        size = turn_end = 0
        for number in range(first, last + 1):
            kept = self._kept[number]
            data = kept.data if reader is None else _without_known(number, kept, reader)
            if items and size + len(data) > limit_bytes:
                return items[:turn_end] if turn_end and reader is not None else items
            items.append((number, data))
            size += len(data)
            if kept.is_turn_end:
                turn_end = len(items)
        return items


def _without_known(number: int, kept: _Kept, reader: Reader) -> bytes:
    if kept.without_body and reader.node in kept.participants and number > reader.guard:
        return kept.without_body
    places = {place for place, prepared_at in kept.skippable if prepared_at <= reader.confirmed}
    if kept.accepted is None or not places:
        return kept.data
    items = tuple((txid, b"" if place in places else body) for place, (txid, body) in enumerate(kept.accepted.items))
    return encode_record(Accepted(items))


@dataclass(frozen=True, slots=True)
class JournalFeedConfig:
    """Names, windows and timeouts of a primary."""

    backups: tuple[NodeId, ...] = ()
    """The other processes of the master."""
    fail_over_after_ms: int = 3000
    dead_after_ms: int = 5000
    """A backup that was not heard for so long must join anew."""
    resend_ms: int = 2000
    """Unconfirmed records are sent again after this long, then at doubling intervals."""
    window_bytes: int = 16 * 1024 * 1024
    """Limit of the bytes in flight to one backup."""
    window_records: int = 50_000
    message_bytes: int = MESSAGE_BYTES
    memory_bytes: int = 32 * 1024 * 1024
    """Limit of the newest records that are held encoded."""
    answer: AnswerLimits = field(default=AnswerLimits())

    @property
    def heartbeat_ms(self) -> int:
        """Longest time between messages to a backup: a quarter of the time after which it looks for another primary."""
        return max(1, self.fail_over_after_ms // 4)


class _WithRecent:
    """A journal whose newest records come from memory."""

    def __init__(self, log: NumberedLog, recent: Recent) -> None:
        self._log = log
        self._recent = recent

    @property
    def last_number(self) -> int:
        return self._recent.last

    def numbered(self, first: int, last: int, limit_bytes: int) -> list[Item] | None:
        return self._recent.read(first, last, limit_bytes) or self._log.numbered(first, last, limit_bytes)

    def numbered_from(self) -> int:
        return self._log.numbered_from()


class JournalFeed:
    """The backups of one primary in one view. ``views`` is the history of its journal, its own `ViewStarted` included."""

    def __init__(
        self,
        config: JournalFeedConfig,
        log: NumberedLog,
        *,
        view: int,
        journal: str,
        views: Iterable[Position],
        prepared: Iterable[TxId] = (),
        open_transactions: Callable[[], Iterable[TxId]] = tuple,
    ) -> None:
        """``prepared``: prepared, undecided transactions of the journal; ``open_transactions``: returns open or prepared ones."""
        self.config = config
        self._window = Window(config.window_records, config.window_bytes, config.resend_ms)
        self.view = view
        self.journal = journal
        self.floor: Lsn = 0
        """LSN below which nothing need be kept; the deciding part sets it."""
        self._views = ViewHistory(views)
        self._recent = Recent(log.last_number, config.memory_bytes)
        self._log = _WithRecent(log, self._recent)
        self._start = log.last_number
        self._marks: list[tuple[int, Lsn]] = [(0, -1)]
        """(number, highest LSN that a journal ending there could do without), oldest first."""
        self._prepared_before = set(prepared)
        self._open_transactions = open_transactions
        expected = self._trackers()
        self._backups = {node: BackupFeed(node, self._start, dict(expected)) for node in config.backups}

    # ---- inputs

    def note(self, first_number: int, records: Sequence[Record]) -> None:
        """Note that a turn was appended to the own journal; its first record has this number."""
        self._recent.note(first_number, records)
        for number, record in enumerate(records, first_number):
            self._views.note(number, record)
            if isinstance(record, TxPrepared):
                for backup in self._backups.values():
                    if record.txid in backup.trackers:
                        backup.trackers[record.txid] = number
            elif isinstance(record, TxDecided):
                self._prepared_before.discard(record.txid)
                if not record.is_commit:
                    self.on_tx_settled(record.txid)

    def on_tx_settled(self, txid: TxId) -> None:
        """Note that a transaction ended without a trace (rolled back, or empty): no backup must get it any more."""
        for backup in self._backups.values():
            backup.drop_trackers((txid,))
            self._judge(backup)

    def on_confirmed(self, sender: NodeId, word: Confirmed, now: Instant) -> None:
        """Take in the progress of a backup. Messages for a newer view are left to the role, which decides about views."""
        backup = self._backups.get(sender)
        if backup is None or word.view > self.view:
            return
        if word.view == self.view and self._is_stale(backup, word):
            backup.foreign_words += 1
            backup.must_greet = True
            return
        backup.on_heard(word, self.last_number, now.mono_ms)
        if word.view < self.view:
            # It does not know us yet. A view between that one and ours may undo what it says.
            backup.must_greet = True
            backup.part("it does not obey this primary yet")
        elif word.journal != self.journal:
            self._on_foreign(backup, word)
        elif not self._views.is_prefix(word.last, self.last_number):
            backup.must_greet = True
            end = self._views.common(word.last, self.last_number)
            backup.part(f"its records after {end} are not those of the primary: it discards them")
        elif word.follows not in FOLLOWING:
            backup.confirmed = max(backup.confirmed, word.last[1])
            backup.part(word.reason)
        else:
            if not backup.is_fed:
                backup.join(word.last[1], self.last_number, self._trackers(), now.mono_ms)
            backup.on_number(word.last[1], now.mono_ms)
        backup.foreign_words = 0 if word.journal == self.journal else backup.foreign_words
        self._judge(backup)

    def _is_stale(self, backup: BackupFeed, word: Confirmed) -> bool:
        """Tell whether a message for another journal may be late, from before a load: it must not undo later news."""
        return word.journal != self.journal and backup.confirmed > 0 and backup.foreign_words + 1 < FOREIGN_WORDS

    def _on_foreign(self, backup: BackupFeed, word: Confirmed) -> None:
        backup.must_greet = True
        backup.part(f"its journal is {word.journal}, not {self.journal}: it loads")
        backup.forget()

    def on_records_wanted(self, sender: NodeId, wanted: RecordsWanted) -> None:
        """Note that a backup requests records; `messages` sends as many as one answer takes."""
        backup = self._backups.get(sender)
        if backup is not None and wanted.view == self.view and wanted.first <= self.last_number:
            backup.want(wanted.first, wanted.last)

    def take_part(self) -> tuple[NodeId, ...]:
        """Let all ready backups take part in transactions from now on, also in open ones; return them."""
        for backup in self._backups.values():
            if backup.take_part():
                self._judge(backup)
        return self.ready()

    def part(self, node: NodeId, reason: str) -> None:
        """Note that a backup was lost in the middle of a transaction: it must join anew to be ready."""
        self._backups[node].part(reason)

    # ---- output

    def messages(self, now: Instant) -> list[Outgoing]:
        """Return the messages for all backups that are due."""
        outgoing: list[Outgoing] = []
        for backup in self._backups.values():
            self._look_for_silence(backup, now.mono_ms)
            outgoing += self._answers_for(backup)
            records = self._records_for(backup, now.mono_ms)
            outgoing += records
            is_due = backup.sent_ms is None or now.mono_ms - backup.sent_ms >= self.config.heartbeat_ms
            if not records and (is_due or backup.must_greet):
                outgoing.append(Outgoing(backup.node, self._heartbeat(backup)))
            if records or is_due or backup.must_greet:
                backup.sent_ms, backup.must_greet = now.mono_ms, False
        return outgoing

    def _look_for_silence(self, backup: BackupFeed, mono_ms: int) -> None:
        heard_ms = backup.heard_ms
        if backup.is_alive and heard_ms is not None and mono_ms - heard_ms >= self.config.dead_after_ms:
            backup.is_alive = False
            backup.part(f"not heard for {self.config.dead_after_ms / 1000:g} s")
            self._judge(backup)

    def _answers_for(self, backup: BackupFeed) -> list[Outgoing]:
        """Answer requests; pushing the same records as well would be twice the work."""
        messages: list[Outgoing] = []
        for first, last in backup.take_wanted():
            found = answers(self._log, self._views, first, last, self.last_number, self.config.answer)
            messages += [Outgoing(backup.node, message) for message in found]
            for message in found:
                if isinstance(message, Records):
                    backup.note_sent(message.items[-1][0], sum(len(data) for _, data in message.items))
        return messages

    def _records_for(self, backup: BackupFeed, mono_ms: int) -> list[Outgoing]:
        if not backup.is_fed or not backup.is_alive or self._is_paused(backup, mono_ms):
            return []
        return backup.push(backup.applied, self.last_number, self._window, partial(self._part, backup), mono_ms)

    def _part(self, backup: BackupFeed, first: int, last: int, limit_bytes: int) -> tuple[Outgoing, int, int] | None:
        reader = Reader(backup.node, backup.applied, backup.guard)
        limit = min(self.config.message_bytes, limit_bytes)
        items = self._recent.read(first, last, limit, reader) or self._log.numbered(first, last, limit)
        if items == []:
            # A whole window of void results: the record after them is the next one.
            items = self._log.numbered(first, self.last_number, 1)
        if not items:
            backup.paused = f"the journal does not reach back to record {first}: it asks the others, and loads"
            self._judge(backup)
            backup.must_greet = True
            return None
        message = self._replicate(backup, first - 1, tuple(items))
        return Outgoing(backup.node, message), items[-1][0], sum(len(data) for _, data in items)

    def _is_paused(self, backup: BackupFeed, mono_ms: int) -> bool:
        """Tell whether it gets nothing new. Records unconfirmed for too long are sent again, and finally left to its requests."""
        is_lost = not backup.paused and backup.resend(backup.applied, self._window, mono_ms)
        if is_lost and backup.stalls >= PAUSE_AFTER:
            behind = self.last_number - backup.applied
            backup.paused = f"too slow, {behind} records behind: it is fed no more, and asks for what it lacks"
            backup.must_greet = True
            self._judge(backup)
        return bool(backup.paused)

    def _replicate(self, backup: BackupFeed, previous: int, items: tuple[Item, ...]) -> Replicate:
        position = self._views.position(previous) if previous else (0, 0)
        return Replicate(self.view, position, items, self.last_number, self.journal, self.floor, backup.is_ready)

    def _heartbeat(self, backup: BackupFeed) -> Replicate:
        """Return a heartbeat with the end of the journal, a paused backup's gap, or the place where its journal parts from ours."""
        heard = backup.heard
        if backup.is_fed:
            return self._replicate(backup, self.last_number if backup.paused else backup.sent, ())
        if heard is None or heard.view != self.view or heard.journal != self.journal:
            return self._replicate(backup, 0, ())
        if self._views.is_prefix(heard.last, self.last_number):
            return self._replicate(backup, heard.last[1], ())
        end = self._views.common(heard.last, self.last_number)
        items = self._log.numbered(end + 1, end + 1, self.config.message_bytes) if end else None
        if items:
            return self._replicate(backup, end, tuple(items))
        return self._replicate(backup, min(heard.last[1], self.last_number), ())

    def _judge(self, backup: BackupFeed) -> None:
        if backup.judge():
            backup.must_greet = True

    def _trackers(self) -> dict[TxId, int | None]:
        """Return the transactions that a backup joining now must get."""
        return {
            txid: self._start if txid in self._prepared_before else self._recent.prepared_at(txid)
            for txid in self._open_transactions()
        }

    # ---- questions

    @property
    def last_number(self) -> int:
        """Return the number of the last noted record."""
        return self._recent.last

    def confirmations(self) -> dict[NodeId, int]:
        """Return the number up to which each backup durably has our records, as confirmed for this view."""
        return {node: backup.confirmed for node, backup in self._backups.items()}

    def ready(self) -> tuple[NodeId, ...]:
        """Return backups that are ready, in the order of the configuration."""
        return tuple(node for node, backup in self._backups.items() if backup.is_ready)

    def needs(self, disposable: Lsn) -> dict[NodeId, Lsn]:
        """Return the lowest LSN whose records each live backup still needs, also after the snapshot that it loads; 0: unknown.

        ``disposable``: the journal could do without LSNs up to here; later records are only of later LSNs and results. Call it now
        and then, as only calls map numbers to LSNs: a backup counts as needing the records since the call before its number.
        """
        if self._marks[-1][0] < self.last_number:
            # After going back, new records have lower LSNs again.
            self._marks = [(number, min(lsn, disposable)) for number, lsn in self._marks]
            self._marks.append((self.last_number, disposable))
        needs = {node: number for node, backup in self._backups.items() if (number := backup.needs_from) is not None}
        lowest = min(needs.values(), default=self.last_number + 1)
        while len(self._marks) > 1 and self._marks[1][0] < lowest:
            del self._marks[0]
        if len(self._marks) > MARKS:
            del self._marks[1::2]
        return {node: self._marks[bisect_left(self._marks, (number,)) - 1][1] + 1 for node, number in needs.items()}

    def rows(self) -> tuple[BackupRow, ...]:
        """Return every backup for the status, also those that were never heard."""
        return tuple(self._row(backup) for backup in self._backups.values())

    def _row(self, backup: BackupFeed) -> BackupRow:
        state, reason = backup.word()
        heard = backup.heard
        number = backup.applied if backup.is_fed else backup.confirmed
        lag = max(0, self.last_number - number)
        free_bytes = heard.free_bytes if heard else 0
        return BackupRow(backup.node, state, reason, backup.confirmed, backup.guard, lag, len(backup.trackers), free_bytes)

    def deadline_ms(self) -> int | None:
        """Return when the next heartbeat, resend or silence is due; None without backups."""
        due = []
        for backup in self._backups.values():
            due.append(0 if backup.sent_ms is None or backup.must_greet else backup.sent_ms + self.config.heartbeat_ms)
            if backup.is_alive and backup.heard_ms is not None:
                due.append(backup.heard_ms + self.config.dead_after_ms)
            if backup.sent > backup.applied and not backup.paused:
                due.append(backup.resend_at_ms(self._window))
        return min(due, default=None)
