r"""Names of items: 16 bytes that identify a quad, key, message or check, independent of its value.

An audit compares copies item by item where their fingerprints differ, so each side must use the same names:

    quad      digest of the quad (fingerprint.quads_digest): a quad has no separate value
    key       blake2b of "K" and the row key (table, NUL, key)
    message   blake2b of "M", queue, NUL and message id
    check     blake2b of "C" and its name

Items fall into **buckets** by the upper bits of their names.

>>> key_item(b"prices\0sku-1").hex()
'9276acdc8e937cf3bb84f887cc26e788'
>>> bucket_of(bytes.fromhex("abc0" + 28 * "0"), 12)
2748
"""

from __future__ import annotations

from hashlib import blake2b

from brokerha.model.fingerprints import DIGEST_BYTES

GRAPH, TABLE, QUEUE, CONTROL = "graph", "table", "queue", "control"
STORES = (GRAPH, TABLE, QUEUE, CONTROL)
"""Stores, as rows and reports name them."""
BITS_LIMIT = 16
"""Largest number of upper bits that select a bucket."""


def key_item(row_key: bytes) -> bytes:
    """Return the name of a key; ``row_key`` is table name, NUL, key."""
    return blake2b(b"K" + row_key, digest_size=DIGEST_BYTES).digest()


def message_item(queue: str, message_id: str) -> bytes:
    """Return the name of a message."""
    return blake2b(f"M{queue}\0{message_id}".encode(), digest_size=DIGEST_BYTES).digest()


def check_item(name: str) -> bytes:
    """Return the name of a check of the control suite."""
    return blake2b(b"C" + name.encode(), digest_size=DIGEST_BYTES).digest()


def bucket_of(item: bytes, bits: int) -> int:
    """Return the bucket of an item: its upper ``bits`` bits."""
    return int.from_bytes(item[:2], "big") >> (16 - bits)
