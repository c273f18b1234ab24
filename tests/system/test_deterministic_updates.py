"""Updates that ask for the time, for chance and for fresh blank nodes, through three masters at once: all copies are equal to the byte.

Given three masters with two workers each that take turns in executing every few transactions; when hundreds of updates with
NOW, RAND, UUID, STRUUID, BNODE and blank nodes of every spelling, which read what the others wrote, come through
all masters at the same time; then the six copies have one fingerprint and one dump, the logs of the three sites are equal with
their effects, and no worker was ever led away from following the log: what comes out differently at one of them would be found
and healed by a copy, so that equal copies at the end prove little without that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import re
import time
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import brokerha
from brokerha.client import Client
from brokerha.embedded import EmbeddedCluster
from brokerha.model.states import SERVING
from brokerha.nodes.config.cluster import ClusterConfig
from tests.support.configs import config_of
from tests.system.processes import ProcessCluster

MASTERS = ("m1", "m2", "m3")
UPDATES = 200
FAST_UPDATES = 300
"""All updates of one process share one interpreter: a thousand would take a quarter of a minute there."""
WINDOW = 100
PROBE_TURN = 25
WAIT_S = 60.0
THINGS = 12
PREDICATES = ("at", "level", "token", "lot", "hash", "drawn", "mark", "left", "box", "list", "far", "swept", "seen", "part", "in")

DATA = (
    "INSERT DATA {{ _:a <urn:p> {n} . _:b <urn:near> _:a . <urn:thing:{t}> <urn:has> _:b }}",
    'INSERT DATA {{ <urn:thing:{t}> <urn:list> ( {n} [] "x" ) ; <urn:part> [ <urn:size> {n} ; <urn:of> [ ] ] }}',
    "INSERT DATA {{ GRAPH <urn:graph:{g}> {{ [ <urn:p> {n} ] <urn:q> _:a . <urn:thing:{t}> <urn:in> _:a }} }}",
)
BEFORE = "INSERT DATA {{ {} }}".format(
    " ".join(
        f"<urn:thing:{t}> <urn:has> _:b{t} ; <urn:level> {t} ; <urn:at> {t} . _:b{t} <urn:near> _:a{t} ." for t in range(THINGS)
    )
)
"""Something of each thing for those updates that read."""
FUNCTIONS = (
    "INSERT {{ <urn:thing:{t}> <urn:at> ?now }} WHERE {{ BIND(NOW() AS ?now) }}",
    (
        "DELETE {{ <urn:thing:{t}> <urn:level> ?old }} INSERT {{ <urn:thing:{t}> <urn:level> ?new }} WHERE {{ "
        "OPTIONAL {{ <urn:thing:{t}> <urn:level> ?old }} BIND(COALESCE(?old, 0) + RAND() AS ?new) }}"
    ),
    (
        "INSERT {{ ?id a <urn:Event> ; <urn:of> ?t ; <urn:token> ?token }} WHERE {{ "
        "?t <urn:at> ?when BIND(UUID() AS ?id) BIND(STRUUID() AS ?token) }}"
    ),
    "INSERT {{ ?t <urn:lot> ?lot }} WHERE {{ ?t <urn:level> ?level FILTER(RAND() < 0.5) BIND(RAND() + ?level AS ?lot) }}",
    "INSERT {{ <urn:thing:{t}> <urn:year> ?y ; <urn:hash> ?h }} WHERE {{ BIND(YEAR(NOW()) AS ?y) BIND(SHA256(STRUUID()) AS ?h) }}",
    "INSERT {{ <urn:thing:{t}> <urn:drawn> ?r }} WHERE {{ {{ SELECT (SUM(RAND()) AS ?r) {{ ?x <urn:level> ?y }} }} }}",
)
BLANKS = (
    "INSERT {{ ?t <urn:mark> ?b . ?b <urn:number> {n} }} WHERE {{ ?t <urn:level> ?any BIND(BNODE() AS ?b) }}",
    'INSERT {{ ?t <urn:left> ?b . ?t <urn:right> ?c }} WHERE {{ ?t <urn:at> ?w BIND(BNODE("x") AS ?b) BIND(BNODE("x") AS ?c) }}',
    "INSERT {{ ?t <urn:box> [ <urn:holds> ?level ; <urn:lid> _:lid ] . _:lid <urn:of> ?t }} WHERE {{ ?t <urn:level> ?level }}",
    "INSERT {{ GRAPH <urn:graph:{g}> {{ [] <urn:seen> ?o ; <urn:rank> ( ?o {n} ) }} }} WHERE {{ <urn:thing:{t}> <urn:has> ?o }}",
    "DELETE {{ ?b <urn:near> ?a }} INSERT {{ ?b <urn:far> [ <urn:was> ?a ] }} WHERE {{ <urn:thing:{t}> <urn:has> ?b . ?b <urn:near> ?a }}",
)
REMOVALS = (
    "DELETE {{ ?t <urn:mark> ?b . ?b <urn:number> ?n }} WHERE {{ ?t <urn:mark> ?b . ?b <urn:number> ?n FILTER(RAND() < 0.8) }}",
    (
        "DELETE {{ ?t <urn:lot> ?lot }} WHERE {{ ?t <urn:lot> ?lot }} ; "
        "DELETE {{ ?t <urn:box> ?b . ?b ?p ?o }} WHERE {{ ?t <urn:box> ?b . ?b ?p ?o }} ; "
        "INSERT {{ <urn:thing:{t}> <urn:swept> ?now ; <urn:by> _:me }} WHERE {{ BIND(NOW() AS ?now) }}"
    ),
    "DELETE WHERE {{ <urn:thing:{t}> <urn:left> ?l ; <urn:right> ?r }}",
    "DELETE {{ ?e ?p ?o }} WHERE {{ {{ SELECT ?e {{ ?e a <urn:Event> ; <urn:token> ?k }} ORDER BY ?k LIMIT 30 }} ?e ?p ?o }}",
)


def updates(count: int, chance: random.Random) -> list[str]:
    """So many updates; what they insert and what they remove about balances, so that the last are as quick as the first."""
    chosen = chance.choices((DATA, FUNCTIONS, BLANKS, REMOVALS), (3, 4, 3, 4), k=count)
    return [
        chance.choice(templates).format(n=number, t=chance.randrange(THINGS), g=chance.randrange(5))
        for number, templates in enumerate(chosen)
    ]


def send_through_all(clients: Sequence[Client], texts: Sequence[str]) -> int:
    """Send every update once, each client its share, all at the same time; returns the last LSN.

    What they read is written before, because in some orders each would come before the one that it reads from.
    """
    clients[0].update("main", BEFORE, timeout=WAIT_S)
    pipelines = [client.pipeline(window=WINDOW, timeout=WAIT_S) for client in clients]
    futures = [pipelines[n % len(pipelines)].update("main", text) for n, text in enumerate(texts)]
    for pipeline in pipelines:
        pipeline.close()
    return max(future.result(WAIT_S).lsn for future in futures)


def effects_of_equal_logs(clients: Sequence[Client], last: int) -> bytes:
    """All effects; outcome, effect and fingerprint of every line are the same at every site, although each executed for itself."""
    effects = []
    for first in range(1, last + 1, 200):
        ranges = [client.logged(first, min(last, first + 199)) for client in clients]
        assert len(ranges[0]) == min(last, first + 199) - first + 1
        for here, *others in zip(*ranges, strict=True):
            assert all(other == here for other in others), f"sites differ at {here[0]}, from LSN {first} on"
            effects.append(here[4])
    return b"\n".join(effects)


def assert_was_worth_it(effects: bytes) -> None:
    """Every function brought something: effects of nothing would be equal as well."""
    for predicate in PREDICATES:
        assert b"<urn:%s>" % predicate.encode() in effects, f"nothing was ever written as {predicate}"
    assert b"<urn:graph:1>" in effects
    assert len(set(re.findall(rb"_:\w+", effects))) > 100
    assert len(set(re.findall(rb"<urn:uuid:[^>]+>", effects))) > 30


def embedded_config(folder: Path) -> ClusterConfig:
    workers = {master: f"{master}a {master}b" for master in MASTERS}
    return config_of("fresh", "embedded://fresh", folder, workers, probe_turn=PROBE_TURN)


def led_away(lines: Sequence[MutableMapping[str, Any]]) -> list[str]:
    """What nodes said of workers that did anything but begin and follow the log."""
    found = []
    began: set[str] = set()
    for line in lines:
        if line["event"] in {"the copy is damaged", "the copy was moved aside and begins anew", "site differs"}:
            found.append(str(line))
        elif line["event"] == "follows":
            if line["state"] == "basic":
                began.add(line["node"])
            elif line["state"] != "idle" or line["node"] in began or line["reason"]:
                found.append(str(line))
        elif line["event"] == "worker changes" and line["now"] not in {"uninitialised", "on"}:
            found.append(str(line))
    return found


def test_updates_with_chance_and_fresh_blank_nodes_end_equal_on_six_copies(tmp_path: Path, covered: Callable[[str], None]) -> None:
    texts = updates(FAST_UPDATES, random.Random(11))
    with capture_logs() as lines, EmbeddedCluster(embedded_config(tmp_path)) as cluster:
        clients = [cluster.client(master) for master in MASTERS]
        last = send_through_all(clients, texts)
        for client in clients:
            client.wait(last, "all", timeout=WAIT_S)
        assert_was_worth_it(effects_of_equal_logs(clients, last))
        dumps, fingerprints = set(), set()
        for worker in cluster.workers.values():
            body = worker.read("statements", "main", {"accept": "application/n-quads"}).result(WAIT_S).body
            dumps.add(b"\n".join(sorted(body.splitlines())))
            fingerprints.add(worker.store.applied().fingerprint)
        assert len(fingerprints) == 1
        assert len(dumps) == 1
        assert len(dumps.pop()) > 10_000
        turns = [int(master.metrics()["probe_turns_total"]) for master in cluster.masters.values()]
        assert min(turns) > 2, "the workers did not take turns in executing"
        # Seen before the nodes stop, because a stopping site may well lose its workers.
        strayed = led_away(list(lines))
    assert not strayed
    covered(
        f"fresh values, embedded: {last} updates through 3 masters, 6 equal copies, {sum(turns)} turns of probes, no worker led away"
    )


def test_a_worker_that_executes_again_what_a_lost_one_executed_comes_to_the_same(tmp_path: Path) -> None:
    texts = updates(FAST_UPDATES, random.Random(13))
    # A site that has lost one goes on with the other, however long the updates under way take.
    config = dataclasses.replace(
        embedded_config(tmp_path), broker="embedded://again", heartbeat_ms=100, dead_after_ms=500, min_in_sync=1
    )
    with capture_logs() as lines, EmbeddedCluster(config) as cluster:
        clients = [cluster.client(master) for master in MASTERS]
        last, share = 0, len(texts) // len(cluster.workers)
        for place, lost in enumerate(list(cluster.workers)):
            # Given a part of the updates under way, when a worker goes in the middle of them and comes back,
            pipelines = [client.pipeline(window=WINDOW, timeout=WAIT_S) for client in clients]
            part = texts[place * share : (place + 1) * share]
            futures = [pipelines[n % 3].update("main", text) for n, text in enumerate(part)]
            cluster.stop_node(lost)
            for pipeline in pipelines:
                pipeline.close()
            last = max(future.result(WAIT_S).lsn for future in futures)
            cluster.start_node(lost)
            await_readable(cluster, lost)
        for client in clients:
            client.wait(last, "all", timeout=WAIT_S)
        # then the sites have one log, the copies one content, and nobody needed another copy to get there.
        effects_of_equal_logs(clients, last)
        assert len({worker.store.applied() for worker in cluster.workers.values()}) == 1
        assert not [line for line in lines if line.get("state") == "load" or "damaged" in line["event"]]
        assert not [line for line in lines if line["event"] == "site differs"]
        losses = sum(master.metrics()["probe_losses_total"] for master in cluster.masters.values())
        assert losses >= 1, "nobody executed for somebody else"


def await_readable(cluster: EmbeddedCluster, worker: str) -> None:
    """Wait until a worker is back in sync, by the word of its master."""
    deadline = time.monotonic() + WAIT_S
    while True:
        rows = cluster.client(worker[:2]).command("workers", {})["workers"]
        (row,) = [row for row in rows if row["id"] == worker]
        if row["state"] in SERVING and row["alive"]:
            return
        assert time.monotonic() < deadline, row
        time.sleep(0.02)


LINE = re.compile(r"^(?P<node>m\d[ab]?) +.*?(?P<event>follows|is damaged|moved aside|site differs|worker changes)(?P<rest>.*)$")


def led_away_in(log: str) -> list[str]:
    """The same of the lines that processes wrote."""
    found = []
    began: set[str] = set()
    for line in re.sub(r"\x1b\[[0-9;]*m", "", log).splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        node, event, rest = match["node"], match["event"], match["rest"]
        if event == "follows" and "state=basic" in rest:
            began.add(node)
        elif event == "follows" and "state=idle" in rest and node not in began:
            continue
        elif event != "worker changes" or not re.search(r"now=(uninitialised|on)\b", rest):
            found.append(line)
    return found


@pytest.mark.slow
def test_updates_end_equal_in_nine_processes_over_rabbitmq(vhost_url: str, tmp_path: Path, covered: Callable[[str], None]) -> None:
    # Each process has hash seeds, clocks and chance of its own: what depends on one of them differs here.
    texts = updates(UPDATES, random.Random(12))
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(ProcessCluster(tmp_path, vhost_url, settings=f"probe-turn = {PROBE_TURN}\n"))
        clients = [stack.enter_context(brokerha.connect(cluster.url(master))) for master in cluster.masters]
        began_s = time.monotonic()
        last = send_through_all(clients, texts)
        seconds = time.monotonic() - began_s
        for client in clients:
            client.wait(last, "all", timeout=WAIT_S)
        assert_was_worth_it(effects_of_equal_logs(clients, last))
        copies, dumps = set(), set()
        for worker in cluster.workers:
            answer = cluster.get(worker, "/cluster/fingerprints")
            dump = cluster.get(worker, "/repositories/main/statements")
            assert answer is not None
            assert dump is not None
            assert dump.status_code == 200
            copies.add((answer.json()["lsn"], answer.json()["fingerprint"]))
            dumps.add(b"\n".join(sorted(dump.content.splitlines())))
        assert len(copies) == 1, copies
        assert len(dumps) == 1
        assert len(dumps.pop()) > 10_000
        log = (tmp_path / "up.log").read_text("utf-8", "replace")
        assert log.count("state=basic") >= len(cluster.workers), "the log does not say any more what workers do"
        assert not led_away_in(log)
    covered(f"fresh values, over RabbitMQ: {last} updates through 3 masters in {seconds:.1f} s, 6 equal copies, no worker led away")
