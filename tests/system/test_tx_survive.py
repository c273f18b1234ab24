"""Transactions and the death of their primary, over RabbitMQ (transactions, T4, T5, T13 and section 6).

Given a master with two backups, when its primary is killed at any point of a transaction, then the client learns what became
of it, no node ever shows a part of it, and what was prepared with an xid is there afterwards with its locks.
"""

from __future__ import annotations

import threading

import pytest

from brokerha.model.errors import Aborted, BrokerhaError, OutcomeUnknown
from tests.system.tx_site import PROCESSES, TxSite, of_module

module_site = of_module("tx-survive")


@pytest.fixture
def site(module_site: TxSite) -> TxSite:
    """All of its processes run and are ready."""
    module_site.mend()
    return module_site


@pytest.mark.parametrize("door", ["http", "amqp"])
def test_what_was_open_when_its_primary_was_killed_is_aborted_and_its_client_is_told(site: TxSite, door: str):
    with site.client(*(PROCESSES if door == "http" else ())) as db:
        db.publish(f"open-{door}", "first")
        primary = site.await_primary()
        tx = db.transaction().begin()
        assert tx.accept(f"open-{door}") is not None
        tx.publish(f"open-{door}", "second")
        tx.flush()
        site.kill(primary)
        with pytest.raises(Aborted):
            tx.commit(timeout=20)
        site.start(primary)
        outcome = db.outcome(tx.txid)
        assert outcome is not None
        assert outcome["state"] == "aborted"
        db.put("t", f"after-{door}", "v")
        site.await_everywhere(db)
        assert [site.bodies(worker, f"open-{door}") for worker in site.workers] == [["first"]] * 2
        site.await_clean(in_use=True)
        message = db.accept(f"open-{door}")
        assert message is not None
        assert message.body == b"first"


def test_a_primary_that_dies_while_a_prepare_hangs_leaves_an_unknown_outcome_that_is_told_later(site: TxSite):
    primary = site.await_primary()
    others = [node for node in PROCESSES if node != primary]
    with site.client() as db:
        tx = db.transaction().begin()
        for number in range(3):
            tx.publish("hanging", str(number))
        tx.flush()
        site.freeze(others[1])
        errors: list[BaseException] = []

        def commit() -> None:
            try:
                tx.commit(timeout=3)
            except BrokerhaError as error:
                errors.append(error)

        thread = threading.Thread(target=commit, daemon=True)
        thread.start()
        site.until(lambda: site.metric(primary, "transactions_prepared") == 1, "it waits for its participants")
        site.kill(primary)
        thread.join(20)
        assert [type(error) for error in errors] == [OutcomeUnknown], errors
        assert tx.txid in str(errors[0])
        # One of the two others alone cannot be elected: with the second one the outcome is known
        site.thaw(others[1])
        site.await_primary(*others)
        outcome = db.outcome(tx.txid)
        assert outcome is not None
        assert outcome["state"] == "aborted"
        site.start(primary)
        assert "hanging" not in db.queues()
        site.await_clean(in_use=True)


def test_a_prepared_transaction_keeps_its_locks_over_a_fail_over_and_a_rollback_puts_the_messages_back(site: TxSite):
    with site.client() as db, site.client(*PROCESSES) as other:
        for body in ("x", "y", "z"):
            db.publish("locked", body)
        xid = db.xid(1, "locks", "")
        db.tpc_begin(xid)
        assert [message.body for message in db.accept("locked", 2)] == [b"x", b"y"]
        db.tpc_prepare()
        primary = site.await_primary()
        site.kill(primary)
        site.await_primary()
        site.start(primary)
        taken = other.transaction().begin()
        assert [message.body for message in taken.accept("locked", 3)] == [b"z"]
        taken.rollback()
        other.tpc_rollback(xid)
        assert [message.body for message in other.accept("locked", 3)] == [b"x", b"y", b"z"]
        site.await_clean(in_use=True)


def test_a_connection_over_http_follows_its_transactions_to_the_next_primary(site: TxSite):
    with site.client(*PROCESSES) as db:
        is_open = db.transaction().begin()
        is_open.put("followed", "k", "v")
        is_open.flush()
        is_prepared = db.xid(1, "followed", "")
        db.tpc_begin(is_prepared)
        db.put("followed", "k", "w")
        db.tpc_prepare()
        primary = site.await_primary()
        site.kill(primary)
        site.await_primary()
        db.tpc_rollback()
        with pytest.raises(Aborted):
            is_open.ping()
        site.start(primary)
        assert db.get("followed", "k") is None
        site.await_clean(in_use=True)


def test_a_backup_that_was_started_again_while_a_transaction_is_open_takes_part_in_it(site: TxSite):
    primary = site.await_primary()
    late, other = (node for node in PROCESSES if node != primary)
    with site.client() as db, site.client(*PROCESSES) as manager:
        site.kill(late)
        site.until(lambda: len(_ready(site, primary)) == 1, "only the other backup is ready")
        xid = db.xid(1, "late", "")
        db.tpc_begin(xid)
        db.publish("late", "before")
        assert db.branch is not None
        db.branch.flush()
        site.start(late)
        site.until(lambda: len(_ready(site, primary)) == 2, "it is ready again")
        db.publish("late", "after")
        # What it says of the prepare counts: it is the only one that is left to say anything.
        site.kill(other)
        site.until(lambda: _ready(site, primary) == [late], "only the one that came later is ready")
        db.tpc_prepare()
        site.kill(primary)
        site.start(other)
        site.await_primary(late, other)
        manager.tpc_commit(xid)
        site.start(primary)
        site.await_everywhere(manager)
        assert [site.bodies(worker, "late") for worker in site.workers] == [["before", "after"]] * 2
        site.await_clean(in_use=True)


def _ready(site: TxSite, primary: str) -> list[str]:
    """Backups that are ready, as their primary says."""
    return [node for node in PROCESSES if node != primary and site.row(node, "backup").get("state") == "ready"]
