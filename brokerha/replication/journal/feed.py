"""JournalFeed: the primary's half of following a journal: what each backup is sent, what it has, whether it is ready.

    append a turn -> note -> messages -> Replicate
    Confirmed     -> on_confirmed -> confirmations (for the gate), ready (for transactions)
    RecordsWanted -> on_records_wanted -> Records, or RecordsMissing

One object for one view: a process that becomes primary makes a new one, after its `ViewStarted` is durable. Its holder
calls `messages` once in each turn, after everything of that turn was appended and noted, and again when `deadline_ms` says.

A backup is **pushed** to, from what it confirmed on, within a window; records that it was sent come from memory, older ones from
the journal. One that stands still for too long is **paused**: heartbeats tell it where the journal ends, so that it asks for what it
lacks, at its own pace; nothing is left out silently. One whose journal is not the beginning of ours is told where they part.

Invariants: what is in flight to a backup, asked for and held in memory is bounded; nothing counts as confirmed that was
confirmed for another view, another journal, or another record under the same number.
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
from brokerha.replication.journal.log import (
    MESSAGE_BYTES,
    AnswerLimits,
    Item,
    NumberedLog,
    Position,
    ViewHistory,
    answers,
)

PREPARED_KEPT = 10_000
"""Prepared transactions whose bodies may be left out; those of older ones are sent."""
PAUSE_AFTER = 3
"""Times that records are sent again without any progress before a backup is paused."""
MARKS = 1_000
"""Numbers whose LSN is remembered while a backup needs what comes after them; of more every second one is forgotten."""
FOREIGN_WORDS = 2
"""Words for another journal after which a backup counts as one that lost its own: one alone may be late."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A backup, as far as it matters for what may be left out."""

    node: NodeId
    confirmed: int
    guard: int
    """It was fed live from here on: it can have the events of transactions that were prepared after that."""


@dataclass(slots=True)
class _Kept:
    data: bytes
    is_turn_end: bool
    participants: tuple[NodeId, ...] = ()
    without_body: bytes = b""
    """Of a `TxPrepared` with participants."""
    accepted: Accepted | None = None
    skippable: tuple[tuple[int, int], ...] = ()
    """(place in `accepted`, number of the record that brought the same body)"""


@dataclass(frozen=True, slots=True)
class _Prepared:
    number: int
    digest: bytes


class Recent:
    """Records from `first` to `last`; none when ``first > last``.

    The newest records of a journal, encoded, so that feeding backups does not read the journal; and what may be left out of them.

    **Skip set**: a participant has the operations of a transaction from its queue, so the `TxPrepared` record goes to it without
    its body; a backup that confirmed that record has the body, so the `Accepted` that follows from it goes without it too. Only bodies
    that are known to be the same are left out, so that records end up identical.

    Invariants: numbers are contiguous; at most `limit_bytes` are held, the newest record always.
    """

    def __init__(self, last_number: int, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.first = last_number + 1
        self.last = last_number
        self._kept: dict[int, _Kept] = {}
        self._held_bytes = 0
        self._prepared: OrderedDict[TxId, _Prepared] = OrderedDict()

    def note(self, first_number: int, records: Sequence[Record]) -> None:
        """One turn was appended to the journal, from this number on."""
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
        """Number of the record that prepared a transaction, as long as it is not decided."""
        prepared = self._prepared.get(txid)
        return prepared.number if prepared is not None else None

    def read(self, first: int, last: int, limit_bytes: int, reader: Reader | None = None) -> list[Item] | None:
        """Records ``first`` to ``last``, as many as the limit allows, at least one; None when they are not all held.

        With a ``reader`` what it has already is left out, and the end is that of a turn when the limit allows.
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
    """Names, windows and waits of a primary."""

    backups: tuple[NodeId, ...] = ()
    """The other processes of the master."""
    fail_over_after_ms: int = 3000
    dead_after_ms: int = 5000
    """A backup that was not heard for so long has to join anew."""
    resend_ms: int = 2000
    """Records that stay unconfirmed are sent again after this, after twice as long the next time, and so on."""
    window_bytes: int = 16 * 1024 * 1024
    """In flight to one backup."""
    window_records: int = 50_000
    message_bytes: int = MESSAGE_BYTES
    memory_bytes: int = 32 * 1024 * 1024
    """Newest records that are held encoded."""
    answer: AnswerLimits = field(default=AnswerLimits())

    @property
    def heartbeat_ms(self) -> int:
        """A backup hears something at least this often: four times before it would look for another primary."""
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
        """``prepared``: transactions that the journal has prepared and not decided; ``open_transactions`` is asked for all that are
        open or prepared, whenever a backup joins.
        """
        self.config = config
        self._window = Window(config.window_records, config.window_bytes, config.resend_ms)
        self.view = view
        self.journal = journal
        self.floor: tuple[Lsn, Lsn] = (0, 0)
        """(LSN, LSN) below which bodies, and ids, need not be kept; set by the part that decides it."""
        self._views = ViewHistory(views)
        self._recent = Recent(log.last_number, config.memory_bytes)
        self._log = _WithRecent(log, self._recent)
        self._start = log.last_number
        self._marks: list[tuple[int, Lsn]] = [(0, -1)]
        """(number, what the journal that ended there could do without), oldest first."""
        self._prepared_before = set(prepared)
        self._open_transactions = open_transactions
        expected = self._trackers()
        self._backups = {node: BackupFeed(node, self._start, dict(expected)) for node in config.backups}

    # ---- inputs

    def note(self, first_number: int, records: Sequence[Record]) -> None:
        """One turn was appended to the own journal; its first record has this number."""
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
        """A transaction ended without a trace (rolled back, or empty): nobody has to get it any more."""
        for backup in self._backups.values():
            backup.drop_trackers((txid,))
            self._judge(backup)

    def on_confirmed(self, sender: NodeId, word: Confirmed, now: Instant) -> None:
        """A backup says how far it is. Words for a newer view are left to the role, which decides about views."""
        backup = self._backups.get(sender)
        if backup is None or word.view > self.view:
            return
        if word.view == self.view and self._is_stale(backup, word):
            backup.foreign_words += 1
            backup.must_greet = True
            return
        backup.on_heard(word, self.last_number, now.mono_ms)
        if word.view < self.view:
            # It does not know us yet. What it says may be undone by a view between that one and ours.
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
        """Whether a word of another journal may be one from before a load that comes late: it undoes nothing that was heard since."""
        return word.journal != self.journal and backup.confirmed > 0 and backup.foreign_words + 1 < FOREIGN_WORDS

    def _on_foreign(self, backup: BackupFeed, word: Confirmed) -> None:
        backup.must_greet = True
        backup.part(f"its journal is {word.journal}, not {self.journal}: it loads")
        backup.forget()

    def on_records_wanted(self, sender: NodeId, wanted: RecordsWanted) -> None:
        """A backup asks for records; `messages` brings them, as many as one answer takes."""
        backup = self._backups.get(sender)
        if backup is not None and wanted.view == self.view and wanted.first <= self.last_number:
            backup.want(wanted.first, wanted.last)

    def take_part(self) -> tuple[NodeId, ...]:
        """Backups that take part in transactions from now on, also in those that are open: all that are ready now."""
        for backup in self._backups.values():
            if backup.take_part():
                self._judge(backup)
        return self.ready()

    def part(self, node: NodeId, reason: str) -> None:
        """A backup was lost in the middle of a transaction: it is not ready before it has joined anew."""
        self._backups[node].part(reason)

    # ---- output

    def messages(self, now: Instant) -> list[Outgoing]:
        """What every backup has to be sent now."""
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
        """It gets what it asked for this way; pushing it as well would be twice the work."""
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
        """Whether it gets nothing new; what stays unconfirmed for too long is sent again, and finally left to be asked for."""
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
        """Where the journal ends; where a backup that was paused shows itself its gap; or where its own parts from ours."""
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
        """Transactions that a backup which joins now has to get."""
        return {
            txid: self._start if txid in self._prepared_before else self._recent.prepared_at(txid)
            for txid in self._open_transactions()
        }

    # ---- questions

    @property
    def last_number(self) -> int:
        """Number of the last record that was noted."""
        return self._recent.last

    def confirmations(self) -> dict[NodeId, int]:
        """Number up to which each backup has our records durably, as it confirmed for this view."""
        return {node: backup.confirmed for node, backup in self._backups.items()}

    def ready(self) -> tuple[NodeId, ...]:
        """Backups that are ready, in the order of the configuration."""
        return tuple(node for node, backup in self._backups.items() if backup.is_ready)

    def needs(self, disposable: Lsn) -> dict[NodeId, Lsn]:
        """Lowest LSN whose records each live backup still needs, those that come after the snapshot that it loads included; 0: unknown.

        ``disposable``: up to here the journal could do without, as it stands now; records after it are only of later LSNs and results. This
        is what is known of record numbers, so ask now and then: a backup counts as needing what came since the question before its number.
        """
        if self._marks[-1][0] < self.last_number:
            # Who goes back has records of lower LSNs again.
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
        """Every backup for the status, those that were never heard included."""
        return tuple(self._row(backup) for backup in self._backups.values())

    def _row(self, backup: BackupFeed) -> BackupRow:
        state, reason = backup.word()
        heard = backup.heard
        number = backup.applied if backup.is_fed else backup.confirmed
        lag = max(0, self.last_number - number)
        free_bytes = heard.free_bytes if heard else 0
        return BackupRow(backup.node, state, reason, backup.confirmed, backup.guard, lag, len(backup.trackers), free_bytes)

    def deadline_ms(self) -> int | None:
        """When the next heartbeat, resending or silence is due; None without backups."""
        due = []
        for backup in self._backups.values():
            due.append(0 if backup.sent_ms is None or backup.must_greet else backup.sent_ms + self.config.heartbeat_ms)
            if backup.is_alive and backup.heard_ms is not None:
                due.append(backup.heard_ms + self.config.dead_after_ms)
            if backup.sent > backup.applied and not backup.paused:
                due.append(backup.resend_at_ms(self._window))
        return min(due, default=None)
