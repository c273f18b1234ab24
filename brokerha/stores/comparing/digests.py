"""The reads of kinds ``digests`` and ``items``: they compare two copies without sending the whole content.

    digests   each item of each store belongs to a bucket, by the upper bits of its name (items.py); for each bucket that is not
              empty, the number of items and the XOR of their digests
    items     the items of some buckets, one row each

Both walk over the whole content at one LSN, or over the requested stores. Digests are computed from the data itself, also where a
row carries its digest, so that the answer shows a change that bypassed the store. Answers are msgpack:

    digests   {lsn, fingerprint, items, buckets: [[store, name, bucket, count, xor], ...], queues: {name: [published, accepted]},
               repositories: [name, ...]}
    items     {lsn, rows: [[store, name, bucket, item, digest, text, value], ...], more}

``store`` is a word of items.py. ``name`` is a repository, table or queue, and empty for the control suite. ``xor``, ``item`` and
``digest`` have 16 bytes. ``text`` is a line, a key, a message id or the name of a check; ``value`` is the beginning of its value;
both are bytes. Rows and buckets are sorted; a limit keeps the rows that sort first, so that two copies show the same ones. The
XOR of all buckets, of the counters of the queues and of the names of the repositories is the fingerprint.

Must never hold more than the limit of rows twice, nor more than `BUCKETS_LIMIT` buckets.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgpack

from brokerha.model.control import Check
from brokerha.model.errors import InvalidRequest, TimedOut, TooLarge
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.model.ids import Lsn
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.stores.comparing.fingerprint import control_digest, key_digest, message_digest, packed_digest, text_of
from brokerha.stores.comparing.items import CONTROL, GRAPH, QUEUE, STORES, TABLE, bucket_of, check_item, key_item, message_item
from brokerha.stores.tables.queue_change import Counts, Message

BITS_DEFAULT: Final = 10
BUCKETS_LIMIT: Final = 500_000
"""Limit of buckets in one answer, empty ones not counted."""
WANTED_LIMIT: Final = 10_000
"""Limit of buckets that one read of items can name."""
ROWS_DEFAULT, ROWS_LIMIT = 1000, 10_000
TEXT_SHOWN_BYTES: Final = 4096
VALUE_SHOWN_BYTES: Final = 256
_STEP: Final = 256
"""Items between two calls of ``may_go_on``."""
_ONE: Final = 1 << 8 * DIGEST_BYTES
"""A bucket keeps its count and XOR in one number: the count above the digest."""

Place = tuple[str, str]
"""(store, name)."""


class Walk:
    """A consumer of the content, store by store; each call raises TimedOut when no client waits any more."""

    def __init__(self, bits: int, may_go_on: Callable[[], bool]) -> None:
        self._bits = bits
        self._may_go_on = may_go_on
        self._count = 0

    def go_on(self) -> None:
        """Raise TimedOut when no client waits any more."""
        if not self._may_go_on():
            raise TimedOut("the copy was not looked through in its time: give it more time")

    def names(self, _store: str) -> Collection[str] | None:
        """Return the repositories, tables or queues to walk; None for all."""
        return None

    def quads(self, repository: str, lines: Iterable[str]) -> None:
        """Take in all quads of a repository."""
        self.go_on()
        for line, digest in line_digests(repository, lines):
            if self._is_wanted(GRAPH, repository, digest):
                self._keep(GRAPH, repository, digest, digest, line.encode(), b"")

    def keys(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Take in row keys with their values."""
        self.go_on()
        for row_key, value in rows:
            item = key_item(row_key)
            encoded, _, key = row_key.partition(b"\0")
            table = encoded.decode(errors="replace")
            if self._is_wanted(TABLE, table, item):
                self._keep(TABLE, table, item, key_digest(row_key, value), key, value)

    def messages(self, rows: Iterable[tuple[str, int, Message]]) -> None:
        """Take in messages with queue and place."""
        self.go_on()
        for queue, place, message in rows:
            item = message_item(queue, message.id)
            if self._is_wanted(QUEUE, queue, item):
                digest = packed_digest(message_digest(queue, place, message))
                self._keep(QUEUE, queue, item, digest, message.id.encode(), message.body)

    def checks(self, checks: Iterable[Check]) -> None:
        """Take in the control suite."""
        self.go_on()
        for check in checks:
            item = check_item(check.name)
            if self._is_wanted(CONTROL, "", item):
                value = json.dumps(check[1:]).encode()
                self._keep(CONTROL, "", item, packed_digest(control_digest(check)), check.name.encode(), value)

    def body(self, lsn: Lsn, fingerprint: int, items: int, queues: Mapping[str, Counts], repositories: Iterable[str]) -> bytes:
        """Return the answer. Raises TooLarge."""
        raise NotImplementedError

    def _is_wanted(self, _store: str, _name: str, _item: bytes) -> bool:
        if self._count % _STEP == 0:
            self.go_on()
        self._count += 1
        return True

    def _keep(self, store: str, name: str, item: bytes, digest: bytes, text: bytes, value: bytes) -> None:
        raise NotImplementedError


def walk_of(kind: str, arguments: Mapping[str, Any], may_go_on: Callable[[], bool]) -> Walk:
    """Return the walk for a read; reads/kinds.py has checked the shapes of its arguments. Raises InvalidRequest."""
    bits: int = arguments.get("bits") or BITS_DEFAULT
    if kind == "digests":
        return _Digests(bits, may_go_on)
    return _BucketItems(bits, _wanted(arguments["buckets"], bits), arguments.get("limit") or ROWS_DEFAULT, may_go_on)


class _Digests(Walk):
    """Number and XOR of the digests of each bucket."""

    def __init__(self, bits: int, may_go_on: Callable[[], bool]) -> None:
        super().__init__(bits, may_go_on)
        self._found: dict[Place, dict[int, int]] = defaultdict(dict)
        self._number = 0
        """Buckets in `_found`."""

    def body(self, lsn: Lsn, fingerprint: int, items: int, queues: Mapping[str, Counts], repositories: Iterable[str]) -> bytes:
        """Return the answer."""
        rows = [
            (store, name, bucket, held >> 8 * DIGEST_BYTES, packed_digest(held % _ONE))
            for (store, name), buckets in sorted(self._found.items())
            for bucket, held in sorted(buckets.items())
        ]
        packed: bytes = msgpack.packb(
            {
                "lsn": lsn,
                "fingerprint": text_of(fingerprint),
                "items": items,
                "buckets": rows,
                "queues": {name: tuple(counts) for name, counts in sorted(queues.items())},
                "repositories": sorted(repositories),
            }
        )
        return packed

    def _keep(self, store: str, name: str, item: bytes, digest: bytes, _text: bytes, _value: bytes) -> None:
        buckets, bucket = self._found[store, name], bucket_of(item, self._bits)
        held = buckets.get(bucket, 0)
        if not held:
            self._number += 1
            if self._number > BUCKETS_LIMIT:
                raise TooLarge(f"the content fills more than {BUCKETS_LIMIT} buckets: ask with fewer bits")
        buckets[bucket] = (held ^ int.from_bytes(digest, "big")) + _ONE


class _BucketItems(Walk):
    """The items of some buckets."""

    def __init__(self, bits: int, wanted: Mapping[Place, set[int]], limit: int, may_go_on: Callable[[], bool]) -> None:
        super().__init__(bits, may_go_on)
        self._wanted = wanted
        self._limit = limit
        self._rows: list[tuple[Any, ...]] = []

    def names(self, store: str) -> Collection[str] | None:
        """Return the names that the requested buckets belong to."""
        return sorted(name for known, name in self._wanted if known == store)

    def body(self, lsn: Lsn, _fingerprint: int, _items: int, _queues: Mapping[str, Counts], _repositories: Iterable[str]) -> bytes:
        """Return the answer."""
        self._rows.sort()
        found = {"lsn": lsn, "rows": self._rows[: self._limit], "more": len(self._rows) > self._limit}
        packed: bytes = msgpack.packb(found)
        return packed

    def _is_wanted(self, store: str, name: str, item: bytes) -> bool:
        super()._is_wanted(store, name, item)
        return bucket_of(item, self._bits) in self._wanted.get((store, name), ())

    def _keep(self, store: str, name: str, item: bytes, digest: bytes, text: bytes, value: bytes) -> None:
        shown = text[:TEXT_SHOWN_BYTES], value[:VALUE_SHOWN_BYTES]
        self._rows.append((store, name, bucket_of(item, self._bits), item, digest, *shown))
        if len(self._rows) > 2 * self._limit:
            # One row above the limit stays, for the field ``more``.
            self._rows.sort()
            del self._rows[self._limit + 1 :]


def line_digests(repository: str, lines: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield lines, each with its digest (fingerprint.quads_digest), which is also the name of the quad."""
    beginning = blake2b(b"q" + repository.encode() + b"\0", digest_size=DIGEST_BYTES)
    for line in lines:
        state = beginning.copy()
        state.update(line.encode())
        yield line, state.digest()


def _wanted(packed: Iterable[bytes], bits: int) -> dict[Place, set[int]]:
    wanted: dict[Place, set[int]] = {}
    for each in packed:
        try:
            store, name, bucket = unpack_foreign(each)
        except BROKEN:
            store, name, bucket = "", "", -1
        if not (type(store) is type(name) is str and store in STORES and type(bucket) is int and 0 <= bucket < 1 << bits):
            raise InvalidRequest(f"a bucket is a packed (store, name, number): {', '.join(STORES)}, a name, 0 to {(1 << bits) - 1}")
        wanted.setdefault((store, name), set()).add(bucket)
    return wanted
