"""Settings of transactions: every limit and every wait of coordinator and participant."""

from __future__ import annotations

from dataclasses import dataclass

from brokerha.model.errors import ConfigurationError

CONTINUE = "continue"
ABORT = "abort"
LOST_BACKUP = (CONTINUE, ABORT)

MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TxConfig:
    """How one primary coordinates. Times in milliseconds, sizes in bytes."""

    open_limit: int = 1000
    """Transactions that are not over; more are refused."""
    bytes_limit: int = 256 * MEBIBYTE
    """Operations of all of them together; what would go beyond is refused."""
    timeout_ms: int = 60_000
    """An open transaction in which nothing happens for this long is rolled back, unless its client asked for another time."""
    timeout_max_ms: int = 3_600_000
    retry_ms: int = 250
    """What a participant does not answer is said again after this long, twice, then ever less often."""
    prepare_ms: int = 10_000
    """A participant that does not answer a prepare for this long counts as lost."""
    lost_backup: str = CONTINUE
    """What a lost participant means: go on with the others (``continue``), or roll back (``abort``)."""
    sync_n: int = 0
    """With ``continue``: how many backups must have it prepared before it is decided."""
    finished_limit: int = 10_000
    """Transactions that are over and whose end is still told; also those whose locks wait for the workers."""
    end_tries: int = 20
    """How often the end is told to a participant that does not answer, before it is waited for no longer."""
    event_bytes: int = MEBIBYTE
    """Events in one message, about."""

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
    """What one backup takes part in at most. Times in milliseconds, sizes in bytes."""

    open_limit: int = 2000
    bytes_limit: int = 512 * MEBIBYTE
    retry_ms: int = 250
    """Events that are missing are asked for again after this long."""
    ask_tries: int = 40
    """After asking so often in vain it refuses."""
    still_ms: int = 30_000
    """When nothing was heard of an open one for so long, its primary is asked whether it is still open."""
    idle_ms: int = 3_700_000
    """An open one that nothing is heard of for longer than any time-out was forgotten by its primary."""
    remembered_limit: int = 10_000
    """Transactions that ended here, and prepare records that came before their events."""
