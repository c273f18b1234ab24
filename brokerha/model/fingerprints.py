"""Fingerprints as values: how they travel, and how they are shown.

A fingerprint says what the whole content of a copy is (the algorithm is stores/comparing/fingerprint.py). It stands in every line of
the log, so that any copy can be compared with the log at exactly its own LSN. As bytes it is the version of the algorithm and
16 bytes; as text ``1:<32 hexadecimal digits>``. Values of different versions say nothing about each other.

>>> text_of(packed(255))
'1:000000000000000000000000000000ff'
>>> from_text("1:000000000000000000000000000000ff") == packed(255)
True
"""

from __future__ import annotations

from hashlib import blake2b

VERSION = 1
DIGEST_BYTES = 16
UNKNOWN = b""
"""Where no fingerprint is known: equal to none and different from none."""


def packed(fingerprint: int) -> bytes:
    """The value as it stands in the log."""
    return bytes((VERSION,)) + fingerprint.to_bytes(DIGEST_BYTES, "big")


def text_of(fingerprint: bytes) -> str:
    """The value as it is shown; empty for an unknown one."""
    return f"{fingerprint[0]}:{fingerprint[1:].hex()}" if fingerprint else ""


def from_text(text: str) -> bytes:
    """The value from its text; unknown for anything that is none."""
    version, _, digits = text.partition(":")
    try:
        return bytes((int(version),)) + bytes.fromhex(digits)
    except ValueError:
        return UNKNOWN


def differs(one: bytes, other: bytes) -> bool:
    """Whether two values of one version are different; unknown ones and other versions never are."""
    return bool(one) and bool(other) and one[0] == other[0] and one != other


EMPTY = packed(int.from_bytes(blake2b(b"rmain", digest_size=DIGEST_BYTES).digest(), "big"))
"""Of a new copy, which holds nothing but the empty repository ``main``."""
