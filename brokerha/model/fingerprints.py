"""Fingerprints as values: how they travel, and how they are shown.

A fingerprint identifies the whole content of a copy (algorithm: stores/comparing/fingerprint.py). Every line of the log has one,
so that any copy can be compared with the log at exactly its own LSN. As bytes it is the version of the algorithm and 16 bytes; as
text ``1:<32 hexadecimal digits>``. Values of different versions cannot be compared.

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
"""An unknown fingerprint: neither equal to another one nor different from it."""


def packed(fingerprint: int) -> bytes:
    """Return the value as in the log."""
    return bytes((VERSION,)) + fingerprint.to_bytes(DIGEST_BYTES, "big")


def text_of(fingerprint: bytes) -> str:
    """Return the value as text; empty for an unknown one."""
    return f"{fingerprint[0]}:{fingerprint[1:].hex()}" if fingerprint else ""


def from_text(text: str) -> bytes:
    """Return the value of a text; unknown for a malformed one."""
    version, _, digits = text.partition(":")
    try:
        return bytes((int(version),)) + bytes.fromhex(digits)
    except ValueError:
        return UNKNOWN


def differs(one: bytes, other: bytes) -> bool:
    """Tell whether two values of one version are different; False for unknown ones and other versions."""
    return bool(one) and bool(other) and one[0] == other[0] and one != other


EMPTY = packed(int.from_bytes(blake2b(b"rmain", digest_size=DIGEST_BYTES).digest(), "big"))
"""Fingerprint of a new copy, which holds only the empty repository ``main``."""
