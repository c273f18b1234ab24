"""ProcessNode: fronts and threads around a process that becomes primary, is deposed, and becomes it again."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from brokerha.master.config import MasterConfig
from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady
from brokerha.model.requests import ACCEPTED, UNKNOWN
from brokerha.nodes.building import SystemClock
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.loop import NodeLoop
from brokerha.nodes.master.address_book import AddressBook, AddressedTransport
from brokerha.nodes.master.node import MasterNode
from brokerha.nodes.master.orders import Orders
from brokerha.nodes.master.process_node import ProcessNode
from brokerha.nodes.master.process_runner import ProcessConfig
from brokerha.nodes.master.runner import MasterRunner
from brokerha.nodes.settings import NodeSettings
from brokerha.ports.journal import Journal
from brokerha.replication.role.config import RoleConfig
from brokerha.replication.site.config import FeedConfig
from brokerha.sync.config import SyncConfig
from brokerha.transports.kombu_transport import KombuTransport
from tests.support.logs import memory_copy
from tests.support.waiting import until

WAIT_S = 20.0
NAMES = ("m1", "b1")
_numbers = itertools.count()


class Followers:
    """Stands for the thread that publishes the log."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def start(self) -> None:
        self.events.append("start")

    def note(self, executed_lsn: int) -> None:
        pass

    def published_lsn(self) -> int:
        return 0

    def state(self) -> tuple[str, str]:
        return "ok", ""

    def counters(self) -> dict[str, int]:
        return {}

    def close(self, timeout_s: float) -> None:
        self.events.append(f"close {timeout_s:g}")


class Pair:
    """Master m1 and its backup b1, each with its loop, over the wire of this process; one worker that never comes."""

    def __init__(self, hook: str = "") -> None:
        self.url = f"embedded://pair-{next(_numbers)}"
        self.events: dict[str, list[str]] = {name: [] for name in NAMES}
        self.nodes = {name: self.node(name, hook) for name in NAMES}
        for node in self.nodes.values():
            node.start()

    def node(self, name: str, hook: str) -> ProcessNode:
        wire = KombuTransport(self.url, "pair", name, 1, "backup", master="m1")
        config = ProcessConfig(
            MasterConfig(SyncConfig("m1", ("m1",)), FeedConfig(("w1",))),
            RoleConfig(name, "m1", NAMES, 1, fail_over_after_ms=400),
            sync_timeout_ms=60_000,
        )
        events = self.events[name]
        copy = memory_copy("m1", f"journal-of-{name}")
        transport = AddressedTransport(wire, AddressBook(["m1"], {"m1": NAMES}))
        clock = SystemClock()
        settings = NodeSettings(ClusterConfig(name="pair", broker=self.url), name)

        def make(journal: Journal, runner: MasterRunner, loop: NodeLoop, orders: Orders) -> MasterNode:
            followers = Followers(events)
            return MasterNode(
                config.master, "pair", journal, transport, clock, settings, followers, runner=runner, loop=loop, orders=orders
            )

        return ProcessNode(config, "pair", copy, transport, clock, make, settings, hook)

    @property
    def primary(self) -> ProcessNode:
        until(lambda: any(node.role == "master" for node in self.nodes.values()))
        return next(node for node in self.nodes.values() if node.role == "master")

    def is_settled(self) -> bool:
        """Whether a write is confirmed."""
        states = {name: node.runner.state()[0] for name, node in self.nodes.items()}
        return "ready" in states.values() and any(node.role == "master" for node in self.nodes.values())

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop(5)


@pytest.fixture
def pair() -> Iterator[Pair]:
    running = Pair()
    until(running.is_settled)
    yield running
    running.stop()


def depose(node: ProcessNode) -> None:
    """Somebody has a higher view."""
    view = node.runner.role.view + 10
    node.loop.call(lambda: node.runner.role.on_view(view, node.clock.now())).result(WAIT_S)
    node.transport.wake()


def error_of(future: Future[Any]) -> str:
    error = future.exception(WAIT_S)
    assert isinstance(error, BrokerhaError), error
    return f"{type(error).__name__}: {error}"


# ---- deposed, and primary again


def test_whoever_waits_for_a_primary_is_answered_when_it_is_deposed(pair: Pair) -> None:
    node = pair.primary
    other = next(each for each in pair.nodes.values() if each is not node)
    txid = node.transact("begin", "", {}).result(WAIT_S)["txid"]
    node.transact("operations", txid, {"first": 0, "operations": [("put", "t", b"k", b"v")]}).result(WAIT_S)
    # Its backup hears nothing more, so nothing of what follows is confirmed.
    other.loop.stop(5)
    write = node.submit([("put", "t", b"k", b"v")], level=ACCEPTED)
    commit = node.transact("commit", txid, {"one_phase": True, "level": ACCEPTED})
    read = node.read("get", "t", {"key": b"k"})
    wait = node.wait_for(1, 1, 60_000)
    command = node.command("worker-add", {"worker": "w9"})
    depose(node)
    reply = write.result(WAIT_S)
    assert (reply.status, reply.error) == (UNKNOWN, "OutcomeUnknown")
    assert "not primary" in reply.reason
    assert error_of(commit).startswith("OutcomeUnknown: ")
    for future in (read, wait):
        assert error_of(future).startswith("NotReady: ")
    assert error_of(command).startswith("OutcomeUnknown: ")
    with pytest.raises(NotReady, match=f"{node.node_id} is a backup of m1"):
        node.submit([("put", "t", b"k", b"v")])
    assert node.role == "backup"


def test_a_primary_that_is_stopped_is_a_backup_before_it_ends(pair: Pair) -> None:
    node = pair.primary
    other = next(each for each in pair.nodes.values() if each is not node)
    assert node.submit([("put", "t", b"k", b"v")], level=ACCEPTED).result(WAIT_S).lsn == 0
    node.stop(5)
    assert node.role == "backup"
    until(lambda: other.role == "master")


def test_a_primary_without_a_backup_that_is_ready_ends_as_one(pair: Pair) -> None:
    node = pair.primary
    other = next(each for each in pair.nodes.values() if each is not node)
    other.stop(5)
    assert node.master is not None
    primary = node.master.runner.primary
    assert primary is not None
    until(lambda: not node.loop.call(primary.feed.ready).result(WAIT_S))
    node.stop(5)
    assert node.role == "master"


def test_whoever_still_holds_a_former_primary_is_refused_and_never_waits(pair: Pair) -> None:
    node = pair.primary
    former = node.master
    assert isinstance(former, MasterNode)
    depose(node)
    until(lambda: node.master is not former)
    with pytest.raises(NotReady, match="not primary of m1 any more"):
        former.submit([("put", "t", b"k", b"v")])
    for future in (
        former.read("get", "t", {"key": b"k"}),
        former.transact("begin", "", {}),
        former.transact("list", "", {}),
        former.wait_for(1, 1, 60_000),
        former.command("worker-add", {"worker": "w9"}),
    ):
        assert "not primary of m1 any more" in error_of(future)
    with pytest.raises(NotReady, match="not primary of m1 any more"):
        former.outcome("t1")


def test_a_command_is_answered_once_a_backup_holds_what_it_changed(pair: Pair) -> None:
    node = pair.primary
    backup = next(each for each in pair.nodes.values() if each is not node)
    assert node.command("worker-add", {"worker": "w8"}).result(WAIT_S)["changed"]
    backup.loop.stop(5)
    last = node.copy.journal.last_number
    waiting = node.command("worker-add", {"worker": "w9"})
    until(lambda: node.copy.journal.last_number > last)
    node.loop.call(lambda: None).result(WAIT_S)
    node.loop.call(lambda: None).result(WAIT_S)
    assert not waiting.done()
    depose(node)
    assert error_of(waiting).startswith("OutcomeUnknown: whether it was carried out is unknown")


def test_a_write_that_meets_the_end_of_its_primary_is_answered(pair: Pair) -> None:
    node = pair.primary
    former = node.master
    assert former is not None
    depose(node)
    until(lambda: node.master is not former)
    # It looked before the end, and hands in its write after it.
    checks = iter((None, None))
    former._check_not_ended = lambda: next(checks)  # type: ignore[method-assign]
    assert former.submit([("put", "t", b"k", b"v")]).result(WAIT_S).status == UNKNOWN


def test_a_process_becomes_primary_again_and_publishes_its_log_anew(pair: Pair) -> None:
    node = pair.primary
    txid = node.new_txid()
    for _ in range(2):
        role_changes = node.runner.role_changes
        depose(node)
        until(lambda: node.runner.role_changes > role_changes)  # noqa: B023  (it is over before the next round)
        until(pair.is_settled)
        if pair.primary is not node:
            pair.primary.command("promote", {"node": node.node_id, "force": False}).result(WAIT_S)
            until(lambda: node.role == "master")
        until(pair.is_settled)
        assert node.submit([("put", "t", b"k", b"v")], level=ACCEPTED).result(WAIT_S).status == "accepted"
    assert node.new_txid().rpartition(".")[0] != txid.rpartition(".")[0]
    assert pair.events[node.node_id] == ["start", "close 0"] * 2 + ["start"]
    assert node.metrics()["is_primary"] == 1


def test_a_front_that_looks_while_the_loop_deposes_its_primary_gets_a_whole_answer(pair: Pair) -> None:
    class Flickering(ProcessNode):
        """Deposed after the first look."""

        seen: Any = None

        @property
        def master(self) -> MasterNode | None:
            seen: MasterNode | None = self.seen
            self.seen = None
            return seen

        @master.setter
        def master(self, _value: object) -> None:
            pass

    node = pair.primary
    copy, settings = memory_copy("m1", "journal"), NodeSettings(ClusterConfig(name="pair", broker=pair.url), "m1")
    flickering = Flickering(
        node.config, node.cluster, copy, node.transport, node.clock, lambda *_: pytest.fail("primary"), settings
    )
    for look in (flickering.new_txid, flickering.writable, flickering.ready, flickering.metrics, lambda: flickering.status(10)):
        flickering.seen = node.master
        assert look() is not None
    flickering.door.close(5)


# ---- by hand


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "needs the argument 'node', a name"),
        ({"node": 1}, "node is a name, not 1"),
        ({"node": "b1", "force": "yes"}, "force is true or false"),
        ({"node": "b1", "force": 1}, "force is true or false"),
        ({"node": "b1", "force": False, "view": 3}, "promote does not take view"),
        ({"node": "m2"}, "'m2' is no process of m1: m1, b1"),
    ],
)
def test_wrong_arguments_of_promote_are_named(pair: Pair, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        pair.nodes["b1"].command("promote", arguments)


def test_a_standby_says_where_the_primary_is_and_what_itself_could_do(pair: Pair) -> None:
    node = next(each for each in pair.nodes.values() if each is not pair.primary)
    with pytest.raises(NotReady, match=rf"{node.node_id} is a backup of m1 \(ready\); {pair.primary.node_id} is primary"):
        node.command("worker-add", {"worker": "w9"})
    assert node.ready() == (True, ["[+]backup ready"])
    is_writable, reason = node.writable()
    assert (is_writable, "is a backup of m1" in reason) == (False, True)
    rows = {(row["id"], row["role"]): row["state"] for row in node.status(2000)["nodes"]}
    assert rows["m1", "master"] != "unreachable"
    assert rows[node.node_id, "backup"] == "ready"


# ---- programs that want to know


def program(folder: Path, text: str) -> str:
    path = folder / "hook"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_program_is_told_of_every_role(tmp_path: Path) -> None:
    pair = Pair(program(tmp_path, f'echo "$@" >> {tmp_path}/told'))
    told = tmp_path / "told"
    until(lambda: told.exists() and "primary" in told.read_text())
    primary = pair.primary
    assert told.read_text() == f"{primary.node_id} m1 primary {primary.runner.role.view}\n"
    depose(primary)
    until(lambda: f"{primary.node_id} m1 backup" in told.read_text())
    pair.stop()


@pytest.mark.parametrize("text", ["exec sleep 5", "exit 3", None])
def test_nothing_waits_for_a_program_that_hangs_or_fails_or_is_not_there(tmp_path: Path, text: str | None) -> None:
    with capture_logs() as lines:
        pair = Pair(program(tmp_path, text) if text is not None else str(tmp_path / "absent"))
        until(pair.is_settled)
        write = pair.primary.submit([("put", "t", b"k", b"v")], level=ACCEPTED)
        assert write.result(WAIT_S).status == "accepted"
        if text != "exec sleep 5":
            until(lambda: any(line["event"] == "on-role-change" for line in lines))
            found = next(line for line in lines if line["event"] == "on-role-change")
            assert found.get("code") == 3 or "No such file" in found["error"]
        pair.stop()


# ---- the loop


def test_a_call_that_comes_while_its_loop_ends_is_refused() -> None:
    loop = NodeLoop("loop", lambda: time.sleep(0.001), lambda: None)
    loop.start()
    assert loop.stop(WAIT_S)
    loop._stopping.clear()  # it asked before the loop ended
    assert error_of(loop.call(lambda: 1)) == "NotReady: the node has stopped"
