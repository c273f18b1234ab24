"""Snapshots of tables by name, from a program: over both wires, with real copies of two sites in one process."""

from __future__ import annotations

import asyncio

import pytest

from brokerha import aio
from brokerha.client import Client
from brokerha.client.exporting import Range, export_snapshot
from brokerha.model.errors import Rejected, UnknownSnapshot

ROWS = [(b"%d" % number, b"old") for number in range(9)]


@pytest.fixture
def db(on_sites: Client) -> Client:
    return on_sites


def test_a_snapshot_is_made_read_listed_and_dropped(db: Client) -> None:
    db.write([("put", "t", key, value) for key, value in ROWS])
    made = db.snapshot("s p/ä", "t", "u")
    db.write([("put", "t", b"1", b"new"), ("delete", "t", b"2"), ("put", "t", b"more", b"")])
    least = db.put("u", "1", b"").lsn
    assert db.snapshots(min_lsn=least) == [{"name": "s p/ä", "tables": ["t", "u"], "lsn": made.lsn}]
    assert db.get("t", "2", snapshot="s p/ä", min_lsn=least) == b"old"
    assert db.get("t", "more", snapshot="s p/ä", min_lsn=least) is None
    assert db.range("t", start=b"2", limit=2, snapshot="s p/ä", min_lsn=least) == ROWS[2:4]
    assert db.range("u", snapshot="s p/ä", min_lsn=least) == []
    found = db.export("t", prefix=b"", snapshot="s p/ä", min_lsn=least)
    assert (found.lsn, list(found.rows)) == (made.lsn, ROWS)
    with pytest.raises(Rejected, match="already"):
        db.snapshot("s p/ä")
    least = db.drop_snapshot("s p/ä").lsn
    assert db.snapshots(min_lsn=least) == []
    with pytest.raises(UnknownSnapshot, match="there is no snapshot 's p/ä'"):
        db.get("t", "2", snapshot="s p/ä", min_lsn=least)
    with pytest.raises(UnknownSnapshot):
        db.export("t", snapshot="s p/ä", min_lsn=least)
    with pytest.raises(Rejected, match="there is no snapshot"):
        db.drop_snapshot("s p/ä")


def test_an_export_in_pages_ends_when_its_snapshot_is_another_one(db: Client) -> None:
    db.write([("put", "t", key, value) for key, value in ROWS])
    db.snapshot("s")
    least = db.put("t", "3", b"new").lsn
    assert list(export_snapshot(db, "s", Range("t", b"", b"", None), least, 10.0, page_rows=2).rows) == ROWS
    found = export_snapshot(db, "s", Range("t", b"", b"", None), least, 10.0, page_rows=2)
    assert next(found.rows) == ROWS[0]
    db.write([("drop-snapshot", "s"), ("snapshot", "s")])
    with pytest.raises(UnknownSnapshot):
        list(found.rows)


def test_a_transaction_reads_from_a_snapshot(db: Client) -> None:
    with db.session() as session:
        session.put("t", "1", b"old")
        session.snapshot("s")
        with session.transaction(isolation="serializable") as tx:
            tx.put("t", "1", b"new")
            assert (tx.get("t", "1"), tx.get("t", "1", snapshot="s")) == (b"new", b"old")
            assert tx.range("t", snapshot="s") == [(b"1", b"old")]
            with pytest.raises(UnknownSnapshot):
                tx.get("t", "1", snapshot="x")
            tx.write([("snapshot", "after", "t")])
        assert [session.get("t", "1", snapshot=name) for name in ("s", "after")] == [b"old", b"new"]


def test_they_are_awaited_as_well(url: str) -> None:
    async def test() -> None:
        async with aio.connect(url) as db:
            await db.put("t", "1", b"old")
            await db.snapshot("s", "t")
            await db.put("t", "1", b"new")
            assert await db.get("t", "1", snapshot="s") == b"old"
            assert [each["name"] for each in await db.snapshots()] == ["s"]
            await db.drop_snapshot("s")
            assert await db.snapshots() == []

    asyncio.run(test())
