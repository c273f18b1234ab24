"""RoundResult: the result of one round of a master."""

from __future__ import annotations

from dataclasses import dataclass, field

from brokerha.model.ids import Lsn, NodeId, Ordered, TxId
from brokerha.model.records import Added, Outcomes, Record, Rewound, StateTaken
from brokerha.model.wire.messages import Outgoing


def is_derived(record: Record) -> bool:
    """Tell whether a crash can lose this record (R18): streams and promises give its order again, or a worker has its results.

    A place that came with a tail or a recovered list cannot be lost.
    """
    if isinstance(record, Added):
        return bool(record.used)
    return isinstance(record, Outcomes) and bool(record.results)


@dataclass(slots=True)
class RoundResult:
    """The result of one round: records first, then messages."""

    records: list[Record] = field(default_factory=list)
    messages: list[Outgoing] = field(default_factory=list)
    looks: list[NodeId] = field(default_factory=list)
    """Members about whose inbox the broker is asked: does a consumer read it?"""
    state: StateTaken | None = None
    """The state that was taken over; then nothing is added."""
    known: dict[TxId, Lsn] = field(default_factory=dict)
    """Transactions that were accepted here and that this state has synchronised, with their LSNs."""
    rewound: Rewound | None = None
    """The end of the shared part when sides of a split come together: entries after its LSN are void, and a lineage begins."""
    first_lsn: Lsn = 0
    added: tuple[Ordered, ...] = ()
