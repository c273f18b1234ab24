"""A leader and a follower over a log of plain numbers: whatever is lost, doubled, held back or forgotten, the follower comes to the end.

The policies are the smallest there can be: a record is its number, a message one of four tuples, a disk writes at once or fails.

    ("push", number after which, records)    ("word", durable number)    ("ask", first, last)    ("missing", first)
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from brokerha.following.asking import AskConfig
from brokerha.following.follower import FollowConfig, Follower
from brokerha.following.leader import Followed, Window
from brokerha.following.line import Limits, Line, piece
from brokerha.following.machine import Event, State
from brokerha.model.ids import Instant

WINDOW = Window(entries=5, bytes=60, resend_ms=50)
SIZE = 10
"""Bytes of a record."""
LIMITS = Limits(entries=4, bytes=100)
MESSAGE_BYTES = 3 * SIZE
Message = tuple[Any, ...]


class Leading:
    """The leader's policy: a log that may be trimmed."""

    def __init__(self) -> None:
        self.end = self.kept_after = 0
        self.forget()

    def forget(self) -> None:
        """A restart: nothing is known of the follower."""
        self.peer = Followed("f")
        self.is_heard = False

    def on_message(self, message: Message, ms: int) -> None:
        if message[0] == "word":
            if not self.is_heard or message[1] < self.peer.applied:
                self.peer.stand(message[1])
            self.is_heard = True
            self.peer.confirm(message[1], ms)
        else:
            self.peer.want(*message[1:])

    def _part(self, first: int, last: int, limit_bytes: int) -> tuple[Message, int, int] | None:
        if first <= self.kept_after:
            return None
        last = min(last, first - 1 + max(1, min(limit_bytes, MESSAGE_BYTES) // SIZE))
        records = tuple(range(first, last + 1))
        return ("push", first - 1, records), last, SIZE * len(records)

    def take(self, ms: int) -> list[Message]:
        messages: list[Message] = []
        for first, last in self.peer.take_wanted():
            part = self._part(first, min(last, self.end), 1000) if first <= self.end else None
            if part is None:
                messages.append(("missing", first))
            else:
                messages.append(part[0])
                self.peer.note_sent(*part[1:])
        if not self.is_heard:
            return [*messages, ("push", 0, ())]
        if self.peer.applied < self.kept_after:
            # It cannot be pushed to any more: where the log ends shows it its gap.
            return [*messages, ("push", self.end, ())]
        self.peer.resend(self.peer.applied, WINDOW, ms)
        pushed = self.peer.push(self.peer.applied, self.end, WINDOW, self._part, ms)
        assert not pushed or pushed[-1][2][-1] <= self.peer.applied + WINDOW.entries
        assert sum(SIZE * len(message[2]) for message in pushed) <= WINDOW.bytes + MESSAGE_BYTES
        return messages + pushed


class Following:
    """The follower's policy: a disk with an end, and a load that copies the leader's end."""

    def __init__(self) -> None:
        self.durable = 0
        self.loads = 0
        self.restart()

    def restart(self) -> None:
        """What was not durable is gone."""
        self.line = Line(self.durable, LIMITS)
        config = FollowConfig("f", heartbeat_ms=100, retry_ms=30, ask=AskConfig(10, 80))
        self.core = Follower(config, self.line, self._on_left)
        self.core.change(Event.COINED)

    def _on_left(self, before: State, event: Event) -> None:
        del before
        if not self.core.is_following or event is Event.COINED:
            self.line.restart(self.durable)

    def on_message(self, message: Message, now: Instant) -> None:
        if message[0] == "missing":
            asking = self.core.asking
            if asking.first == message[1] and asking.on_missing("l", now):
                self.core.change(Event.MISSING)
        elif self.core.is_following:
            if not message[2] or message[2][-1] <= self.durable:
                self.core.must_tell = True
            self.line.add(piece(message[1] + 1, message[2], (SIZE,) * len(message[2])))
            self.core.look_for_gap(("l",), now)

    def take(self, leader: Leading, now: Instant) -> list[Message]:
        self.core.wake(now)
        if self.core.state is State.LOAD and self.core.at_disk is None:
            self.durable, self.loads = leader.end, self.loads + 1
            self.core.change(Event.LOADED)
            self.line.restart(self.durable)
        if self.core.may_write and self.line.pieces:
            self.core.begin(self.line.pop())
        messages: list[Message] = []
        question = self.core.question(now)
        if question is not None:
            messages.append(("ask", *question[1]))
        if self.core.is_due(now):
            messages.append(("word", self.durable))
        return messages

    def written(self, now: Instant, *, fails: bool) -> None:
        batch = self.core.finish()
        if fails:
            self.line.restart(self.durable)
            self.core.retry(now)
            return
        # Each record once, in order, without a gap.
        assert list(batch.items) == list(range(self.durable + 1, self.durable + 1 + len(batch.items)))
        self.durable = batch.items[-1]
        if not self.core.is_following:
            # It began to load meanwhile, and waits for its disk.
            self.line.restart(self.durable)
        self.core.must_tell = True


class Pair(RuleBasedStateMachine):
    """Both, with a mail that may do anything to what is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.ms = 1000
        self.leader, self.follower = Leading(), Following()
        self.to_leader: list[Message] = []
        self.to_follower: list[Message] = []

    @property
    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    @rule(count=st.integers(1, 12))
    def write(self, count: int) -> None:
        self.leader.end += count

    @rule(ms=st.sampled_from((1, 10, 60, 300)))
    def turn(self, ms: int) -> None:
        self.ms += ms
        self.to_follower += self.leader.take(self.ms)
        self.to_leader += self.follower.take(self.leader, self.now)

    @rule(ms=st.sampled_from((1, 60)))
    def exchange(self, ms: int) -> None:
        """A turn of both in which nothing is lost."""
        self.turn(ms)
        while self.to_leader:
            self.leader.on_message(self.to_leader.pop(0), self.ms)
        self.to_follower += self.leader.take(self.ms)
        while self.to_follower:
            self.follower.on_message(self.to_follower.pop(0), self.now)

    @precondition(lambda self: self.follower.core.at_disk is not None)
    @rule(fails=st.booleans())
    def write_to_disk(self, *, fails: bool) -> None:
        self.follower.written(self.now, fails=fails)

    @precondition(lambda self: self.to_follower)
    @rule(data=st.data(), again=st.booleans())
    def deliver(self, data: st.DataObject, *, again: bool) -> None:
        at = data.draw(st.integers(0, len(self.to_follower) - 1))
        message = self.to_follower[at] if again else self.to_follower.pop(at)
        self.follower.on_message(message, self.now)

    @precondition(lambda self: self.to_leader)
    @rule(data=st.data(), again=st.booleans())
    def answer(self, data: st.DataObject, *, again: bool) -> None:
        at = data.draw(st.integers(0, len(self.to_leader) - 1))
        self.leader.on_message(self.to_leader[at] if again else self.to_leader.pop(at), self.ms)

    @rule()
    def lose_all(self) -> None:
        self.to_leader.clear()
        self.to_follower.clear()

    @rule()
    def restart_leader(self) -> None:
        self.leader.forget()

    @rule()
    def restart_follower(self) -> None:
        self.follower.restart()

    @rule(kept=st.integers(0, 20))
    def trim(self, kept: int) -> None:
        self.leader.kept_after = max(self.leader.kept_after, min(self.leader.end - kept, self.follower.durable + 3))

    @invariant()
    def what_is_under_way_and_waits_is_bounded(self) -> None:
        peer, line = self.leader.peer, self.follower.line
        assert peer.in_flight_bytes == sum(size for _, size in peer.in_flight)
        assert peer.sent <= self.leader.end
        assert sum(len(each.numbers) for each in line.pieces) <= LIMITS.entries
        assert len(line) <= 2 * LIMITS.entries + MESSAGE_BYTES // SIZE
        assert line.end >= self.follower.durable

    @invariant()
    def nothing_is_durable_that_the_leader_does_not_have(self) -> None:
        assert self.follower.durable <= self.leader.end

    def teardown(self) -> None:
        """The last thing that was written is lost on its way, the disk fails once more; then peace comes, and the follower is at the end soon."""
        self.exchange(60)
        self.leader.end += 1
        self.turn(60)
        self.lose_all()
        fails = True
        for _ in range(400):
            if self.follower.core.at_disk is not None:
                self.follower.written(self.now, fails=fails)
                fails = False
            self.exchange(20)
        assert self.follower.durable == self.leader.end
        assert self.follower.core.state is State.BASIC
        assert self.follower.line.gap() is None
        assert self.leader.peer.in_flight_bytes == 0


Pair.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPair = Pair.TestCase
