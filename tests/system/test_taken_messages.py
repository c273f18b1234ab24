"""Messages taken in transactions are safe over all masters, over RabbitMQ: what consumers at two masters do is done once for each message.

Given a master m1 with two backups and a master m2 without any. When consumers at both take from one queue at the same time, then each message has
one effect, none is lost, and nobody has to be told that others were faster; what a prepared transaction has taken is given to nobody at any master,
whoever is killed meanwhile, and comes back to its place with a rollback.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from brokerha.model.errors import Aborted
from tests.system.tx_site import TxSite, of_module

MESSAGES = 200
CONSUMERS = 2
WAIT_S = 3.0


module_site = of_module("taken", others=1)


@pytest.fixture
def site(module_site: TxSite) -> TxSite:
    """All of its processes run and are ready."""
    module_site.mend()
    return module_site


def test_consumers_at_two_masters_do_each_message_once(site: TxSite, covered: Callable[[str], None]) -> None:
    with site.client_of("m1") as db:
        with db.pipeline() as pipeline:
            for number in range(MESSAGES):
                pipeline.write([("publish", "jobs", "text/plain", str(number).encode())])
        site.await_everywhere(db)
    done: dict[str, list[str]] = {}
    faults: list[BaseException] = []

    def work(name: str, master: str) -> None:
        try:
            with site.client_of(master) as db:
                for message in db.consume("jobs", wait=WAIT_S):
                    message.transaction.put("done", f"{message.id}/{name}", message.body)
                    done.setdefault(name, []).append(message.id)
        except BaseException as error:  # noqa: BLE001  (told by the test's own thread)
            faults.append(error)

    names = {f"{master}-{number}": master for master in ("m1", "m2") for number in range(CONSUMERS)}
    threads = [threading.Thread(target=work, args=each, daemon=True) for each in names.items()]
    began_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    took_s = time.monotonic() - began_s - WAIT_S
    assert not faults
    with site.client_of("m2") as db:
        site.await_everywhere(db)
        rows = db.range("done", limit=10_000)
        assert sorted(int(body) for _, body in rows) == list(range(MESSAGES))
        assert len({key.split(b"/")[0] for key, _ in rows}) == MESSAGES
        counts = db.queues()["jobs"]
        assert (counts["depth"], counts["accepted"]) == (0, MESSAGES)
    by_master = {master: sum(key.split(b"/")[1].startswith(master.encode()) for key, _ in rows) for master in ("m1", "m2")}
    assert min(by_master.values()) > 0
    assert sum(len(ids) for ids in done.values()) == MESSAGES, "no consumer was given what another one had"
    covered(f"{MESSAGES} messages, {2 * CONSUMERS} consumers at 2 masters: each given once, {MESSAGES / took_s:.0f} a second")


def test_what_a_prepared_transaction_has_taken_is_given_to_nobody_and_not_lost(site: TxSite) -> None:
    with site.client_of("m1") as one, site.client_of("m2") as two:
        for body in ("a", "b", "c"):
            one.publish("orders", body)
        site.await_everywhere(one)
        xid = one.xid(1, "taken")
        one.tpc_begin(xid)
        first = one.accept("orders")
        assert first is not None
        assert first.body == b"a"
        one.put("seen", "a", "1")
        one.tpc_prepare()
        # The other master gives the next one, as often as it is asked; naming it is refused.
        with two.transaction() as tx:
            found = tx.accept("orders", 3)
            assert [message.body for message in found] == [b"b", b"c"]
            tx.rollback()
        with pytest.raises(Aborted, match="is held by prepared transaction"), two.transaction() as tx:
            tx.write([("accept", "orders", first.id)])
        for message in two.consume("orders", count=1):
            assert message.body == b"b"
            message.transaction.put("seen", message.body, "2")
    site.restart_all()
    site.await_primary()
    with site.client_of("m1") as one, site.client_of("m2") as two:
        found_again = two.accept("orders", 3)
        assert [message.body for message in found_again] == [b"c"]
        assert xid in one.tpc_recover()
        one.tpc_rollback(xid)
        site.await_everywhere(one)
        back = two.accept("orders", wait=5)
        assert back is not None
        assert (back.id, back.body) == (first.id, b"a")
        assert two.queues()["orders"]["depth"] == 0
    site.await_clean(in_use=True)
