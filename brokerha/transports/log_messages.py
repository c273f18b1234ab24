"""The messages in which a batch of the log is published, and what their headers say about where to go on.

    batch 41-43 ──> [change, change, …] [change, …] [log message 41-43]      groups, each confirmed before the next

Pure: bytes and names only; log_session.py publishes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brokerha.model.ids import Lsn, NodeId
from brokerha.ports.log_stream import LogBatch
from brokerha.transports.topology import CHANGES_EXCHANGE, DEFAULT_EXCHANGE, log_stream

LOG_TYPE = "application/vnd.brokerha.log+msgpack"
CHANGE_TYPE = "application/vnd.brokerha.change+msgpack"
GROUP_CHANGES = 100
"""Changes that are on their way at a time."""
_PERSISTENT = 2


@dataclass(frozen=True, slots=True)
class Post:
    """One message to be published."""

    exchange: str
    key: str
    body: bytes
    properties: dict[str, Any]

    @property
    def is_log(self) -> bool:
        """Whether it goes to the stream."""
        return self.exchange == DEFAULT_EXCHANGE


def next_lsn(last: Mapping[str, Any] | None, journal: str, first_held: Lsn) -> Lsn:
    """Where to go on after a message with these headers, or in an empty stream; never below what is held."""
    if last is None or last.get("journal") != journal or not isinstance(last.get("last_lsn"), int):
        return first_held
    is_whole = last.get("part", 1) == last.get("parts", 1)
    return max(first_held, int(last["last_lsn"]) + (1 if is_whole else 0))


def groups_of(batch: LogBatch, node: NodeId, cluster: str, journal: str) -> list[list[Post]]:
    """The messages of a batch; each group must be confirmed before the next is published."""
    changes = [
        Post(
            CHANGES_EXCHANGE,
            change.key,
            change.body,
            {
                "content_type": CHANGE_TYPE,
                "delivery_mode": _PERSISTENT,
                "application_headers": {"lsn": change.lsn, "txid": change.txid, "cluster": cluster, "node": node},
            },
        )
        for change in batch.changes
    ]
    groups = [changes[start : start + GROUP_CHANGES] for start in range(0, len(changes), GROUP_CHANGES)]
    headers = {
        "first_lsn": batch.first_lsn,
        "last_lsn": batch.last_lsn,
        "cluster": cluster,
        "node": node,
        "journal": journal,
    }
    for part, body in enumerate(batch.parts, 1):
        place = {"part": part, "parts": len(batch.parts)} if len(batch.parts) > 1 else {}
        properties = {
            "content_type": LOG_TYPE,
            "delivery_mode": _PERSISTENT,
            "message_id": f"{batch.first_lsn}-{batch.last_lsn}",
            "application_headers": {**headers, **place},
        }
        groups.append([Post(DEFAULT_EXCHANGE, log_stream(node), body, properties)])
    return groups
