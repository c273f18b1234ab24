"""JournalFollower: a backup's half of following a journal: it holds the primary's records under the primary's numbers.

    Replicate, Records --> line (line.py) --> FollowerReady.records --> disk --> followed --> Confirmed
    gap --> REQUEST --> RecordsWanted            missing everywhere, another journal, a tail that parted --> LOAD

It is the policy of a `Follower` (following/follower.py). Its holder calls `take` in each turn and at `deadline_ms`, writes the
records with `Journal.follow` and calls `followed` (or begins anew when the disk fails), and carries out decisions on the
`JournalCopy`.

Invariants: records are handed over in order, one batch at a time, none during a load; a backup obeys one primary at a time, that of
the highest view; confirmed records are durable, and their number never shrinks within a copy; waiting records are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.following.asking import AskConfig, Asking, Range
from brokerha.following.follower import FollowConfig, Follower
from brokerha.following.leader import RANGES_LIMIT
from brokerha.following.line import Line
from brokerha.following.loading import LoadConfig, Loading
from brokerha.following.machine import Event, State, after
from brokerha.model.ids import Instant, Lsn, NodeId, TxId
from brokerha.model.invariants import invariant
from brokerha.model.ready import CopyDecision
from brokerha.model.records import MasterState, Record
from brokerha.model.wire.messages import Outgoing
from brokerha.model.wire.process_messages import Confirmed, Records, RecordsMissing, RecordsWanted, Replicate
from brokerha.replication.journal.backups import PAUSED
from brokerha.replication.journal.line import Bodies, JournalLine, Placed
from brokerha.replication.journal.log import AnswerLimits, NumberedLog, Position, ViewHistory, answers

WAITS = "waits for its primary"


@dataclass(frozen=True, slots=True)
class JournalFollowerConfig:
    """Names, windows and timeouts of a backup."""

    process: NodeId
    others: tuple[NodeId, ...]
    """The other processes of the master, also the present primary."""
    fail_over_after_ms: int = 3000
    fill_wait_ms: int = 500
    """A record whose body was left out is requested in full if the body is not here after this long."""
    coin_again_ms: int = 30_000
    """A backup that failed to load tries again after this long, as long as it hears its primary."""
    batch_bytes: int = 8 * 1024 * 1024
    line_bytes: int = 64 * 1024 * 1024
    """Limit of received and unwritten bytes, and of those after a gap; further records are dropped and requested later."""
    bodies_bytes: int = 256 * 1024 * 1024
    """Limit of bodies of transactions that are prepared, or that came through their queues."""
    answer: AnswerLimits = field(default=AnswerLimits())
    ask: AskConfig = field(default=AskConfig())
    load: LoadConfig = field(default=LoadConfig())

    @property
    def heartbeat_ms(self) -> int:
        """Longest time between messages to the primary."""
        return max(1, self.fail_over_after_ms // 4)


@dataclass(frozen=True, slots=True)
class FollowerReady:
    """The actions that a backup asks for: records written in one commit, then the rest, in this order."""

    records: tuple[tuple[int, Record], ...] = ()
    """For `Journal.follow`; the next ones come only after `followed`."""
    decisions: tuple[CopyDecision, ...] = ()
    messages: tuple[Outgoing, ...] = ()


class JournalFollower:
    """One backup. ``state`` is that of its journal at the start, ``log`` the journal itself."""

    def __init__(self, config: JournalFollowerConfig, log: NumberedLog, state: MasterState, pending_load: str = "") -> None:
        self.config = config
        self.reason = WAITS
        """Why it does not simply follow; empty when it does."""
        self.trouble = ""
        """The failure of its disk before it began anew, told to the primary until a batch is durable."""
        self.last_load = ""
        """Result of the last load, and its reason."""
        self.view = state.promised_view
        """Messages of an older view are ignored."""
        self.primary: NodeId = ""
        """The primary that it obeys; empty when there is none."""
        self.heard_ms: int | None = None
        """When the primary was last heard."""
        self.primary_last = 0
        """Number of the primary's last record, as far as it is known."""
        self.floor: Lsn = 0
        self.is_ready = False
        """Whether the primary says so."""
        self.is_matched = False
        """Whether all durable records here are known to be the primary's."""
        self.free_bytes = 0
        """Free space on the disk of the journal, at the last look."""
        self.is_resting = False
        """Whether an operator paused it: it only hears its primary and tells its position."""
        self._asking_full = Asking(config.ask)
        self._lacking: tuple[Range, int] | None = None
        """(range of records that lack a body, since when)"""
        self._coin_at_ms: int | None = None
        self._wanted: list[tuple[NodeId, RecordsWanted]] = []
        self._outgoing: list[Outgoing] = []
        line = self._open(log, state)
        follow = FollowConfig(config.process, config.heartbeat_ms, ask=config.ask, load=config.load)
        self.follower = Follower(follow, line, self._on_left, pending_load)
        self.loads = self.follower.loads

    @property
    def state(self) -> State:
        """Return its state as a follower."""
        return self.follower.state

    @property
    def loading(self) -> Loading | None:
        """Return the load that is under way."""
        return self.loads.current

    def _open(self, log: NumberedLog, state: MasterState) -> Line:
        """Follow this journal from now on."""
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
        return self._line.line

    # ---- views

    def refuse_below(self, view: int) -> None:
        """Stop obeying primaries of views older than a promised one."""
        if view > self.view:
            self.view = view
            self.primary = ""
            self.is_matched = self.is_ready = False
            # Between two primaries it asks no process.
            self._stop_asking()

    def pause(self, reason: str) -> None:
        """Stop following until the next view."""
        self._coin_at_ms = None
        self.follower.change(Event.PAUSED)
        self.reason = reason

    def rest(self, reason: str) -> None:
        """Stop following until `go_on`, because an operator paused it."""
        self.pause(reason)
        self.is_resting = self.follower.must_tell = True

    def go_on(self, now: Instant) -> None:
        """Follow the primary, from its next message on."""
        self.is_resting, self._coin_at_ms = False, now.mono_ms
        self.reason = WAITS
        self.follower.must_tell = True

    def _obey(self, sender: NodeId, view: int, now: Instant) -> None:
        self.view, self.primary = view, sender
        self.is_matched = self.is_ready = False
        self.primary_last = 0
        self._restart()
        if not self.is_resting:
            self.follower.change(Event.COINED)
        self.follower.must_tell = True
        if self.state is State.LOAD and not self.loads.is_opening:
            self._begin_load(now)

    def _restart(self) -> None:
        """Drop received records that are not at the disk: they may not be of this primary."""
        self._line.restart(self.follower.at_disk or self.last[1])
        self._stop_asking()

    def _stop_asking(self) -> None:
        self.follower.asking.stop()
        self._asking_full.stop()
        self._lacking = None

    def _on_left(self, before: State, event: Event) -> None:
        del before, event
        if not self.follower.is_following:
            self._restart()
            self.is_matched = self.is_ready = False
        elif self.state is State.BASIC:
            self.reason = ""

    # ---- the primary's records

    def on_replicate(self, sender: NodeId, message: Replicate, now: Instant) -> bool:
        """Take in records of the primary, or a heartbeat. Returns False when it is not to be obeyed."""
        is_stranger = sender not in self.config.others or self.primary not in ("", sender)
        if message.view < self.view or (message.view == self.view and is_stranger):
            return False
        if message.view > self.view or not self.primary:
            self._obey(sender, message.view, now)
        self.heard_ms = now.mono_ms
        self.primary_last = max(self.primary_last, message.last_number)
        self.floor, self.is_ready = message.floor, message.is_ready
        if self.state is State.IDLE and self._coin_at_ms is not None and now.mono_ms >= self._coin_at_ms:
            self.follower.change(Event.COINED)
        if self.follower.is_following:
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
            # The confirmation was lost on its way.
            self.follower.must_tell = True
        self._line.on_turn_end(message.last_number)
        self._look_for_gap(now)

    def _look_for_gap(self, now: Instant) -> None:
        self.follower.look_for_gap(self._sources(), now)
        if self.state is State.REQUEST:
            self.reason = f"asks for records {self.follower.asking.range_text()}"

    def _sources(self) -> tuple[NodeId, ...]:
        return (self.primary, *[node for node in self.config.others if node != self.primary])

    # ---- answers of those that were asked

    def on_records(self, sender: NodeId, message: Records, now: Instant) -> None:
        """Take in requested records, all of them in full."""
        first = message.previous[1] + 1
        is_asked = any(asking.is_asked(sender, first) for asking in self._askings())
        if not self.follower.is_following or not is_asked:
            return
        placed = self._line.place(message.previous, message.items, is_full=True)
        if placed is Placed.PARTED and sender == self.primary:
            self._load_parted(now)
        elif placed in (Placed.PARTED, Placed.DAMAGED):
            self._on_missing(sender, now)
        else:
            self._look_for_gap(now)

    def on_records_missing(self, sender: NodeId, message: RecordsMissing, now: Instant) -> None:
        """Note that a process does not hold the requested records."""
        if self.follower.is_following and message.first in [asking.first for asking in self._askings()]:
            self._on_missing(sender, now)

    def _askings(self) -> tuple[Asking, Asking]:
        return self.follower.asking, self._asking_full

    def _on_missing(self, sender: NodeId, now: Instant) -> None:
        for asking in self._askings():
            if asking.on_missing(sender, now):
                self._load_missing(asking, now)
                return

    def _load_missing(self, asking: Asking, now: Instant) -> None:
        self._load(f"nobody holds records {asking.range_text()} any more", Event.MISSING, now)

    # ---- bodies that were left out

    def on_prepared_body(self, txid: TxId, body: bytes) -> None:
        """Take the whole body of a transaction, which came through its queue with the right digest."""
        self._bodies.put(txid, body)

    def _look_for_bodies(self, now: Instant) -> None:
        """Request records in full whose bodies did not come in time."""
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
        """Note that the batch that ends with this record is durable."""
        written = self.follower.finish()
        invariant(last_number == written, "the disk has written what it was asked", last_number=last_number)
        self.last = self._line.views.position(last_number)
        self.follower.must_tell = True
        self.trouble = ""

    def on_damaged(self, reason: str, now: Instant) -> bool:
        """Replace the own journal, which was found damaged. Returns whether a load has begun; else call it again."""
        self._load(reason, Event.DAMAGED, now)
        return self.state is State.LOAD

    # ---- loading

    def _load_parted(self, now: Instant) -> None:
        view, number = self._line.position
        first = self._line.parted_from
        records = f"records {first} to {number}" if first else f"its last records up to {number}"
        self._load(f"discards {records} of view {view}, which nobody confirmed", Event.TOLD, now)

    def _load(self, reason: str, event: Event, now: Instant) -> None:
        """Replace the whole journal: following leads no further."""
        if not self.follower.is_following or not self.primary:
            # Between two primaries there is no source: the next one is asked anew.
            return
        self.follower.change(event if after(self.state, event) is State.LOAD else Event.DAMAGED)
        self.reason = self.last_load = reason
        self._begin_load(now)

    def _begin_load(self, now: Instant) -> None:
        """Load from the primary only: another process may lack records that were confirmed from here."""
        self.loads.begin((self.primary,), now)

    def on_loaded(self, log: NumberedLog, state: MasterState) -> None:
        """Continue with the snapshot that is open as the journal, whatever was decided meanwhile."""
        self._outgoing += self.loads.on_opened()
        self.follower.line = self._open(log, state)
        self.last_load = f"loaded records up to {state.last_number}, because: {self.last_load}"
        self.follower.change(Event.LOADED)
        self.follower.must_tell = True

    def _take_from_load(self, now: Instant) -> list[CopyDecision]:
        if self.follower.at_disk is not None:
            return []
        messages, decisions, failures = self.loads.take(now)
        self._outgoing += messages
        if failures:
            self._coin_at_ms = now.mono_ms + self.config.coin_again_ms
            self.follower.change(Event.FAILED)
            self.reason = f"no source gave a snapshot ({failures}); {self.last_load}"
        return decisions

    # ---- questions of other backups

    def on_records_wanted(self, sender: NodeId, wanted: RecordsWanted) -> None:
        """Note that another process requests records."""
        if len(self._wanted) < RANGES_LIMIT and (sender, wanted) not in self._wanted:
            self._wanted.append((sender, wanted))

    def _answer(self) -> None:
        """Answer requests with records known to be the primary's; of others, answer only that they are not held."""
        wanted, self._wanted = self._wanted, []
        for sender, each in wanted:
            is_right = self.is_matched and self.follower.is_following and each.view == self.view
            last = self.last[1] if is_right else 0
            found = answers(self._log, self._line.views, each.first, each.last, last, self.config.answer)
            self._outgoing += [Outgoing(sender, message) for message in found]

    # ---- output

    def take(self, now: Instant) -> FollowerReady:
        """Return the records, decisions and messages that are due."""
        if self.follower.is_following and self.primary:
            self._look_for_bodies(now)
            self._ask(now)
        self._answer()
        decisions = self._take_from_load(now)
        records = self._next_batch()
        if self.primary and self.follower.is_due(now):
            self._outgoing.append(Outgoing(self.primary, self.confirmation()))
        outgoing, self._outgoing = self._outgoing, []
        return FollowerReady(tuple(records), tuple(decisions), tuple(outgoing))

    def _ask(self, now: Instant) -> None:
        for asking in self._askings():
            if asking.is_in_vain(now):
                self._load_missing(asking, now)
                return
        for question in (self.follower.question(now), self._asking_full.take(now)):
            if question is not None:
                self._outgoing.append(Outgoing(question[0], RecordsWanted(self.view, *question[1])))

    def _next_batch(self) -> list[tuple[int, Record]]:
        records = self._line.take(self.config.batch_bytes) if self.follower.may_write else []
        if records:
            self.follower.begin(records[-1][0])
        return records

    def confirmation(self) -> Confirmed:
        """Return its present confirmation."""
        loading = self.loading
        return Confirmed(
            self.view, self.journal, self.last, PAUSED if self.is_resting else self.state.value, self.trouble or self.reason,
            loading.done_bytes if loading else 0, loading.total_bytes if loading else 0, self.free_bytes,
        )  # fmt: skip

    def deadline_ms(self) -> int | None:
        """Return when a message or request is due; None when none is due before a message comes."""
        full = self._asking_full.deadline_ms()
        due = [self.follower.deadline_ms(), full]
        if self.primary:
            due.append(self.follower.heartbeat_at_ms())
        if self._lacking is not None and full is None:
            due.append(self._lacking[1] + self.config.fill_wait_ms)
        return min((at for at in due if at is not None), default=None)
