"""A thousand transactions that nobody ends leave nothing behind (transactions, invariant T4), over RabbitMQ.

Given a short time-out, when transactions are abandoned in every state (begun; with operations; with messages taken; prepared without an
xid while a participant is silent; prepared with one and then decided by others), then after a while there is no queue, no lock,
no entry, and no memory of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from brokerha.client import Session
from brokerha.client.transactions import Transaction
from brokerha.model.errors import BrokerhaError, OutcomeUnknown
from tests.system.tx_site import SETTINGS, TxSite, of_module

TIMEOUT_S = 2
GROWTH_MOST_MB = 40.0
"""What the process of a primary may grow by once its caches are full. A thousand transactions with the bodies below have 60 MB: were they
kept, that would show."""
BODY = b"x" * 100_000


site = of_module("tx-abandoned", settings=SETTINGS + f"tx-timeout-s = {TIMEOUT_S}\n")


def abandon(db: Session, number: int, prepared: list[str]) -> None:
    """Leave one transaction in one of the states in which it can be left without an xid, or prepared with one."""
    kind = number % 5
    if kind == 4:
        xid = db.xid(5, f"left-{number}")
        tx = Transaction(db, xid).begin()
        tx.put("t", f"key-{number}", BODY)
        tx.prepare()
        prepared.append(xid.text)
        return
    tx = db.transaction().begin()
    if kind == 1:
        tx.put("t", f"key-{number}", BODY)
    if kind == 2:
        tx.publish("out", BODY)
        tx.accept("in")
    if kind == 3:
        tx.accept("in")
    if kind:
        tx.flush()


def abandoned(site: TxSite, count: int) -> list[str]:
    """Abandon so many, in two threads; returns the xids of those that are prepared."""
    prepared: list[str] = []
    faults: list[BaseException] = []

    def run(first: int) -> None:
        try:
            with site.client() as db:
                for number in range(first, count, 2):
                    abandon(db, number, prepared)
                # The program ends without a word
                db.transactions.clear()
        except BaseException as fault:  # noqa: BLE001  (told below)
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(first,)) for first in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
    return prepared


def left_while_prepared(site: TxSite, primary: str) -> None:
    """Ten commits whose clients are gone while a participant is silent."""
    frozen = next(node for node in site.processes if node != primary)

    def commit(tx: Transaction) -> None:
        with pytest.raises(OutcomeUnknown):
            tx.commit(timeout=0.5)

    with site.client(timeout=5) as db:
        transactions = [db.transaction().begin() for _ in range(10)]
        for number, tx in enumerate(transactions):
            tx.put("t", f"gone-{number}", BODY)
            tx.flush()
        site.freeze(frozen)
        threads = [threading.Thread(target=commit, args=(tx,)) for tx in transactions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        site.thaw(frozen)


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.campaign)])
def test_transactions_that_nobody_ends_leave_nothing_behind(site: TxSite, count: int, covered: Callable[[str], None]):
    primary = site.await_primary()
    with site.client(*site.processes) as db:
        with db.transaction() as filling:
            for number in range(count // 2 + 50):
                filling.publish("in", str(number))
        with db.pipeline() as pipeline:
            for number in range(count // 2):
                pipeline.put("t", f"cache-{number}", BODY)
        abandoned(site, 20)
        for row in db.open_transactions():
            if row["xid"]:
                db.end_transaction("rollback", row["node"], row["txid"])
        before = [message.body for message in db.queue("in", limit=1000)]
        site.until(lambda: not db.open_transactions(), "what filled caches is over", 20)
        memory_mb = site.memory_mb(primary)
        prepared = abandoned(site, count)
        left_while_prepared(site, primary)
        # Those with an xid wait for their coordinator for ever, the others end by themselves
        site.until(lambda: {row["xid"] for row in db.open_transactions()} == set(prepared), "only prepared ones are left", 30)
        for place, row in enumerate(db.open_transactions()):
            by_hand = place % 2 == 0
            db.end_transaction("rollback", row["node"], row["txid"], by_hand=by_hand)
            if by_hand:
                db.end_transaction("forget", row["node"], row["txid"])
        site.await_clean(60)
        assert site.await_primary() == primary
        assert site.row("m1", "master")["in_doubt"] == 0
        for name in ("transactions_open", "transactions_prepared", "transactions_heuristic", "in_doubt_transactions"):
            assert site.metric(primary, name) == 0
        taken: list[bytes] = []
        while messages := db.accept("in", 100):
            taken += [message.body for message in messages]
        assert taken == before, "nothing is locked, in its old order"
        assert "out" not in db.queues()
        grown_mb = site.memory_mb(primary) - memory_mb
        covered(f"{count:,} abandoned transactions, {grown_mb:.0f} MB of growth")
        assert grown_mb < GROWTH_MOST_MB
        # A master that starts again finds nothing either
        site.restart_all(primary)
        site.await_primary()
        assert db.open_transactions() == []
        with pytest.raises(BrokerhaError):
            db.tpc_commit(db.xid(5, "left-4"))
