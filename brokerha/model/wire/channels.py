"""The channels for messages between nodes."""

from __future__ import annotations

SYNC = "sync"
"""Small messages of the protocols."""
DATA = "data"
"""Bodies, effects, records, reads."""
TX = "tx"
"""Events of a transaction, through its own queue."""
