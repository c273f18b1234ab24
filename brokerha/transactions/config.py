"""Settings of transactions: every limit and timeout of coordinator and participant."""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.errors import ConfigurationError

CONTINUE = "continue"
ABORT = "abort"
LOST_BACKUP = (CONTINUE, ABORT)

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TxConfig:
    """Settings of the coordinator of one primary. Times in milliseconds, sizes in bytes."""

    open_limit: int = 1000
    """Limit of transactions that are not over; more are refused."""
    bytes_limit: int = 256 * MEBIBYTE
    """Limit of the operations and findings of all of them together; more are refused."""
    timeout_ms: int = 60_000
    """Idle time after which an open transaction is rolled back, unless its client asked for another one."""
    timeout_max_ms: int = 3_600_000
    retry_ms: int = 250
    """An unanswered message to a participant is repeated after this long, twice, then at growing intervals."""
    prepare_ms: int = 10_000
    """A participant that does not answer a prepare for this long counts as lost."""
    lost_backup: str = CONTINUE
    """Effect of a lost participant: go on with the others (``continue``), or roll back (``abort``)."""
    sync_n: int = 0
    """With ``continue``: number of backups that must have it prepared before the decision."""
    finished_limit: int = 10_000
    """Limit of remembered ends, and of transactions whose locks wait for the workers."""
    end_tries: int = 20
    """Limit of repetitions of the end to a participant that does not answer."""
    event_bytes: int = MEBIBYTE
    """Approximate size of the events in one message."""

    def __post_init__(self) -> None:
        if self.lost_backup not in LOST_BACKUP:
            message = f"lost-backup = {self.lost_backup!r}: write one of {', '.join(LOST_BACKUP)}"
            raise ConfigurationError(message)
        if not 1 <= self.timeout_ms <= self.timeout_max_ms:
            message = f"tx-timeout-s is over its maximum: {self.timeout_ms} ms, at most {self.timeout_max_ms} ms"
            raise ConfigurationError(message)
        least = (self.open_limit, self.bytes_limit, self.retry_ms, self.prepare_ms, self.finished_limit, self.end_tries)
        if min(*least, self.event_bytes) < 1 or self.sync_n < 0:
            message = "limits and times of transactions must be at least 1"
            raise ConfigurationError(message)


@dataclass(frozen=True, slots=True)
class ParticipantConfig:
    """Limits of one backup's part in transactions. Times in milliseconds, sizes in bytes."""

    open_limit: int = 2000
    bytes_limit: int = 512 * MEBIBYTE
    retry_ms: int = 250
    """Missing events are requested again after this long."""
    ask_tries: int = 40
    """After so many requests in vain it refuses."""
    still_ms: int = 30_000
    """After this long without news of an open one, its primary is asked whether it is still open."""
    idle_ms: int = 3_700_000
    """After this long without news, longer than any timeout, the primary has forgotten an open one."""
    remembered_limit: int = 10_000
    """Limit of remembered ends, and of prepare records that came before their events."""
