"""Digests of a store in files: what was changed behind its back shows, beside a writer everything is of one LSN."""

from __future__ import annotations

import threading
from functools import reduce
from operator import xor
from typing import Any

import msgpack
import pytest

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.stores.comparing.fingerprint import key_digest, repository_digest, text_of
from brokerha.stores.comparing.items import bucket_of, key_item
from brokerha.stores.execution.worker_store import WorkerStore
from tests.contracts.store_contract import quads, run
from tests.unit.stores.store_place import Place


def asked(store: WorkerStore, kind: str, **arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = msgpack.unpackb(b"".join(store.read(kind, "", arguments).pieces), use_list=False)
    return found


def of_table(found: dict[str, Any], name: str) -> dict[int, tuple[int, bytes]]:
    return {bucket: (count, held) for store, table, bucket, count, held in found["buckets"] if (store, table) == ("table", name)}


@pytest.mark.parametrize("has_old_digest", [True, False])
def test_a_key_that_was_changed_behind_the_store_shows_with_its_new_value(place: Place, has_old_digest: bool) -> None:
    store = place.open()
    run(store, [("put", "t", b"%d" % number, b"old") for number in range(20)])
    before = asked(store, "digests", bits=16)
    row_key = b"t\0" + b"7"
    digest = key_digest(row_key, b"old" if has_old_digest else b"new")
    with store._environment.lmdb.begin(write=True) as writing:
        writing.put(row_key, digest + b"new", db=store._environment.keys)

    after = asked(store, "digests", bits=16)

    bucket = bucket_of(key_item(row_key), 16)
    changed = {key for key in of_table(before, "t") if of_table(before, "t")[key] != of_table(after, "t")[key]}
    assert changed == {bucket}
    assert after["fingerprint"] == before["fingerprint"]
    (row,) = asked(store, "items", bits=16, buckets=(msgpack.packb(("table", "t", bucket)),))["rows"]
    assert row[3:] == (key_item(row_key), key_digest(row_key, b"new"), b"7", b"new")


def test_a_quad_that_was_changed_behind_the_store_shows(place: Place) -> None:
    store = place.open()
    run(store, [("add", "main", quads("<urn:s> <urn:p> <urn:a>", "<urn:s> <urn:p> <urn:b>"))])
    place.engines.main.held.remove("<urn:s> <urn:p> <urn:b>")
    place.engines.main.held.add("<urn:s> <urn:p> <urn:x>")

    wanted = tuple(msgpack.packb(("graph", "main", bucket)) for bucket in range(2))
    rows = asked(store, "items", bits=1, buckets=wanted)["rows"]

    assert sorted(row[5] for row in rows) == [b"<urn:s> <urn:p> <urn:a>", b"<urn:s> <urn:p> <urn:x>"]


def test_a_message_that_is_none_any_more_is_damage(place: Place) -> None:
    store = place.open()
    run(store, [("publish", "q", "text/plain", b"m")])
    with store._environment.lmdb.begin(write=True) as writing:
        writing.put(b"q\0" + (1).to_bytes(8, "big"), bytes(40), db=store._environment.queues)
    with pytest.raises(StoreDamaged, match="a message of queue 'q'"):
        asked(store, "digests")


def test_digests_beside_a_writer_are_of_one_lsn(place: Place) -> None:
    store = place.open()
    is_over = threading.Event()
    wrong: list[object] = []
    seen = 0

    def look() -> None:
        nonlocal seen
        while not is_over.is_set():
            found = asked(store, "digests", bits=4)
            parts = [int.from_bytes(row[4], "big") for row in found["buckets"]]
            if text_of(reduce(xor, parts, repository_digest("main"))) != found["fingerprint"]:
                wrong.append(found)
            seen += 1

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(1, 100):
        put = ("put", "t", b"%d" % (number % 7), b"%d" % number)
        run(store, [put, ("add", "main", quads(f"<urn:s> <urn:p> <urn:{number}>"))])
    is_over.set()
    reader.join(20)
    assert not wrong
    assert seen > 0


def test_digests_of_a_closed_store_are_refused(place: Place) -> None:
    store = place.open()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.read("digests", "", {})
