"""Running nodes of which one is added and taken out: what its front says and refuses meanwhile, and who is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from brokerha.master.config import MasterConfig
from brokerha.model import errors, states
from brokerha.nodes.building import SystemClock
from brokerha.nodes.master.node import MasterNode
from brokerha.replication.site.config import FeedConfig
from brokerha.sync.config import SyncConfig
from brokerha.transports.kombu_transport import KombuTransport
from tests.support.logs import memory_log
from tests.support.waiting import until
from tests.unit.nodes.test_running_nodes import WAIT_S, Site


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site("changing-masters")
    running.start_worker("w3")
    journal = memory_log("m3", "journal-of-m3")
    config = MasterConfig(SyncConfig("m3", ("m1", "m2", "m3")), FeedConfig(("w3",)))
    wire = KombuTransport(running.url, "nodes", "m3", 1, "master")
    running.masters["m3"] = MasterNode(config, "nodes", journal, wire, SystemClock(), running.settings("m3"))
    running.masters["m3"].start()
    yield running
    running.stop()


def ask(at: MasterNode, name: str, **arguments: Any) -> dict[str, Any]:
    return at.command(name, arguments).result(WAIT_S)


def state(node: MasterNode) -> str:
    return str(next(row["state"] for row in node.view.rows(node.clock.now()) if row["role"] == "master"))


def masters(node: MasterNode) -> list[str]:
    return list(node.status(200)["masters"])


def test_a_master_is_added_serves_and_is_taken_out(site: Site) -> None:
    first, new = site.masters["m1"], site.masters["m3"]
    site.put("m1", b"before").result(WAIT_S)
    # Given a master that nobody was told to add
    until(lambda: state(new) == states.WAITING_TO_BE_ADDED)
    assert not new.ready()[0]
    assert new.writable() == (False, "m3 is not a master of the cluster yet: write to another master")
    reply = site.put("m3", b"early").result(WAIT_S)
    assert reply.error == "ReadOnly"
    assert masters(first) == ["m1", "m2"]
    with pytest.raises(errors.NotReady, match="not a master of the cluster yet"):
        ask(new, "peer-remove", node="m2")
    # When it is added
    ask(first, "peer-add", node="m3")
    until(lambda: ask(first, "peers")["change"]["state"] == "done")
    # Then it takes writes, has everything, and the others tell of it
    until(lambda: new.writable()[0] and new.ready()[0])
    assert site.put("m3", b"late").result(WAIT_S).error == ""
    until(lambda: new.applied_lsn() >= 2)
    assert masters(first) == masters(new) == ["m1", "m2", "m3"]
    assert "m3" in {row["id"] for row in first.status(2000)["nodes"] if row["state"] != states.UNREACHABLE}
    # When it is taken out
    ask(first, "peer-remove", node="m3")
    until(lambda: ask(first, "peers")["change"]["state"] == "done")
    # Then it says so, and the others do not ask it any more
    until(lambda: state(new) == states.RETIRED)
    assert not new.ready()[0]
    assert "taken out of the cluster" in new.writable()[1]
    until(lambda: "m3" not in {row["id"] for row in first.status(200)["nodes"]})
    assert site.put("m2", b"after").result(WAIT_S).error == ""
