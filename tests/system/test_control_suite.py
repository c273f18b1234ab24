"""Two sites with a control suite: both reject the same transactions at the same LSN with the same reason, and stay equal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.client import Session
from brokerha.embedded import EmbeddedCluster
from brokerha.model.errors import InvalidRequest, Rejected
from brokerha.nodes.config.cluster import load_config

CLUSTER = """
[cluster]
name = "orders"
broker = "embedded://control-suite"
data = "{data}"
[[master]]
id = "m1"
[[master]]
id = "m2"
[[worker]]
id = "w1"
master = "m1"
[[worker]]
id = "w2"
master = "m2"
"""
NO_ORPHANS = "ASK { FILTER NOT EXISTS { ?s <urn:parent> ?p FILTER NOT EXISTS { ?p a <urn:Person> } } }"
WAIT_S = 30


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    (tmp_path / "cluster.toml").write_text(CLUSTER.format(data=tmp_path / "data"))
    with EmbeddedCluster(load_config(tmp_path / "cluster.toml", os.environ)) as running:
        yield running


@pytest.fixture
def sites(cluster: EmbeddedCluster) -> list[Session]:
    return [cluster.client(name).session() for name in ("m1", "m2")]


def fingerprints(cluster: EmbeddedCluster, lsn: int) -> set[bytes]:
    """LSN, fingerprint and counts of the copies of both sites."""
    asked = [master.read("fingerprint", "", {}, min_lsn=lsn) for master in cluster.masters.values()]
    return {read.result(WAIT_S).body for read in asked}


def test_both_sites_reject_at_the_same_lsn_with_the_same_reason(cluster: EmbeddedCluster, sites: list[Session]) -> None:
    one, other = sites
    added = one.control_add("no-orphans", "ask", "main", NO_ORPHANS, "true")

    with pytest.raises(Rejected, match="check 'no-orphans' failed: expected true, found false") as rejected:
        other.update("main", "INSERT DATA { <urn:a> <urn:parent> <urn:b> }")

    lsn = rejected.value.lsn
    assert lsn > added.lsn
    outcomes = []
    for site in sites:
        site.wait(lsn, "all", timeout=WAIT_S)
        outcomes.append(site.outcome(rejected.value.txid))
        assert [check["name"] for check in site.control_list(min_lsn=lsn)] == ["no-orphans"]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0] is not None
    assert (outcomes[0]["lsn"], outcomes[0]["outcome"], outcomes[0]["reason"]) == (lsn, "rejected", str(rejected.value))
    assert len(fingerprints(cluster, lsn)) == 1


def test_sites_that_write_at_once_agree_on_every_outcome(cluster: EmbeddedCluster, sites: list[Session]) -> None:
    sites[0].write(
        [
            ("put", "items", b"sku-1", b"5"),
            ("control-add", "stock", "key", "items", "sku-1", ">= 0"),
            ("control-add", "no-orphans", "ask", "main", NO_ORPHANS, "true"),
        ]
    )

    futures = []
    pipelines = [site.pipeline(window=20) for site in sites]
    for number in range(60):
        for place, pipeline in enumerate(pipelines):
            text = "<urn:b> a <urn:Person>" if number % 3 else f"<urn:{number}> <urn:parent> <urn:b>"
            verb = "DELETE" if (number + place) % 5 == 4 else "INSERT"
            futures.append(pipeline.update("main", f"{verb} DATA {{ {text} }}"))
            futures.append(pipeline.put("items", "sku-1", str((number * 7 + place) % 5 - 1)))
    for pipeline in pipelines:
        pipeline.close()

    last = 0
    for future in futures:
        error = future.exception(WAIT_S)
        assert error is None or isinstance(error, Rejected)
        last = max(last, future.result().lsn if error is None else error.lsn)
    logs, end = [], 0
    for site in sites:
        # Answered when this site has the outcome of it and of all before it.
        end = site.put("items", "end", "").lsn
        assert end > last
        logs.append([(line["lsn"], line["txid"], line["outcome"], line["reason"]) for line in site.log(1, last)])
    assert logs[0] == logs[1]
    assert {outcome for _, _, outcome, _ in logs[0]} == {"applied", "rejected"}
    assert len(fingerprints(cluster, end)) == 1


def test_a_check_that_is_none_is_refused_before_it_is_taken_in(sites: list[Session]) -> None:
    with pytest.raises(InvalidRequest, match="a check has no NOW"):
        sites[0].control_add("now", "ask", "main", "ASK { FILTER(NOW() > 1) }", "true")
    with pytest.raises(InvalidRequest, match="MALFORMED QUERY"):
        sites[0].control_add("now", "ask", "main", "ASK {", "true")
    assert sites[0].log(1, 9) == []
