"""The demonstration: three masters with two workers each, real data through all of them, losses.

    load through m1, m2 and m3 at once
        at 1/4   stop a worker              at 1/2   stop a master
        at 3/4   bring the worker back      right after: bring the master back on its own data
    then wait until every copy is at the same LSN, and compare LSN, number of statements and fingerprint

A stopped master delays agreement, because no other master can overtake its promises; writes wait and continue when it is back.
Nothing acknowledged may be missing at the end: each copy is counted against the sent data. If the extra ``spark`` is installed, the
log is archived, and the archive audits all copies.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from brokerha.cli.common import exits
from brokerha.cli.common.output import counted
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.model.errors import BrokerhaError, InvalidRequest, TimedOut
from brokerha.model.operations import Operation
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from brokerha.ports.front import Front
from brokerha.stores.rdf.change import check_nquads
from brokerha.transports.rabbitmq.addresses import is_embedded, parse_addresses

if TYPE_CHECKING:
    from brokerha.client.outcomes import Written


# ---- The end of ``brokerha demo`` if the extra ``spark`` is installed: Spark archives the log, and audits all copies with the archive.
#
#     doors of m1 and of all workers, on free ports ──> archive the log of m1 ──> audit: the content that the archive leads to,
#     each worker's copy, each acknowledged transaction id
#
# These are the jobs behind ``brokerha pipeline archive`` and ``brokerha pipeline audit``, in one session of Spark on this machine.

LOOPBACK = "127.0.0.1"
MISSING = "not shown: an archive of the log and its audit; pip install 'brokerha[spark]' brings what they need"
_STOP_S = 5.0


def is_possible() -> bool:
    """Tell whether the extra is installed."""
    return all(find_spec(name) is not None for name in ("pyspark", "pyarrow", "deltalake"))


def archive_and_audit(
    cluster: EmbeddedCluster, folder: Path, acknowledged: Sequence[str], fingerprint: str, report: Callable[[str], None]
) -> list[str]:
    """Archive the log and audit every copy with it; return the problems.

    ``fingerprint`` is that of the copies; the archive must lead to it.
    """
    try:
        with _doors(cluster) as urls:
            return _compared(urls, folder, acknowledged, fingerprint, report)
    except BrokerhaError as error:
        return [f"archive or audit failed: {error}"]


@contextmanager
def _doors(cluster: EmbeddedCluster) -> Iterator[dict[str, str]]:
    """Open a door of one master and of each worker: node id -> URL."""
    master = min(cluster.masters)
    nodes: dict[str, Front] = {master: cluster.masters[master], **dict(sorted(cluster.workers.items()))}
    with ExitStack() as stack:
        urls = {}
        for name, node in nodes.items():
            server = HttpServer(create_app(node, hosts=frozenset()), LOOPBACK, 0)
            server.start()
            stack.callback(server.stop, _STOP_S)
            urls[name] = server.url
        yield urls


def _compared(
    urls: dict[str, str], folder: Path, acknowledged: Sequence[str], fingerprint: str, report: Callable[[str], None]
) -> list[str]:
    from brokerha.pipeline.sources import SourceSpec
    from brokerha.spark import archive as archiving
    from brokerha.spark import audit as auditing
    from brokerha.spark.session import SparkOptions, session

    (source_url, *_), workers = urls.values(), list(urls.items())[1:]
    source, into, txids = SourceSpec(url=source_url), str(folder / "archive"), folder / "acknowledged"
    txids.write_text("\n".join(acknowledged) + "\n", encoding="utf-8")
    begun_s = time.monotonic()
    with session("demo", SparkOptions(memory="1g")) as spark:
        report(f"Spark {spark.version} started in {time.monotonic() - begun_s:.1f} s")
        around = archiving.Around(lambda: nullcontext(spark))
        archived = archiving.run(archiving.ArchiveOptions(into, source, has_pin=False), around)
        report(
            f"archived on Spark: LSN {archived.first_lsn:,} to {archived.last_lsn:,} as {counted(archived.rows, 'row')} of a Delta table, "
            f"{archived.size_bytes / 1e6:.1f} MB, {archived.seconds:.1f} s"
        )
        wanted = auditing.AuditOptions(into, source=source, copies=tuple(workers), txids=txids)
        audited = auditing.run(wanted, lambda: nullcontext(spark), _silent)
    equal = sum(copy.result == "equal" for copy in audited.copies)
    found = 0 if audited.txids is None else audited.txids.found
    report(
        f"audited on Spark: the archive leads to {audited.fingerprint or 'no content'} at LSN {audited.lsn:,}; {equal} of {len(workers)} workers hold "
        f"that, {found:,} of {len(acknowledged):,} acknowledged transactions are in it once, {audited.seconds:.1f} s"
    )
    problems = [f"{each.node}: {each.result} {each.reason}".strip() for each in audited.copies if each.result != "equal"]
    problems += [f"the archive: {each}" for each in audited.problems[:5]]
    if audited.result != "equal" or equal != len(workers) or found != len(acknowledged):
        problems.append(f"the audit says {audited.result}")
    if audited.fingerprint != fingerprint:
        problems.append(f"the archive leads to {audited.fingerprint}, and the copies are {fingerprint}")
    return problems


def _silent(_done: int, _total: int) -> None:
    """Ignore the progress."""


MASTERS = ("m1", "m2", "m3")
WINDOW = 64
"""Concurrent transactions through one master."""
AWAY_S = 15.0
"""Longest absence of the stopped master; the others go on without it sooner."""
SETTLE_S = 30.0
LOAD_S = 60.0
STAMP = "PREFIX u: <urn:unicode:> INSERT {{ <urn:demo:{0}> u:seen ?now ; u:key ?key }} WHERE {{ BIND(NOW() AS ?now) BIND(STRUUID() AS ?key) }}"
"""An update with another result at each execution, so copies are equal only if it runs once and its effect is replicated."""


@dataclass(slots=True)
class Tally:
    """Acknowledged and failed transactions."""

    acknowledged: list[str] = field(default_factory=list)
    """Transaction ids."""
    failures: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, txid: str, future: Future[Written]) -> None:
        """Count one answer."""
        error = future.exception()
        with self.changed:
            if error is None:
                self.acknowledged.append(txid)
            else:
                self.failures.append(f"{txid}: {type(error).__name__} {error}")
            self.changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait for ``count`` answers. Raises TimedOut."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.acknowledged) + len(self.failures) >= count, LOAD_S):
                raise TimedOut(f"{len(self.acknowledged)} of {count} transactions were acknowledged within {LOAD_S:.0f} s")


class Copy(NamedTuple):
    """One worker's copy at the end."""

    worker: str
    lsn: int
    statements: int
    fingerprint: str


def demo_config(broker: str, folder: Path) -> ClusterConfig:
    """Return a configuration of three masters with two workers each; one is enough for writes while the other is stopped."""
    workers = [(f"{master.replace('m', 'w')}{letter}", master) for master in MASTERS for letter in "ab"]
    return ClusterConfig(
        name="demo",
        min_in_sync=1,
        broker=broker,
        data=folder,
        masters=tuple(MasterEntry(id=master) for master in MASTERS),
        workers=tuple(WorkerEntry(id=worker, master=master) for worker, master in workers),
    )


def run(input_file: Path | None, broker: str) -> int:
    """Run the demonstration; return 0 when all copies are equal and complete, else 2."""
    lines = list(file_lines(input_file) if input_file else built_in_lines())
    texts = pieces(lines)
    statements, total = len(set(lines)), len(texts) + len(MASTERS)
    what = str(input_file) if input_file else "Unicode character database of this Python"
    exits.say(f"{statements:,} statements ({what}) in {len(texts):,} transactions")
    with tempfile.TemporaryDirectory(prefix="brokerha-demo-") as folder:
        began_s = time.monotonic()
        with EmbeddedCluster(demo_config(broker, Path(folder))) as cluster:
            # Without the password of the broker.
            shown = broker if is_embedded(broker) else ", ".join(map(str, parse_addresses(broker)))
            exits.say(f"3 masters and 6 workers are up in {time.monotonic() - began_s:.1f} s, broker {shown}")
            began_s, tally = time.monotonic(), Tally()
            _load(cluster, texts, tally, total)
            rate = len(texts) / (time.monotonic() - began_s)
            copies = _settled(cluster)
            _show(copies)
            exits.say(
                f"{len(tally.acknowledged):,} of {total:,} transactions acknowledged as applied, "
                f"{rate:,.0f} transactions ({rate * LINES:,.0f} statements) per second"
            )
            # Blank nodes and literals of a file can become equal in a store; only the built-in data are counted exactly.
            problems = tally.failures[:5] + _differences(copies, None if input_file else statements + 2 * len(MASTERS))
            if is_possible():
                problems += archive_and_audit(cluster, Path(folder), tally.acknowledged, copies[0].fingerprint, exits.say)
            else:
                exits.say(MISSING)
    for problem in problems:
        exits.say(f"DIFFERENT: {problem}")
    exits.say("the copies do NOT agree" if problems else "all copies agree")
    return exits.FAILED if problems else exits.DONE


def _load(cluster: EmbeddedCluster, texts: Sequence[str], tally: Tally, total: int) -> None:
    """Write everything through all masters at once, while nodes are lost."""
    with ThreadPoolExecutor(len(MASTERS)) as loaders:
        loading = [
            loaders.submit(_load_through, cluster, number, texts[number :: len(MASTERS)], tally) for number in range(len(MASTERS))
        ]
        for share, action in _losses(cluster):
            tally.wait_for(int(total * share))
            action()
        tally.wait_for(total)
        for each in loading:
            each.exception()  # Each failed write is one of the tally's failures.


def _load_through(cluster: EmbeddedCluster, number: int, texts: Sequence[str], tally: Tally) -> None:
    """Send every text as one transaction, to this master first, to the others while it is stopped."""
    own = [*MASTERS[number:], *MASTERS[:number]]
    operations: list[Operation] = [("add", "main", text) for text in texts]
    operations.insert(len(operations) // 2, ("update", "main", STAMP.format(own[0])))
    with cluster.client(*own) as client, client.pipeline(window=WINDOW, ack="applied", timeout=LOAD_S) as pipeline:
        for place, operation in enumerate(operations):
            txid = f"demo-{number}-{place}"
            pipeline.write([operation], key=txid).add_done_callback(partial(tally.note, txid))


def _losses(cluster: EmbeddedCluster) -> Iterator[tuple[float, Callable[[], None]]]:
    """Yield the events, each with the share of writes after which it happens."""

    def stop(node: str) -> None:
        cluster.stop_node(node)
        exits.say(f"stopped {node}")

    def start(node: str) -> None:
        cluster.start_node(node)
        exits.say(f"brought {node} back on its own data")

    def epoch() -> int:
        return cluster.masters["m1"].runner.core.sync.epoch.number

    def swap() -> None:
        stopped_s, before = time.monotonic(), epoch()
        stop("m3")
        while epoch() == before and time.monotonic() - stopped_s < AWAY_S:
            time.sleep(0.05)
        if epoch() != before:
            exits.say(f"m1 and m2 go on without m3 after {time.monotonic() - stopped_s:.1f} s")
        start("m3")

    yield 0.25, lambda: stop("w2b")
    yield 0.5, swap
    yield 0.75, lambda: start("w2b")


def _settled(cluster: EmbeddedCluster) -> list[Copy]:
    """Wait until every worker has applied all that any master has synchronised."""
    began_s = time.monotonic()
    while True:
        goal = max(node.runner.core.sync.lsn for node in cluster.masters.values())
        applied = {name: node.store.applied() for name, node in sorted(cluster.workers.items())}
        copies = [Copy(name, each.lsn, each.items, each.fingerprint) for name, each in applied.items()]
        if {(copy.lsn, copy.fingerprint) for copy in copies} == {(goal, copies[0].fingerprint)}:
            exits.say(f"all copies are at LSN {goal} after {time.monotonic() - began_s:.1f} s")
            return copies
        if time.monotonic() - began_s >= SETTLE_S:
            return copies
        with contextlib.suppress(BrokerhaError):
            next(iter(cluster.masters.values())).wait_for(goal, "all", 200).result(1)
        time.sleep(0.05)


def _show(copies: Sequence[Copy]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("worker", title="six copies of the same data")
    table.add_column("LSN", justify="right")
    table.add_column("statements", justify="right")
    table.add_column("fingerprint")
    for copy in copies:
        table.add_row(copy.worker, f"{copy.lsn:,}", f"{copy.statements:,}", copy.fingerprint)
    Console().print(table)


def _differences(copies: Sequence[Copy], expected: int | None) -> list[str]:
    """Return where copies differ, or have an unexpected number of statements."""
    found = []
    for name in ("lsn", "statements", "fingerprint"):
        values = {copy.worker: getattr(copy, name) for copy in copies}
        if len(set(values.values())) > 1:
            found.append(f"{name} differs: " + ", ".join(f"{worker} {value}" for worker, value in values.items()))
    counts = sorted({copy.statements for copy in copies})
    if expected is not None and counts != [expected]:
        found.append(f"expected {expected} statements, found {counts}")
    return found


# ---- data: a given file, or the Unicode character database of Python
#
# Each piece is one transaction: lines of N-Triples or N-Quads. The built-in data are four statements about # each named character
# outside the ideographs, from `unicodedata`.

CHARACTERS = 6_000
"""Characters of the built-in data: about 24,000 statements, a few seconds of work for six copies."""
LINES = 40
"""Statements in one transaction."""
BASE = "urn:unicode:"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"


def built_in_lines(characters: int = CHARACTERS) -> Iterator[str]:
    """Yield N-Triples lines about the first named characters."""
    named = (c for c in map(chr, range(0x10FFFF)) if unicodedata.name(c, ""))
    for character in itertools.islice(named, characters):
        subject = f"<{BASE}U{ord(character):04X}>"
        yield f'{subject} <{LABEL}> "{unicodedata.name(character)}" .'
        yield f'{subject} <{BASE}category> "{unicodedata.category(character)}" .'
        yield f'{subject} <{BASE}direction> "{unicodedata.bidirectional(character)}" .'
        yield f'{subject} <{BASE}combining> "{unicodedata.combining(character)}" .'


def file_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a given file. Raises InvalidRequest with the file."""
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                text = line.strip()
                if text and not text.startswith("#"):
                    yield text
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not UTF-8: byte {error.start}") from None


def pieces(lines: Iterable[str], size: int = LINES) -> list[str]:
    """Split lines into checked texts of ``size`` lines. Raises InvalidRequest with the first bad line."""
    listed = list(lines)
    texts = ["\n".join(listed[at : at + size]) + "\n" for at in range(0, len(listed), size)]
    for number, text in enumerate(texts):
        try:
            check_nquads(text)
        except InvalidRequest as error:
            raise InvalidRequest(f"statements {number * size + 1} to {number * size + size}: {error}") from None
    return texts
