"""Isolation levels of transactions, by their names in SQL and RDF4J.

read-committed    each read shows one moment, and the transaction's own operations; two reads can show two moments
snapshot          all reads show one moment; data that was read is not overwritten if another transaction changed it meanwhile
serializable      all that was read still holds at the transaction's place in the order
"""

from __future__ import annotations

from typing import Final

from brokerha.model.errors import InvalidRequest

READ_COMMITTED: Final = "read-committed"
SNAPSHOT: Final = "snapshot"
SERIALIZABLE: Final = "serializable"
ISOLATIONS: Final = (READ_COMMITTED, SNAPSHOT, SERIALIZABLE)


def checked_isolation(name: str) -> str:
    """Return the name of a level; `READ_COMMITTED` for an empty one. Raises InvalidRequest."""
    if name and name not in ISOLATIONS:
        raise InvalidRequest(f"isolation is {', '.join(ISOLATIONS[:-1])} or {ISOLATIONS[-1]}, not {name[:100]!r}")
    return name or READ_COMMITTED
