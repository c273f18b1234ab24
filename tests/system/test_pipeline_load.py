"""A bulk load over RabbitMQ that is killed in its middle, again and again, and started again by the same command: equal, and nothing twice.

Given a cluster of real processes and a file with blank nodes and one bad line; when `brokerha pipeline load` is killed with SIGKILL (its
Spark with it, or left to find out by itself) at several points, a master, and a Python worker of Spark in the last run; then that run ends well, every
statement of the file is there once, each transaction of the load is in the log once, and the bad line is among the rejects.

The long form loads 1,000,000 statements; another campaign tells what as many take beside `brokerha load` and the bulk load of the bare store.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx2
import pyoxigraph
import pytest

import brokerha
from brokerha.pipeline.publishing import ROWS_LIMIT, prefix_of
from tests.support.commands_on_spark import SMALL, answer, one_session
from tests.system.processes import ProcessCluster

DEADLINE_S = 600.0
BAD_LINE = "this is no statement"
LINKS = 17
BROKERHA = (sys.executable, "-m", "brokerha")
PREDICATES = [
    "http://example.org/name",
    "http://example.org/size",
    *(f"http://example.org/link/{number}" for number in range(LINKS)),
]


def lines(count: int) -> Iterator[str]:
    """Statements as the store spells them: texts, numbers, links, and blank nodes that several statements share."""
    for n in range(count):
        subject = f"_:b{n // 50}" if n % 100 < 2 else f"<http://example.org/thing/{n // 5}>"
        match n % 5:
            case 0:
                yield f'{subject} <http://example.org/name> "Thing number {n}, with a name of some length"@en .'
            case 1:
                yield f'{subject} <http://example.org/size> "{n}"^^<http://www.w3.org/2001/XMLSchema#integer> .'
            case _:
                yield f"{subject} <http://example.org/link/{n % LINKS}> <http://example.org/thing/{n * 7919 % count}> ."


class Content(NamedTuple):
    """How many lines, and the sum of their digests: equal for equal sets."""

    lines: int
    digest: int


def content_of(found: Iterable[str]) -> Content:
    """Of lines without an end."""
    count = total = 0
    for line in found:
        count += 1
        total += int.from_bytes(blake2b(line.encode(), digest_size=12).digest())
    return Content(count, total)


def loaded(cluster: ProcessCluster, node: str, repository: str = "main") -> Content:
    """What a repository holds. By predicate, because an answer of a node has a limit."""
    count = total = 0
    for predicate in PREDICATES:
        with httpx2.stream(
            "GET",
            f"{cluster.url(node)}/repositories/{repository}/statements",
            params={"pred": f"<{predicate}>"},
            headers={"Accept": "application/n-quads"},
            timeout=DEADLINE_S,
        ) as response:
            assert response.status_code == 200, response.read()
            found = content_of(line for line in response.iter_lines() if line)
        count, total = count + found.lines, total + found.digest
    return Content(count, total)


def write(path: Path, count: int, bad_at: int | None) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number, line in enumerate(lines(count), 1):
            if number == bad_at:
                file.write(f"{BAD_LINE}\n")
            file.write(f"{line}\n")


class Load:
    """The command, which a test may kill."""

    def __init__(self, cluster: ProcessCluster, path: Path, *more: str) -> None:
        self._words = [
            "pipeline", "load", str(path), "-c", str(cluster.path), "--rejects", str(cluster.folder / "rejects"), *SMALL, *more,
        ]  # fmt: skip

    def finish(self, *, is_worker_killed_when: Callable[[], bool] | None = None) -> dict[str, Any]:
        """Run to the end in this process, whatever a Python worker of Spark dies of meanwhile. Its report."""
        with ThreadPoolExecutor(1) as beside:
            is_over = threading.Event()
            killing = None
            if is_worker_killed_when is not None:
                killing = beside.submit(kill_a_python_worker, is_worker_killed_when, is_over)
            try:
                code, report = answer(*self._words)
            finally:
                is_over.set()
            assert code == 0, report
            assert killing is None or killing.result(), "no Python worker was there when it should be killed"
        return cast("dict[str, Any]", report)

    def kill_when(self, is_time: Callable[[], bool], *, with_spark: bool) -> None:
        """Kill a process of it at a moment: with all that it has started, or only the program."""
        process = subprocess.Popen(
            [*BROKERHA, *self._words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        deadline = time.monotonic() + DEADLINE_S
        while not is_time():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "the load does not get there"
            time.sleep(0.02)
        if with_spark:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.communicate(timeout=DEADLINE_S)


def kill_a_python_worker(is_time: Callable[[], bool], is_over: threading.Event) -> bool:
    """At a moment kill one of the processes that a daemon of the Spark of this process has forked for tasks; whether there was one."""
    while not is_time():
        if is_over.wait(0.02):
            return False
    while not is_over.wait(0.02):
        parents, daemons = processes()
        for pid in daemons:
            if parents[pid] in daemons and os.getpid() in above(pid, parents):
                os.kill(pid, signal.SIGKILL)
                return True
    return False


def processes() -> tuple[dict[int, int], set[int]]:
    """The parent of each process, and those that are daemons of Spark for Python workers, or were forked by one."""
    parents: dict[int, int] = {}
    daemons = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            parents[pid := int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"worker_daemon" in (folder / "cmdline").read_bytes():
                daemons.add(pid)
    return parents, daemons


def above(pid: int, parents: dict[int, int]) -> Iterator[int]:
    """The processes that a process comes from."""
    while (pid := parents.get(pid, 0)) > 0:
        yield pid


def transactions_of(db: Any, key: str) -> Counter[str]:
    """How often each transaction of the load is in the log."""
    found: Counter[str] = Counter()
    first = 1
    while rows := db.log(first, first + 9_999):
        found.update(row["txid"] for row in rows if row["txid"].startswith(f"{key}."))
        first = rows[-1]["lsn"] + 1
    return found


def applied(db: Any) -> int:
    """Highest LSN that any node has applied."""
    return max(row["applied_lsn"] or 0 for row in db.status(timeout=60)["nodes"])


def load_and_kill(cluster: ProcessCluster, path: Path, count: int, bad_at: int, kills: int) -> dict[str, Any]:
    """Kill the load at equal distances, a node with every second, then let it end; check everything. The last report.

    The first time only the program dies, and what Spark does of it by itself may write on meanwhile.
    """
    load = Load(cluster, path, "--max-rejects", "1", "--split-mib", "1" if count < 500_000 else "8")
    with brokerha.connect(cluster.url("m1")) as db:
        begin = applied(db)

        def moment(number: int) -> Callable[[], bool]:
            return lambda: applied(db) >= begin + count // ROWS_LIMIT * number // (kills + 2)

        for number in range(1, kills + 1):
            load.kill_when(moment(number), with_spark=number % 2 == 0)
            if number % 2 == 1:
                cluster.kill("m2")
        report = load.finish(is_worker_killed_when=moment(kills + 1))
        found = transactions_of(db, report["id"])
        assert set(found.values()) == {1}, found.most_common(3)
        # All of it was there before when what Spark did of it by itself came to the end.
        assert len(found) == report["transactions"] >= report["transactions_before"] > 0
        assert (report["complete"], report["items"], report["rejects"]) == (True, count, 1)
        [file] = Path(report["rejects_folder"]).iterdir()
        [reject] = [json.loads(line) for line in file.read_text().splitlines()]
        assert (reject["source"], reject["text"]) == (f"file:{path}", BAD_LINE)
        begin = int(reject["part"].rpartition(".")[2])
        before = path.read_bytes()[:begin].count(b"\n")
        # The line that a block begins in belongs to the block before.
        assert reject["row"] + before + (begin > 0) == bad_at
        prefix = prefix_of(report["id"], f"file:{path}")
        wanted_content = content_of(line.replace("_:b", f"_:{prefix}b").removesuffix(" .") + " ." for line in lines(count))
        assert loaded(cluster, "m1") == wanted_content
        assert wanted_content.lines == count
        again = load.finish()
        assert (again["transactions_before"], again["items"]) == (report["transactions"], count)
        assert transactions_of(db, report["id"]) == found
    return report


@pytest.mark.campaign
@pytest.mark.parametrize(("count", "kills"), [(40_000, 1), (1_000_000, 2)])
def test_a_load_that_is_killed_and_started_again_is_equal_and_nothing_is_twice(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None], count: int, kills: int
) -> None:
    bad_at = count * 2 // 3 + 1
    path = tmp_path / "things.nt"
    write(path, count, bad_at)
    with ProcessCluster(tmp_path, vhost_url, masters=2, workers_each=1) as cluster, one_session():
        report = load_and_kill(cluster, path, count, bad_at, kills)
    covered(
        f"pipeline load: {count:,} statements, the program killed {kills}x, a master and a Python worker once: "
        f"{report['transactions']:,} transactions, none twice, equal to the file"
    )


@pytest.mark.slow
@pytest.mark.campaign
def test_a_million_statements_beside_the_plain_load_and_the_bare_store(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    count = 1_000_000
    path = tmp_path / "things.nt"
    write(path, count, None)
    took: dict[str, float] = {}
    with ProcessCluster(tmp_path, vhost_url, masters=1, workers_each=1) as cluster, brokerha.connect(cluster.url("m1")) as db:
        for repository in ("plain", "spark"):
            db.create_repository(repository)
        began = time.monotonic()
        Load(cluster, path, "--repository", "spark", "--split-mib", "8").finish()
        took["brokerha pipeline load, with the start of Spark"] = time.monotonic() - began
        began = time.monotonic()
        command = [*BROKERHA, "load", str(path), "--repository", "plain", "-c", str(cluster.path)]
        subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S * 2)
        took["brokerha load"] = time.monotonic() - began
        assert db.size("plain", timeout=60) == db.size("spark", timeout=60) == count
        began = time.monotonic()
        store = pyoxigraph.Store(str(tmp_path / "bare"))
        store.bulk_load(path=str(path), format=pyoxigraph.RdfFormat.N_TRIPLES)
        store.flush()
        took["bulk load of the bare store"] = time.monotonic() - began
        assert len(store) == count
        covered(
            f"load of {count:,} statements: "
            + "; ".join(f"{what} {seconds:.1f} s, {count / seconds:,.0f}/s" for what, seconds in took.items())
        )
