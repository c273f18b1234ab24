"""Follower: the follower's half of following a log: what every follower does, whatever its records are (PROTOCOL.md).

    records --> line --> take (at most one batch at the disk) --> durable --> the leader is told
                  gap --> REQUEST: asking            missing, damaged, told --> LOAD: loads --> another copy

Its holder is the policy: it knows which messages there are and who may say them, what a batch is, and what it says of itself. It calls `change`,
`look_for_gap`, `finish` and `retry` when something comes, `begin`, `question`, `loads.take` and `is_due` in each turn.

Invariants: records are taken in BASIC and REQUEST only; one batch is at the disk at a time, and none while a loaded copy is opened; nothing is asked for
that would find no room; whatever waits is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from brokerha.following.asking import AskConfig, Asking, Range
from brokerha.following.line import Line
from brokerha.following.loading import LoadConfig, Loads
from brokerha.following.machine import FOLLOWING, Event, State, after
from brokerha.model.ids import Instant, NodeId
from brokerha.model.invariants import invariant


@dataclass(frozen=True, slots=True)
class FollowConfig:
    """Waits of a follower."""

    name: NodeId
    heartbeat_ms: int
    """The leader hears something at least this often."""
    retry_ms: int = 2000
    """After a failure of the disk records are taken again after this long."""
    ask: AskConfig = field(default=AskConfig())
    load: LoadConfig = field(default=LoadConfig())


class Follower:
    """States, questions, the disk's turn, loads and heartbeats of one follower."""

    def __init__(self, config: FollowConfig, line: Line, on_left: Callable[[State, Event], None], pending_load: str = "") -> None:
        """``on_left`` is told which state was left because of what: whatever belonged to it is dropped there."""
        self.config = config
        self.state = State.IDLE
        self.line = line
        self.asking = Asking(config.ask)
        self.loads = Loads(config.load, config.name, pending_load)
        self.at_disk: Any = None
        """The batch that the disk has; None when it has none."""
        self.must_tell = True
        """Whether the leader is to be told where this follower stands, before the next heartbeat is due."""
        self._on_left = on_left
        self._retry_at_ms: int | None = None
        self._heartbeat_at_ms: int | None = None

    @property
    def is_following(self) -> bool:
        """Whether records are taken, and reads served."""
        return self.state in FOLLOWING

    @property
    def may_write(self) -> bool:
        """Whether the disk may get a batch now."""
        is_free = self.at_disk is None and self._retry_at_ms is None
        return is_free and self.is_following and not self.loads.is_opening

    # ---- inputs

    def change(self, event: Event) -> None:
        """Let the machine take an event; one that means nothing in this state changes nothing."""
        before, self.state = self.state, after(self.state, event)
        if self.state is before:
            return
        self.must_tell = True
        self.asking.stop()
        if before is State.LOAD:
            self.loads.stop()
        self._on_left(before, event)

    def look_for_gap(self, sources: tuple[NodeId, ...], now: Instant) -> None:
        """Ask for what is missing, if anything is; the first of the sources is the leader."""
        gap = self.line.gap()
        self.change(Event.FILLED if gap is None else Event.GAP)
        if gap is not None:
            self.asking.want(gap, sources, now)

    def begin(self, batch: Any) -> None:
        """The disk gets a batch."""
        invariant(self.at_disk is None, "one batch is at the disk at a time", batch=batch)
        self.at_disk = batch

    def finish(self) -> Any:
        """The disk has done what it was asked, or has failed; returns what that was."""
        invariant(self.at_disk is not None, "the disk answers what it was asked")
        batch, self.at_disk = self.at_disk, None
        return batch

    def retry(self, now: Instant) -> None:
        """The disk failed: it gets nothing for a while, and the leader is told."""
        self.must_tell = True
        self._retry_at_ms = now.mono_ms + self.config.retry_ms

    def wake(self, now: Instant) -> bool:
        """Whether that while has just passed."""
        if self._retry_at_ms is None or now.mono_ms < self._retry_at_ms:
            return False
        self._retry_at_ms = None
        return True

    # ---- output

    def question(self, now: Instant) -> tuple[NodeId, Range] | None:
        """The question that is due; none as long as there is no room for what it would bring."""
        return self.asking.take(now) if self.line.has_room else None

    def is_due(self, now: Instant) -> bool:
        """Whether the leader has to be told now; it counts as told then."""
        if not self.must_tell and self._heartbeat_at_ms is not None and now.mono_ms < self._heartbeat_at_ms:
            return False
        self.must_tell = False
        self._heartbeat_at_ms = now.mono_ms + self.config.heartbeat_ms
        return True

    def heartbeat_at_ms(self) -> int:
        """When it has to be told at the latest."""
        return 0 if self.must_tell or self._heartbeat_at_ms is None else self._heartbeat_at_ms

    def deadline_ms(self) -> int | None:
        """When a question, a retry or a load is due; None when nothing is."""
        asking = self.asking.deadline_ms() if self.line.has_room else None
        loading = self.loads.deadline_ms() if self.at_disk is None else None
        return min((at for at in (self._retry_at_ms, asking, loading) if at is not None), default=None)
