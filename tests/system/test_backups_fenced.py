"""A primary that was frozen and wakes up when another one has taken over commits nothing (replication, section 3).

Given load on a master with two backups over RabbitMQ, when its primary is stopped and another process takes over, then the old one
becomes a backup when it goes on, and every acknowledged write is there exactly once, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokerha.client import Session
from brokerha.model.errors import BrokerhaError
from tests.support.broker_source import BrokerSource
from tests.system.tx_site import PROCESSES, Load, TxSite, tx_site


@pytest.fixture(scope="module")
def site(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TxSite]:
    with tx_site(broker, tmp_path_factory.mktemp("fenced"), "backups-fenced") as running:
        yield running


def refused_after_waking(old: Session) -> BrokerhaError:
    """What a client of the old primary alone is told."""
    with pytest.raises(BrokerhaError) as refusal:
        old.put("load", b"never", b"v", timeout=2)
    return refusal.value


@pytest.mark.parametrize("by_hand", [False, True], ids=["by itself", "promoted by hand"])
def test_a_primary_that_was_frozen_commits_nothing_when_it_wakes_up(site: TxSite, by_hand: bool):
    old = site.await_primary()
    others = [node for node in PROCESSES if node != old]
    name = "hand" if by_hand else "self"
    everybody, anybody = (
        Load(site.client, (f"{name}-a", f"{name}-b")),
        Load(lambda: site.client(*PROCESSES), (f"{name}-c",)),
    )
    with everybody, anybody:
        everybody.await_more(site, 20)
        with site.client(old) as db:
            tx = db.transaction().begin()
            tx.put("load", f"never-{name}", b"v")
            tx.flush()
            site.freeze(old)
            if by_hand:
                site.run("promote", others[1])
            new = site.await_primary(*others)
            assert not by_hand or new == others[1] or site.metric(others[1], "is_primary") is not None
            everybody.await_more(site, 20)
            site.thaw(old)
            with pytest.raises(BrokerhaError):
                tx.commit(timeout=2)
            assert others[0] in str(refused_after_waking(db)) or others[1] in str(refused_after_waking(db))
        site.await_ready(old)
        assert site.metric(old, "is_primary") == 0
        everybody.await_more(site, 10)
        anybody.await_more(site, 10)
    everybody.check(site, anybody)
    site.await_clean()
