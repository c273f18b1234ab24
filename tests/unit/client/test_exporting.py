"""An export shows one moment, however many pages it has and whoever writes meanwhile: real copies of two sites, in one process."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgpack
import pytest

import brokerha
from brokerha.client import Client, exporting
from brokerha.client.calls import Calls
from brokerha.client.exporting import Range, export, export_snapshot
from brokerha.embedded import EmbeddedCluster
from brokerha.model.errors import InvalidRequest, NotReady, TooLarge
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from brokerha.ports.front import ReadOutcome
from brokerha.stores.reads import tables
from tests.unit.client.serving import serving
from tests.unit.http.fake_front import FakeFront

WAIT_S = 30.0
ACCOUNTS = 200
TOTAL = ACCOUNTS * 100
_numbers = itertools.count()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Client]:
    config = ClusterConfig(
        name="exported",
        broker=f"embedded://exported-{next(_numbers)}",
        data=tmp_path,
        masters=(MasterEntry(id="m1"), MasterEntry(id="m2")),
        workers=(WorkerEntry(id="w1", master="m1"), WorkerEntry(id="w2", master="m2")),
    )
    with EmbeddedCluster(config) as cluster, cluster.client("m1", "m2") as client:
        yield client


def account(number: int) -> bytes:
    return b"account-%03d" % number


def test_an_export_goes_on_after_a_key_of_the_greatest_length(db: Client) -> None:
    keys = [b"k" * 399 + b"%d" % number for number in range(3)]
    lsn = db.write([("put", "long", key, b"v") for key in keys], timeout=WAIT_S).lsn
    db.snapshot("now", "long", timeout=WAIT_S)
    wanted = Range("long", b"", b"", None)
    for found in (export(db, wanted, lsn, WAIT_S, page_rows=1), export_snapshot(db, "now", wanted, lsn, WAIT_S, page_rows=1)):
        assert [key for key, _ in found.rows] == keys


def test_sums_are_kept_in_every_export_while_amounts_move(db: Client) -> None:
    # Given accounts between which a writer moves amounts, one transaction each, and other keys that come and go
    balances = dict.fromkeys(range(ACCOUNTS), 100)
    written = db.write([("put", "accounts", account(n), b"100") for n in balances], timeout=WAIT_S)
    stopping, moved = threading.Event(), threading.Semaphore(0)

    def move() -> None:
        draw = random.Random(7)
        while not stopping.is_set():
            one, other = draw.sample(range(ACCOUNTS), 2)
            balances[one] -= 1
            balances[other] += 1
            changes = [("put", "accounts", account(n), b"%d" % balances[n]) for n in (one, other)]
            passing = ("put", "accounts", b"passing", b"0") if draw.random() < 0.5 else ("delete", "accounts", b"passing")
            db.write([*changes, passing, ("put", "others", account(one), b"999")], timeout=WAIT_S)
            moved.release()

    thread = threading.Thread(target=move)
    thread.start()
    lsns = []
    try:
        # When it is read again and again, in pages of a few keys
        for rows in (3, 7, 20, 50, 1000):
            assert moved.acquire(timeout=WAIT_S), "nobody writes"
            found = export(db, Range("accounts", b"account-", b"", None), written.lsn, WAIT_S, page_rows=rows)
            content = list(found.rows)
            # Then each shows one moment: all accounts in the order of their keys, and the sum
            assert [key for key, _ in content] == [account(n) for n in range(ACCOUNTS)]
            assert sum(int(value) for _, value in content) == TOTAL
            lsns.append(found.lsn)
    finally:
        stopping.set()
        thread.join()
    assert lsns == sorted(lsns)
    assert lsns[-1] > written.lsn


def test_an_export_is_a_range_from_its_start_to_before_its_end(db: Client) -> None:
    keys = [b"a", b"a\0", b"ab", b"b", b"b\xff", b"\xff"]
    db.write([("put", "t", key, key * 2) for key in keys], timeout=WAIT_S)
    assert db.tables() == ["t"]
    assert list(db.export("t").rows) == [(key, key * 2) for key in keys]
    for rows in (1, 2, 3, 6, 7):
        found = export(db, Range("t", b"", b"a\0", b"\xff"), None, WAIT_S, page_rows=rows)
        assert [key for key, _ in found.rows] == keys[1:5]
    assert [key for key, _ in db.export("t", prefix="a", start="ab").rows] == [b"ab"]
    assert list(db.export("absent").rows) == []


def test_pages_grow_small_with_large_values(db: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # Limits a hundredth of what they are, so that the test is not about the disk
    monkeypatch.setattr(tables, "RESULT_LIMIT_BYTES", 640 * 1024)
    monkeypatch.setattr(exporting, "PAGE_BYTES", 80 * 1024)
    value = bytes(50 * 1024)
    db.write([("put", "large", b"%02d" % number, value) for number in range(20)], timeout=WAIT_S)
    found = list(db.export("large").rows)
    assert found == [(b"%02d" % number, value) for number in range(20)]


class Copy:
    """A copy that answers reads together, and counts them."""

    def __init__(self, rows: list[tuple[bytes, bytes]]) -> None:
        self.rows, self.asked = rows, 0

    def together(self, reads: Any, **_options: Any) -> list[ReadOutcome]:
        [(_, _, wanted)] = reads
        self.asked += 1
        found = [row for row in self.rows if row[0] >= wanted["from"]][: wanted["limit"]]
        body: bytes = msgpack.packb(found)
        if len(body) > 10_000:
            raise TooLarge("more than an answer holds")
        return [ReadOutcome("", 1, body)]

    def ask(self, _what: str, _arguments: Any, _timeout: float) -> list[Any]:
        return []


def test_pages_grow_again_after_large_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "PAGE_BYTES", 5000)
    rows = [(b"%05d" % number, bytes(9000) if number == 0 else b"v") for number in range(5000)]
    copy = Copy(rows)
    found = export(cast("Calls", copy), Range("t", b"", b"", None), None, WAIT_S, page_rows=1000)
    assert list(found.rows) == rows
    assert copy.asked < 30, "and not a question for each key"


class Going(FakeFront):
    """A master whose log goes back, or is trimmed, while a table is read."""

    def __init__(self, *, keeps: bool) -> None:
        super().__init__()
        self.keeps, self.lineages = keeps, itertools.count()

    def log(self, first_lsn: int, last_lsn: int):
        return [{**row, "lineage": next(self.lineages)} for row in super().log(first_lsn, last_lsn)]

    def logged(self, first_lsn: int, last_lsn: int):
        if not self.keeps:
            raise InvalidRequest("the log begins at LSN 100")
        return super().logged(first_lsn, last_lsn)


@pytest.mark.parametrize(("keeps", "told"), [(True, "went back"), (False, "begins at LSN 100")])
def test_what_the_log_cannot_tell_is_an_error_and_no_mixture(keeps: bool, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    front = Going(keeps=keeps)
    with serving(front) as [served], brokerha.connect(served.url) as client:
        for number in range(9):
            client.put("t", str(number), b"v")
        # Each page is of another moment
        answer, lsns = client.together, itertools.count(3)
        monkeypatch.setattr(client, "together", lambda *a, **k: [each._replace(lsn=next(lsns)) for each in answer(*a, **k)])
        with pytest.raises((NotReady, InvalidRequest), match=told):
            export(client, Range("t", b"", b"", None), None, WAIT_S, page_rows=4)
