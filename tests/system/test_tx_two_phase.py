"""Transactions of an external coordinator over RabbitMQ, state by state (transactions, section 8, DTX).

Given a master with two backups and two workers, every call of PEP 249 that is right does what it says, every one that is wrong
is a named error that changes nothing, and `recover` lists exactly what is prepared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from brokerha.client import Session
from brokerha.client.transactions import step
from brokerha.model.errors import Aborted, InvalidRequest, NotFound, WrongState
from brokerha.model.ids import Xid
from tests.system.tx_site import PROCESSES, TxSite, of_module

site = of_module("tx-two-phase")


@pytest.fixture(params=["http", "amqp"])
def db(site: TxSite, request: pytest.FixtureRequest) -> Iterator[Session]:
    with site.client(*(PROCESSES if request.param == "http" else ())) as session:
        yield session


@pytest.fixture
def xid(db: Session, request: pytest.FixtureRequest) -> Xid:
    return db.xid(7, request.node.name[:60], "branch")


def begin(db: Session, xid: Xid, key: str) -> None:
    db.tpc_begin(xid)
    db.put("t", key, "v")


def commit(db: Session, txid: str, *, one_phase: bool, session: str | None = None) -> None:
    """The raw second phase: what a client of its own making may send."""
    arguments = {"one_phase": one_phase, "level": "applied", "copies": 1, "session": db.token if session is None else session}
    step(db, "m1", "commit", txid, arguments, 10)


def state_of(db: Session, txid: str) -> str:
    outcome = db.outcome(txid)
    assert outcome is not None
    return str(outcome["state"])


def under_way(db: Session) -> str:
    assert db.branch is not None
    db.branch.flush()
    return db.branch.txid


def test_one_phase_commit(site: TxSite, db: Session, xid: Xid):
    begin(db, xid, "one")
    assert db.get("t", "one") == b"v"
    assert db.tpc_commit().lsn
    assert db.tpc_recover() == []
    site.await_clean()


def test_prepare_and_commit(site: TxSite, db: Session, xid: Xid):
    begin(db, xid, f"two-{xid.text}")
    db.tpc_prepare()
    assert db.tpc_recover() == [xid]
    with site.client(*PROCESSES) as other:
        assert other.get("t", f"two-{xid.text}") is None
    assert db.tpc_commit().lsn
    assert db.get("t", f"two-{xid.text}") == b"v"
    assert db.tpc_recover() == []
    site.await_clean()


def test_rollback(site: TxSite, db: Session, xid: Xid):
    begin(db, xid, f"never-{xid.text}")
    txid = under_way(db)
    db.tpc_rollback()
    assert state_of(db, txid) == "aborted"
    assert db.get("t", f"never-{xid.text}") is None
    site.await_clean()


def test_prepare_and_rollback(site: TxSite, db: Session, xid: Xid):
    begin(db, xid, f"unprepared-{xid.text}")
    txid = under_way(db)
    db.tpc_prepare()
    db.tpc_rollback()
    assert state_of(db, txid) == "aborted"
    assert db.get("t", f"unprepared-{xid.text}") is None
    site.await_clean()


def test_one_phase_after_prepare_is_an_error_and_it_stays_prepared(db: Session, xid: Xid):
    begin(db, xid, "k")
    txid = under_way(db)
    db.tpc_prepare()
    with pytest.raises(WrongState, match=r"prepared.*one.phase|one.phase.*prepared"):
        commit(db, txid, one_phase=True)
    assert state_of(db, txid) == "prepared"
    db.tpc_rollback()


def test_the_second_phase_without_the_first_is_an_error_and_it_stays_open(db: Session, xid: Xid):
    begin(db, xid, "k")
    txid = under_way(db)
    with pytest.raises(WrongState):
        commit(db, txid, one_phase=False)
    assert state_of(db, txid) == "open"
    db.tpc_rollback()


def test_nobody_else_ends_it_while_it_is_in_use(site: TxSite, db: Session, xid: Xid):
    begin(db, xid, "k")
    txid = under_way(db)
    for action in ("prepare", "rollback"):
        with pytest.raises(WrongState):
            step(db, "m1", action, txid, {"session": "another"}, 10)
    with pytest.raises(WrongState):
        commit(db, txid, one_phase=True, session="another")
    assert state_of(db, txid) == "open"
    db.tpc_prepare()
    with site.client() as other:
        assert other.tpc_commit(xid).lsn, "once it is prepared anybody may"
    assert db.tpc_commit().txid == txid, "told again, it is the same commit"
    site.await_clean()


def test_an_xid_in_use_is_refused_and_a_finished_one_may_be_used_again(site: TxSite, db: Session, xid: Xid):
    begin(db, xid, "first")
    with site.client() as other, pytest.raises(InvalidRequest, match="in use"):
        other.tpc_begin(xid)
    db.tpc_prepare()
    with site.client() as other, pytest.raises(InvalidRequest, match="in use"):
        other.tpc_begin(xid)
    db.tpc_commit()
    begin(db, xid, "second")
    assert db.tpc_commit().lsn
    begin(db, xid, "third")
    db.tpc_rollback()
    begin(db, xid, "fourth")
    db.tpc_rollback()
    site.await_clean()


def test_unknown_ones_are_named_errors(db: Session, xid: Xid):
    for end in (db.tpc_commit, db.tpc_rollback):
        with pytest.raises(NotFound, match=xid.text):
            end(xid)
    for action in ("prepare", "ping", "forget"):
        with pytest.raises(NotFound):
            step(db, "m1", action, "nobody-knows-this", {}, 10)
    with pytest.raises(NotFound):
        commit(db, "nobody-knows-this", one_phase=True)
    with pytest.raises(WrongState):
        db.tpc_commit()


def test_the_end_of_the_connection_rolls_back_what_is_open_and_keeps_what_is_prepared(site: TxSite, db: Session, xid: Xid):
    with site.client(*PROCESSES) as ending:
        begin(ending, ending.xid(8, "prepared"), "prepared-by-one-that-left")
        ending.tpc_prepare()
    with site.client(*PROCESSES) as ending:
        begin(ending, xid, "k")
        txid = under_way(ending)
    assert state_of(db, txid) == "aborted"
    assert [row["xid"] for row in db.open_transactions()] == [db.xid(8, "prepared").text]
    db.tpc_rollback(db.xid(8, "prepared"))
    site.await_clean()


def test_a_time_out_of_two_seconds_rolls_back_and_later_calls_say_so(site: TxSite, db: Session, xid: Xid):
    db.tpc_begin(xid, timeout=2)
    db.put("t", f"late-{xid.text}", "v")
    txid = under_way(db)
    site.until(lambda: state_of(db, txid) == "aborted", "its time is over", 5)
    with pytest.raises(Aborted, match="2000 ms"):
        db.tpc_prepare()
    with pytest.raises(WrongState):
        db.tpc_commit()
    for action in ("prepare", "ping"):
        with pytest.raises(Aborted, match="2000 ms"):
            step(db, "m1", action, txid, {}, 10)
    assert db.get("t", f"late-{xid.text}") is None


def test_a_time_out_above_the_maximum_is_refused(db: Session, xid: Xid):
    with pytest.raises(InvalidRequest, match="3600000 ms"):
        db.tpc_begin(xid, timeout=3601)
    db.tpc_begin(xid, timeout=3600)
    db.tpc_rollback()


def nine(site: TxSite) -> tuple[list[Session], list[Xid]]:
    """Nine transactions, of which 2, 5, 6 and 8 are prepared and the others open, committed, or rolled back."""
    sessions = [site.client() for _ in range(9)]
    xids = [sessions[0].xid(9, f"number-{n}") for n in range(1, 10)]
    for number, (db, xid) in enumerate(zip(sessions, xids, strict=True), 1):
        begin(db, xid, f"nine-{number}")
        if number in {2, 3, 5, 6, 8, 9}:
            db.tpc_prepare()
        if number in {1, 3}:
            db.tpc_commit()
        if number in {4, 9}:
            db.tpc_rollback()
    return sessions, xids


def recovered(db: Session) -> set[str]:
    return {xid.text for xid in db.tpc_recover()}


def test_recover_lists_exactly_the_prepared_ones_also_after_fail_over_and_after_everything_was_killed(site: TxSite):
    sessions, xids = nine(site)
    expected = {xids[n - 1].text for n in (2, 5, 6, 8)}
    with site.client(timeout=60) as db:
        assert recovered(db) == expected
        # Number 7 is open; whoever uses it is told that it is rolled back
        primary = site.await_primary()
        site.kill(primary)
        site.await_primary()
        assert recovered(db) == expected
        seventh = sessions[6]
        with pytest.raises(Aborted):
            seventh.tpc_commit(timeout=20)
        # The same, when everything dies at once
        site.start(primary)
        site.await_ready(primary)
        site.restart_all()
        site.await_primary()
        assert recovered(db) == expected
        assert db.get("t", "nine-2") is None
        db.tpc_commit(xids[1])
        db.tpc_rollback(xids[4])
        listed = json.loads(site.run("tx", "list", "-o", "json"))["transactions"]
        assert {row["xid"] for row in listed} == {xids[5].text, xids[7].text}
        db.tpc_commit(xids[5])
        db.tpc_rollback(xids[7])
        assert [db.get("t", f"nine-{n}") for n in range(1, 10)] == [b"v", b"v", b"v", None, None, b"v", None, None, None]
    for session in sessions:
        session.close()
    site.await_clean()


def test_what_is_decided_by_hand_is_reported_until_it_is_forgotten_and_outlives_everything(site: TxSite):
    with site.client() as db, site.client() as coordinator:
        kept, undone = db.xid(10, "kept"), db.xid(10, "undone")
        begin(db, kept, "by-hand")
        db.tpc_prepare()
        begin(coordinator, undone, "not-by-hand")
        coordinator.tpc_prepare()
        assert "committed" in site.run("tx", "commit", kept.text, "--yes")
        assert "aborted" in site.run("tx", "rollback", undone.text, "--yes")
        site.restart_all(*site.processes)
        site.await_primary()
        rows = {row["xid"]: (row["state"], row["outcome"]) for row in db.open_transactions()}
        assert rows == {kept.text: ("heuristic", "committed"), undone.text: ("heuristic", "aborted")}
        # The coordinator comes back and is told
        with pytest.raises(Aborted, match="by hand"):
            coordinator.tpc_commit()
        assert db.tpc_commit().txid
        assert db.get("t", "by-hand") == b"v"
        assert db.get("t", "not-by-hand") is None
        assert site.row("m1", "master")["in_doubt"] == 2
        for xid in (kept, undone):
            assert "forgotten" in site.run_at_primary("tx", "forget", xid.text)
        assert db.open_transactions() == []
    site.await_clean()
