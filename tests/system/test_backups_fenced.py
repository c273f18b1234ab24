"""A primary that was frozen and wakes up when another one has taken over commits nothing (replication, section 3).

Given load on a master with two backups over RabbitMQ, when its primary is stopped and another process takes over, then the old one
becomes a backup when it goes on, and every acknowledged write is there exactly once, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from brokerha.client import Session
from brokerha.model.errors import BrokerhaError
from tests.support.broker_source import BrokerSource
from tests.system.tx_site import FAIL_OVER_MS, PROCESSES, SETTINGS, Load, TxSite, tx_site


@pytest.fixture(scope="module", params=["automatic", "manual"])
def site(
    broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[TxSite, bool]]:
    """A site, and whether it is for a person to say who takes over."""
    settings = SETTINGS + f'fail-over = "{request.param}"\n'
    folder = tmp_path_factory.mktemp("fenced")
    first = "m1" if request.param == "manual" else ""
    with tx_site(broker, folder, f"fenced-{request.param}", first=first, settings=settings) as running:
        yield running, request.param == "manual"


def refused_after_waking(old: Session) -> str:
    """What a client of the old primary alone is told."""
    with pytest.raises(BrokerhaError) as refusal:
        old.put("load", b"never", b"v", timeout=2)
    return str(refusal.value)


def test_a_primary_that_was_frozen_commits_nothing_when_it_wakes_up(site: tuple[TxSite, bool]):
    running, is_by_hand = site
    check_frozen(running, is_by_hand=is_by_hand)


def check_frozen(site: TxSite, *, is_by_hand: bool) -> None:
    old = site.await_primary()
    others = [node for node in PROCESSES if node != old]
    everybody, anybody = (Load(site.client, ("frozen-a", "frozen-b")), Load(lambda: site.client(*PROCESSES), ("frozen-c",)))
    with everybody, anybody:
        everybody.await_more(site, 20)
        with site.client(old) as db:
            tx = db.transaction().begin()
            tx.put("load", "never-committed", b"v")
            tx.flush()
            site.freeze(old)
            if is_by_hand:
                time.sleep(2 * FAIL_OVER_MS / 1000)
                assert [site.metric(node, "is_primary") for node in others] == [0, 0]
                site.run("promote", others[1])
            new = site.await_primary(*others)
            assert not is_by_hand or new == others[1]
            everybody.await_more(site, 20)
            site.thaw(old)
            with pytest.raises(BrokerhaError):
                tx.commit(timeout=2)
            # Until it has heard of the new one it only knows that nobody is there any more.
            site.until(lambda: new in refused_after_waking(db), f"{old} names {new}")
        site.await_ready(old)
        assert site.metric(old, "is_primary") == 0
        everybody.await_more(site, 10)
        anybody.await_more(site, 10)
    everybody.check(site, anybody)
    site.await_clean()
