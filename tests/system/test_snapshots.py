"""Snapshots of tables by name, over RabbitMQ: at two masters, while processes are killed.

Given snapshots that are made at one master and writes at the other, when a primary and a worker are killed and come back, then every door
shows what the tables held, over AMQP and HTTP alike, and all copies are equal once the snapshots are dropped.
"""

from __future__ import annotations

import pytest

import brokerha
from brokerha.model.errors import Rejected, UnknownSnapshot
from tests.system.tx_site import TxSite, of_module

site = of_module("snapshots", others=1)


def test_snapshots_show_the_same_at_every_door_whoever_is_killed(site: TxSite) -> None:
    site.mend()
    held = {}
    with site.client() as db, site.client("m2") as other:
        for number, name in enumerate(("one", "two", "three")):
            least = db.write([("put", "t", b"%d" % key, b"%d" % number) for key in range(number, number + 5)]).lsn
            made = other.snapshot(name, "t")
            held[name] = db.range("t", min_lsn=made.lsn)
            assert made.lsn > least
        with pytest.raises(Rejected, match="already"):
            db.snapshot("two")
        site.kill(site.await_primary(), "w3")
        for key in range(9):
            db.put("t", str(key), "late", timeout=60)
        db.delete("t", "0")
        site.mend()
        least = db.put("t", "more", "late").lsn
        for node in (site.await_primary(), "m2", "w1", "w3"):
            with brokerha.connect(f"http://127.0.0.1:{site.ports[node]}") as door:
                assert {name: door.range("t", snapshot=name, min_lsn=least) for name in held} == held
                assert [each["name"] for each in door.snapshots(min_lsn=least)] == sorted(held)
        other.drop_snapshot("two")
        least = db.drop_snapshot("three").lsn
        assert db.range("t", snapshot="one", min_lsn=least) == held["one"]
        with pytest.raises(UnknownSnapshot):
            other.get("t", "0", snapshot="two", min_lsn=least)
        other.drop_snapshot("one")
        db.put("t", "at the end", "v")
        site.await_everywhere(db)
    assert len(site.fingerprints()) == 1
