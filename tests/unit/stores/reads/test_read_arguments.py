"""Reads with arguments of every wrong shape: whatever comes out is an answer, or an error that a caller can read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest

from brokerha.model.errors import BrokerhaError, InvalidRequest
from brokerha.model.operations import pack_operations
from brokerha.nodes.front.checking import check_read
from brokerha.ports.store import Store
from brokerha.stores.execution.worker_store import WorkerStore
from brokerha.stores.reads.kinds import ARGUMENTS, packed_reads
from tests.support.memory_store.store import MemoryStore
from tests.support.wrong_values import NAN, WRONG, without_each

BUCKET = msgpack.packb(("table", "t", 0))
PENDING = {"pending": pack_operations([("put", "t", b"k", b"v")]), "txid": "tx"}
RIGHT: dict[str, dict[str, Any]] = {
    "query": {"query": "ASK {}", "accept": "*/*", "default-graph-uri": "urn:g", "named-graph-uri": ("urn:g",), "context": "null"},
    "statements": {"subj": "<urn:s>", "pred": "<urn:p>", "obj": "<urn:o>", "context": ("null",), "accept": "*/*"},
    "size": {"context": "null", **PENDING},
    "contexts": PENDING,
    "get": {"key": b"k", **PENDING},
    "range": {"prefix": b"k", "from": b"k", "to": "l", "limit": 1, "reverse": True},
    "tables": {},
    "snapshots": {},
    "staged": {},
    "settings": {},
    "queue": {"after": None, "limit": 1},
    "message": {"id": "tx.1.2", "number": 0},
    "queues": {},
    "together": {"reads": (msgpack.packb(("queues", "", {})),)},
    "fingerprint": {},
    "repositories": {},
    "about": {},
    "control": {},
    "digests": {"bits": 1},
    "items": {"bits": 1, "buckets": (BUCKET,), "limit": 1},
}
NAMES = {
    "query": "main",
    "statements": "main",
    "size": "main",
    "contexts": "main",
    "get": "t",
    "range": "t",
    "queue": "q",
    "message": "q",
}


@pytest.fixture(params=["memory", "worker"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = MemoryStore() if request.param == "memory" else WorkerStore(tmp_path, cluster="orders", node="w1")
    with closing(made):
        made.execute(1, [("tx.1", 1, pack_operations([("put", "t", b"k", b"v"), ("publish", "q", "", b"m")]))])
        yield made


def asked(store: Store, kind: Any, name: Any, arguments: dict[Any, Any]) -> None:
    """Ask, and take all that comes; an error is one that brokerha raises on purpose, and says what in a short sentence."""
    problem = ""
    try:
        for _ in store.read(kind, name, arguments).pieces:
            pass
    except BrokerhaError as error:
        problem = str(error)
    assert len(problem) < 1000


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_no_argument_of_any_kind_breaks_a_read(store: Store, kind: str) -> None:
    right = RIGHT[kind]
    assert set(right) <= set(ARGUMENTS[kind])
    for argument in (*ARGUMENTS[kind], "unheard-of", b"bytes", 7):
        for value in WRONG:
            asked(store, kind, NAMES.get(kind, ""), {**right, argument: value})
    for arguments in without_each(right):
        asked(store, kind, NAMES.get(kind, ""), arguments)
    for name in WRONG:
        asked(store, kind, name, right)


def test_no_kind_breaks_a_read(store: Store) -> None:
    for kind in WRONG:
        if not isinstance(kind, (dict, list)):
            asked(store, kind, "", {})


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_what_is_wrong_is_known_before_a_worker_is_asked(kind: str) -> None:
    name = NAMES.get(kind, "")
    check_read(kind, name, RIGHT[kind], 0, 1000)
    wrong: list[tuple[Any, ...]] = [
        (kind, name, {**RIGHT[kind], "unheard-of": 1}, 0, 1000),
        (kind, 5, RIGHT[kind], 0, 1000),
        (kind, name, {**RIGHT[kind], "tx": 5}, 0, 1000),
        *((kind, name, RIGHT[kind], number, 1000) for number in (-2, 2**63, 2**70, NAN, "0", True)),
        *((kind, name, RIGHT[kind], 0, number) for number in (0, -1, 3_600_001, 2**70, 1.5, "1", True)),
    ]
    for argument in ARGUMENTS[kind]:
        wrong.append((kind, name, {**RIGHT[kind], argument: {"of": "no shape"}}, 0, 1000))
        wrong.append((kind, name, {**RIGHT[kind], argument: (5,)}, 0, 1000))
    for each in wrong:
        with pytest.raises(InvalidRequest):
            check_read(*each)


def test_each_of_several_reads_is_checked_by_its_place() -> None:
    right = msgpack.packb(("get", "t", {"key": b"k"}))
    several: tuple[Any, ...] = (
        ("get", "t", {}),
        ("get", "t", {"key": 5}),
        ("get", 5, {"key": b"k"}),
        ("get", "t"),
        5,
        [],
        ("dance", "t", {}),
    )
    for wrong in several:
        with pytest.raises(InvalidRequest, match=r"^read 2: "):
            check_read("together", "", {"reads": (right, msgpack.packb(wrong))}, 0, 1000)
        with pytest.raises(InvalidRequest, match=r"^read 2: "):
            packed_reads([("get", "t", {"key": b"k"}), wrong])
    with pytest.raises(InvalidRequest, match="a read of kind together: reads is a list of 1 to 100, each bytes"):
        check_read("together", "", {"reads": [5]}, 0, 1000)


def test_several_reads_that_are_nested_or_broken_are_refused() -> None:
    for packed in (b"\x93" * 100_000, b"\x93\xa3get\xa1t\x81\xa3key" + b"\x91" * 900 + b"\x01", b"\xc1", b""):
        with pytest.raises(InvalidRequest, match=r"^read 1: "):
            check_read("together", "", {"reads": (packed,)}, 0, 1000)
