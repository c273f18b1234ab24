"""The messages in which a batch of the log is published, and the headers that tell the next LSN.

    batch 41-43 ──> [change, change, …] [change, …] [log message 41-43]      groups, each confirmed before the next
    the log went back to 40 ──> [change log.m1.went-back] [log message without lines, after which 41 comes]

A message of the stream names its history: the journal, and the lineage once the log has gone back (model/log_lineages.py). From
then on it lists every going back, so that one message tells which earlier ones are void.

Pure: bytes and names only; stream.py publishes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from brokerha.model.ids import Lsn, NodeId
from brokerha.model.log_lineages import Rewinds, agreed, history, journal_of, lineage_of, newest, read_rewinds
from brokerha.ports.log_stream import LogBatch
from brokerha.transports.topology import CHANGES_EXCHANGE, DEFAULT_EXCHANGE, log_stream

WENT_BACK = "went-back"
LOG_TYPE = "application/vnd.brokerha.log+msgpack"
CHANGE_TYPE = "application/vnd.brokerha.change+msgpack"
GROUP_CHANGES = 100
"""Most unconfirmed changes."""
_PERSISTENT = 2


@dataclass(frozen=True, slots=True)
class Post:
    """One message to publish."""

    exchange: str
    key: str
    body: bytes
    properties: dict[str, Any]

    @property
    def is_log(self) -> bool:
        """Whether it goes to the stream."""
        return self.exchange == DEFAULT_EXCHANGE


def next_lsn(last: Mapping[str, Any] | None, journal: str, first_held: Lsn, rewinds: Rewinds = ()) -> Lsn:
    """Return the next LSN after a message with these headers, or in an empty stream; never below the first held LSN."""
    place = void_after(last, journal, rewinds)
    return first_held if last is None else max(first_held, _following(last, journal) if place is None else place + 1)


def void_after(last: Mapping[str, Any] | None, journal: str, rewinds: Rewinds) -> Lsn | None:
    """Return the LSN after which a stream with this last message is void, because the log went back; None when nothing is void."""
    if last is None:
        return None
    place = agreed(rewinds, lineage_of(str(last.get("journal"))))
    return place if place is not None and _following(last, journal) > place + 1 else None


def _following(last: Mapping[str, Any], journal: str) -> Lsn:
    if journal_of(str(last.get("journal"))) != journal or not isinstance(last.get("last_lsn"), int):
        return 0
    is_whole = last.get("part", 1) == last.get("parts", 1)
    return int(last["last_lsn"]) + (1 if is_whole else 0)


def rewinds_in(headers: Mapping[str, Any]) -> Rewinds:
    """Return how often the log had gone back, from the headers of a message of its stream; never when they do not say it."""
    try:
        return read_rewinds(json.loads(headers.get("rewinds", "[]")))
    except (TypeError, ValueError):
        return ()


def went_back(lsn: Lsn, node: NodeId, cluster: str, journal: str, rewinds: Rewinds) -> list[list[Post]]:
    """Return the messages that tell followers that everything after an LSN is void, and that the log continues there."""
    lineage = newest(rewinds)
    headers = {"lsn": lsn, "lineage": lineage, "cluster": cluster, "node": node}
    body: bytes = msgpack.packb([WENT_BACK, lsn, lineage])
    properties = {"content_type": CHANGE_TYPE, "delivery_mode": _PERSISTENT, "application_headers": headers}
    change = Post(CHANGES_EXCHANGE, f"log.{node}.{WENT_BACK}", body, properties)
    # In a message without lines the first LSN is above the last one.
    nothing = LogBatch(lsn + 1, lsn, (msgpack.packb([]),), rewinds=rewinds)
    return [[change], *groups_of(nothing, node, cluster, journal)]


def groups_of(batch: LogBatch, node: NodeId, cluster: str, journal: str) -> list[list[Post]]:
    """Return the messages of a batch; each group must be confirmed before the next is published."""
    lineage = newest(batch.rewinds)
    about = {"cluster": cluster, "node": node, **({"lineage": lineage} if lineage else {})}
    changes = [
        Post(
            CHANGES_EXCHANGE,
            change.key,
            change.body,
            {
                "content_type": CHANGE_TYPE,
                "delivery_mode": _PERSISTENT,
                "application_headers": {
                    "lsn": change.lsn,
                    "txid": change.txid,
                    **({"user": change.user} if change.user else {}),
                    **about,
                },
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
        "journal": history(journal, lineage),
        **({"rewinds": json.dumps(batch.rewinds)} if lineage else {}),
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
