"""Two sites compare their content through their posts: one that differs is named, and mended by one command.

Given two masters with a worker each, and a quad that vanished from the engine of one of them without a write; when an update
that depends on it comes, its effect at that site is another one, and no copy of that site could tell; then both masters name
the difference within a round, writes go on, and after `worker-repair` the site holds what the other holds and nobody
differs any more. A scrub alone would have found the quad too: here it is off.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyoxigraph

from brokerha.client.reads import Solutions
from brokerha.embedded import EmbeddedCluster
from brokerha.model import states
from tests.support.configs import config_of
from tests.support.waiting import until

MOVE = "DELETE { ?s <urn:has> ?o } INSERT { ?s <urn:had> ?o } WHERE { ?s <urn:has> ?o }"


def cluster_of(folder: Path) -> EmbeddedCluster:
    broker = f"embedded://compared-{folder.name}"
    return EmbeddedCluster(config_of("compared", broker, folder, {"m1": "w1", "m2": "w2"}, scrub_every_s=0.0))


def row(cluster: EmbeddedCluster, node: str) -> dict[str, Any]:
    """Status row of a node, by the word of its master."""
    rows = cluster.masters["m1"].status()["nodes"]
    return next(found for found in rows if found["id"] == node)


def differing(cluster: EmbeddedCluster, node: str) -> dict[str, Any] | None:
    """Status row of a node that says that sites differ; None when it does not say so."""
    found = row(cluster, node)
    return found if found["state"] == states.DIFFERS else None


def fingerprints(cluster: EmbeddedCluster) -> set[tuple[int, str]]:
    """(LSN, fingerprint) of each copy, computed from its data."""
    copies = [worker.store.recompute() for worker in cluster.workers.values()]
    return {(copy.lsn, copy.fingerprint) for copy in copies}


def lose_a_quad(folder: Path) -> None:
    """Remove a quad from the engine of w1, behind everybody's back."""
    (directory,) = folder.glob("w1/copy.*/repositories/main.*")
    store = pyoxigraph.Store(str(directory))
    (quad,) = store.quads_for_pattern(pyoxigraph.NamedNode("urn:b"), pyoxigraph.NamedNode("urn:has"), None, None)
    store.remove(quad)
    store.flush()


def test_a_site_that_differs_is_named_by_both_and_mended_by_one_command(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster, cluster.client("m2") as db:
        for name in "abc":
            db.update("main", f"INSERT DATA {{ <urn:{name}> <urn:has> 1 }}")
        until(lambda: len(fingerprints(cluster)) == 1, "equal copies at first")
    lose_a_quad(tmp_path)
    with cluster_of(tmp_path) as cluster, cluster.client("m2") as db:
        until(lambda: row(cluster, "m1")["state"] == states.OK and row(cluster, "m2")["state"] == states.OK, "both are well")

        # When an update depends on what one site lacks
        db.update("main", MOVE)

        # Then both name the difference, with the LSN and the command that mends it
        for node, other in (("m1", "m2"), ("m2", "m1")):
            found = until(partial(differing, cluster, node), f"{node} differs")
            assert other in found["reason"]
            assert "LSN 4" in found["reason"]
            assert "repair" in found["action"]
        db.update("main", "INSERT DATA { <urn:d> <urn:has> 1 }")

        # When an operator has the site take the content of the other
        answer = cluster.masters["m1"].command("worker-repair", {"from": ["w2"]}).result(10)
        assert answer["from"] == ["w2"]

        # Then it does, and nobody differs any more
        until(lambda: row(cluster, "w1")["state"] in states.SERVING, "w1 is back")
        db.update("main", "INSERT DATA { <urn:e> <urn:has> 1 }")
        until(lambda: len(fingerprints(cluster)) == 1, "equal copies")
        until(lambda: row(cluster, "m1")["state"] == states.OK and row(cluster, "m2")["state"] == states.OK, "both agree again")
        for each in ("m1", "m2"):
            with cluster.client(each) as reader:
                moved = reader.query("main", "SELECT ?s { ?s <urn:had> 1 } ORDER BY ?s")
                assert isinstance(moved, Solutions)
                assert [str(solution["s"]) for solution in moved] == ["urn:a", "urn:b", "urn:c"]
