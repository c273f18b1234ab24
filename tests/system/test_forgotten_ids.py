"""Ids are forgotten by an entry of the order: by all masters at the same place, whatever their clocks and memories say.

Given a cluster whose log is short and soon too old; when writes go on; then one master orders what forgets the oldest ids, a key that is
used again after that is a new write at whichever master, a younger one is not, and all logs and copies are equal.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from brokerha.embedded import EmbeddedCluster
from brokerha.master.config import RetentionConfig
from brokerha.model.forgetting import is_forgetting
from tests.support.configs import config_of
from tests.support.waiting import until

AT_ONCE = 20
DEPTH_US = 1_000_000


def forgets(broker: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = partial(RetentionConfig, known_ids=0, ids_at_once=AT_ONCE)
    monkeypatch.setattr("brokerha.nodes.config.cluster.RetentionConfig", lambda size, _depth_us, hard: quick(size, DEPTH_US, hard))
    config = config_of("forgetting", broker, folder, {"m1": "w1", "m2": "w2", "m3": "w3"}, tx_log_max_size=10)
    with EmbeddedCluster(config) as cluster:
        with cluster.client("m1") as first, cluster.client("m2") as second, cluster.client("m3") as third:
            lsns = {f"order-{n}": first.put("orders", b"k%d" % n, b"first", key=f"order-{n}").lsn for n in range(2 * AT_ONCE)}
            last = 2 * AT_ONCE - 1
            # What is held is never forgotten, however long this took.
            assert second.put("orders", b"k%d" % last, b"first", key=f"order-{last}").lsn == lsns[f"order-{last}"]
            journals = [cluster.masters[node].journal for node in ("m1", "m2", "m3")]
            until(
                lambda: all(journal.ids_from(journal.state().lsn) > AT_ONCE for journal in journals), "the oldest ids are forgotten"
            )
            floor = journals[0].ids_from(journals[0].state().lsn)
            again = third.put("orders", b"k0", b"second", key="order-0")
            assert again.lsn > max(lsns.values())
            young = first.put("orders", b"young", b"1", key="young")
            assert second.put("orders", b"young", b"1", key="young").lsn == young.lsn
            assert [client.get("orders", b"k0", min_lsn=again.lsn) for client in (first, second, third)] == [b"second"] * 3
        until(lambda: len({(journal.state().lsn, journal.state().last) for journal in journals}) == 1, "the logs are equal")
        lsn = journals[0].state().lsn
        assert [journal.known(["order-0", "young"]) for journal in journals] == [{"order-0": again.lsn, "young": young.lsn}] * 3
        assert {journal.ids_from(lsn) for journal in journals} == {journals[0].ids_from(lsn)}
        assert journals[0].ids_from(lsn) >= floor
        until(lambda: len({worker.store.applied() for worker in cluster.workers.values()}) == 1, "the copies are equal")
        held = [txid for _, txid, _ in journals[0].ordered(journals[0].first_lsn(), 100)]
        assert all(journal.rejection(lsn) is None for journal in journals)
        assert sum(map(is_forgetting, held)) <= 2


def test_an_embedded_cluster_forgets_ids_in_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forgets("embedded://", tmp_path, monkeypatch)


def test_a_cluster_over_rabbitmq_forgets_ids_in_the_order(tmp_path: Path, vhost_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forgets(vhost_url, tmp_path, monkeypatch)
