"""Levels of acknowledgement as people write them: the level of a write, whether it waits, and the least LSN of a read.

A write waits for ``accepted``, ``synchronised``, ``applied`` or ``applied=2``; for a master that is apart it says ``wait`` or
``refuse``. A read can ask for at least an LSN, or for ``latest``: the present synchronised LSN at the master that is asked.

>>> parse_ack("applied=2")
('applied', 2)
>>> ack_text("applied", 1)
'applied'
>>> parse_min_lsn("latest") == LATEST_LSN
True
"""

from __future__ import annotations

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import Lsn
from brokerha.model.requests import APART, APPLIED_LEVEL, LEVELS, WAIT

COPIES_LIMIT = 1000
LATEST = "latest"
LATEST_LSN: Lsn = -1
"""``latest`` as a number, for a least LSN."""
LSN_DIGITS = 18
"""Number of digits that fit into 63 bits."""


def parse_ack(text: str) -> tuple[str, int]:
    """Return level and number of copies. Raises InvalidRequest."""
    level, has_copies, copies = text.partition("=")
    if level in LEVELS and not has_copies:
        return level, 1
    if level == APPLIED_LEVEL and copies.isascii() and copies.isdecimal() and 1 <= int(copies[:6]) <= COPIES_LIMIT:
        return level, int(copies)
    raise InvalidRequest(f"an acknowledgement is accepted, synchronised, applied or applied=N, not {text!r}")


def ack_text(level: str, copies: int) -> str:
    """Return the text of a level and a number of copies."""
    return f"{level}={copies}" if level == APPLIED_LEVEL and copies != 1 else level


def parse_apart(text: str) -> str:
    """Return the choice of a write at a master that is apart; ``wait`` by default. Raises InvalidRequest."""
    if not text:
        return WAIT
    if text not in APART:
        raise InvalidRequest(f"at a master that is apart a write can {' or '.join(APART)}, not {text!r}")
    return text


def parse_min_lsn(text: str, name: str = "a least LSN") -> Lsn:
    """Return the least LSN of a read, `LATEST_LSN` for ``latest``. Raises InvalidRequest, which calls it ``name``."""
    if text == LATEST:
        return LATEST_LSN
    if text.isascii() and text.isdecimal() and len(text) <= LSN_DIGITS:
        return int(text)
    raise InvalidRequest(f"{name} is a whole number of 0 or more, or latest, not {text!r}")


def min_lsn_text(min_lsn: Lsn) -> str:
    """Return the text of a least LSN."""
    return LATEST if min_lsn == LATEST_LSN else str(min_lsn)
