"""JournalFollower: a backup's half of following a journal: it holds the primary's records under the primary's numbers.

    Replicate, Records --> line (journal_line.py) --> FollowerReady.records --> disk --> followed --> Confirmed
    gap --> REQUEST --> RecordsWanted            missing everywhere, another journal, a tail that parted --> LOAD (loading.py)

Whoever holds it calls `take` once in each turn, and again when `deadline_ms` says; writes the records with `Journal.follow` and
says `followed` or `follow_failed`; carries out the decisions on the `JournalCopy` and gives the answers back.

Invariants: records are handed over in order, one batch at a time, none while a load is under way; one primary is obeyed at a time, the
one of the highest view; what is confirmed is durable and never moves backwards within a copy; what waits is bounded.
"""

from __future__ import annotations

from brokerha.model.ids import Instant, Lsn, NodeId, TxId
from brokerha.model.invariants import invariant
from brokerha.model.messages import Chunk, Outgoing, SnapshotOffered
from brokerha.model.process_messages import Confirmed, Records, RecordsMissing, RecordsWanted, Replicate
from brokerha.model.ready import ChunkKept, CopyDecision, LoadBegun, LoadFailed, OpenLoad
from brokerha.model.records import MasterState, Record
from brokerha.replication.follower import FOLLOWING, Event, State, after
from brokerha.replication.journal_asking import RecordsAsking
from brokerha.replication.journal_follower_config import FollowerReady, JournalFollowerConfig
from brokerha.replication.journal_line import Bodies, JournalLine, Placed
from brokerha.replication.journal_log import RANGES_LIMIT, NumberedLog, Position, ViewHistory, answers
from brokerha.replication.loading import Loading, Phase, new_request


class JournalFollower:
    """One backup. ``state`` is what its journal says at the start, ``log`` the journal itself."""

    def __init__(
        self, config: JournalFollowerConfig, log: NumberedLog, state: MasterState, pending_load: str = ""
    ) -> None:
        self.config = config
        self.state = State.IDLE
        self.reason = "waits for its primary"
        """Why it does not simply follow; empty when it does."""
        self.last_load = ""
        """What became of the last load, and why it was necessary."""
        self.view = state.promised_view
        """Nothing of an older one is taken."""
        self.primary: NodeId = ""
        """Who is obeyed; empty when nobody is."""
        self.heard_ms: int | None = None
        """When the primary was last heard."""
        self.primary_last = 0
        """Number of the primary's last record, as far as it is known."""
        self.floor: tuple[Lsn, Lsn] = (0, 0)
        self.is_ready = False
        """Whether the primary says so."""
        self.is_matched = False
        """Whether everything that is durable here is known to be the primary's."""
        self.free_bytes = 0
        self.ignored = 0
        self.loading: Loading | None = None
        self._asking = RecordsAsking(config.ask, config.patience_ms)
        self._asking_full = RecordsAsking(config.ask, config.patience_ms)
        self._lacking: tuple[tuple[int, int], int] | None = None
        """(range of records that lack a body, since when)"""
        self._pending_load = pending_load
        self._is_opening = False
        self._at_disk = 0
        """Last number of the batch that is being written; 0 when none is."""
        self._retry_at_ms: int | None = None
        self._coin_at_ms: int | None = None
        self._heartbeat_at_ms: int | None = None
        self._tell = True
        self._wanted: list[tuple[NodeId, RecordsWanted]] = []
        self._outgoing: list[Outgoing] = []
        self._open(log, state)

    def _open(self, log: NumberedLog, state: MasterState) -> None:
        """This journal is followed from now on."""
        self._log = log
        self.journal = state.journal
        self._bodies = Bodies(self.config.bodies_bytes)
        for txid, prepared in state.prepared.items():
            self._bodies.put(txid, prepared.body)
        views = ViewHistory(state.views)
        self.last: Position = views.position(state.last_number)
        """(view, number) of the last durable record."""
        self.view = max(self.view, self.last[0] if self.last[1] else 0)
        self._line = JournalLine(views, state.last_number, self._bodies, self.config.line_bytes)
        self.is_matched = False

    # ---- views

    def refuse_below(self, view: int) -> None:
        """The process promised to a view: whoever speaks for an older one is not obeyed any more."""
        if view > self.view:
            self.view = view
            self.primary = ""
            self.is_matched = self.is_ready = False

    def pause(self, reason: str) -> None:
        """Stop following until the next view."""
        self._coin_at_ms = None
        self._change(Event.PAUSED)
        self.reason = reason

    def _obey(self, sender: NodeId, view: int, now: Instant) -> None:
        self.view, self.primary = view, sender
        self.is_matched = self.is_ready = False
        self.primary_last = 0
        self._restart()
        self._change(Event.COINED)
        self._tell = True
        if self.state is State.LOAD and not self._is_opening:
            self._begin_load(now)

    def _restart(self) -> None:
        """Whatever was received and is not at the disk is given up: it may not be of this primary."""
        self._line.restart(self._at_disk or self.last[1])
        self._asking.stop()
        self._asking_full.stop()
        self._lacking = None

    def _change(self, event: Event) -> None:
        before, self.state = self.state, after(self.state, event)
        if self.state is before:
            return
        self._tell = True
        if self.state not in FOLLOWING:
            self._restart()
            self.is_matched = self.is_ready = False
        elif self.state is State.BASIC:
            self._asking.stop()
            self.reason = ""
        if before is State.LOAD:
            self.loading = None

    # ---- the primary's records

    def on_replicate(self, sender: NodeId, message: Replicate, now: Instant) -> bool:
        """The primary sends records, or a heartbeat. Returns False when it is not to be obeyed."""
        is_stranger = sender not in self.config.others or self.primary not in ("", sender)
        if message.view < self.view or (message.view == self.view and is_stranger):
            self.ignored += 1
            return False
        if message.view > self.view or not self.primary:
            self._obey(sender, message.view, now)
        self.heard_ms = now.mono_ms
        self.primary_last = max(self.primary_last, message.last_number)
        self.floor, self.is_ready = message.floor, message.is_ready
        if self.state is State.IDLE and self._coin_at_ms is not None and now.mono_ms >= self._coin_at_ms:
            self._coin_at_ms = None
            self._change(Event.COINED)
        if self.state in FOLLOWING:
            self._on_items(message, now)
        return True

    def _on_items(self, message: Replicate, now: Instant) -> None:
        view, number = self._line.position
        if message.journal != self.journal:
            self._load(f"its journal was {self.journal}, the primary's is {message.journal}", Event.TOLD, now)
            return
        placed = self._line.place(message.previous, message.items, is_full=False)
        # Its view began before it said anything, so ours ends before that; without a previous record it does not know us yet.
        is_longer = message.previous[1] > 0 and view < message.view and message.last_number <= number
        if placed is Placed.PARTED or is_longer:
            self._load_parted(now)
            return
        if placed is Placed.NEXT or message.previous == self._line.position or view == message.view:
            self.is_matched = True
        if placed is Placed.KNOWN and message.items:
            # What was confirmed was lost on its way.
            self._tell = True
        self._line.on_turn_end(message.last_number)
        self._look_for_gap(now)

    def _look_for_gap(self, now: Instant) -> None:
        gap = self._line.gap()
        if gap is None:
            self._change(Event.FILLED)
            return
        self._change(Event.GAP)
        self.reason = f"asks for records {gap[0]} to {gap[1]}"
        self._asking.want(gap, self._sources(), now)

    def _sources(self) -> tuple[NodeId, ...]:
        return (self.primary, *[node for node in self.config.others if node != self.primary])

    # ---- answers of those that were asked

    def on_records(self, sender: NodeId, message: Records, now: Instant) -> None:
        """Records that were asked for, all of them in full."""
        first = message.previous[1] + 1
        is_asked = self._asking.is_asked(sender, first) or self._asking_full.is_asked(sender, first)
        if self.state not in FOLLOWING or not is_asked:
            self.ignored += 1
            return
        placed = self._line.place(message.previous, message.items, is_full=True)
        if placed is Placed.PARTED and sender == self.primary:
            self._load_parted(now)
        elif placed in (Placed.PARTED, Placed.DAMAGED):
            self._on_missing(sender, now)
        else:
            self._look_for_gap(now)

    def on_records_missing(self, sender: NodeId, message: RecordsMissing, now: Instant) -> None:
        """Somebody does not hold what was asked for."""
        if self.state in FOLLOWING and message.first in (self._asking.first, self._asking_full.first):
            self._on_missing(sender, now)

    def _on_missing(self, sender: NodeId, now: Instant) -> None:
        for asking in (self._asking, self._asking_full):
            if asking.on_missing(sender, now):
                self._load_missing(asking, now)
                return

    def _load_missing(self, asking: RecordsAsking, now: Instant) -> None:
        self._load(f"nobody holds records {asking.range_text()} any more", Event.MISSING, now)

    # ---- bodies that were left out

    def on_prepared_body(self, txid: TxId, body: bytes) -> None:
        """The whole body of a transaction came through its queue, and its digest is right."""
        self._bodies.put(txid, body)

    def forget_body(self, txid: TxId) -> None:
        """A transaction was rolled back before it was prepared."""
        self._bodies.drop(txid)

    def body_of(self, txid: TxId) -> bytes | None:
        """The body of a transaction that is prepared, or whose events are all here."""
        return self._bodies.of(txid)

    def _look_for_bodies(self, now: Instant) -> None:
        """Ask for records in full whose bodies did not come in time."""
        self._line.fill()
        lacking = self._line.lacking()
        if lacking is None:
            self._lacking = None
            self._asking_full.stop()
        elif self._lacking is None or self._lacking[0] != lacking:
            self._lacking = (lacking, now.mono_ms)
            self._asking_full.stop()
        elif now.mono_ms - self._lacking[1] >= self.config.fill_wait_ms:
            self._asking_full.want(lacking, self._sources(), now)

    # ---- the disk

    def followed(self, last_number: int) -> None:
        """The batch that ends with this record is durable."""
        invariant(last_number == self._at_disk, "the disk answers what it was asked", last_number=last_number)
        self._at_disk = 0
        self.last = self._line.views.position(last_number)
        self._tell = True

    def follow_failed(self, reason: str, now: Instant) -> None:
        """Nothing of the batch was written, for want of space for instance; it is tried again."""
        self._at_disk = 0
        self._restart()
        self.reason = reason
        self._retry_at_ms = now.mono_ms + self.config.retry_ms
        self._tell = True

    def on_damaged(self, reason: str, now: Instant) -> None:
        """The own journal was found to be damaged."""
        self._load(reason, Event.DAMAGED, now)

    # ---- loading

    def _load_parted(self, now: Instant) -> None:
        view, number = self._line.position
        first = self._line.parted_from
        records = f"records {first} to {number}" if first else f"its last records up to {number}"
        self._load(f"discards {records} of view {view}, which nobody confirmed", Event.TOLD, now)

    def _load(self, reason: str, event: Event, now: Instant) -> None:
        """Following leads no further: the whole journal is replaced."""
        if self.state not in FOLLOWING or not self.primary:
            # Between two primaries nobody can be loaded from: the next one is asked anew.
            return
        self._change(event if after(self.state, event) is State.LOAD else Event.DAMAGED)
        self.reason = self.last_load = reason
        self._begin_load(now)

    def _begin_load(self, now: Instant) -> None:
        """The primary is the only source: what another one holds may lack records that were confirmed from here."""
        request = self._pending_load or new_request(self.config.process, now)
        self._pending_load = ""
        self.loading = Loading(self.config.load, (self.primary,), request, now)

    def on_offered(self, sender: NodeId, message: SnapshotOffered, now: Instant) -> None:
        """A source offers its snapshot, or refuses."""
        if self.loading is not None:
            self.loading.on_offered(sender, message, now)

    def on_chunk(self, sender: NodeId, message: Chunk, now: Instant) -> None:
        """A chunk of the snapshot came."""
        if self.loading is not None:
            self.loading.on_chunk(sender, message, now)

    def on_copy_answer(self, answer: LoadBegun | ChunkKept | LoadFailed, now: Instant) -> None:
        """The disk answers a decision; a load that is open is told by `on_loaded`."""
        if isinstance(answer, LoadFailed):
            self._is_opening = False
        if self.loading is not None:
            self.loading.on_answer(answer, now)

    def on_loaded(self, log: NumberedLog, state: MasterState) -> None:
        """The snapshot is open as the journal, whatever was decided meanwhile."""
        self._is_opening = False
        if self.loading is not None:
            self._outgoing += self.loading.farewell()
        self._pending_load = ""
        self._open(log, state)
        self.last_load = f"loaded records up to {state.last_number}, because: {self.last_load}"
        self._change(Event.LOADED)
        self._tell = True

    def _take_from_load(self, now: Instant) -> list[CopyDecision]:
        if self.loading is None or self._at_disk:
            return []
        messages, decisions = self.loading.take(now)
        self._outgoing += messages
        self._is_opening = self._is_opening or any(isinstance(each, OpenLoad) for each in decisions)
        if self.loading.phase is Phase.FAILED:
            failures = "; ".join(self.loading.failures) or "there is no other process"
            self._pending_load = ""
            self._coin_at_ms = now.mono_ms + self.config.coin_again_ms
            self._change(Event.FAILED)
            self.reason = f"no source gave a snapshot ({failures}); {self.last_load}"
        return decisions

    # ---- questions of other backups

    def on_records_wanted(self, sender: NodeId, wanted: RecordsWanted) -> None:
        """Another process lacks records that this one may have."""
        if len(self._wanted) < RANGES_LIMIT and (sender, wanted) not in self._wanted:
            self._wanted.append((sender, wanted))

    def _answer(self) -> None:
        """What is known to be the primary's is given away; of the rest it has nothing to say but that it does not have it."""
        wanted, self._wanted = self._wanted, []
        for sender, each in wanted:
            is_right = self.is_matched and self.state in FOLLOWING and each.view == self.view
            last = self.last[1] if is_right else 0
            found = answers(self._log, self._line.views, each, last, self.config.answer)
            self._outgoing += [Outgoing(sender, message) for message in found]

    # ---- output

    def take(self, now: Instant) -> FollowerReady:
        """What is to be written, done and sent now."""
        if self._retry_at_ms is not None and now.mono_ms >= self._retry_at_ms:
            self._retry_at_ms = None
            self.reason = "" if self.state is State.BASIC else self.reason
        if self.state in FOLLOWING and self.primary:
            self._look_for_bodies(now)
            self._ask(now)
        self._answer()
        decisions = self._take_from_load(now)
        records = self._next_batch()
        if self._heartbeat_at_ms is None or now.mono_ms >= self._heartbeat_at_ms:
            self._tell = True
        if self._tell and self.primary:
            self._tell = False
            self._heartbeat_at_ms = now.mono_ms + self.config.heartbeat_ms
            self._outgoing.append(Outgoing(self.primary, self.confirmation()))
        outgoing, self._outgoing = self._outgoing, []
        return FollowerReady(tuple(records), tuple(decisions), tuple(outgoing))

    def _ask(self, now: Instant) -> None:
        for asking in (self._asking, self._asking_full):
            messages, is_nobody_left = asking.take(self.view, now)
            self._outgoing += messages
            if is_nobody_left:
                self._load_missing(asking, now)
                return

    def _next_batch(self) -> list[tuple[int, Record]]:
        if self.state not in FOLLOWING or self._at_disk or self._is_opening or self._retry_at_ms is not None:
            return []
        records = self._line.take(self.config.batch_bytes)
        self._at_disk = records[-1][0] if records else 0
        return records

    def confirmation(self) -> Confirmed:
        """What it says of itself, at any time."""
        loading = self.loading
        return Confirmed(
            self.view, self.journal, self.last, self.state.value, self.reason,
            loading.done_bytes if loading else 0, loading.total_bytes if loading else 0, self.free_bytes,
        )  # fmt: skip

    def deadline_ms(self) -> int | None:
        """When something has to be sent or asked again; None when nothing is due before something is heard."""
        due = [self._retry_at_ms, self.loading.deadline_ms() if self.loading and not self._at_disk else None]
        if self.primary:
            due.append(0 if self._heartbeat_at_ms is None or self._tell else self._heartbeat_at_ms)
        if self.primary and self.state in FOLLOWING:
            # Between two primaries nobody is asked: what would be due must not keep the process awake.
            due += [self._asking.deadline_ms(), (full := self._asking_full.deadline_ms())]
            if self._lacking is not None and full is None:
                due.append(self._lacking[1] + self.config.fill_wait_ms)
        return min((at for at in due if at is not None), default=None)
