"""Workers operated at run time, on running nodes: commands, and what status, metrics and probes then say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from brokerha.embedded import FrontWire
from brokerha.master.config import MasterConfig
from brokerha.model import errors, states
from brokerha.model.requests import APPLIED_LEVEL, Reply
from brokerha.nodes.building import SystemClock
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.master.node import MasterNode
from brokerha.nodes.observing.status import FIELDS
from brokerha.nodes.settings import NodeSettings
from brokerha.nodes.worker.node import WorkerNode
from brokerha.ports.transport import Problem, TransportStatus
from brokerha.replication.site.config import FeedConfig
from brokerha.replication.worker.config import WorkerConfig
from brokerha.sync.config import SyncConfig
from brokerha.transports.kombu_transport import KombuTransport
from tests.support.logs import memory_log
from tests.support.memory_store.worker_copy import MemoryCopy
from tests.support.waiting import until

WAIT_S = 15.0
FREE_BYTES = 7_000_000
_numbers = itertools.count()


class Site:
    """One master with two workers, which are both needed for writes."""

    def __init__(self) -> None:
        self.url = f"embedded://operated-{next(_numbers)}"
        self.workers: dict[str, WorkerNode] = {}
        for name in ("w1", "w2"):
            self.start_worker(name)
        config = MasterConfig(SyncConfig("m1", ("m1",)), FeedConfig(("w1", "w2"), dead_after_ms=1000))
        self.wire = KombuTransport(self.url, "operated", "m1", 1, "master")
        self.master = MasterNode(config, "operated", memory_log("m1", "journal"), self.wire, SystemClock(), self.settings("m1"))
        self.master.start()

    def start_worker(self, name: str) -> None:
        wire = KombuTransport(self.url, "operated", name, next(_numbers), "worker")
        copy = MemoryCopy(lambda: f"copy-{next(_numbers)}-of-{name}", free_bytes=lambda: FREE_BYTES)
        config = WorkerConfig(name, "m1", heartbeat_ms=50)
        self.workers[name] = WorkerNode(config, "operated", copy, wire, SystemClock(), ("m1",), self.settings(name))
        self.workers[name].start()

    def settings(self, node: str) -> NodeSettings:
        return NodeSettings(ClusterConfig(name="operated", broker=self.url), node)

    def command(self, name: str, **arguments: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.master.command(name, arguments).result(WAIT_S)
        return answer

    def put(self, key: bytes) -> str:
        return self.master.submit([("put", "t", key, b"v")]).result(WAIT_S).status

    def row(self, node: str) -> dict[str, Any]:
        rows: dict[str, dict[str, Any]] = {row["id"]: row for row in self.master.status()["nodes"]}
        return rows[node]

    def in_sync(self, *names: str) -> bool:
        rows = [row for row in self.command("workers")["workers"] if row["state"] in states.SERVING and row["alive"]]
        return [row["id"] for row in rows] == list(names)

    def stop(self) -> None:
        self.master.stop(5)
        for worker in self.workers.values():
            worker.stop(5)


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site()
    try:
        until(lambda: running.in_sync("w1", "w2"))
        yield running
    finally:
        running.stop()


def test_a_worker_that_is_switched_off_is_told_with_what_brings_it_back(site: Site) -> None:
    # When one of two workers is switched off
    off = site.command("worker-off", worker="w2")
    assert (off["changed"], off["read_only"]) == (True, "1 of 2 workers in sync, writes need 2: w2 is off (switched off)")
    assert site.command("worker-off", worker="w2")["changed"] is False
    until(lambda: site.row("w2")["state"] == states.OFF)
    # Then the status says so, what to type, and why no writes are taken
    assert (site.row("w2")["reason"], site.row("w2")["action"]) == ("switched off", "brokerha worker on w2 brings it back")
    assert site.row("m1")["state"] == states.READ_ONLY
    assert "w2 is off" in site.row("m1")["reason"]
    assert site.put(b"refused") == "refused"
    numbers = site.master.metrics()
    assert (numbers["workers_in_sync"], numbers["workers_needed"], numbers["read_only"]) == (1, 2, 1)
    assert (numbers["worker_in_sync", "w1"], numbers["worker_in_sync", "w2"]) == (1, 0)
    # It is counted with the line in the log, a tenth of a second later at most
    until(lambda: site.master.metrics()["read_only_total"] == 1)
    # And the last one stays unless it is forced
    with pytest.raises(errors.InvalidRequest, match="w1 is the last worker in sync"):
        site.command("worker-off", worker="w1")
    # When it is switched on again, everything goes on
    site.command("worker-on", worker="w2")
    until(lambda: site.master.writable()[0])
    assert site.put(b"k") == "applied"
    assert site.master.metrics()["read_only_total"] == 1


def test_a_worker_that_dies_is_unknown_and_one_that_is_off_may_be_stopped(site: Site) -> None:
    site.workers.pop("w2").stop(5)
    until(lambda: site.row("w2")["state"] == states.UNKNOWN)
    assert site.row("w2")["reason"].startswith("not heard for ")
    site.command("worker-off", worker="w2")
    assert (site.row("w2")["state"], site.row("w2")["reason"]) == (states.OFF, "switched off; not heard")


def test_of_a_silent_worker_nothing_is_said_while_the_broker_is_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.workers.pop("w2").stop(5)
    until(lambda: site.row("w2")["state"] == states.UNKNOWN)
    status = replace(site.wire.status(), state="waiting-for-broker", reason="nothing listens at 127.0.0.1:5672")
    monkeypatch.setattr(site.wire, "status", lambda: status)
    assert site.row("m1")["state"] == states.WAITING_FOR_BROKER
    told = site.row("w2")
    assert (told["reason"], told["action"]) == (
        "nothing can be said of it: the node that tells this reaches nobody over its broker",
        "first do what the row of that node asks for",
    )


def test_a_worker_whose_messages_are_set_aside_is_not_told_to_be_started(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.workers.pop("w2").stop(5)
    until(lambda: site.row("w2")["state"] == states.UNKNOWN)
    wrong = TransportStatus(
        "connected", "", 0, {}, {"w2": Problem("user operated.w1 published it, not operated.w2", "start w2 as itself")}
    )
    monkeypatch.setattr(KombuTransport, "status", lambda _wire: wrong)
    assert site.row("w2")["reason"].endswith(" s; its messages are set aside: user operated.w1 published it, not operated.w2")
    assert site.row("w2")["action"] == "start w2 as itself"


def test_of_a_worker_whose_disk_is_full_it_is_told_that_a_person_must_make_room(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> NoReturn:
        raise errors.StoreFull("cannot apply: no room")

    follower = next(name for name in ("w1", "w2") if not site.row(name)["probe"])
    monkeypatch.setattr(MemoryCopy, "apply", full)
    site.master.submit([("put", "t", b"k", b"v")])
    until(lambda: site.row(follower)["reason"].startswith("cannot apply: no room"))
    assert site.row(follower)["action"] == states.ACTIONS[states.DISK_FULL]


def test_a_worker_is_added_and_removed_while_writes_go_on(site: Site) -> None:
    assert site.put(b"before") == "applied"
    site.command("worker-add", worker="w9", readable=False)
    site.start_worker("w9")
    until(lambda: site.in_sync("w1", "w2", "w9"))
    until(lambda: len({row["fingerprint"] for row in site.master.status()["nodes"]}) == 1)
    assert site.row("w9")["readable"] is False
    assert site.put(b"after") == "applied"
    site.command("worker-remove", worker="w2")
    until(lambda: site.in_sync("w1", "w9"))
    assert site.put(b"again") == "applied"
    assert "w2" not in [row["id"] for row in site.master.status()["nodes"]]
    # And the one that was removed does not go on answering with what it once had
    until(lambda: not site.workers["w2"].ready()[0])
    with pytest.raises(errors.NotReady, match="w2 is off: it is no worker of this master"):
        site.workers["w2"].read("get", "t", {"key": b"before"}).result(WAIT_S)


def test_every_row_has_every_field_in_the_order_of_the_contract(site: Site) -> None:
    for status in (site.master.status(), site.workers["w1"].status()):
        assert [tuple(row) for row in status["nodes"]] == [FIELDS] * len(status["nodes"])
    assert [row["probe"] for row in site.master.status()["nodes"]].count(True) == 1


def test_the_space_of_a_worker_is_shown_by_itself_and_by_its_master(site: Site) -> None:
    until(lambda: site.row("w1")["free_bytes"] == FREE_BYTES)
    own = {row["id"]: row["free_bytes"] for row in site.workers["w1"].status(0)["nodes"]}
    assert own["w1"] == FREE_BYTES
    assert site.row("m1")["free_bytes"] is None


def test_a_program_in_the_same_process_gives_commands_through_its_wire(site: Site) -> None:
    class Cluster:
        def fronts(self, _masters: object) -> Iterator[MasterNode]:
            yield site.master

    wire = FrontWire(Cluster(), ("m1",))  # type: ignore[arg-type]
    answer = wire.ask("command", {"name": "workers", "arguments": {}}, 5000)
    assert [row["id"] for row in answer["workers"]] == ["w1", "w2"]
    with pytest.raises(errors.InvalidRequest, match="w7 is no worker of m1; its workers are w1, w2"):
        wire.ask("command", {"name": "worker-off", "arguments": {"worker": "w7"}}, 5000)


def test_a_program_that_stops_waiting_for_its_write_leaves_no_trace_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    answer: Future[Reply] = Future()

    class Cluster:
        def fronts(self, _masters: object) -> Iterator[SimpleNamespace]:
            yield SimpleNamespace(submit=lambda *_: answer)

    wire = FrontWire(Cluster(), ("m1",))  # type: ignore[arg-type]
    (waiting,) = wire.submit([("t1", b"")], APPLIED_LEVEL, 1, 5000)
    assert waiting.cancel()
    answer.set_result(Reply(0, "t1", APPLIED_LEVEL, 1, "", ""))
    assert not caplog.records
