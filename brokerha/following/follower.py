"""Follower: the follower's half of following a log, the same for all followers and records (PROTOCOL.md).

    records --> line --> take (at most one batch at the disk) --> durable --> the leader is told
                  gap --> REQUEST: asking            missing, damaged, told --> LOAD: loads --> another copy

Its holder is the policy: it knows the messages and their allowed senders, the batches, and the report about itself. It calls
`change`, `look_for_gap`, `finish` and `retry` on input, and `begin`, `question`, `loads.take` and `is_due` in each turn.

Invariants: records are taken only in BASIC and REQUEST; one batch is at the disk at a time, and none while a loaded copy is opened;
no records are requested without room for them; waiting records are bounded.
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
    """Timeouts of a follower."""

    name: NodeId
    heartbeat_ms: int
    """Longest time between messages to the leader."""
    retry_ms: int = 2000
    """After a failure of the disk records are taken again after this long."""
    ask: AskConfig = field(default=AskConfig())
    load: LoadConfig = field(default=LoadConfig())


class Follower:
    """States, requests, batches at the disk, loads and heartbeats of one follower."""

    def __init__(self, config: FollowConfig, line: Line, on_left: Callable[[State, Event], None], pending_load: str = "") -> None:
        """Take ``on_left``, which is called with the state that was left and the event, and drops all that belonged to it."""
        self.config = config
        self.state = State.IDLE
        self.line = line
        self.asking = Asking(config.ask)
        self.loads = Loads(config.load, config.name, pending_load)
        self.at_disk: Any = None
        """The batch at the disk; None when there is none."""
        self.must_tell = True
        """Whether the leader is to be told this follower's state, before the next heartbeat is due."""
        self._on_left = on_left
        self._retry_at_ms: int | None = None
        self._heartbeat_at_ms: int | None = None

    @property
    def is_following(self) -> bool:
        """Tell whether records are taken, and reads served."""
        return self.state in FOLLOWING

    @property
    def may_write(self) -> bool:
        """Tell whether the disk can get a batch now."""
        is_free = self.at_disk is None and self._retry_at_ms is None
        return is_free and self.is_following and not self.loads.is_opening

    # ---- inputs

    def change(self, event: Event) -> None:
        """Give an event to the machine; one without effect in this state changes nothing."""
        before, self.state = self.state, after(self.state, event)
        if self.state is before:
            return
        self.must_tell = True
        self.asking.stop()
        if before is State.LOAD:
            self.loads.stop()
        self._on_left(before, event)

    def look_for_gap(self, sources: tuple[NodeId, ...], now: Instant) -> None:
        """Request missing records, if there are any; the first of the sources is the leader."""
        gap = self.line.gap()
        self.change(Event.FILLED if gap is None else Event.GAP)
        if gap is not None:
            self.asking.want(gap, sources, now)

    def begin(self, batch: Any) -> None:
        """Give a batch to the disk."""
        invariant(self.at_disk is None, "one batch is at the disk at a time", batch=batch)
        self.at_disk = batch

    def finish(self) -> Any:
        """End and return the disk's batch: it is done, or has failed."""
        invariant(self.at_disk is not None, "the disk answers what it was asked")
        batch, self.at_disk = self.at_disk, None
        return batch

    def retry(self, now: Instant) -> None:
        """Give the disk nothing for a while, because it failed, and tell the leader."""
        self.must_tell = True
        self._retry_at_ms = now.mono_ms + self.config.retry_ms

    def wake(self, now: Instant) -> bool:
        """Tell whether that while has just passed."""
        if self._retry_at_ms is None or now.mono_ms < self._retry_at_ms:
            return False
        self._retry_at_ms = None
        return True

    # ---- output

    def question(self, now: Instant) -> tuple[NodeId, Range] | None:
        """Return the request that is due; none while there is no room for its answer."""
        return self.asking.take(now) if self.line.has_room else None

    def is_due(self, now: Instant) -> bool:
        """Tell whether the leader has to be told now; it counts as told then."""
        if not self.must_tell and self._heartbeat_at_ms is not None and now.mono_ms < self._heartbeat_at_ms:
            return False
        self.must_tell = False
        self._heartbeat_at_ms = now.mono_ms + self.config.heartbeat_ms
        return True

    def heartbeat_at_ms(self) -> int:
        """Return when it has to be told at the latest."""
        return 0 if self.must_tell or self._heartbeat_at_ms is None else self._heartbeat_at_ms

    def deadline_ms(self) -> int | None:
        """Return when a request, a retry or a load is due; None when nothing is."""
        asking = self.asking.deadline_ms() if self.line.has_room else None
        loading = self.loads.deadline_ms() if self.at_disk is None else None
        return min((at for at in (self._retry_at_ms, asking, loading) if at is not None), default=None)
