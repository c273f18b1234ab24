"""A whole cluster in a program: from the path of a cluster file, and while nothing of it runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from brokerha.client import Client
from brokerha.embedded import EmbeddedCluster, FrontWire
from brokerha.model import errors
from brokerha.model.requests import REFUSED, UNKNOWN, Reply
from tests.support.waiting import until

FILE = """\
[cluster]
name = "orders"
broker = "embedded://by-path"

[[master]]
id = "m1"

[[worker]]
id = "w1"
master = "m1"
"""


@pytest.mark.parametrize("form", [str, Path])
def test_it_is_opened_by_the_path_of_its_file(tmp_path: Path, form: type) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)

    with EmbeddedCluster(form(path)) as cluster:
        db = cluster.client()
        db.put("prices", "sku-1", b"9.90")
        assert db.get("prices", "sku-1", min_lsn="latest") == b"9.90"


@pytest.mark.parametrize("call", ["consume", "accept"])
def test_closing_a_client_ends_whoever_waits_for_a_message(tmp_path: Path, call: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)
    with EmbeddedCluster(path) as cluster, ThreadPoolExecutor(1) as pool:
        db = cluster.client()
        db.put("prices", "sku-1", b"9.90")
        waiting = pool.submit(lambda: next(db.consume("jobs")) if call == "consume" else db.accept("jobs", wait=600))
        until(lambda: bool(db.transactions))
        db.close()
        with pytest.raises(errors.Closed):
            waiting.result(60)
        with pytest.raises(errors.Closed):
            db.put("prices", "sku-1", b"9.90")
        with pytest.raises(errors.Closed):
            db.get("prices", "sku-1")
        assert cluster.client().get("prices", "sku-1") == b"9.90"


def test_a_master_that_could_not_begin_says_why(tmp_path: Path) -> None:
    """It finds out after its start that its virtual host belongs to another cluster."""
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)
    with EmbeddedCluster(path) as cluster:
        db, loop = cluster.client(), cluster.masters["m1"].loop
        assert loop.stop(30)
        loop.fault = errors.ConfigurationError("the virtual host belongs to another cluster")
        with pytest.raises(errors.NotReady, match="not running: the virtual host belongs to another cluster"):
            db.put("prices", "sku-1", b"9.90")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"cluster\.toml"):
        EmbeddedCluster(tmp_path / "cluster.toml")


def test_a_write_that_no_master_ever_had_is_not_unknown(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)

    with pytest.raises(errors.NotReady, match="none of m1 is running"):
        EmbeddedCluster(path).client().put("prices", "sku-1", b"9.90", timeout=0.2)


class Masters:
    """A cluster whose masters give these answers, one after the other."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)

    def fronts(self, master_ids: Sequence[str]) -> Iterator[Masters]:
        yield self

    def submit(self, *_: object) -> Future[Reply]:
        answer: Future[Reply] = Future()
        answer.set_result(self._replies.pop(0) if len(self._replies) > 1 else self._replies[0])
        return answer


LOST = Reply(0, "key", UNKNOWN, 0, "OutcomeUnknown", "the node ends", is_parting=True)
READ_ONLY = Reply(0, "key", REFUSED, 0, "ReadOnly", "the disk is full")
WRONG = Reply(0, "key", REFUSED, 0, "KeyReused", "key belongs to other operations")


@pytest.mark.parametrize(
    ("replies", "error"),
    [((LOST, READ_ONLY), errors.OutcomeUnknown), ((LOST, WRONG), errors.KeyReused), ((READ_ONLY, LOST), errors.ReadOnly)],
)
def test_a_write_that_a_master_may_have_taken_is_not_refused_by_the_next(
    replies: tuple[Reply, ...], error: type[Exception]
) -> None:
    db = Client(FrontWire(Masters(*replies), ("m1", "m2")))  # type: ignore[arg-type]
    with pytest.raises(error):
        db.put("prices", "sku-1", b"9.90", timeout=0.3, key="key")


def test_what_a_master_may_have_taken_is_asked_of_the_next_until_that_knows() -> None:
    masters = Masters(LOST, READ_ONLY, Reply(0, "key", "applied", 7))
    db = Client(FrontWire(masters, ("m1", "m2")))  # type: ignore[arg-type]

    assert db.put("prices", "sku-1", b"9.90", timeout=5, key="key").lsn == 7


def test_what_a_master_may_have_taken_is_unknown_once_the_client_is_closed() -> None:
    wire = FrontWire(Masters(LOST), ("m1",))  # type: ignore[arg-type]
    written = wire.submit([("key", b"")], "applied", 1, 60_000)[0]
    wire.close()
    assert written.result(50) == LOST


def test_what_nodes_say_does_not_land_in_the_output_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('[cluster]\nname = "x"\nbroker = "embedded://x"\n[[master]]\nid = "m1"\n')
    program = "import structlog; from brokerha.embedded import EmbeddedCluster; EmbeddedCluster('cluster.toml'); structlog.get_logger().info('role')"
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (ran.stdout, "role" in ran.stderr) == ("", True)
