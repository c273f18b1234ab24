"""What one round of a master brings."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.ids import Lsn, NodeId, Ordered, TxId
from brokerha.model.records import Added, Outcomes, Record, Rewound, StateTaken
from brokerha.model.wire.messages import Outgoing


def is_derived(record: Record) -> bool:
    """Whether a crash may lose it (R18): a place in the order that streams and promises give again, or results that a worker has.

    Not so a place that came with a tail or a recovered list.
    """
    if isinstance(record, Added):
        return bool(record.used)
    return isinstance(record, Outcomes) and bool(record.results)


@dataclass(slots=True)
class RoundResult:
    """What one round brought: records first, then messages."""

    records: list[Record] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    looks: list[NodeId] = field(default_factory=list)
    """Members of which the broker is asked whether anybody reads their inbox."""
    state: StateTaken | None = None
    """The state that was taken over; then nothing is added."""
    known: dict[TxId, Lsn] = field(default_factory=dict)
    """What was accepted here and is synchronised by that state."""
    rewound: Rewound | None = None
    """Sides of a split came together: what is after its LSN is void, and a lineage begins."""
    first_lsn: Lsn = 0
    added: tuple[Ordered, ...] = ()
