"""Snapshots of tables from a shell."""

from __future__ import annotations

import json

import pytest

from brokerha.client.exporting import Export
from brokerha.client.outcomes import Written
from brokerha.model.errors import Rejected, UnknownSnapshot

URL = ("--url", "http://node")
DONE = Written("tx", 7, "applied")


@pytest.mark.parametrize("tables", [(), ("prices", "stock")])
def test_a_snapshot_is_made_of_the_tables_that_are_named(run, cluster, tables):
    client = cluster(snapshot=DONE)
    ran = run("snapshot", "create", "monday", *tables, *URL)
    assert (ran.code, ran.out) == (0, "applied: LSN 7, transaction tx\n")
    assert ("snapshot", "monday", *tables) in client.calls


def test_they_are_listed(run, cluster):
    found = [{"name": "monday", "tables": ["prices", "stock"], "lsn": 7}]
    cluster(snapshots=lambda: found)
    assert json.loads(run("snapshot", "list", "-o", "json", *URL).out) == {"snapshots": found}
    assert run("snapshot", "list", "-o", "tsv", *URL).out.splitlines() == ["name\ttables\tlsn", "monday\tprices, stock\t7"]


def test_one_is_dropped(run, cluster):
    client = cluster(drop_snapshot=DONE)
    assert run("snapshot", "drop", "monday", *URL).code == 0
    assert ("drop_snapshot", "monday") in client.calls
    cluster(drop_snapshot=Rejected("there is no snapshot 'x'"))
    ran = run("snapshot", "drop", "x", *URL)
    assert ran.code == 2
    assert "there is no snapshot 'x'" in ran.err


def test_keys_are_read_from_one(run, cluster):
    client = cluster(get=b"9.90", export=Export(7, iter([(b"sku-1", b"9.90")])))
    assert run("get", "prices", "sku-1", "--snapshot", "monday", *URL).out == "9.90"
    assert client.calls[-2][-1]["snapshot"] == "monday"
    run("get", "prices", "--prefix", "sku", "--snapshot", "monday", *URL)
    assert client.calls[-2][-1]["snapshot"] == "monday"
    client = cluster(export=Export(7, iter([(b"sku-1", b"9.90")])))
    ran = run("table", "export", "prices", "--snapshot", "monday", *URL)
    assert client.calls[-2][-1]["snapshot"] == "monday"
    assert ran.err == "brokerha: 1 key of table prices at LSN 7\n"
    cluster(get=UnknownSnapshot("there is no snapshot 'x'"))
    assert run("get", "prices", "sku-1", "--snapshot", "x", *URL).code in {2, 64}
