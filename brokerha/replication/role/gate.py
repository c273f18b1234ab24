"""The gate: a primary holds messages and replies back until sync-N backups have the records (replication, section 3).

Messages and replies of a turn are held under the number of the journal's last record after it. They leave in order once so many
backups have confirmed that number in the gate's view. A gate is made for one view and dropped with it: its held replies were never
shown, and a client that waits for one asks again.

- Refusals, unknown outcomes and errors that tell no outcome pass at once.
- Replies that wait for ``timeout_ms``, and the oldest beyond the limit, become unknown; none is lost silently.
- Messages beyond the limit are dropped, oldest first, and counted: the protocols repeat important ones.
- A passed message is never taken back; with sync-N 0 all messages pass at once.

>>> gate = Gate(GateConfig(view=10, sync_n=1, backups=("b1",)))
>>> gate.hold(7, (), (Reply(1, "t", "accepted"),), (), Instant(0, 0))
>>> gate.release().replies
()
>>> gate.confirm("b1", 10, 7)
>>> [reply.status for reply in gate.release().replies]
['accepted']
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from brokerha.model.ids import Instant, NodeId
from brokerha.model.requests import REFUSED, UNKNOWN, Reply, TxReply
from brokerha.model.wire.messages import Outgoing

OUTCOME_UNKNOWN = "OutcomeUnknown"
OUTCOME_ERRORS = frozenset({"Aborted", "Conflict", "Rejected", "WrongState"})
"""Errors of a `TxReply` that tell the outcome of a transaction: they wait like any other answer."""
MARKS_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class GateConfig:
    """Settings of a gate."""

    view: int
    """View of the primary; confirmations of another view do not count."""
    sync_n: int
    timeout_ms: int = 5000
    """A reply that waits for so long becomes unknown."""
    messages_limit: int = 10_000
    """Messages held at once."""
    replies_limit: int = 100_000
    """Replies held at once, both kinds together."""
    backups: tuple[NodeId, ...] = ()
    """All backups that could confirm; for reasons."""


class Released(NamedTuple):
    """Messages and replies that can be shown now, each kind in order."""

    messages: tuple[Outgoing, ...] = ()
    replies: tuple[Reply, ...] = ()
    tx_replies: tuple[TxReply, ...] = ()


class Expired(NamedTuple):
    """Replies that waited too long, turned to unknown."""

    replies: tuple[Reply, ...] = ()
    tx_replies: tuple[TxReply, ...] = ()


class _HeldReply(NamedTuple):
    number: int
    since_ms: int
    reply: Reply | TxReply


class Gate:
    """Messages and replies that a primary holds back."""

    def __init__(self, config: GateConfig) -> None:
        self.config = config
        self.passed = 0
        """Highest number that enough backups have confirmed; only grows."""
        self.dropped = 0
        """Number of messages dropped because too many were held."""
        self._confirmed: dict[NodeId, int] = {}
        self._messages: deque[tuple[int, Outgoing]] = deque()
        self._replies: deque[_HeldReply] = deque()
        self._marks: deque[tuple[int, int]] = deque()
        """(number, since when) of turns that wait; tells for how long none passed."""
        self._oldest: tuple[int, int] | None = None
        """The first of them. Other threads read it (metrics, states), so questions read only this and change nothing."""
        self._free_messages: list[Outgoing] = []
        self._free_replies: list[Reply | TxReply] = []
        self._looked_ms = -1

    # ---- in

    def hold(
        self, number: int, messages: Sequence[Outgoing], replies: Sequence[Reply], tx_replies: Sequence[TxReply], now: Instant
    ) -> None:
        """Take in the messages and replies of a turn; ``number`` is that of the journal's last record after it."""
        if self.is_through(number):
            self._free_messages.extend(messages)
            self._free_replies.extend(replies)
            self._free_replies.extend(tx_replies)
            return
        if len(self._marks) < MARKS_LIMIT and (not self._marks or self._marks[-1][0] < number):
            self._marks.append((number, now.mono_ms))
            self._oldest = self._marks[0]
        self._messages.extend((number, message) for message in messages)
        while len(self._messages) > self.config.messages_limit:
            self._messages.popleft()
            self.dropped += 1
        both: tuple[Reply | TxReply, ...] = (*replies, *tx_replies)
        for reply in both:
            if tells_nothing(reply):
                self._free_replies.append(reply)
            else:
                self._replies.append(_HeldReply(number, now.mono_ms, reply))
        while len(self._replies) > self.config.replies_limit:
            held = self._replies.popleft()
            self._free_replies.append(self._unknown(held, f"more than {self.config.replies_limit} answers wait"))

    def confirm(self, process: NodeId, view: int, number: int) -> None:
        """Note that a backup durably holds all records up to ``number``, and obeys ``view``."""
        if view != self.config.view or number <= self._confirmed.get(process, 0):
            return
        self._confirmed[process] = number
        if 0 < self.config.sync_n <= len(self._confirmed):
            numbers = sorted(self._confirmed.values(), reverse=True)
            self.passed = max(self.passed, numbers[self.config.sync_n - 1])
            self._let_through()

    def forget(self, process: NodeId) -> None:
        """Forget the confirmations of this backup: it begins with another copy. Passed messages stay passed."""
        self._confirmed.pop(process, None)

    # ---- out

    def release(self) -> Released:
        """Return messages and replies that have passed since the last call."""
        if not self._free_messages and not self._free_replies:
            return Released()
        messages = tuple(self._free_messages)
        replies, tx_replies = _sorted_out(self._free_replies)
        self._free_messages.clear()
        self._free_replies.clear()
        return Released(messages, replies, tx_replies)

    def expire(self, now: Instant) -> Expired:
        """Return replies that have waited for ``timeout_ms``, as unknown ones."""
        self._looked_ms = now.mono_ms
        late: list[Reply | TxReply] = []
        while self._replies and self._replies[0].since_ms + self.config.timeout_ms <= now.mono_ms:
            late.append(self._unknown(self._replies.popleft(), f"waited for {self.config.timeout_ms} ms"))
        return Expired(*_sorted_out(late))

    # ---- questions

    def is_through(self, number: int) -> bool:
        """Tell whether enough backups hold this number."""
        return self.config.sync_n == 0 or number <= self.passed

    def blocked_ms(self, now: Instant) -> int:
        """Return how long the oldest waiting turn has waited; 0 when none waits."""
        oldest = self._oldest
        return max(0, now.mono_ms - oldest[1]) if oldest is not None else 0

    def is_lost(self, now: Instant) -> bool:
        """Tell whether sync-N was not reached in time: no new writes should be let in."""
        return self.blocked_ms(now) >= self.config.timeout_ms

    def missing(self, number: int) -> tuple[NodeId, ...]:
        """Return backups that have not confirmed this number."""
        return tuple(process for process in self.config.backups if self._confirmed.get(process, 0) < number)

    def reason(self, now: Instant) -> str:
        """Return why no turn passes; empty when turns pass."""
        oldest = self._oldest
        if oldest is None or now.mono_ms - oldest[1] < self.config.timeout_ms:
            return ""
        return f"for {now.mono_ms - oldest[1]} ms {self._missing_text(oldest[0])}"

    def deadline_ms(self) -> int | None:
        """Return when `expire` has work, or when sync-N counts as lost."""
        waiting = [self._replies[0].since_ms] if self._replies else []
        if self._marks and self._marks[0][1] + self.config.timeout_ms > self._looked_ms:
            waiting.append(self._marks[0][1])
        return min(waiting) + self.config.timeout_ms if waiting else None

    @property
    def held(self) -> tuple[int, int]:
        """Return the numbers of (messages, replies) that wait."""
        return len(self._messages), len(self._replies)

    # ---- within

    def _let_through(self) -> None:
        """Move confirmed messages and replies to those that can leave."""
        while self._messages and self._messages[0][0] <= self.passed:
            self._free_messages.append(self._messages.popleft()[1])
        while self._replies and self._replies[0].number <= self.passed:
            self._free_replies.append(self._replies.popleft().reply)
        while self._marks and self._marks[0][0] <= self.passed:
            self._marks.popleft()
        self._oldest = self._marks[0] if self._marks else None

    def _missing_text(self, number: int) -> str:
        """Return which backups a number lacks."""
        have = sum(1 for confirmed in list(self._confirmed.values()) if confirmed >= number)
        names = ", ".join(self.missing(number)) or "none is known"
        return f"{have} of sync-n {self.config.sync_n} backups hold record {number}; missing: {names}"

    def _unknown(self, held: _HeldReply, why: str) -> Reply | TxReply:
        """Return the same reply with an unknown outcome."""
        reply = held.reply
        reason = f"outcome of {reply.txid} unknown, {why}: {self._missing_text(held.number)}; ask again by its id"
        if isinstance(reply, Reply):
            return replace(reply, status=UNKNOWN, lsn=0, error=OUTCOME_UNKNOWN, reason=reason)
        return replace(reply, error=OUTCOME_UNKNOWN, reason=reason, answer={})


def tells_nothing(reply: Reply | TxReply) -> bool:
    """Tell whether a reply tells nothing that could still be lost: a refusal, an unknown outcome, a wrong request."""
    if isinstance(reply, Reply):
        return reply.status in (REFUSED, UNKNOWN)
    return bool(reply.error) and reply.error not in OUTCOME_ERRORS


def _sorted_out(replies: Iterable[Reply | TxReply]) -> tuple[tuple[Reply, ...], tuple[TxReply, ...]]:
    """Split replies into those to writes and those to steps of transactions, each in order."""
    both = tuple(replies)
    writes = tuple(reply for reply in both if isinstance(reply, Reply))
    return writes, tuple(reply for reply in both if isinstance(reply, TxReply))
