"""What ``brokerha demo`` does: three masters with two workers each, real data through all of them, losses on the way.

    load through m1, m2 and m3 at once
        at 1/4   stop a worker              at 1/2   stop a master
        at 3/4   bring the worker back      right after: bring the master back on its own data
    then wait until every copy is at the same LSN, and compare LSN, content count and fingerprint

A master that is away holds up agreement, because nobody may overtake what it has promised; the writes wait and go on when it
is back. Nothing that was acknowledged may be missing at the end: each copy is counted against what was sent, and where the
extra ``spark`` is installed the log is archived, and the archive audits all copies (demo_archive).
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokerha.cli.common import exits
from brokerha.cli.demo import archive as demo_archive
from brokerha.cli.demo import data as demo_data
from brokerha.embedded import EmbeddedCluster, FrontWire
from brokerha.model.errors import BrokerhaError, TimedOut
from brokerha.model.operations import pack_operations
from brokerha.model.requests import Reply
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.config.nodes import MasterEntry, WorkerEntry
from brokerha.transports.rabbitmq.addresses import is_embedded, parse_addresses

MASTERS = ("m1", "m2", "m3")
WINDOW = 64
"""Transactions under way through one master."""
AWAY_S = 15.0
"""How long the stopped master stays away at most: the others go on without it sooner."""
SETTLE_S = 30.0
STAMP = "PREFIX u: <urn:unicode:> INSERT {{ <urn:demo:{0}> u:seen ?now ; u:key ?key }} WHERE {{ BIND(NOW() AS ?now) BIND(STRUUID() AS ?key) }}"
"""An update that gives something else at each call, unless it is executed once and its effect is shipped."""

Report = Callable[[str], None]


@dataclass(slots=True)
class Tally:
    """What was sent and acknowledged."""

    total: int
    acknowledged: list[str] = field(default_factory=list)
    """Transaction ids."""
    failures: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, reply: Reply) -> None:
        """Count one answer."""
        with self.changed:
            if reply.status == "applied":
                self.acknowledged.append(reply.txid)
            else:
                self.failures.append(f"{reply.txid}: {reply.status} {reply.reason}")
            self.changed.notify_all()

    def wait_for(self, count: int, timeout_s: float) -> None:
        """Wait until so many answers came. Raises TimedOut."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.acknowledged) + len(self.failures) >= count, timeout_s):
                message = f"{len(self.acknowledged)} of {count} transactions were acknowledged within {timeout_s:.0f} s"
                raise TimedOut(message)


def _shown(broker: str) -> str:
    """The address of a broker without its password."""
    return broker if is_embedded(broker) else ", ".join(str(address) for address in parse_addresses(broker))


def demo_config(broker: str, folder: Path) -> ClusterConfig:
    """Three masters with two workers each, one of which is enough for writes: the other one is stopped for a while."""
    return ClusterConfig(
        name="demo",
        min_in_sync=1,
        broker=broker,
        data=folder,
        masters=tuple(MasterEntry(id=master) for master in MASTERS),
        workers=tuple(
            WorkerEntry(id=f"{master.replace('m', 'w')}{letter}", master=master)
            for master in MASTERS
            for letter in "ab"
        ),
    )


def run(input_file: Path | None, broker: str, report: Report) -> int:
    """Carry the demonstration out; returns 0 when all copies are equal and complete, else 2."""
    lines = list(demo_data.file_lines(input_file) if input_file else demo_data.built_in_lines())
    texts = demo_data.pieces(lines)
    what = str(input_file) if input_file else "Unicode character database of this Python"
    report(f"{len(set(lines)):,} statements ({what}) in {len(texts):,} transactions")
    with tempfile.TemporaryDirectory(prefix="brokerha-demo-") as folder:
        config = demo_config(broker, Path(folder))
        started = time.monotonic()
        with EmbeddedCluster(config) as cluster:
            report(f"3 masters and 6 workers are up in {time.monotonic() - started:.1f} s, broker {_shown(broker)}")
            rate, tally = _load(cluster, texts, report)
            copies = _settled(cluster, report)
            expected = len(set(lines)) + 2 * len(MASTERS)
            problems = _problems(copies, tally, expected, rate, is_file=input_file is not None, report=report)
            if demo_archive.is_possible():
                fingerprint = copies[0].fingerprint
                problems += demo_archive.archive_and_audit(
                    cluster, Path(folder), tally.acknowledged, fingerprint, report
                )
            else:
                report(demo_archive.MISSING)
            return _verdict(problems, report)


def _load(cluster: EmbeddedCluster, texts: list[str], report: Report) -> tuple[float, Tally]:
    tally = Tally(len(texts) + len(MASTERS))
    started = time.monotonic()
    loaders = [
        threading.Thread(
            target=_load_through, args=(cluster, number, texts[number :: len(MASTERS)], tally), daemon=True
        )
        for number in range(len(MASTERS))
    ]
    for loader in loaders:
        loader.start()
    for share, action in _losses(cluster, report):
        tally.wait_for(int(tally.total * share), 60)
        action()
    tally.wait_for(tally.total, 60)
    for loader in loaders:
        loader.join(10)
    seconds = time.monotonic() - started
    return len(texts) / seconds, tally


def _losses(cluster: EmbeddedCluster, report: Report) -> Iterator[tuple[float, Callable[[], None]]]:
    def stop(node: str) -> None:
        cluster.stop_node(node)
        report(f"stopped {node}")

    def start(node: str) -> None:
        cluster.start_node(node)
        report(f"brought {node} back on its own data")

    def swap() -> None:
        stopped_s, epoch = time.monotonic(), _epoch(cluster)
        stop("m3")
        while _epoch(cluster) == epoch and time.monotonic() - stopped_s < AWAY_S:
            time.sleep(0.05)
        if _epoch(cluster) != epoch:
            report(f"m1 and m2 go on without m3 after {time.monotonic() - stopped_s:.1f} s")
        start("m3")

    yield 0.25, lambda: stop("w2b")
    yield 0.5, swap
    yield 0.75, lambda: start("w2b")


def _epoch(cluster: EmbeddedCluster) -> int:
    return cluster.masters["m1"].runner.core.sync.epoch.number


def _load_through(cluster: EmbeddedCluster, number: int, texts: list[str], tally: Tally) -> None:
    """Send every text as one transaction, this master first, the others when it is away."""
    own = [*MASTERS[number:], *MASTERS[:number]]
    wire = FrontWire(cluster, own)
    room = threading.BoundedSemaphore(WINDOW)

    def done(txid: str, future: Future[Reply]) -> None:
        error = future.exception()
        tally.note(future.result() if error is None else Reply(0, txid, "failed", 0, type(error).__name__, str(error)))
        room.release()

    operations: list[tuple[Any, ...]] = [("add", "main", text) for text in texts]
    operations.insert(len(operations) // 2, ("update", "main", STAMP.format(own[0])))
    for place, operation in enumerate(operations):
        room.acquire()
        txid = f"demo-{number}-{place}"
        future = wire.submit([(txid, pack_operations([operation]))], "applied", 1, 60_000)[0]
        future.add_done_callback(functools.partial(done, txid))


@dataclass(frozen=True, slots=True)
class Copy:
    """One worker's copy at the end."""

    node: str
    lsn: int
    statements: int
    fingerprint: str


def _settled(cluster: EmbeddedCluster, report: Report) -> list[Copy]:
    """Wait until every worker has applied everything that any master has synchronised."""
    deadline = time.monotonic() + SETTLE_S
    started = time.monotonic()
    while True:
        goal = max(node.runner.core.sync.lsn for node in cluster.masters.values())
        copies = [
            Copy(name, applied.lsn, applied.items, applied.fingerprint)
            for name, applied in ((name, node.store.applied()) for name, node in sorted(cluster.workers.items()))
        ]
        if all(copy.lsn == goal for copy in copies) and len({copy.fingerprint for copy in copies}) == 1:
            report(f"all copies are at LSN {goal} after {time.monotonic() - started:.1f} s")
            return copies
        if time.monotonic() >= deadline:
            return copies
        with contextlib.suppress(BrokerhaError):
            next(iter(cluster.masters.values())).wait_for(goal, "all", 200).result(1)
        time.sleep(0.05)


def _problems(
    copies: list[Copy], tally: Tally, expected: int, rate: float, *, is_file: bool, report: Report
) -> list[str]:
    """Shows the copies; returns what is wrong with them."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="six copies of the same data")
    for column, side in (("worker", "left"), ("LSN", "right"), ("statements", "right"), ("fingerprint", "left")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for copy in copies:
        table.add_row(copy.node, f"{copy.lsn:,}", f"{copy.statements:,}", copy.fingerprint)
    Console().print(table)
    report(
        f"{len(tally.acknowledged):,} of {tally.total:,} transactions acknowledged as applied, "
        f"{rate:,.0f} transactions ({rate * demo_data.LINES:,.0f} statements) per second"
    )
    problems = tally.failures[:5]
    for name in ("lsn", "statements", "fingerprint"):
        values = {getattr(copy, name) for copy in copies}
        if len(values) > 1:
            problems.append(f"{name} differs: " + ", ".join(f"{c.node} {getattr(c, name)}" for c in copies))
    counts = {copy.statements for copy in copies}
    # Blank nodes and literals of a file may become equal when they are stored; the built-in data are counted exactly.
    if not is_file and counts != {expected}:
        problems.append(f"expected {expected} statements, found {sorted(counts)}")
    return problems


def _verdict(problems: list[str], report: Report) -> int:
    for problem in problems:
        report(f"DIFFERENT: {problem}")
    report("all copies agree" if not problems else "the copies do NOT agree")
    return exits.DONE if not problems else exits.FAILED
