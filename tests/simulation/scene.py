"""A scripted world for scenarios: no luck, short words, the checkers of the simulator after every step.

    scene = Scene()                    three masters m1 m2 m3 with one worker each (m1w1 ...)
    scene.cut("m1", "m3")              nothing passes between them
    write = scene.write("m1", "t1")
    scene.until(lambda: write.is_done, within_ms=1000)
    scene.agree()                      everything accepted is everywhere, and all checks hold in full

One way takes 1 ms, writing 0.1 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from brokerha.following.loading import LoadConfig
from brokerha.model.ids import NodeId, TxId
from brokerha.model.operations import Put
from brokerha.model.requests import APPLIED_LEVEL
from brokerha.model.wire.messages import Envelope, Message
from brokerha.replication.site.config import WorkerFeed
from tests.simulator.checks.truth import Truth
from tests.simulator.clients.workload import Write
from tests.simulator.network import CLUSTER, both_ways
from tests.simulator.nodes import SimMaster, SimWorker
from tests.simulator.options import Disk, Load, Options, Wire
from tests.simulator.processes import Process
from tests.simulator.world import World

LINK_US = 1_000


_worlds: list[World] = []


@pytest.fixture(autouse=True)
def close_worlds() -> Iterator[None]:
    """The files of a scene go with its test; for conftest.py."""
    yield
    while _worlds:
        _worlds.pop().home.close()


class Scene:
    """One world under the hand of a test."""

    def __init__(
        self, workers: tuple[int, ...] = (1, 1, 1), *, starts: bool = True, others: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        """``settings`` are those of `SyncConfig`, ``others`` those of `Options`."""
        options = Options(
            seed=1,
            workers=workers,
            sync=settings,
            wire=Wire(delay_us=(LINK_US, LINK_US)),
            disk=Disk(write_us=(100, 100), slow_us=(300_000, 300_000), chunk_bytes=1_024),
            load=Load(writes=0, timeout_ms=(30_000, 30_000)),
            **(others or {}),
        )
        self.world = World(options)
        _worlds.append(self.world)
        if starts:
            for process in self.world.processes_list:
                if process.node not in self.world.waiting:
                    process.start()
            self.run(3_000)

    @property
    def truth(self) -> Truth:
        """What is known from outside."""
        return self.world.checkers.truth

    def __getitem__(self, node: NodeId) -> Process:
        return self.world.processes[node]

    def master(self, node: NodeId) -> SimMaster:
        """One master without backups."""
        master = self.world.master(node)
        assert isinstance(master, SimMaster)
        return master

    def worker(self, node: NodeId) -> SimWorker:
        """One worker."""
        process = self.world.processes[node]
        assert isinstance(process, SimWorker)
        return process

    # ---- time

    def run(self, for_ms: int) -> None:
        """Let time pass."""
        self.world.run_until(self.world.now_us + for_ms * 1000)

    def until(self, condition: Callable[[], bool], within_ms: int = 5_000) -> float:
        """Let time pass until something holds; return how many milliseconds that took."""
        begin_us = self.world.now_us
        came = self.world.run_while(lambda: not condition(), within_ms * 1000, every_us=500)
        assert came, f"not within {within_ms} ms; missing: {self.world.what_is_missing()}"
        return (self.world.now_us - begin_us) / 1000

    def agree(self, within_ms: int = 20_000) -> float:
        """Wait until everything accepted is everywhere, then check everything in full."""
        elapsed_ms = self.until(lambda: not self.world.what_is_missing(), within_ms)
        self.world.checkers.at_the_end()
        return elapsed_ms

    # ---- clients

    def write(self, node: NodeId, txid: TxId, value: bytes = b"v", level: str = APPLIED_LEVEL, copies: int = 1) -> Write:
        """A client hands a write in at one master."""
        write = self.world.clients.new_write(txid, [("put", "table", txid.encode(), value)], level, copies)
        self.world.clients.submit(self.master(node), write)
        return write

    def write_again(self, node: NodeId, txid: TxId, key: bytes, value: bytes) -> Write:
        """A client changes a key that another write made."""
        write = self.world.clients.new_write(txid, [("put", "table", key, value)])
        self.world.clients.submit(self.master(node), write)
        return write

    def write_many(self, node: NodeId, prefix: str, count: int, level: str = "accepted") -> list[Write]:
        """Many writes at one master, at once."""
        return [self.write(node, f"{prefix}{number}", level=level) for number in range(count)]

    def again(self, node: NodeId, write: Write) -> None:
        """The client hands the same write in at another master."""
        self.world.clients.submit(self.master(node), write)

    # ---- bad luck

    def cut(self, one: NodeId, other: NodeId) -> None:
        """Nothing passes between two masters."""
        self.world.network.cut_for_ever(both_ways([(one, other)]))

    def cut_one_way(self, sender: NodeId, receiver: NodeId) -> None:
        """Nothing passes from one master to another; the other direction works."""
        self.world.network.cut_for_ever([(sender, receiver)])

    def isolate(self, node: NodeId) -> None:
        """A master hears nobody, and nobody hears it."""
        for master in self.world.masters:
            if master.node != node:
                self.cut(node, master.node)

    def heal(self) -> None:
        """All links work again."""
        self.world.network.heal()

    def lose(self, kind: type, sender: NodeId) -> None:
        """All messages of a kind that a node sends are lost, until `lose_nothing`."""
        self.world.network.sieve = lambda node, outgoing: node == sender and isinstance(outgoing.message, kind)

    def lose_nothing(self) -> None:
        """Messages pass again."""
        self.world.network.sieve = lambda _sender, _outgoing: False

    def kill(self, *nodes: NodeId) -> None:
        """Processes die."""
        for node in nodes:
            self.world.processes[node].die()

    def stop(self, *nodes: NodeId) -> None:
        """Processes end in order."""
        for node in nodes:
            self.world.processes[node].stop()

    def start(self, *nodes: NodeId) -> None:
        """Processes begin (again)."""
        for node in nodes:
            self.world.processes[node].start()

    def inject(self, to: NodeId, sender: NodeId, message: Message, incarnation: int = 1) -> None:
        """A message appears from nowhere."""
        self.world.processes[to].deliver(Envelope(CLUSTER, sender, incarnation, message))

    # ---- what is to be seen

    def order(self, node: NodeId) -> list[TxId]:
        """Transaction ids of the synchronised queue of a master."""
        journal = self.master(node).journal
        return [txid for _, txid, _ in journal.ordered(journal.first_lsn(), 10**9)]

    def state(self, node: NodeId) -> tuple[str, str]:
        """State word and reason of a master."""
        return self.master(node).runner.state()

    def posts(self) -> int:
        """Posts sent so far by all masters together."""
        return sum(self.world.checkers.posts.values())


# ---- workers: what masters think of them, and how copies are lost and damaged

QUICK: dict[str, Any] = {"worker": {"load": LoadConfig(window=4, ask_ms=200, chunk_wait_ms=200, patience_ms=1_000)}}
NO_SCRUB: dict[str, Any] = {**QUICK, "scrub_us": 0}


def site(scene: Scene, node: NodeId) -> WorkerFeed:
    """What its master thinks of a worker."""
    return scene.master(scene.worker(node).config.master).runner.core.site.workers[node]


def loaded(scene: Scene) -> int:
    """Snapshots that were opened so far."""
    return scene.world.faults_seen["snapshot loaded"]


def fill(scene: Scene, count: int) -> None:
    """Some content that all workers have."""
    scene.write_many("m1", "before", count)
    scene.agree()
    scene.write("m1", "last")
    scene.agree()


def lose(scene: Scene, node: NodeId) -> None:
    """A worker comes back with an empty directory, when the log does not reach back to the beginning any more."""
    master = scene.master(scene.worker(node).config.master)
    assert master.journal.trim(scene.truth.lsn) > 0
    scene.kill(node)
    scene.worker(node).empty()
    scene.start(node)


def damage(worker: SimWorker, key: bytes) -> None:
    """Change a value that clients wrote, behind the back of the fingerprint."""
    worker.copy.damage(Put("put", "table", key, b"flipped"))
    worker.is_damaged = True


def probe_of(scene: Scene, node: NodeId) -> NodeId:
    """Who executes at a master."""
    probe = scene.master(node).runner.core.feed.probe
    assert probe is not None
    return probe
