"""The programs of `producers/` and `consumers/` that users run and copy, as docs/programs.md starts them, over RabbitMQ.

Those that go on for ever run under the real supervisord, with the configuration of the page.
"""

from __future__ import annotations

import configparser
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.exceptions import ChannelClosedByBroker

import brokerha
from brokerha.embedded import EmbeddedCluster
from consumers import changes
from tests.docs.pages import ROOT, the_block
from tests.support.configs import config_of
from tests.support.waiting import until

WAIT_S = 40.0
PAGE = "docs/programs.md"
BROKER = "amqp://guest:guest@127.0.0.1:5672/orders"
PROGRAMS = (
    "brokerha.programs.producers.publisher",
    "brokerha.programs.producers.bridge",
    "brokerha.programs.producers.load_generator",
    "brokerha.programs.producers.coordinator",
    "brokerha.programs.consumers.changes",
    "brokerha.programs.consumers.queue_worker",
)
ENDLESS = ("changes", "queue-worker", "bridge")


def start(*words: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def run(*words: str, given: str = "", code: int = 0) -> str:
    with start(*words, stdin=subprocess.PIPE) as process:
        out, errors = process.communicate(given, timeout=WAIT_S)
    assert process.returncode == code, out + errors
    return out if code == 0 else out + errors


@pytest.fixture
def cluster(vhost_url: str, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    config = config_of("programs", vhost_url, tmp_path / "data", {"m1": "w1"}, publish_changes=True)
    with EmbeddedCluster(config) as running:
        running.client("m1").put("ready", b"k", b"v", timeout=WAIT_S)
        yield running


@pytest.fixture
def supervisord(vhost_url: str, tmp_path: Path) -> Iterator[Path]:
    """supervisord with the programs of the page; yields the folder of their output."""
    text = the_block(PAGE, "ini", "program:changes").replace(BROKER, vhost_url).replace("%(here)s", str(tmp_path))
    text = text.replace("directory = /srv/brokerha", f"directory = {ROOT}").replace(".venv/bin/python", sys.executable)
    (tmp_path / "programs.conf").write_text(
        f"[supervisord]\nlogfile = {tmp_path}/supervisord.log\npidfile = {tmp_path}/pid\n{text}"
    )
    with start("supervisor.supervisord", "-n", "-c", str(tmp_path / "programs.conf")) as process:
        try:
            yield tmp_path
        finally:
            process.terminate()
            process.communicate(timeout=WAIT_S)


def test_the_page_runs_every_program_and_the_endless_ones_under_supervisord():
    found = configparser.RawConfigParser()
    found.read_string(the_block(PAGE, "ini", "program:changes"))
    assert found.sections() == [f"program:{name}" for name in ENDLESS]
    told = " ".join(found[each]["command"] for each in found.sections()) + the_block(
        PAGE, "sh", "brokerha.programs.producers.publisher"
    )
    told += the_block("docs/transactions.md", "sh", "brokerha.programs.producers.coordinator")
    assert all(program in told for program in PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_explains_itself_and_says_what_is_wrong_with_an_address(program: str):
    path = ROOT / f"{program.removeprefix('brokerha.programs.').replace('.', '/')}.py"
    assert len(path.read_text().splitlines()) < (170 if program.endswith("coordinator") else 130)
    assert "usage: " in run(program, "--help")
    needed = {
        "brokerha.programs.producers.publisher": ("--broker", "nowhere"),
        "brokerha.programs.producers.bridge": ("--from", BROKER, "--queue", "q", "--into", "q", "--to", "nowhere"),
        "brokerha.programs.producers.load_generator": ("--to", "nowhere"),
        "brokerha.programs.producers.coordinator": ("--log", ":memory:", "--at", "a=nowhere"),
        "brokerha.programs.consumers.changes": ("--queue", "q", "--broker", "nowhere"),
        "brokerha.programs.consumers.queue_worker": ("--cluster", "nowhere"),
    }[program]
    told = run(program, *needed, code=2)
    assert "write " in told
    assert "Traceback" not in told


def follows(url: str) -> bool:
    """Whether somebody reads the queue of the page that takes all changes: it is bound then."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        try:
            return bool(connection.channel().queue_declare("orders.follower.all", passive=True).method.consumer_count)
        except pika.exceptions.ChannelClosedByBroker:
            return False


def test_they_do_what_the_page_says_and_end_when_told_to(
    cluster: EmbeddedCluster, vhost_url: str, supervisord: Path, covered: Callable[[str], None]
):
    # Given a follower, which gets the changes from its beginning on
    until(lambda: follows(vhost_url), "nobody follows the changes")
    # And a queue of RabbitMQ with orders of a shop, two of which have the same id, and one that nobody can work on
    with pika.BlockingConnection(pika.URLParameters(vhost_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("shop-orders", durable=True)
        for name, body in (("order-1", b"[1, 2, 3]"), ("order-1", b"[1, 2, 3]"), ("order-2", b"[40, 2]"), ("order-3", b"fish")):
            channel.basic_publish("", "shop-orders", body, pika.BasicProperties("text/plain", message_id=name, delivery_mode=2))
        never = pika.BasicProperties("text/größe", message_id="order-4", user_id=pika.URLParameters(vhost_url).credentials.username)
        channel.basic_publish("", "shop-orders", b"[7]", never)
        # When the bridge moves them, and the worker takes them
        with brokerha.connect(vhost_url) as db:
            until(lambda: len(done_of(db)) == 2 and db.queues().get("aside", {}).get("depth") == 1, "the worker is not done")
            # Then each is done once, whatever was delivered twice, and nothing is left on the way
            assert sorted(done_of(db).values()) == [b"42", b"6"]
            assert sorted(message.body for message in db.queue("outbox")) == [b"42", b"6"]
            assert db.queues()["inbox"] == {"depth": 0, "published": 3, "accepted": 3}
        assert until(lambda: not channel.queue_declare("shop-orders", passive=True).method.message_count, "messages are left")
        # What brokerha never takes is put aside, with the reason
        method, properties, body = channel.basic_get("shop-orders.aside", auto_ack=True)
        assert method is not None
        assert (properties.message_id, properties.content_type, body) == ("order-4", "text/größe", b"[7]")
        assert "content type" in properties.headers["brokerha-reason"]
    # And a publisher that is run twice writes once, and tells of what is wrong
    update = json.dumps({"id": "order-4711", "update": 'INSERT DATA { <urn:order:4711> <urn:state> "paid" }'})
    first, again = (json.loads(run("brokerha.programs.producers.publisher", "--broker", vhost_url, given=update)) for _ in range(2))
    assert (first["status"], first["lsn"]) == ("applied", again["lsn"])
    wrong = run(
        "brokerha.programs.producers.publisher",
        "--broker",
        vhost_url,
        given=json.dumps({"id": "order-4712", "update": "INSERT"}),
        code=1,
    )
    assert json.loads(wrong)["status"] == "refused"
    # And a load generator tells the rate that it was asked for
    with start("brokerha.programs.producers.load_generator", "--to", vhost_url, "--rate", "20", "--seconds", "2") as generator:
        told = json.loads(generator.communicate(timeout=WAIT_S)[0])
    assert (told["applied"], told["failed"]) == (40, {})
    # 1: the rate was not reached, which is the machine's affair.
    assert generator.returncode in {0, 1}

    # And the follower has a line for each change
    def followed() -> list[Any]:
        lines = changes_of(supervisord)
        # The load came last.
        return lines if [each["key"] for each in lines].count("table.load.put") >= 40 else []

    seen = until(followed, "the follower lacks changes")
    keys = [each["key"] for each in seen]
    assert (keys.count("table.load.put"), keys.count("queue.inbox.published"), keys.count("graph.main.changed")) == (40, 3, 1)
    assert sorted(each["change"][3] for each in seen if each["key"] == "table.done.put") == ["42", "6"]
    assert [each["lsn"] for each in seen] == sorted(each["lsn"] for each in seen)
    covered(f"programs to copy: {len(PROGRAMS)}, {len(seen)} changes followed, {len(ENDLESS)} under supervisord")


def test_those_that_go_on_for_ever_end_in_order(cluster: EmbeddedCluster, vhost_url: str):
    with pika.BlockingConnection(pika.URLParameters(vhost_url)) as connection:
        connection.channel().queue_declare("shop-orders", durable=True)

    def is_read(queue: str) -> bool:
        with pika.BlockingConnection(pika.URLParameters(vhost_url)) as connection:
            try:
                return bool(connection.channel().queue_declare(queue, passive=True).method.consumer_count)
            except ChannelClosedByBroker:  # There is no such queue yet.
                return False

    running = [
        start("brokerha.programs.consumers.changes", "--broker", vhost_url, "--queue", "f"),
        start("brokerha.programs.consumers.queue_worker", "--cluster", vhost_url),
        start(
            "brokerha.programs.producers.bridge",
            "--from",
            vhost_url,
            "--queue",
            "shop-orders",
            "--to",
            vhost_url,
            "--into",
            "inbox",
        ),
        start("brokerha.programs.producers.load_generator", "--to", vhost_url, "--rate", "50", "--seconds", "600"),
    ]
    try:
        with brokerha.connect(vhost_url) as db:
            # A program that is still being loaded is ended by SIGTERM as any process is.
            until(lambda: db.get("load", "key-10"), "the load generator has not begun")
            until(db.open_transactions, "the worker takes nothing")
        until(lambda: is_read("shop-orders"), "the bridge has not begun")
        until(lambda: is_read("f"), "the follower has not begun")
    finally:
        for process in running:
            process.terminate()
    ends = [(process.communicate(timeout=WAIT_S), process.returncode) for process in running]
    assert [code for _, code in ends] == [0] * len(running), ends
    assert json.loads(ends[-1][0][0])["applied"] > 10


def done_of(db: brokerha.Client) -> dict[bytes, bytes]:
    return dict(db.range("done"))


def changes_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "changes.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_follower_goes_on_after_the_exchange_of_changes_was_deleted(
    vhost_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parameters, stopping = pika.URLParameters(vhost_url), threading.Event()
    with pika.BlockingConnection(parameters) as connection, ThreadPoolExecutor(1) as pool:
        channel = connection.channel()
        channel.exchange_declare("brokerha.changes", "topic", durable=True)
        follower = pool.submit(changes.follow, parameters, "follower", ["#"], stopping)

        def told() -> str:
            channel.basic_publish(
                "brokerha.changes", "table.prices.put", b"", pika.BasicProperties(headers={"lsn": 7, "txid": "t"})
            )
            connection.sleep(0.1)
            return capsys.readouterr().out

        until(told, "the follower tells nothing")
        # When somebody deletes the exchange, and a node declares it anew
        channel.exchange_delete("brokerha.changes")
        channel.exchange_declare("brokerha.changes", "topic", durable=True)
        connection.sleep(1)
        capsys.readouterr()
        monkeypatch.setattr(changes, "BOUND_FOR_S", 0.1)
        # Then the follower brings the changes that come afterwards
        line = until(told, "the follower tells nothing any more").splitlines()[0]
        assert json.loads(line) == {"lsn": 7, "txid": "t", "key": "table.prices.put", "change": None}
        stopping.set()
        follower.result(WAIT_S)
