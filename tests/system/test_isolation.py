"""Isolation over RabbitMQ: clients at two masters, over HTTP and AMQP, while a primary and a worker are killed.

No history shows an anomaly that its level forbids (tests/support/histories.py), and all copies are equal at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import pytest

from brokerha.model.outside.isolation import SERIALIZABLE, SNAPSHOT
from tests.support.appending import Appending
from tests.support.broker_source import BrokerSource
from tests.support.histories import FORBIDDEN, anomalies
from tests.system.tx_site import PROCESSES, TxSite, tx_site

COMMITS = 150


@pytest.fixture(scope="module")
def site(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TxSite]:
    with tx_site(broker, tmp_path_factory.mktemp("isolation"), "isolation", others=True) as running:
        yield running


@pytest.mark.parametrize("level", [SNAPSHOT, SERIALIZABLE])
def test_histories_are_isolated_while_processes_are_killed(site: TxSite, level: str, covered) -> None:
    site.mend()
    with site.client("m2") as db:
        appending = Appending(level, seed=11)
        doors = [PROCESSES, (), ("m2",), ("m2",)]
        with appending.running([partial(site.client, *door, timeout=20.0) for door in doors]):
            for share in (1, 2, 3):
                site.until(partial(_has_committed, appending, share * COMMITS // 3), "transactions commit")
                if share == 1:
                    site.kill(site.await_primary(), "w3")
                    time.sleep(1)
                elif share == 2:
                    site.mend()
        site.mend()
        site.await_everywhere(db)
        found = anomalies(appending.history, appending.last(db))
        assert not found & FORBIDDEN[level], (found, appending.history)
    assert len(site.fingerprints()) == 1
    covered(f"isolation {level}: {len(appending.history)} transactions, {appending.errors}; shown: {sorted(found)}")


def _has_committed(appending: Appending, wanted: int) -> bool:
    return sum(ran.committed for ran in appending.history) >= wanted
