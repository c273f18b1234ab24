"""Which of several formats a caller wants (RFC 9110, section 12.5.1).

>>> preferred("text/html, application/json;q=0.8", ["application/json", "text/plain"])
'application/json'
>>> preferred("", ["text/plain"])
'text/plain'
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache


def preferred(header: str, offers: Sequence[str]) -> str | None:
    """The offer that an Accept header likes most, the first one among equals; None when it accepts none of them."""
    if not header.strip():
        return offers[0]
    ranges = _ranges(header)
    best, best_quality = None, 0.0
    for offer in offers:
        quality = _quality(ranges, offer)
        if quality > best_quality:
            best, best_quality = offer, quality
    return best


def wants_json(header: str) -> bool:
    """Whether a caller would rather have JSON than text; who does not say gets text."""
    return "json" in header and preferred(header, ("text/plain", "application/json")) == "application/json"


@lru_cache(maxsize=256)
def _ranges(header: str) -> tuple[tuple[str, float], ...]:
    ranges = []
    for item in header.lower().split(","):
        media, *parameters = [part.strip() for part in item.split(";")]
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        if media:
            ranges.append((media, quality))
    return tuple(ranges)


def _quality(ranges: Sequence[tuple[str, float]], offer: str) -> float:
    """Quality of the most specific range that covers an offer; 0 when none does."""
    kind = offer.partition("/")[0]
    for pattern in (offer, f"{kind}/*", "*/*"):
        for media, quality in ranges:
            if media == pattern:
                return quality
    return 0.0
