"""Fingerprint of a store's content: equal content gives equal text, in whatever order it was written.

Each item of the content has a digest of 128 bits. The fingerprint is the XOR of all of them, so adding an item and removing it
are the same step, and its cost depends on the change alone:

    fingerprint ^= digest(item)        when the item is added, and again when it is removed

Items are every quad ``(repository, line)``, every key ``(table, key, value)``, every message with its place in its queue, the
counters of every queue, and the name of every repository (so an empty repository counts). The hashed bytes begin with the kind; a
length stands before each part that would be ambiguous:

    "q" repository NUL line        "k" length-of-row-key row-key value        "r" repository
    "m" place length-of-queue queue length-of-id id length-of-content-type content-type body      "n" published accepted queue
    "c" and each field of a check of the control suite after its length, 4 bytes

model/fingerprints.py has the version of this algorithm, and how values travel and are shown. XOR finds accidents (a lost quad, a
damaged bit); it is no protection against content that was built to deceive.

>>> text_of(repository_digest("main"))
'1:cdeaf7d4c374a7fe769a0f98a5dab865'
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from brokerha.model import fingerprints
from brokerha.model.control import Check
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.stores.tables.queue_change import Counts, Message


def key_digest(row_key: bytes, value: bytes) -> bytes:
    """Return the digest of one key of a table; ``row_key`` is table name, NUL, key."""
    return blake2b(b"k" + len(row_key).to_bytes(2, "big") + row_key + value, digest_size=DIGEST_BYTES).digest()


def quads_digest(repository: str, lines: Iterable[str]) -> int:
    """Return the XOR of the digests of quads, given as canonical N-Quads lines without the final dot."""
    # Copying the state after the common beginning halves the cost of hashing.
    beginning = blake2b(b"q" + repository.encode() + b"\0", digest_size=DIGEST_BYTES)
    number = int.from_bytes
    total = 0
    for line in lines:
        state = beginning.copy()
        state.update(line.encode())
        total ^= number(state.digest(), "big")
    return total


def packed_digest(digest: int) -> bytes:
    """Return a digest as bytes, as rows and columns hold it."""
    return digest.to_bytes(DIGEST_BYTES, "big")


def repository_digest(repository: str) -> int:
    """Return the digest for the existence of a repository."""
    return int.from_bytes(blake2b(b"r" + repository.encode(), digest_size=DIGEST_BYTES).digest(), "big")


def message_digest(queue: str, place: int, message: Message) -> int:
    """Return the digest of a message; ``place`` is its number among all messages ever published to its queue."""
    texts = (queue.encode(), message.id.encode(), message.content_type.encode())
    framed = b"".join(len(text).to_bytes(2, "big") + text for text in texts)
    digest = blake2b(b"m" + place.to_bytes(8, "big") + framed, digest_size=DIGEST_BYTES)
    digest.update(message.body)
    return int.from_bytes(digest.digest(), "big")


def counts_digest(queue: str, counts: Counts) -> int:
    """Return the digest of the counters of a queue."""
    numbers = b"".join(each.to_bytes(8, "big") for each in counts)
    return int.from_bytes(blake2b(b"n" + numbers + queue.encode(), digest_size=DIGEST_BYTES).digest(), "big")


def control_digest(check: Check) -> int:
    """Return the digest of one check of the control suite."""
    fields = (field.encode() for field in check)
    framed = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    return int.from_bytes(blake2b(b"c" + framed, digest_size=DIGEST_BYTES).digest(), "big")


def text_of(fingerprint: int) -> str:
    """Return the fingerprint as text for people."""
    return fingerprints.text_of(fingerprints.packed(fingerprint))


def report(lsn: int, fingerprint: int, items: int, counts: Mapping[str, int]) -> bytes:
    """Return the answer to a read of kind ``fingerprint``, as JSON; ``counts`` are the quads of each repository."""
    text = text_of(fingerprint)
    return json.dumps({"lsn": lsn, "fingerprint": text, "items": items, "repositories": dict(sorted(counts.items()))}).encode()
