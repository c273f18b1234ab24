"""Prepare binds, over RabbitMQ: "Returns ok if outcome of local and all backup prepares is ok, fail otherwise" (seed 002).

Given a master m1 with two backups and a master m2 without any, what cannot be committed fails at its prepare; what was prepared can be
committed whatever others do, at whichever master, and whoever is killed in between.
"""

from __future__ import annotations

import threading

import pytest

from brokerha.client import Session
from brokerha.model.errors import Aborted, BrokerhaError, NotFound, Rejected, WrongState
from tests.system.tx_site import TxSite, of_module

both = pytest.mark.parametrize("master", ["m1", "m2"], ids=["with backups", "without"])


module_site = of_module("prepare-binds", others=1)


@pytest.fixture
def site(module_site: TxSite) -> TxSite:
    """All of its processes run and are ready."""
    module_site.mend()
    return module_site


def held(db: Session, txid: str, key: str) -> None:
    """A key is held by a prepared transaction, and its rejection names it."""
    with pytest.raises(Rejected, match=f"held by prepared transaction {txid}"):
        db.put("stock", key, "other")


def branch_of(db: Session) -> str:
    assert db.branch is not None
    db.branch.flush()
    return db.branch.txid


def all_equal(site: TxSite) -> None:
    """Every copy has the same content, and nothing of a transaction is left."""
    site.await_clean(in_use=True)
    with site.client() as db:
        db.put("t", "at the end", "v")
        site.await_everywhere(db)
    assert len(site.fingerprints()) == 1


@both
def test_a_branch_that_breaks_a_check_fails_at_its_prepare(site: TxSite, master: str):
    with site.client_of(master) as db:
        db.put("stock", f"left-{master}", "1")
        db.control_add(f"left-{master}", "key", "stock", f"left-{master}", ">= 0")
        db.tpc_begin(db.xid(1, f"check-{master}"))
        db.put("stock", f"left-{master}", "-1")
        with pytest.raises(Aborted, match=f"check 'left-{master}' failed: expected >= 0, found -1"):
            db.tpc_prepare()
        db.tpc_rollback()
        with pytest.raises(WrongState, match="tpc_begin first"):
            db.tpc_rollback()
        assert db.get("stock", f"left-{master}") == b"1"
        db.tpc_begin(db.xid(1, f"check-{master}"))
        db.put("stock", f"left-{master}", "0")
        db.tpc_prepare()
        assert db.tpc_commit().lsn
        assert db.get("stock", f"left-{master}") == b"0"
    all_equal(site)


@both
def test_a_branch_about_a_repository_that_does_not_exist_fails_at_its_prepare(site: TxSite, master: str):
    with site.client_of(master) as db:
        db.tpc_begin(db.xid(1, f"nowhere-{master}"))
        db.update("nowhere", "INSERT DATA { <urn:a> <urn:b> <urn:c> }")
        with pytest.raises(Aborted, match="repository 'nowhere' does not exist"):
            db.tpc_prepare()
        assert db.tpc_recover() == []
    all_equal(site)


def test_what_others_write_at_any_master_spoils_nothing(site: TxSite):
    with site.client_of("m1") as one, site.client_of("m1") as beside, site.client_of("m2") as two:
        one.publish("orders", "first")
        one.put("stock", "sku", "7")
        site.await_everywhere(one)
        xid = one.xid(1, "spoilt")
        one.tpc_begin(xid)
        message = one.accept("orders")
        assert message is not None
        one.put("stock", "sku", "6")
        txid = branch_of(one)
        one.tpc_prepare()
        for db in (beside, two):
            held(db, txid, "sku")
            with pytest.raises(Rejected, match=f"held by prepared transaction {txid}"):
                db.control_add("sku", "key", "stock", "sku", "= 7")
        # The other master gives it to nobody; who names it is told so when the branch is prepared, and not when it is committed.
        assert two.accept("orders") is None
        two.tpc_begin(two.xid(1, "late"))
        two.write([("accept", "orders", message.id)])
        with pytest.raises(Aborted, match=f"message '{message.id}' of queue 'orders' is held by prepared transaction {txid}"):
            two.tpc_prepare()
        two.put("stock", "another", "1")
        assert one.tpc_commit().lsn
        site.await_everywhere(one)
        assert two.get("stock", "sku") == b"6"
    all_equal(site)


def test_all_are_killed_between_prepare_and_commit(site: TxSite):
    with site.client_of("m1") as one, site.client_of("m2") as two:
        xids = {db: db.xid(1, f"killed-{number}") for number, db in enumerate((one, two))}
        txids = {}
        for number, db in enumerate((one, two)):
            db.tpc_begin(xids[db])
            db.put("stock", f"killed-{number}", "kept")
            txids[db] = branch_of(db)
            db.tpc_prepare()
    site.restart_all()
    site.await_primary()
    with site.client_of("m1") as first, site.client_of("m2") as second:
        for number, txid in enumerate(txids.values()):
            for db in (first, second):
                held(db, txid, f"killed-{number}")
        wanted = list(xids.values())
        assert first.tpc_commit(wanted[0]).lsn
        second.tpc_rollback(wanted[1])
        site.await_everywhere(first)
        assert first.get("stock", "killed-0") == b"kept"
        second.put("stock", "killed-1", "free again")
    all_equal(site)


def test_its_primary_is_killed_between_prepare_and_commit(site: TxSite):
    with site.client() as db, site.client_of("m2") as two:
        with site.client_of("m1") as one:
            xid = one.xid(1, "primary")
            one.tpc_begin(xid)
            one.put("stock", "primary", "kept")
            txid = branch_of(one)
            one.tpc_prepare()
        primary = site.await_primary()
        site.kill(primary)
        held(two, txid, "primary")
        site.await_primary()
        assert xid in db.tpc_recover()
        assert db.tpc_commit(xid).lsn
        site.start(primary)
        site.await_everywhere(db)
        assert two.get("stock", "primary") == b"kept"
    all_equal(site)


@pytest.mark.parametrize("is_good", [True, False], ids=["good", "bad"])
def test_its_primary_is_killed_before_its_prepare_is_judged(site: TxSite, is_good: bool):
    key = "unjudged" if is_good else "never"
    with site.client() as db:
        db.control_add(f"c-{key}", "key", "stock", key, "!= bad")
    with site.client_of("m1") as one:
        one.tpc_begin(one.xid(1, key))
        one.put("stock", key, "good" if is_good else "bad")
        txid = branch_of(one)
        # Nobody at m1 judges anything meanwhile.
        for worker in ("w1", "w2"):
            site.freeze(worker)
        told: list[BaseException | None] = []

        def prepare() -> None:
            try:
                one.tpc_prepare(timeout=10)
                told.append(None)
            except BrokerhaError as error:
                told.append(error)

        thread = threading.Thread(target=prepare, daemon=True)
        thread.start()
        primary = site.await_primary()
        site.until(lambda: state_at(site, primary, txid) == "placed", "it has its place, and is not judged")
        assert not told
        site.kill(primary)
        thread.join(60)
        assert told
        for worker in ("w1", "w2"):
            site.thaw(worker)
    site.mend()
    with site.client() as db:
        if is_good:
            site.until(lambda: state_of(db, txid) == "prepared", "it is judged at last")
            assert db.tpc_commit(db.xid(1, key)).lsn
            assert db.get("stock", key) == b"good"
        else:
            site.until(lambda: state_of(db, txid) == "aborted", "it is judged at last")
            with pytest.raises(NotFound):
                db.tpc_commit(db.xid(1, key))
            assert db.get("stock", key) is None
        db.control_remove(f"c-{key}")
    all_equal(site)


def test_the_log_and_the_list_show_the_steps(site: TxSite):
    with site.client_of("m1") as one:
        one.tpc_begin(one.xid(1, "steps"))
        one.put("stock", "steps", "1")
        one.put("stock", "more", "1")
        txid = branch_of(one)
        one.tpc_prepare()
        assert f"{txid}" in site.run("tx", "list")
        lsn = one.tpc_commit().lsn
        site.await_everywhere(one)
        rows = {row["txid"]: (row["kind"], row["operations"]) for row in one.log(max(1, lsn - 20), lsn)}
        assert (rows[f"{txid}.p"], rows[txid]) == (("prepare", 2), ("commit", 0))
    all_equal(site)


def state_at(site: TxSite, node: str, txid: str) -> str:
    """State of a transaction as one process lists it; empty when it is not listed."""
    response = site.get(node, "/tx")
    rows = response.json()["transactions"] if response is not None and response.status_code == 200 else []
    return next((str(row["state"]) for row in rows if row["txid"] == txid), "")


def state_of(db: Session, txid: str) -> str:
    outcome = db.outcome(txid)
    return "" if outcome is None else str(outcome["state"])
