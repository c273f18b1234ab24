"""The handling of a message that a node cannot use: it goes to ``brokerha.rejected`` with the reason, and stays there for a person.

    of an app         always; it is settled once that is confirmed
    between nodes     some of each reason in a minute, the rest is only counted: a node that floods an inbox must not displace
                      messages of apps (`Sparing`)

The headers have the origin, so that it can be published there again (tools/quarantine.py); its own properties and headers stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from brokerha.model.ids import NodeId
from brokerha.transports.lanes import FIRM_LANE, ClientTag, Publication
from brokerha.transports.rabbitmq.properties import UNREADABLE, table
from brokerha.transports.rights import FOREIGN_USER, NO_USER
from brokerha.transports.topology import REASON_HEADER, REJECTED_EXCHANGE

UNDECODABLE: Final = "undecodable"
FOREIGN_CLUSTER: Final = "foreign_cluster"
OF_NODES: Final = (UNDECODABLE, FOREIGN_CLUSTER, NO_USER, FOREIGN_USER)
"""Kinds of problems of a message between nodes: counters, and labels of the metric."""

HEADER_PREFIX: Final = "brokerha-"
NODE_HEADER: Final = "brokerha-node"
EXCHANGE_HEADER: Final = "brokerha-exchange"
KEY_HEADER: Final = "brokerha-key"
SEEN_HEADER: Final = "brokerha-seen-ms"
"""Milliseconds since 1970, by the clock of the node."""
LEFT_OUT_HEADER: Final = "brokerha-headers-left-out"
"""Size of dropped headers: together with the new ones they would exceed a frame, and the broker would end the connection."""
HEADERS_LIMIT_BYTES: Final = 64 * 1024
KEPT_IN_A_MINUTE: Final = 10
"""Limit of kept messages between nodes of one reason."""
_MINUTE_S: Final = 60.0
_REASON_LIMIT: Final = 1000
_PERSISTENT: Final = 2
_TAKEN_OVER: Final = ("content_type", "content_encoding", "message_id", "correlation_id", "reply_to", "type", "app_id")
"""Without ``user_id``: the broker would refuse another user's. Without ``expiration``: the message would vanish."""


class Sparing:
    """Chooses the messages between nodes that are kept; used by one thread.

    >>> sparing = Sparing(2)
    >>> [sparing.is_kept("undecodable", at) for at in (0.0, 1.0, 2.0, 61.0)]
    [True, True, False, True]
    """

    def __init__(self, in_a_minute: int = KEPT_IN_A_MINUTE) -> None:
        self._most = in_a_minute
        self._kept: dict[str, tuple[float, int]] = {}

    def is_kept(self, word: str, now_s: float) -> bool:
        """Tell whether this message is kept; if so, it counts."""
        since_s, count = self._kept.get(word, (now_s, 0))
        if now_s - since_s >= _MINUTE_S:
            since_s, count = now_s, 0
        if count >= self._most:
            return False
        self._kept[word] = since_s, count + 1
        return True


def rejected(
    node: NodeId,
    body: bytes,
    properties: Mapping[str, Any],
    came: tuple[str, str],
    reason: str,
    seen_ms: int,
    queued_s: float,
    settles: ClientTag | None = None,
) -> Publication:
    """Return the message for ``brokerha.rejected``; ``came`` is its original exchange and routing key."""
    exchange, key = came
    own = properties.get("application_headers") or {}
    if UNREADABLE in own:
        reason = f"its properties cannot be read: {own[UNREADABLE]}"
    origin: dict[str, Any] = {
        REASON_HEADER: reason[:_REASON_LIMIT],
        NODE_HEADER: node,
        EXCHANGE_HEADER: exchange,
        KEY_HEADER: key,
        SEEN_HEADER: seen_ms,
    }
    kept = {name: properties[name] for name in _TAKEN_OVER if properties.get(name)}
    kept["delivery_mode"] = _PERSISTENT
    try:
        size_bytes = len(table(own))
    except TypeError as error:
        own = {LEFT_OUT_HEADER: str(error)}
    else:
        own = own if size_bytes <= HEADERS_LIMIT_BYTES else {LEFT_OUT_HEADER: size_bytes}
    kept["application_headers"] = {**own, **origin}
    return Publication(FIRM_LANE, REJECTED_EXCHANGE, "", body, kept, settles=settles, queued_s=queued_s)
