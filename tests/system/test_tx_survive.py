"""Transactions and the death of their primary, over RabbitMQ (transactions, T4, T5, T13 and section 6).

Given a master with two backups, when its primary is killed at any point of a transaction, then the client learns what became
of it, no node ever shows a part of it, and what was prepared with an xid is there afterwards with its locks.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from brokerha.client import Session
from brokerha.model.errors import Aborted, BrokerhaError, OutcomeUnknown
from tests.support.broker_source import BrokerSource
from tests.system.tx_site import PROCESSES, TxSite, tx_site

SIZE = 10
"""Messages of each transaction under repeated fail-over."""


@pytest.fixture(scope="module")
def module_site(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TxSite]:
    with tx_site(broker, tmp_path_factory.mktemp("tx"), "tx-survive") as running:
        yield running


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


class Mover:
    """Publishes in tens to one queue and moves tens to another, and keeps what it knows of each transaction."""

    def __init__(self, site: TxSite) -> None:
        self.committed = {"publish": 0, "move": 0}
        self.unknown: list[tuple[str, str]] = []
        """(what, transaction id)."""
        self.faults: list[BaseException] = []
        self._site = site
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(what,), daemon=True) for what in self.committed]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not self.faults, self.faults

    def _run(self, what: str) -> None:
        try:
            with self._site.client(timeout=5) as db:
                while not self._stop.is_set():
                    self._once(db, what)
        except BaseException as fault:  # noqa: BLE001  (told by finish)
            self.faults.append(fault)

    def _once(self, db: Session, what: str) -> None:
        txid = ""
        try:
            tx = db.transaction(timeout=5).begin()
            txid = tx.txid
            messages = tx.accept("source", SIZE, wait=0.2) if what == "move" else []
            if what == "move" and len(messages) < SIZE:
                tx.rollback()
                return
            for number in range(SIZE):
                tx.publish("target" if what == "move" else "source", str(number))
            tx.commit()
            self.committed[what] += 1
        except OutcomeUnknown:
            self.unknown.append((what, txid))
        except BrokerhaError:
            # Nothing happened, nothing will; or it never began.
            time.sleep(0.05)

    def settle(self, db: Session) -> None:
        """Ask for what is unknown, until it is known."""
        for what, txid in self.unknown:
            outcome = self._site.until(lambda txid=txid: db.outcome(txid), f"the outcome of {txid}")  # type: ignore[misc]
            self.committed[what] += outcome["state"] != "aborted" and outcome["outcome"] != "rejected"


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.campaign)])
def test_under_repeated_fail_over_every_node_always_shows_whole_transactions(site: TxSite, rounds: int):
    with site.client() as db:
        before = {name: db.queues().get(name, {}).get("published", 0) for name in ("source", "target")}
        seen: set[str] = set()
        mover = Mover(site)
        mover.start()
        stop, torn = threading.Event(), []

        def watch() -> None:
            for worker in itertools.cycle(site.workers):
                if stop.wait(0.02):
                    return
                response = site.get(worker, "/queues")
                for name, counts in (
                    response.json() if response is not None and response.status_code == 200 else {}
                ).items():
                    if name in before:
                        seen.add(name)
                        if any(count % SIZE for count in counts.values()):
                            torn.append((worker, name, counts))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        for _ in range(rounds):
            goal = mover.committed["move"] + 3
            site.until(lambda goal=goal: mover.committed["move"] >= goal, "transactions are committed")  # type: ignore[misc]
            primary = site.await_primary()
            site.kill(primary)
            site.await_primary()
            site.start(primary)
            site.await_ready(primary)
        mover.finish()
        stop.set()
        watcher.join(10)
        assert seen == set(before)
        assert torn == []
        mover.settle(db)
        db.put("t", "end", "v")
        site.await_everywhere(db)
        counts = db.queues()
        assert counts["source"]["published"] == before["source"] + SIZE * mover.committed["publish"]
        assert counts["target"]["published"] == before["target"] + SIZE * mover.committed["move"]
        assert counts["source"]["accepted"] == counts["target"]["published"]
        assert len(site.fingerprints()) == 1
        # A primary that dies between making a queue and inviting to it leaves it to its expiry
        site.await_clean(in_use=True)
