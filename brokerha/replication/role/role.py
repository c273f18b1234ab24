"""The role of one process: elections, promises, fail-over (replication, section 4).

    no primary heard for long enough   Candidate ->  <- Vote        primary: the feed begins, all others hear it
      STANDBY -> CANDIDATE               votes needed                 CANDIDATE -> PRIMARY

The number of a view names its primary, so that two processes can never start the same one. The votes needed are ``processes -
sync_n``: one of the voters has confirmed each released record, and it votes only for a journal that reaches at least as far as its
own. A candidate promises its view only when it has the votes of the others. Asking alone changes nothing, so a process that only
lost touch for a while disturbs none.

- A promise is durable before the message that reveals it (`RoleReady`). It never goes back.
- A process that promised to a view obeys no lower one (`obeys`).
- A process that sees a higher view than the one it acts in steps down at once.
- A primary that no process hears need not step down: the gate holds its messages.
- Time during which the process was stopped does not count as silence of others.

The other half of fencing is with the caller: it neither follows nor confirms what `obeys` refuses, and a primary counts only
confirmations of its own view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from brokerha.model.errors import USE_FORCE
from brokerha.model.ids import Instant, NodeId
from brokerha.model.invariants import invariant
from brokerha.model.wire.messages import Message, Outgoing
from brokerha.model.wire.process_messages import Candidate, Vote
from brokerha.replication.journal.log import FIRST_VIEW
from brokerha.replication.role.config import PLACES, RoleChange, RoleConfig, RoleReady, place_of, term_of, view_of
from brokerha.replication.role.table import RoleEvent, RoleState, after

TRIES_LIMIT = 4
"""After so many tries the pauses between them stop growing."""
YIELDS = 2
"""Number of times in a row that a candidate yields to one with a longer journal."""
Last = tuple[int, int]


@dataclass(slots=True)
class Candidacy:
    """One candidacy of a process."""

    view: int = 0
    is_by_hand: bool = False
    """Whether an operator wants it: then a live primary does not prevent it, and is followed meanwhile."""
    ends_ms: int = 0
    ask_at_ms: int = 0
    votes: set[NodeId] = field(default_factory=set)
    refusals: dict[NodeId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Standing:
    """The knowledge of a voter about itself."""

    promised: int
    """Highest view that it promised to, acts in or has records of."""
    journal: str
    last: tuple[int, int]
    may_vote: bool
    live_primary: str
    """Name of the primary that it hears; empty when it hears none."""
    are_all_asked: bool = False
    """Whether a candidate needs the vote of every process."""
    own_view: int = 0
    """View for which it stands itself with a journal as good as the candidate's; 0 when it does not."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a candidate."""

    is_granted: bool
    reason: str = ""
    is_behind: bool = False
    """Whether the candidate's journal ends before the voter's, which is the reason of the refusal."""


def judge(candidate: Candidate, own: Standing) -> Verdict:
    """Return the vote of a process, with the reason of a refusal (replication, section 4).

    It checks these rules, one after the other:

        view          it promised no other process a view at or above it
        journal       whole, and of the same name; an empty one proves nothing about confirmed records
        liveness      no primary was heard recently, unless an operator wants another one
        reach         the candidate's last (view, number) is at or above the voter's own

    An empty journal may belong to a process that lost its disk, and its promises with it. So it counts only for the very first
    election, that of place 0 whose journal has not seen a view yet. Later it counts if the process promised in that election and
    still knows it. Where every vote is needed (sync-N 0) it counts always: no other process has more.
    """
    if candidate.view < own.promised:
        return Verdict(is_granted=False, reason=f"promised to view {own.promised}")
    if candidate.view < own.own_view and not candidate.is_by_hand:
        return Verdict(is_granted=False, reason=f"it stands for view {own.own_view} itself")
    if not own.may_vote:
        return Verdict(is_granted=False, reason="its journal is not whole")
    is_begin = place_of(candidate.view) == 0 and candidate.last[0] <= FIRST_VIEW
    is_known = own.promised >= PLACES or own.are_all_asked
    if own.last[1] == 0 and not is_begin and not is_known:
        return Verdict(is_granted=False, reason="its journal is empty")
    if own.last[1] and candidate.last[1] and candidate.journal != own.journal:
        return Verdict(is_granted=False, reason=f"its journal is {own.journal}, not {candidate.journal}")
    if own.live_primary and not candidate.is_by_hand:
        return Verdict(is_granted=False, reason=f"it hears {own.live_primary} as primary")
    if own.last[1] and candidate.last < own.last:
        reason = f"its journal ends with record {own.last[1]} of view {own.last[0]}"
        return Verdict(is_granted=False, reason=reason, is_behind=True)
    return Verdict(is_granted=True)


def nobody_text(config: RoleConfig, votes_needed: int, refusals: Mapping[NodeId, str]) -> str:
    """Return why there is no primary, and how an operator makes this process one."""
    needs = f"{config.process} needs {votes_needed} votes of {len(config.processes)} processes"
    by_hand = f"brokerha promote {config.process}"
    if config.sync_n == 0:
        text = f"with sync-n 0 nobody takes over by itself, because it may lack what was accepted; {needs}, or {by_hand} --force"
    elif not config.is_automatic:
        text = f"fail-over is by hand: {by_hand}"
    else:
        text = f"{needs}, or {by_hand} --force"
    said = "; ".join(f"{process}: {why}" for process, why in sorted(refusals.items()))
    return f"no primary: {text}" + (f" ({said})" if said else "")


def forced_text(config: RoleConfig, last: tuple[int, int]) -> str:
    """Return what may be lost when this process becomes primary without votes."""
    since = f"after record {last[1]} of view {last[0]}" if last[1] else "so far"
    return f"by hand, without votes: what only {', '.join(config.others)} wrote {since} is lost"


class Role:
    """The role of one process of a master, and how it changes."""

    def __init__(self, config: RoleConfig, journal: str, promised_view: int, last: Last, now: Instant) -> None:
        """Take the name of the ``journal`` and the ``last`` (view, number) of its records, (…, 0) when it is empty."""
        self.config = config
        self.journal = journal
        self.last = last
        self.state = RoleState.STANDBY
        self.promised = max(promised_view, last[0])
        """Highest view that this process has promised to, acted in, or has records of."""
        self.may_vote = True
        """Whether the own journal is whole. The caller sets it to False while a snapshot replaces it."""
        self.reason = ""
        """Reason of its role."""
        self._seen_view = self.promised
        self._view = last[0]
        self._candidacy = Candidacy()
        self._tries = 0
        self._yields = 0
        self._heard_ms: int | None = None
        self._asked_ms = now.mono_ms
        """When the broker was last asked about the primary."""
        self._confirmed_ms: dict[NodeId, int] = {}
        self._elected_ms = now.mono_ms
        self._told_ms: dict[NodeId, int] = {}
        self._refused: tuple[NodeId, Candidate] | None = None
        """The last candidate refused for a silent primary; it gets another answer if the broker says that the primary is gone."""
        self._waits_until_declared = False
        self._paused_view = 0
        self._looked_ms = now.mono_ms
        self._promise = 0
        self._out: list[Outgoing] = []
        self._told: tuple[RoleState, int] = (RoleState.STANDBY, 0)
        self._stand_at_ms = now.mono_ms + self._first_wait_ms()
        if len(config.processes) == 1:
            self._act_alone(now)

    # ---- messages

    def on_candidate(self, sender: NodeId, message: Candidate, now: Instant) -> bool:
        """Answer a candidate; return whether it gets the vote."""
        self._look(now)
        if sender == self.config.process or self.config.process_of(message.view) != sender:
            return False
        are_all_asked = self.config.sync_n == 0
        live = self.live_primary(now)
        # Of two equal candidates one steps back, not both.
        own_view = self._candidacy.view if self.state is RoleState.CANDIDATE and message.last <= self.last else 0
        standing = Standing(self.promised, self.journal, self.last, self.may_vote, live, are_all_asked, own_view)
        verdict = judge(message, standing)
        if verdict.is_granted:
            self._promise_to(message.view)
            self._see(message.view)
            self._step(RoleEvent.GRANTED, f"voted for {sender} in view {message.view}")
            self._wait(now, self.config.silence_ms)
        elif verdict.is_behind:
            # The better journal stands as soon as it can, above views that others may have promised by then. Several that stand at
            # once would take the votes from each other, again and again.
            self._see(message.view)
            self._stand_at_ms = min(self._stand_at_ms, now.mono_ms + self.config.turn_ms(sender))
        elif live and self._is_missed(now):
            self._refused = sender, message
        self._say(sender, Vote(message.view, verdict.is_granted, self.promised, self.last, verdict.reason))
        return verdict.is_granted

    def on_vote(self, sender: NodeId, message: Vote, now: Instant) -> None:
        """Take in the vote of another process, or its message that there is a higher view."""
        self._look(now)
        if sender not in self.config.others:
            return
        self.on_view(message.promised, now)
        if self.state is not RoleState.CANDIDATE or message.view != self._candidacy.view:
            return
        if message.is_granted:
            self._candidacy.refusals.pop(sender, None)
            self._candidacy.votes.add(sender)
            self._count(now)
        elif sender not in self._candidacy.votes:
            self._candidacy.refusals[sender] = message.reason
            if message.last > self.last and self._yields < YIELDS and not self._candidacy.is_by_hand:
                self._yields += 1
                self._give_up(now, 2 * self.config.round_ms)

    def heard(self, sender: NodeId, view: int, now: Instant) -> None:
        """Note that a primary spoke (`Replicate`) in this view. Follow it only if `obeys` allows."""
        self._look(now)
        if sender == self.config.process or self.config.process_of(view) != sender:
            return
        if not self.obeys(view):
            self._tell(sender, view, now)
            return
        self._see(view)
        self._view = view
        self._heard_ms, self._refused = now.mono_ms, None
        self._tries = self._yields = 0
        if self.state is RoleState.PRIMARY:
            self._step(RoleEvent.OUTRANKED, f"{sender} is primary of view {view}")
        elif not self._candidacy.is_by_hand or view > self._candidacy.view:
            self._step(RoleEvent.HEARD, f"{sender} is primary of view {view}")
        if self._waits_until_declared and view > self._paused_view:
            self._step(RoleEvent.DECLARED, f"{sender} is primary of view {view}")
        self._wait(now, self.config.silence_ms)

    def on_view(self, view: int, now: Instant) -> None:
        """Note a view in a message of a process that obeys it, or promised to it."""
        self._look(now)
        self._see(view)
        if self.state is RoleState.CANDIDATE and view > self._candidacy.view:
            self._give_up(now, 0)
        elif self.state is RoleState.PRIMARY and view > self._view:
            self._step(RoleEvent.OUTRANKED, f"there is view {view}")
            self._wait(now, self.config.silence_ms)

    def on_confirmed(self, sender: NodeId, view: int, now: Instant) -> None:
        """Note that a backup obeys ``view`` (`Confirmed`)."""
        self.on_view(view, now)
        if view == self._view and sender in self.config.others:
            self._confirmed_ms[sender] = now.mono_ms

    def on_absence(self, process: NodeId, now: Instant) -> None:
        """Note that the process of a primary has ended, as the broker says; one that was heard meanwhile is there."""
        self._look(now)
        if self._is_missed(now) and process == self.primary:
            self._heard_ms = None
            refused, self._refused = self._refused, None
            is_settled = refused is not None and self.on_candidate(*refused, now)
            if not is_settled and self._may_stand():
                self._stand_at_ms = min(self._stand_at_ms, now.mono_ms + self.config.turn_ms(process))

    # ---- this process

    def moved(self, last: Last, journal: str = "") -> None:
        """Note that the own journal grew, was cut, or was replaced by another one of this name; ``last`` is durable."""
        if last < self.last:
            # Votes were for the journal as it was; the next candidacy takes another view.
            self._see(self._candidacy.view)
        if last < self.last or last[0] >= self._candidacy.view:
            self._step(RoleEvent.REFUSED, f"its journal ends with record {last[1]} of view {last[0]}")
        self.last = last
        self.journal = journal or self.journal
        self._see(last[0])
        self.promised = max(self.promised, last[0])

    def promoted_by_hand(self, now: Instant, *, force: bool = False) -> str:
        """Try to become primary for an operator. Returns why it does not try, empty when it does.

        With ``force`` its own vote is enough; `reason` then names what may be lost.
        """
        self._look(now)
        if self.state is RoleState.PRIMARY:
            return ""
        if not self.may_vote:
            return f"the journal of {self.config.process} is not whole: wait until its load is finished"
        if force:
            self._act(self._next_view(), now, RoleEvent.FORCED, forced_text(self.config, self.last))
            return ""
        if not self.last[1] and self.config.place:
            return f"the journal of {self.config.process} is empty: promote another process, or {USE_FORCE}"
        self._step(RoleEvent.RESUMED, "by hand")
        self._stand(now, is_by_hand=True)
        return ""

    def step_down(self, reason: str, now: Instant) -> None:
        """Step down for another process; continue by itself if that one does not come."""
        self._step(RoleEvent.HANDED_OVER, reason)
        self._wait(now, 2 * self.config.silence_ms)

    def pause(self, reason: str, *, until_declared: bool = False) -> None:
        """Go to idle mode; ``until_declared``: until there is a new primary, else until `resume`."""
        self._waits_until_declared = until_declared
        self._paused_view = self._view
        self._step(RoleEvent.PAUSED, reason)

    def resume(self, now: Instant) -> None:
        """Leave idle mode as a backup."""
        self._look(now)
        if self.state is RoleState.IDLE:
            self._step(RoleEvent.RESUMED, "resumed")
            self._wait(now, self.config.silence_ms)
            if len(self.config.processes) == 1:
                self._act_alone(now)

    def wake(self, now: Instant) -> None:
        """Act on expired deadlines."""
        self._look(now)
        if self.state is RoleState.CANDIDATE:
            if now.mono_ms >= self._candidacy.ends_ms or not self.may_vote:
                self._give_up(now, 0)
            elif now.mono_ms >= self._candidacy.ask_at_ms:
                self._ask(now)
        elif self._may_stand() and now.mono_ms >= self._stand_at_ms:
            self._stand(now)

    def take(self, now: Instant) -> RoleReady:
        """Return the actions that are due; the promise comes first."""
        self.wake(now)
        promise, self._promise = self._promise, 0
        messages, self._out = tuple(self._out), []
        state = RoleState.STANDBY if self.state is RoleState.CANDIDATE else self.state
        told = (state, self._view if state is RoleState.PRIMARY else 0)
        change = None
        if told != self._told:
            self._told = told
            change = RoleChange(state, self._view if state is RoleState.PRIMARY else self._seen_view, self.reason)
        look = ""
        if self._is_missed(now) and now.mono_ms - self._asked_ms >= self.config.gone_ms:
            look, self._asked_ms = self.primary, now.mono_ms
        return RoleReady(promise, messages, look, change)

    # ---- questions

    def obeys(self, view: int) -> bool:
        """Tell whether records of this view can be taken and confirmed."""
        return view >= self.promised and not (view == self._view and self.state is RoleState.PRIMARY)

    @property
    def view(self) -> int:
        """Return the view in which it acts, until `take` ends that; otherwise the last view with a primary that it heard."""
        return self._told[1] or self._view

    @property
    def primary(self) -> NodeId:
        """Return the acting process as far as this one knows; empty when it knows none."""
        if self.state is RoleState.PRIMARY:
            return self.config.process
        return self.config.process_of(self._view) if self._heard_ms is not None else ""

    def live_primary(self, now: Instant) -> NodeId:
        """Return the live primary as far as this process knows, itself included."""
        if self.state is RoleState.PRIMARY:
            return self.config.process if self.is_confirmed(now) else ""
        if self._heard_ms is None or now.mono_ms - self._heard_ms >= self.config.fail_over_after_ms:
            return ""
        return self.primary

    @property
    def votes_needed(self) -> int:
        """Return the votes that this process would need, its own included: an empty journal needs that of every process."""
        return self.config.votes_needed if self.last[1] else len(self.config.processes)

    def is_confirmed(self, now: Instant) -> bool:
        """Tell whether it is primary and enough backups recently said that they obey it. No lease: only a sign of health."""
        if self.state is not RoleState.PRIMARY:
            return False
        since = now.mono_ms - self.config.fail_over_after_ms
        lately = sum(1 for heard_ms in self._confirmed_ms.values() if heard_ms > since)
        return lately >= self.config.sync_n or self._elected_ms > since

    def deadline_ms(self) -> int | None:
        """Return when `wake` has work."""
        if self.state is RoleState.CANDIDATE:
            return min(self._candidacy.ends_ms, self._candidacy.ask_at_ms)
        if self.state is RoleState.PRIMARY:
            return None
        due = [self._looked_ms + self.config.watch_ms]
        if self._may_stand():
            due.append(self._stand_at_ms)
        if self._heard_ms is not None and self.state is RoleState.STANDBY:
            due.append(max(self._heard_ms, self._asked_ms) + self.config.gone_ms)
        return min(due)

    def explain(self, now: Instant) -> str:
        """Return one line for people: its role, the reason, and what to do when there is no primary."""
        if self.state in (RoleState.PRIMARY, RoleState.IDLE) or self.live_primary(now):
            return self.reason
        return nobody_text(self.config, self.votes_needed, self._candidacy.refusals)

    def _is_missed(self, now: Instant) -> bool:
        """Tell whether a primary that was heard is silent for more than a heartbeat."""
        is_standby = self.state is RoleState.STANDBY and self._heard_ms is not None
        return is_standby and now.mono_ms - (self._heard_ms or 0) >= self.config.gone_ms

    # ---- standing

    def _may_stand(self) -> bool:
        """Tell whether it stands by itself. An empty journal begins only at place 0, and only with all processes."""
        is_able = self.state is RoleState.STANDBY and self.may_vote and self.config.is_automatic
        return is_able and (self.last[1] > 0 or self._is_beginning())

    def _is_beginning(self) -> bool:
        """Tell whether this process begins a master that never had a primary."""
        return self.config.place == 0 and self.last[0] <= FIRST_VIEW

    def _stand(self, now: Instant, *, is_by_hand: bool = False) -> None:
        """Ask for votes; act at once when only its own is needed."""
        ends_ms = now.mono_ms + (self.config.fail_over_after_ms if is_by_hand else self.config.round_ms)
        self._candidacy = Candidacy(self._next_view(), is_by_hand, ends_ms, votes={self.config.process})
        self._step(RoleEvent.STANDS, f"stands for view {self._candidacy.view}")
        self._count(now)
        if self.state is RoleState.CANDIDATE:
            self._ask(now)

    def _ask(self, now: Instant) -> None:
        self._candidacy.ask_at_ms = now.mono_ms + max(1, self.config.round_ms // 3)
        for process in self.config.others:
            if process not in self._candidacy.votes:
                asked = self._candidacy
                self._say(process, Candidate(asked.view, self.journal, self.last, asked.is_by_hand))

    def _count(self, now: Instant) -> None:
        if len(self._candidacy.votes) >= self.votes_needed and self.may_vote:
            voters = ", ".join(sorted(self._candidacy.votes))
            self._act(self._candidacy.view, now, RoleEvent.ELECTED, f"elected by {voters}")

    def _act(self, view: int, now: Instant, event: RoleEvent, reason: str) -> None:
        """Become primary of a view."""
        invariant(view > self.promised, "a new view is above all promises", view=view, promised=self.promised)
        self._promise_to(view)
        self._see(view)
        self._view = view
        self._elected_ms = now.mono_ms
        self._tries = self._yields = 0
        self._step(event, f"primary of view {view}: {reason}")

    def _act_alone(self, now: Instant) -> None:
        """Act as the only process: the view stays, unless it promised to another one among other processes."""
        view = max(self.last[0], FIRST_VIEW)
        if self.promised > view:
            self._act(self._next_view(), now, RoleEvent.ALONE, "the only process of its master")
            return
        self._view = view
        self._step(RoleEvent.ALONE, "the only process of its master")

    def _give_up(self, now: Instant, longer_ms: int) -> None:
        """Wait before the next try: longer each time and at each place, so that no two keep in step."""
        self._tries = min(self._tries + 1, TRIES_LIMIT)
        self._step(RoleEvent.REFUSED, f"not elected in view {self._candidacy.view}")
        self._wait(now, self.config.pause_ms(self._tries) + longer_ms)

    def _next_view(self) -> int:
        return view_of(term_of(max(self._seen_view, self.promised)) + 1, self.config.place)

    def _first_wait_ms(self) -> int:
        """Return how long a process that starts waits for a primary.

        Place 0 asks at once, which disturbs no process, unless its own vote is enough: then it listens first.
        """
        is_first = self.promised <= FIRST_VIEW
        if self.config.place == 0 and (is_first or self.votes_needed > 1):
            return 0
        return self.config.first_wait_ms

    # ---- within

    def _look(self, now: Instant) -> None:
        """After a stop, hear the others before judging their silence."""
        gap = now.mono_ms - self._looked_ms
        self._looked_ms = max(self._looked_ms, now.mono_ms)
        if gap <= 2 * self.config.watch_ms:
            return
        if self._heard_ms is not None:
            self._heard_ms += gap
        if self.state is RoleState.CANDIDATE:
            self._give_up(now, 0)
        self._stand_at_ms = max(self._stand_at_ms + gap, now.mono_ms + self.config.watch_ms)

    def _see(self, view: int) -> None:
        self._seen_view = max(self._seen_view, view)

    def _promise_to(self, view: int) -> None:
        if view > self.promised:
            self.promised = self._promise = view

    def _wait(self, now: Instant, wait_ms: int) -> None:
        self._stand_at_ms = now.mono_ms + wait_ms

    def _tell(self, sender: NodeId, view: int, now: Instant) -> None:
        """Tell a primary of an older view, now and then, that there is a newer one."""
        if now.mono_ms - self._told_ms.get(sender, -(10**12)) >= self.config.watch_ms:
            self._told_ms[sender] = now.mono_ms
            reason = f"promised to view {self.promised}"
            self._say(sender, Vote(view, is_granted=False, promised=self.promised, last=self.last, reason=reason))

    def _say(self, process: NodeId, message: Message) -> None:
        self._out.append(Outgoing(process, message))

    def _step(self, event: RoleEvent, reason: str) -> None:
        state = after(self.state, event)
        if state is not self.state:
            self.state, self.reason = state, reason
