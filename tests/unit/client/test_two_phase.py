"""Two phases of the client, after PEP 249, over HTTP against a model of a node."""

from __future__ import annotations

from typing import Any

import pytest

import brokerha
from brokerha.client import Session, transactions
from brokerha.client.transactions import step
from brokerha.model import errors
from tests.unit.client.serving import Served


def test_prepare_and_commit_with_the_calls_of_the_connection_inside(db: Session, served: Served) -> None:
    xid = db.xid(1, "order-4711", "stock")
    db.tpc_begin(xid)
    written = db.put("t", "k", "v")
    assert (written.level, db.get("t", "k"), served.front.keys) == ("open", b"v", {})
    db.tpc_prepare()
    assert db.tpc_recover() == [xid]
    done = db.tpc_commit()

    assert done.lsn == 1
    assert served.front.keys == {("t", b"k"): b"v"}
    assert db.tpc_recover() == []


def test_without_prepare_the_commit_has_one_phase(db: Session, served: Served) -> None:
    db.publish("q", "a")
    db.tpc_begin(db.xid(1, b"\x00", b"\xff"))
    taken = db.accept("q")
    assert (taken is not None, db.accept("q")) == (True, None)
    db.tpc_commit()

    assert served.front.transactions.calls[-1][2]["one_phase"] is True


def test_a_name_that_is_none_is_refused(db: Session, served: Served) -> None:
    others: list[Any] = [None, "order-4711"]
    for xid in others:
        with pytest.raises(errors.InvalidRequest, match="a two-phase transaction is named by what xid"):
            db.tpc_begin(xid)
    assert (db.branch, served.front.transactions.open) == (None, {})


def test_a_rollback_ends_it(db: Session, served: Served) -> None:
    for is_prepared in (False, True):
        db.tpc_begin(db.xid(1, "x"))
        db.put("t", "k", "v")
        if is_prepared:
            db.tpc_prepare()
        db.tpc_rollback()

    assert (served.front.keys, served.front.transactions.open) == ({}, {})


@pytest.mark.parametrize("error", [errors.Aborted("a check failed"), errors.OutcomeUnknown("m1.t")])
def test_a_rollback_after_a_refused_prepare_does_nothing_and_after_an_unknown_one_says_so(
    db: Session, monkeypatch: pytest.MonkeyPatch, error: errors.BrokerhaError
) -> None:
    def refused(*words: Any) -> Any:
        if words[2] == "prepare":
            raise error
        return step(*words)

    monkeypatch.setattr(transactions, "step", refused)
    db.tpc_begin(db.xid(1, "x"))
    db.put("t", "k", "v")
    with pytest.raises(type(error)):
        db.tpc_prepare()

    if isinstance(error, errors.Aborted):
        db.tpc_rollback()
    with pytest.raises(errors.WrongState, match="tpc_begin first"):
        db.tpc_rollback()


def test_nothing_to_do_is_over_with_the_prepare(db: Session) -> None:
    db.tpc_begin(db.xid(1, "x"))
    db.tpc_prepare()

    assert db.tpc_commit().lsn == 0
    db.commit()


def test_what_is_not_allowed_meanwhile_says_so(db: Session) -> None:
    with pytest.raises(errors.WrongState, match="tpc_begin first"):
        db.tpc_prepare()
    db.commit()
    db.rollback()
    db.tpc_begin(db.xid(1, "x"))
    db.put("t", "k", "v")
    for call in (db.commit, db.rollback, db.transaction, db.pipeline, lambda: db.tpc_begin(db.xid(1, "y"))):
        with pytest.raises(errors.WrongState, match="two-phase transaction m1"):
            call()
    with pytest.raises(errors.WrongState):
        db.tpc_commit(db.xid(1, "x"))
    db.tpc_prepare()
    with pytest.raises(errors.WrongState, match="prepared"):
        db.put("t", "k", "v")
    db.tpc_rollback()


@pytest.mark.parametrize("parts", [(-1, "x"), (1, ""), (1, "x" * 65), (1, "x", "y" * 65)])
def test_an_xid_has_its_limits(db: Session, parts) -> None:
    with pytest.raises(errors.InvalidRequest, match="xid"):
        db.xid(*parts)


@pytest.mark.parametrize("is_commit", [True, False])
def test_another_program_ends_what_a_lost_one_had_prepared(db: Session, served: Served, is_commit) -> None:
    with brokerha.connect(served.url) as lost:
        xid = lost.xid(7, "order", "b")
        lost.tpc_begin(xid)
        lost.put("t", "k", "v")
        lost.tpc_prepare()

    [found] = db.tpc_recover()
    assert found == xid
    if is_commit:
        assert db.tpc_commit(found).lsn == 1
    else:
        db.tpc_rollback(found)
    assert bool(served.front.keys) is is_commit
    with pytest.raises(errors.NotFound, match="7:6f72646572:62"):
        db.tpc_rollback(found)
