"""Transactions and queues on real nodes, through every door: embedded, HTTP, AMQP. Two masters with a worker each.

What the coordinator and the stores do is tested on their floors; here it is seen that a client gets it, the same way everywhere.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import brokerha
from brokerha.client import Client
from brokerha.client.transactions import Transaction
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.model import errors
from tests.support.configs import config_of
from tests.support.waiting import until

_numbers = itertools.count()
Connect = Callable[..., Client]


@contextlib.contextmanager
def running(broker: str, folder: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config_of("doors", broker, folder, {"m1": "w1", "m2": "w2"})) as cluster:
        until(lambda: all(master.ready()[0] for master in cluster.masters.values()))
        yield cluster


@pytest.fixture(params=["embedded", "http", pytest.param("amqp", marks=pytest.mark.broker)])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connect]:
    """Connects to masters by their ids, through one door; over AMQP to whichever is free first."""
    door = request.param
    broker = request.getfixturevalue("vhost_url") if door == "amqp" else f"embedded://doors-{next(_numbers)}"
    with running(broker, tmp_path) as cluster, contextlib.ExitStack() as stack:
        urls = {}
        if door == "http":
            for name, node in cluster.masters.items():
                server = HttpServer(create_app(node), "127.0.0.1", 0)
                server.start()
                stack.callback(server.stop, 1.0)
                urls[name] = server.url

        def connected(*masters: str) -> Client:
            if door == "embedded":
                return stack.enter_context(cluster.client(*masters))
            address = broker if door == "amqp" else ",".join(urls[name] for name in masters or urls)
            return stack.enter_context(brokerha.connect(address, timeout=20))

        yield connected


def bodies(db: Client, queue: str) -> list[bytes]:
    return [message.body for message in db.queue(queue, min_lsn="latest")]


def test_a_transaction_takes_from_one_queue_and_sends_to_another_between_plain_sends(connect: Connect) -> None:
    db, other = connect("m1"), connect("m2")
    for name in "xyz":
        db.publish("a", name)
    db.publish("b", "0")
    with db.transaction() as tx:
        for _ in range(3):
            message = tx.accept("a")
            assert message is not None
            tx.publish("b", message.body)
        db.publish("b", "1")
        db.publish("b", "2")
        assert (bodies(db, "a"), bodies(db, "b")) == ([b"x", b"y", b"z"], [b"0", b"1", b"2"])
        assert [m.body for m in tx.queue("b", min_lsn="latest")] == [b"0", b"1", b"2", b"x", b"y", b"z"]

    assert tx.committed is not None
    other.wait(tx.committed.lsn)
    for client in (db, other):
        assert (bodies(client, "a"), bodies(client, "b")) == ([], [b"0", b"1", b"2", b"x", b"y", b"z"])
    assert db.open_transactions() == []
    assert [message.body for message in other.consume("b", count=6)] == [b"0", b"1", b"2", b"x", b"y", b"z"]


def test_a_rollback_puts_everything_back_in_its_place(connect: Connect) -> None:
    db = connect("m1")
    db.publish("a", "x")
    db.publish("a", "y")
    tx = db.transaction().begin()
    assert [message.body for message in tx.accept("a", 1)] == [b"x"]
    tx.put("t", "k", "v")
    assert tx.get("t", "k") == b"v"
    tx.rollback()

    assert (bodies(db, "a"), db.get("t", "k", min_lsn="latest")) == ([b"x", b"y"], None)
    outcome = db.outcome(tx.txid)
    assert outcome is not None
    assert outcome["state"] == "aborted"


def test_a_connection_that_began_nothing_is_told_what_was_rolled_back_at_any_master(connect: Connect) -> None:
    ids = []
    for master in ("m1", "m2"):
        tx = connect(master).transaction().begin()
        tx.put("t", "k", "v")
        tx.rollback()
        ids.append(tx.txid)

    for masters in (("m1", "m2"), ("m2", "m1")):
        other = connect(*masters)
        outcomes = [other.outcome(txid) for txid in ids]
        assert [outcome and outcome["state"] for outcome in outcomes] == ["aborted", "aborted"]


def test_somebody_who_waits_gets_a_message_that_comes_later(connect: Connect) -> None:
    db, other = connect("m1"), connect("m2")
    timer = threading.Timer(0.5, lambda: other.publish("late", "here"))
    timer.start()

    message = db.accept("late", wait=15.0)
    timer.join()

    assert message is not None
    assert message.body == b"here"


def test_of_two_masters_that_give_the_same_message_one_transaction_is_aborted(connect: Connect) -> None:
    db, other = connect("m1"), connect("m2")
    lsn = db.publish("q", "only").lsn
    other.wait(lsn)
    first, second = db.transaction().begin(), other.transaction().begin()
    taken = [tx for tx in (first, second) if tx.accept("q", 1)]
    for number, tx in enumerate(taken):
        tx.put("winner", "w", str(number))
    done = 0
    for tx in taken:
        with contextlib.suppress(errors.Aborted):
            tx.commit()
            done += 1
    for tx in (first, second):
        tx.abandon()

    assert done == 1
    assert bodies(db, "q") == []


def test_what_is_prepared_is_recovered_and_ended_by_somebody_else(connect: Connect) -> None:
    for number, is_commit in enumerate((True, False)):
        db, other = connect("m1", "m2"), connect("m1", "m2")
        xid = db.xid(1, f"order-{number}", "stock")
        db.tpc_begin(xid)
        db.put("t", str(number), "v")
        assert db.get("t", str(number)) == b"v"
        db.tpc_prepare()
        assert xid in other.tpc_recover()
        if is_commit:
            other.tpc_commit(xid)
        else:
            other.tpc_rollback(xid)
        assert xid not in other.tpc_recover()
        assert (other.get("t", str(number), min_lsn="latest") is not None) is is_commit


def test_an_expectation_that_fails_aborts_and_names_the_key(connect: Connect) -> None:
    db = connect("m1")
    db.put("t", "k", "1")
    tx = db.transaction().begin()
    tx.expect_key("t", "k", "")
    tx.put("t", "k", "2")

    with pytest.raises(errors.Aborted, match="key 'k' of table 't'"):
        tx.commit()
    assert db.get("t", "k", min_lsn="latest") == b"1"


def test_an_idle_transaction_ends_and_its_client_is_told(connect: Connect) -> None:
    db = connect("m1")
    tx = db.transaction(timeout=1).begin()
    tx.put("t", "k", "v")
    tx.flush()
    until(lambda: not db.open_transactions())

    with pytest.raises(errors.Aborted):
        tx.commit()
    assert db.get("t", "k", min_lsn="latest") is None


def test_what_a_serializable_transaction_read_still_holds_when_it_commits(connect: Connect) -> None:
    db, other = connect("m1"), connect("m2")
    db.put("stock", "sku-1", b"1")
    tx = db.transaction(isolation="serializable").begin()
    assert tx.get("stock", "sku-1", min_lsn="latest") == b"1"
    assert tx.query("main", "ASK { ?s ?p ?o }") is False
    tx.publish("orders", "sku-1")
    other.put("stock", "sku-1", b"0")
    with pytest.raises(errors.Conflict):
        tx.commit()
    assert bodies(db, "orders") == []

    def order(tx: Transaction) -> bytes | None:
        found = tx.get("stock", "sku-1", min_lsn="latest")
        tx.publish("orders", f"sku-1 of {found!r}")
        return found

    assert db.run_transaction(order) == b"0"
    assert bodies(db, "orders") == [b"sku-1 of b'0'"]
