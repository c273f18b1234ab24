"""What one round of a master brings."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.ids import Lsn, Ordered, TxId
from brokerha.model.messages import Outgoing
from brokerha.model.records import Record, Rewound, StateTaken


@dataclass(slots=True)
class RoundResult:
    """What one round brought: records first, then messages."""

    records: list[Record] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    state: StateTaken | None = None
    """The state that was taken over; then nothing is added."""
    known: dict[TxId, Lsn] = field(default_factory=dict)
    """What was accepted here and is synchronised by that state."""
    rewound: Rewound | None = None
    """Sides of a split came together: what is behind its LSN is void, and a lineage begins."""
    first_lsn: Lsn = 0
    added: tuple[Ordered, ...] = ()
