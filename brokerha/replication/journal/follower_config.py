"""Settings of a backup towards its primary, and what it wants of the world."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.following.asking import AskConfig
from brokerha.following.loading import LoadConfig
from brokerha.model.ids import NodeId
from brokerha.model.ready import CopyDecision
from brokerha.model.records import Record
from brokerha.model.wire.messages import Outgoing
from brokerha.replication.journal.log import AnswerLimits


@dataclass(frozen=True, slots=True)
class JournalFollowerConfig:
    """Names, windows and waits of a backup."""

    process: NodeId
    others: tuple[NodeId, ...]
    """The other processes of the master, the one that is primary at the moment included."""
    fail_over_after_ms: int = 3000
    fill_wait_ms: int = 500
    """A record whose body was left out and is not here after this long is asked for in full."""
    coin_again_ms: int = 30_000
    """A backup that failed to load tries it again after this long, as long as it hears its primary."""
    batch_bytes: int = 8 * 1024 * 1024
    line_bytes: int = 64 * 1024 * 1024
    """Received and not written, and as much again after a gap; what comes beyond is dropped and asked for later."""
    bodies_bytes: int = 256 * 1024 * 1024
    """Bodies of transactions that are prepared, or that came through their queues."""
    answer: AnswerLimits = field(default=AnswerLimits())
    ask: AskConfig = field(default=AskConfig())
    load: LoadConfig = field(default=LoadConfig())

    @property
    def heartbeat_ms(self) -> int:
        """The primary hears something at least this often."""
        return max(1, self.fail_over_after_ms // 4)


@dataclass(frozen=True, slots=True)
class FollowerReady:
    """What a backup wants of the world: records written in one commit, then the rest, in this order."""

    records: tuple[tuple[int, Record], ...] = ()
    """For `Journal.follow`; answered by `followed` before there are more."""
    decisions: tuple[CopyDecision, ...] = ()
    messages: tuple[Outgoing, ...] = ()
