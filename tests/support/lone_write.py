"""What one lone write costs three masters with one worker each, counted: no broker, no thread, no clock of its own.

    python -m tests.support.lone_write [WRITES] [--profile]

Every node is turned by hand, in one thread, whenever something has arrived for it; masters are whole nodes (loop, runner, core, settings, journal
in files, codec, transport), workers a runner over a copy in memory. The broker is the in-process one, so what a real one would add
is missing: frames, threads, and the gap between messages that travel through two queues.

Python calls are counted in the masters' turns: calls of functions of brokerha, without those of the journal and of the in-process
broker, which are counted beside them.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import pstats
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import brokerha
from brokerha.log.disks import FileDisk
from brokerha.log.log import Log
from brokerha.master.config import MasterConfig
from brokerha.master.core import MasterCore
from brokerha.model.ids import Instant
from brokerha.model.operations import pack_operations
from brokerha.model.ready import StoreAnswer
from brokerha.model.requests import Reply
from brokerha.model.wire.messages import Envelope, Outgoing, Read, ReadResult
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.loop import NodeLoop
from brokerha.nodes.master.node import MasterNode
from brokerha.nodes.settings import NodeSettings
from brokerha.nodes.worker.runner import WorkerRunner, carry_out, carry_out_copy, state_of
from brokerha.ports.transport import ClientMessage
from brokerha.replication.site.config import FeedConfig
from brokerha.replication.worker.config import WorkerConfig
from brokerha.replication.worker.core import WorkerCore
from brokerha.sync.config import SyncConfig
from brokerha.transports.in_process.direct_link import DirectLink
from brokerha.transports.kombu_transport import KombuTransport
from tests.support.memory_store.worker_copy import MemoryCopy

NAMES = ("m1", "m2", "m3")
BODY = pack_operations([("put", "t", b"key", b"v" * 100)])
PATIENCE_MS = 1000
STEP_MS = 1
"""Between two passes over the nodes."""
_ROOT = str(Path(brokerha.__file__).parent)
_WIRE = f"{_ROOT}/transports/in_process/"
_clusters = itertools.count(1)


class HandClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)


class HandLoop(NodeLoop):
    """A loop that is turned by whoever holds it."""

    def __init__(self) -> None:
        super().__init__("by hand", lambda: None, lambda: None)

    @property
    def is_running(self) -> bool:
        return True


class _Door:
    """Carries out at once what a worker decides, and tells of it in its next turn."""

    def __init__(self, copy: MemoryCopy) -> None:
        self._copy = copy
        self.answers: list[StoreAnswer] = []

    def begin(self, decision: Any) -> None:
        name = type(decision).__name__
        in_store = name in {"ExecuteBatch", "ApplyBatch", "BeginLineage", "ReadBatch"}
        answer: Any = carry_out(self._copy, decision) if in_store else carry_out_copy(self._copy, decision, self.answers.append)
        if answer is not None:
            self.answers.append(answer)

    def finished(self) -> list[StoreAnswer]:
        answers, self.answers = self.answers, []
        return answers


def _no_settings(worker: WorkerRunner, envelope: Envelope, _now: Instant) -> bool:
    """The one read that a master asks of itself: the cluster has no settings."""
    message = envelope.message
    if isinstance(message, Read):
        answer = ReadResult(message.request, 0, False, "", "application/json", b"{}", worker.core.applied)
        worker.transport.send([Outgoing(envelope.sender, answer)])
    return isinstance(message, Read)


class Trio:
    """Three masters, each with one worker in sync; `write` brings one write through at the first one."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        url = f"embedded://lone-write-{next(_clusters)}"
        self._wires: list[KombuTransport] = []
        self.masters: dict[str, MasterNode] = {}
        self.workers: dict[str, WorkerRunner] = {}
        for name in NAMES:
            worker = f"w{name[1:]}"
            journal = Log(FileDisk(folder / name), "lone", name)
            config = MasterConfig(SyncConfig(name, NAMES), FeedConfig((worker,)))
            wire = self._wire(url, name, "master")
            settings = NodeSettings(ClusterConfig(name="lone", broker=url), name)
            self.masters[name] = MasterNode(config, "lone", journal, wire, self.clock, settings, loop=HandLoop())
            copy = MemoryCopy(partial("copy-of-{}".format, worker))
            core = WorkerCore(WorkerConfig(worker, name), state_of(copy))
            runner = WorkerRunner(core.config, core, _Door(copy), self._wire(url, worker, "worker"), self.clock)
            runner.on_node = partial(_no_settings, runner)
            self.workers[worker] = runner
        self.count_turn: Callable[[MasterNode], None] = lambda node: node.turn()
        self.worker_turns = 0
        for _ in range(200):
            self.clock.ms += 20
            self._pass(everybody=True)
        assert all(node.ready()[0] for node in self.masters.values()), "the masters agree and their workers follow"

    def _wire(self, url: str, node: str, role: str) -> KombuTransport:
        wire = KombuTransport(url, "lone", node, 1, role)
        self._wires.append(wire)
        return wire

    def close(self) -> None:
        for node in self.masters.values():
            node.stop(1)
        for wire in self._wires:
            wire.close(0)

    def write(self, together: int = 1) -> int:
        """Hand writes in at once and turn whoever has something to do until they are answered; returns the last LSN."""
        node = self.masters["m1"]
        futures: list[Future[Reply]] = []
        self.wake(node, lambda: futures.extend(node.submit(BODY) for _ in range(together)))
        self._turn_until(lambda: all(future.done() for future in futures))
        return max(future.result(0).lsn for future in futures)

    def settle(self, lsn: int) -> None:
        """Turn whoever has something to do until it is applied everywhere up to there."""
        self._turn_until(lambda: all(master.applied_lsn() == lsn for master in self.masters.values()))

    def _turn_until(self, is_done: Callable[[], bool]) -> None:
        most = self.clock.ms + PATIENCE_MS
        while not is_done():
            assert self.clock.ms < most, "it is done in time"
            self._pass()
            self.clock.ms += STEP_MS

    def wake(self, node: MasterNode, act: Callable[[], object]) -> None:
        """Take the turn of a master whose loop sleeps when somebody comes and wakes it."""
        wire: Any = node.transport

        def receive(limit: int, timeout_ms: int) -> list[Envelope | ClientMessage]:
            del wire.receive
            act()
            wire.wake()
            found: list[Envelope | ClientMessage] = wire.receive(limit, timeout_ms)
            return found

        wire.receive = receive
        self.count_turn(node)

    def _pass(self, *, everybody: bool = False) -> None:
        """Turn every node for which something has arrived, or that is due, once."""
        nodes: list[MasterNode | WorkerRunner] = [*self.masters.values(), *self.workers.values()]
        for each in [each for each in nodes if everybody or _has_arrivals(each)]:
            each.transport.wake()
            if isinstance(each, MasterNode):
                self.count_turn(each)
            else:
                self.worker_turns += 1
                each.turn()


def _has_arrivals(node: MasterNode | WorkerRunner) -> bool:
    wire: Any = node.transport
    door: Any = node.door if isinstance(node, WorkerRunner) else None
    handed_in = node._inbox if isinstance(node, MasterNode) else door.answers
    wait_ms = node._wait_ms() if isinstance(node, MasterNode) else node.wait_ms()
    return bool(handed_in) or wait_ms <= 0 or wire._link.has_ready()


@contextmanager
def counted(counts: Counter[str], trio: Trio) -> Iterator[None]:
    """Count what masters do: calls, turns, rounds, encodings, decodings, commits and publications."""

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            counts[_home(frame.f_code.co_filename)] += 1

    def turn(node: MasterNode) -> None:
        counts["turns"] += 1
        before = _progress(node)
        sys.setprofile(profile)
        try:
            node.turn()
        finally:
            sys.setprofile(None)
        counts["turns without effect"] += before == _progress(node)

    def counting(owner: Any, name: str, what: str) -> Callable[[], None]:
        inner = getattr(owner, name)

        def call(*arguments: Any, **options: Any) -> Any:
            counts[what] += 1
            return inner(*arguments, **options)

        setattr(owner, name, call)
        return lambda: setattr(owner, name, inner)

    undo = [counting(MasterCore, "take_ready", "take_ready")]
    kombu_transport = sys.modules[KombuTransport.__module__]
    undo.append(counting(kombu_transport, "encode_envelope", "encodings"))
    undo.append(counting(kombu_transport, "decode_envelopes", "arrivals"))
    undo.append(counting(Log, "append", "commits"))
    undo.append(counting(DirectLink, "_publish", "publications"))
    trio.count_turn = turn
    before = trio.worker_turns
    try:
        yield
    finally:
        counts["turns of workers"] = trio.worker_turns - before
        trio.count_turn = lambda node: node.turn()
        for each in undo:
            each()


def _progress(node: MasterNode) -> tuple[object, ...]:
    """What a turn that does something changes: its journal, or what it has sent."""
    counters = node.transport.status().counters
    core = node.runner.core
    return node.journal.last_number, counters.get("sent"), core.feed.executed, core.feed.applied_by(1)


def _home(file: str) -> str:
    if file.startswith(_WIRE) or not file.startswith(_ROOT):
        return "calls elsewhere"
    return "calls of the journal" if file.startswith(f"{_ROOT}/log/") else "calls"


def counts_per_round(folder: Path, together: int = 1, rounds: int = 40) -> dict[str, float]:
    """What so many writes at once cost the three masters together, on average."""
    trio = Trio(folder)
    try:
        for _ in range(3):
            trio.write(together)
        counts: Counter[str] = Counter()
        with counted(counts, trio):
            trio.settle([trio.write(together) for _ in range(rounds)][-1])
        return {name: count / rounds for name, count in sorted(counts.items())}
    finally:
        trio.close()


def main() -> None:
    """Print counts per write, time per turn, and on demand where it goes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("writes", nargs="?", type=int, default=1000)
    parser.add_argument("--profile", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        for name, count in counts_per_round(Path(folder) / "counts").items():
            print(f"{name:24} {count:8.1f}")
        trio = Trio(Path(folder) / "times")
        spent, turns = 0, 0
        profile = cProfile.Profile()

        def turn(node: MasterNode) -> None:
            nonlocal spent, turns
            turns += 1
            began = time.process_time_ns()
            if asked.profile:
                profile.enable()
            node.turn()
            profile.disable()
            spent += time.process_time_ns() - began

        trio.count_turn = turn
        for _ in range(asked.writes):
            trio.write()
        print(
            f"{spent / turns / 1e6:.3f} ms a turn, {spent / asked.writes / 1e6:.3f} ms a write, {turns / asked.writes:.1f} turns a write"
        )
        trio.close()
        if asked.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(70)


if __name__ == "__main__":
    main()
