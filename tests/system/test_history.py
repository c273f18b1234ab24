"""A real history through all masters at once: the schema.org vocabulary, release by release, ends equal byte for byte.

Given release 10.0 as transactions of 1 to 50 statements, then every difference to the next release split the same way, sent
through three masters at once, then every worker's content, sorted, is the last published release. Within one difference no
statement occurs twice, so its transactions are independent; the next difference waits until the one before is applied.
"""

from __future__ import annotations

import lzma
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyoxigraph import RdfFormat, parse

from brokerha.embedded import EmbeddedCluster, FrontWire
from brokerha.model.operations import Operation, pack_operations
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.stores.rdf.query import spelled
from tests.support.configs import config_of

DATA = Path(__file__).parents[3] / "shared" / "data" / "schemaorg"
MASTERS = ("m1", "m2", "m3")


def releases() -> list[tuple[str, list[str]]]:
    """(name, sorted lines) of every release, oldest first."""
    if not DATA.is_dir():
        pytest.skip("the schema.org history is not beside this checkout")
    names = sorted((path.name.removesuffix(".nt.xz") for path in DATA.glob("*.nt.xz")), key=float)
    texts = {name: lzma.decompress((DATA / f"{name}.nt.xz").read_bytes()).decode() for name in names}
    # Some begin with an empty line, which is no triple; some spell a character as an escape that others write plainly, and only
    # triples, not spellings, can be compared.
    return [(name, [triple(line) for line in text.split("\n") if line]) for name, text in texts.items()]


def triple(line: str) -> str:
    """A line of N-Triples in its one canonical spelling."""
    found = next(iter(parse(line, format=RdfFormat.N_TRIPLES)))
    return f"{spelled(str(found.triple))} ."


def changes(before: set[str], after: set[str], chance: random.Random) -> Iterator[list[Operation]]:
    """Transactions of 1 to 50 changes that lead from one release to the next, as SPARQL or as N-Quads."""
    todo = [("remove", line) for line in sorted(before - after)] + [("add", line) for line in sorted(after - before)]
    chance.shuffle(todo)
    place = 0
    while place < len(todo):
        part = todo[place : place + chance.randint(1, 50)]
        place += len(part)
        added = "\n".join(line for kind, line in part if kind == "add")
        removed = "\n".join(line for kind, line in part if kind == "remove")
        if chance.random() < 0.5:
            yield [("update", "main", f"DELETE DATA {{ {removed} }} ; INSERT DATA {{ {added} }}")]
        else:
            yield [operation for operation in (("remove", "main", removed), ("add", "main", added)) if operation[2]]


def cluster_config(broker: str, folder: Path) -> ClusterConfig:
    """Three masters with two workers each."""
    return config_of("history", broker, folder, {master: f"{master}a {master}b" for master in MASTERS})


def replay(broker: str, folder: Path, covered: Callable[[str], None]) -> None:
    chance = random.Random(7)
    history = releases()
    transactions = 0
    with EmbeddedCluster(cluster_config(broker, folder)) as cluster:
        wires = [FrontWire(cluster, [m]) for m in MASTERS]
        content: set[str] = set()
        for name, lines in history:
            pending = []
            for number, operations in enumerate(changes(content, set(lines), chance)):
                txid = f"schemaorg-{name}-{number}"
                pending += wires[number % 3].submit([(txid, pack_operations(operations))], "applied", 2, 120_000)
            for future in pending:
                reply = future.result(150)
                assert reply.status == "applied", reply
            # The other sites may still be applying: what comes next must not overtake it on any of them.
            goal = max(node.runner.core.sync.lsn for node in cluster.masters.values())
            for node in cluster.masters.values():
                node.wait_for(goal, "all", 60_000).result(70)
            transactions += len(pending)
            content = set(lines)
        # The last release is published in the canonical spelling: its own bytes are what every copy must equal.
        published = lzma.decompress((DATA / f"{history[-1][0]}.nt.xz").read_bytes())
        expected = published.lstrip(b"\n")
        for worker in cluster.workers.values():
            body = worker.read("statements", "main", {"accept": "application/n-triples"}).result(60).body
            assert b"".join(sorted(body.splitlines(keepends=True))) == expected, worker.node_id
        fingerprints = {worker.store.applied().fingerprint for worker in cluster.workers.values()}
        assert len(fingerprints) == 1
    covered(f"schema.org history over {broker.partition(':')[0]}: {transactions} transactions, 6 copies equal the last release")


def test_history_embedded(tmp_path: Path, covered: Callable[[str], None]) -> None:
    replay("embedded://", tmp_path, covered)


def test_history_over_rabbitmq(tmp_path: Path, vhost_url: str, covered: Callable[[str], None]) -> None:
    replay(vhost_url, tmp_path, covered)
