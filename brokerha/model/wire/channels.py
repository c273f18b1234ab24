"""The channels that messages between nodes travel through."""

from __future__ import annotations

SYNC = "sync"
"""Small messages of the protocols."""
DATA = "data"
"""Bodies, effects, records, reads."""
TX = "tx"
"""Events of a transaction, through a queue of its own."""
