"""What one round of a master brings."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.ids import Lsn, Ordered
from brokerha.model.messages import Outgoing
from brokerha.model.records import Record


@dataclass(slots=True)
class RoundResult:
    """What one round brought: records first, then messages."""

    records: list[Record] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    first_lsn: Lsn = 0
    added: tuple[Ordered, ...] = ()
