"""Levels of acknowledgement as people write them: ``accepted``, ``synchronised``, ``applied`` or ``applied=2``.

>>> parse_ack("applied=2")
('applied', 2)
>>> ack_text("applied", 1)
'applied'
"""

from __future__ import annotations

from brokerha.model.errors import InvalidRequest
from brokerha.model.requests import APPLIED_LEVEL, LEVELS

COPIES_LIMIT = 1000


def parse_ack(text: str) -> tuple[str, int]:
    """Level and number of copies. Raises InvalidRequest."""
    level, has_copies, copies = text.partition("=")
    if level in LEVELS and not has_copies:
        return level, 1
    if level == APPLIED_LEVEL and copies.isascii() and copies.isdecimal() and 1 <= int(copies[:6]) <= COPIES_LIMIT:
        return level, int(copies)
    raise InvalidRequest(f"an acknowledgement is accepted, synchronised, applied or applied=N, not {text!r}")


def ack_text(level: str, copies: int) -> str:
    """The text of a level and a number of copies."""
    return f"{level}={copies}" if level == APPLIED_LEVEL and copies != 1 else level
