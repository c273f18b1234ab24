"""Transactions over queues, tables and graphs over RabbitMQ: all at once on every node, or not at all (transactions, T1-T3, T6-T12).

Given a master m1 with two backups and a master m2 without any, each behaviour holds through both of them alike; what a
backup does in the middle of a transaction is shown at m1.
"""

from __future__ import annotations

import json
import threading

import pytest

from brokerha.client import Session
from brokerha.client.transactions import Committed, Transaction
from brokerha.model.errors import Aborted, BrokerhaError, InvalidRequest
from tests.system.tx_site import SETTINGS, TxSite, of_module

SHORT_MAX = SETTINGS + "tx-timeout-max-s = 100\n"
both = pytest.mark.parametrize("master", ["m1", "m2"], ids=["with backups", "without"])


site = of_module("tx-queues", others=1, settings=SHORT_MAX)


def shown(site: TxSite, queue: str) -> list[list[str]]:
    """The queue as every worker shows it."""
    return [site.bodies(worker, queue) for worker in site.workers]


def everywhere(site: TxSite, bodies: list[str]) -> list[list[str]]:
    return [bodies] * len(site.workers)


def queues_of(site: TxSite, *transactions: Transaction) -> set[str]:
    """Queues of these transactions on the broker; one to which a slow backup was invited again counts as the first.

    Others may be there: such a queue that nobody came to read expires seconds later.
    """
    ids = {tx.txid for tx in transactions}
    return {name.partition("+")[0] for name in site.tx_queues() if any(f".{txid}." in name for txid in ids)}


@both
def test_messages_move_from_queue_to_queue_at_once_on_every_node_and_nothing_is_left_behind(site: TxSite, master: str):
    a, b = f"a-{master}", f"b-{master}"
    with site.client_of(master) as db, site.client() as other:
        for body in ("x", "y", "z"):
            db.publish(a, body)
        with db.transaction() as tx:
            moved = tx.accept(a, 3)
            for place, message in enumerate(moved):
                other.publish(b, str(place))
                tx.publish(b, message.body)
            tx.flush()
            backups = ("m1b", "m1c") if master == "m1" else ()
            assert queues_of(site, tx) == {f"brokerha.tx.m1.{tx.txid}.{backup}" for backup in backups}
            site.await_everywhere(other)
            assert shown(site, a) == everywhere(site, ["x", "y", "z"])
            assert shown(site, b) == everywhere(site, ["0", "1", "2"])
            assert [m.body for m in tx.queue(b)] == [b"0", b"1", b"2", b"x", b"y", b"z"], "it reads its own writes"
            assert [m.body for m in other.queue(b)] == [b"0", b"1", b"2"], "nobody else does"
        assert tx.committed is not None
        site.await_everywhere(db)
        assert shown(site, a) == everywhere(site, [])
        assert shown(site, b) == everywhere(site, ["0", "1", "2", "x", "y", "z"])
        lsn = tx.committed.lsn
        # The workers have it, and tell the master that is asked a moment later.
        line = site.until(lambda: (line := db.log(lsn, lsn)[0])["outcome"] and line, "the outcome is in the log")
        assert (line["txid"], line["operations"], line["outcome"]) == (tx.txid, 6, "applied")
        site.await_clean()
        assert [m.body for m in other.accept(b, 6)] == [b"0", b"1", b"2", b"x", b"y", b"z"]
        site.await_everywhere(other)
        assert shown(site, b) == everywhere(site, [])


@both
def test_plain_and_transactional_messages_are_taken_alike(site: TxSite, master: str):
    queue = f"mixed-{master}"
    with site.client_of(master) as db:
        db.publish(queue, "1")
        with db.transaction() as tx:
            tx.publish(queue, "2")
        db.publish(queue, "3")
        assert [m.body for m in db.accept(queue, 3)] == [b"1", b"2", b"3"]
        site.await_everywhere(db)
        assert shown(site, queue) == everywhere(site, [])
        assert db.queues()[queue] == {"depth": 0, "published": 3, "accepted": 3}
    assert len(site.fingerprints()) == 1


@both
def test_a_rollback_leaves_every_node_as_it_was(site: TxSite, master: str):
    queue, untouched = f"kept-{master}", f"never-{master}"
    with site.client_of(master) as db:
        for body in ("x", "y"):
            db.publish(queue, body)
        site.await_everywhere(db)
        before = site.fingerprints()
        tx = db.transaction().begin()
        assert [m.body for m in tx.accept(queue, 1)] == [b"x"]
        tx.publish(untouched, "z")
        tx.put("t", "rolled-back", "v")
        tx.flush()
        tx.rollback()
        outcome = db.outcome(tx.txid)
        assert outcome is not None
        assert outcome["state"] == "aborted"
        site.await_clean()
        # Its claim on the queue is given back a second after that.
        site.until(lambda: site.fingerprints() == before, "all copies are as before", 90.0)
        assert shown(site, queue) == everywhere(site, ["x", "y"])
        assert [m.body for m in db.accept(queue, 2)] == [b"x", b"y"], "in its old place, and not locked"
        assert untouched not in db.queues()


@both
def test_one_refused_operation_of_three_rolls_all_back_everywhere(site: TxSite, master: str):
    with site.client_of(master) as db:
        db.put("t", f"taken-{master}", "v")
        site.await_everywhere(db)
        before = site.fingerprints()
        tx = db.transaction().begin()
        tx.put("t", f"first-{master}", "1")
        tx.expect_key("t", f"taken-{master}", "")
        tx.publish(f"third-{master}", "3")
        with pytest.raises(Aborted):
            tx.commit()
        site.await_everywhere(db)
        assert site.fingerprints() == before
        assert db.get("t", f"first-{master}") is None
        site.await_clean()


@pytest.mark.parametrize(
    ("master", "count"),
    [("m1", 200), pytest.param("m1", 1000, marks=pytest.mark.campaign), pytest.param("m2", 1000, marks=pytest.mark.campaign)],
)
def test_of_messages_sent_and_taken_in_tens_the_last_ten_remain_in_order(site: TxSite, master: str, count: int):
    queue = f"tens-{master}-{count}"
    with site.client_of(master) as db:
        for ten in range(0, count, 10):
            with db.transaction(ack="accepted") as tx:
                for number in range(ten, ten + 10):
                    tx.publish(queue, str(number))
        site.until(lambda: db.queues().get(queue, {}).get("depth") == count, "all are there")
        taken: list[bytes] = []
        while len(taken) < count - 10:
            with db.transaction(ack="synchronised") as tx:
                taken += [m.body for m in tx.accept(queue, 10, wait=10)]
        assert taken == [str(number).encode() for number in range(count - 10)]
        db.put("t", f"after-{queue}", "v")
        site.await_everywhere(db)
        assert shown(site, queue) == everywhere(site, [str(number) for number in range(count - 10, count)])
        assert db.queues()[queue] == {"depth": 10, "published": count, "accepted": count - 10}


@both
def test_an_empty_transaction_makes_no_noise(site: TxSite, master: str):
    with site.client_of(master) as db:
        last = db.put("t", "quiet", "v").lsn
        with db.transaction() as tx:
            assert tx.get("t", "quiet") == b"v"
        assert tx.committed is not None
        assert tx.committed.lsn == 0
        gone = db.transaction().begin()
        gone.rollback()
        assert queues_of(site, tx, gone) == set()
        # Masters write lines of their own, about what consumers of other tests have left.
        put = db.put("t", "quiet", "w")
        lines = site.get(master, f"/cluster/log?from={last + 1}&to={put.lsn}")
        assert lines is not None
        written = {json.loads(line)["txid"] for line in lines.text.splitlines()}
        assert put.txid in written
        assert not {tx.txid, gone.txid} & written


@both
def test_a_time_out_ends_an_idle_transaction_and_its_client_is_told(site: TxSite, master: str):
    with site.client_of(master) as db:
        with pytest.raises(InvalidRequest, match="100000 ms"):
            db.transaction(timeout=101).begin()
        tx = db.transaction(timeout=0.5).begin()
        tx.publish(f"idle-{master}", "x")
        tx.flush()
        site.await_clean()
        with pytest.raises(Aborted, match="500 ms"):
            tx.commit()


def commit_aside(tx: Transaction) -> tuple[threading.Thread, list[object]]:
    """Commit in another thread; the list gets what came of it."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(tx.commit())
        except BrokerhaError as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def filled(db: Session, queue: str, count: int) -> Transaction:
    tx = db.transaction().begin()
    for number in range(count):
        tx.publish(queue, str(number))
    tx.flush()
    return tx


def test_ten_commits_that_wait_for_a_frozen_backup_hold_up_nobody_and_all_land(site: TxSite):
    with site.client_of("m1") as db:
        transactions = [filled(db, "ten", 3) for _ in range(10)]
        site.freeze("m1c")
        try:
            commits = [commit_aside(tx) for tx in transactions]
            site.until(lambda: site.metric("m1", "transactions_prepared") == 10, "ten are prepared")
            assert site.get("m1", "/livez") is not None
            assert db.put("t", "meanwhile", "v").lsn
            were_waiting = not any(results for _, results in commits)
        finally:
            site.thaw("m1c")
        assert were_waiting
        for thread, results in commits:
            thread.join(30)
            assert [type(each) for each in results] == [Committed], results
        assert db.queues()["ten"] == {"depth": 30, "published": 30, "accepted": 0}
    site.await_clean()
    site.await_ready("m1c")


def test_a_backup_lost_in_the_middle_does_not_stop_the_commit_and_one_that_joins_is_in_it(site: TxSite):
    with site.client_of("m1") as db:
        tx = filled(db, "lost", 3)
        site.kill("m1c")
        committed = tx.commit()
        assert committed.lsn
        # It joins while another transaction is open
        joined = db.transaction().begin()
        joined.publish("joined", "1")
        joined.flush()
        site.start("m1c")
        site.until(lambda: site.row("m1c", "backup").get("state") == "ready", "m1c has everything, and waits for nobody's end")
        row = next(row for row in db.open_transactions() if row["txid"] == joined.txid)
        assert row["participants"] == ["m1b", "m1c"]
        joined.publish("joined", "2")
        joined.commit()
        site.await_everywhere(db)
        assert shown(site, "lost") == everywhere(site, ["0", "1", "2"])
        assert shown(site, "joined") == everywhere(site, ["1", "2"])
    site.await_clean()
    site.await_ready("m1c")
