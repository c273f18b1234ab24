"""The examples of the documentation are run as they stand; only addresses are replaced.

Given a cluster with three masters and a worker each, when somebody does what a page says, then it does what the page says.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.http import HttpServer, create_app
from brokerha.http.rdf.repositories import settings_of
from brokerha.nodes.building import open_master, open_worker
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from brokerha.nodes.master.node import MasterNode
from tests.docs.pages import output_of, the_block
from tests.support.free_ports import free_ports
from tests.support.waiting import until

PATIENCE_S = 30.0
SITES = (1, 2, 3)


@contextlib.contextmanager
def running(broker: str, folder: Path) -> Iterator[list[MasterNode]]:
    """Masters m1 to m3 with a worker each, all of them ready."""
    config = ClusterConfig(
        name="examples",
        broker=broker,
        data=folder,
        masters=tuple(MasterEntry(id=f"m{n}") for n in SITES),
        workers=tuple(WorkerEntry(id=f"w{n}", master=f"m{n}") for n in SITES),
    )
    with contextlib.ExitStack() as stack:
        masters = []
        for n in SITES:
            worker = open_worker(config, f"w{n}")
            stack.callback(worker.stop)
            worker.start()
            master = open_master(config, f"m{n}")
            stack.callback(master.stop)
            master.start()
            masters.append(master)
        until(lambda: all(master.ready()[0] for master in masters), lambda: [master.ready()[1] for master in masters])
        yield masters


def test_the_pika_example_writes_and_prints_the_answer(vhost_url: str, tmp_path: Path):
    code = the_block("docs/amqp.md", "python", "basic_publish")
    url = "amqp://guest:guest@127.0.0.1:5672/orders"
    assert url in code
    with running(vhost_url, tmp_path) as masters:
        printed = output_of([sys.executable, "-c", code.replace(url, vhost_url)], tmp_path, dict(os.environ))
        answer = re.fullmatch(r"order-\S+ applied ([1-9]\d*)\s*", printed)
        assert answer, printed
        asked = masters[0].read("query", "main", {"query": "ASK { <urn:order:4711> <urn:state> 'paid' }"}, int(answer[1]))
        assert b"true" in asked.result(PATIENCE_S).body


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_examples_write_at_one_node_and_read_at_another(tmp_path: Path):
    first = free_ports(len(SITES))
    script = the_block("docs/http.md", "sh", "/kv/prices/sku-1") + the_block("docs/http.md", "sh", "order-4711")
    script += the_block("docs/http.md", "sh", "/gsp?graph")
    for n in SITES:
        script = script.replace(f"localhost:{7200 + n}", f"127.0.0.1:{first + n - 1}")
    # Here and now, what one node has applied another may not have yet; the examples themselves come at a person's pace.
    script = script.replace("curl ", "curl -sSf --retry 20 --retry-delay 1 --retry-all-errors ")
    with running("embedded://curl-examples", tmp_path) as masters, contextlib.ExitStack() as stack:
        for n, master in zip(SITES, masters, strict=True):
            server = HttpServer(create_app(master), "127.0.0.1", first + n - 1)
            server.start()
            stack.callback(server.stop, 1.0)
        done = subprocess.run(["bash", "-e"], input=script, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("9.90")
    for part in ('"bindings"', '"cluster": "examples"', '"txid": "order-4711", "state": "applied"', "<urn:a> <urn:b> "):
        assert part in done.stdout


def test_the_example_of_a_configuration_is_one():
    text = the_block("docs/http.md", "turtle", "union-default-graph")
    assert settings_of(text.encode(), "text/turtle", "orders") == {"title": b"All orders", "union": b"true"}
