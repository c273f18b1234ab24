"""The private broker keeps what tests rely on: confirmed messages survive a kill, ports stay, nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pika
import pika.exceptions
import pytest

from tests.support.broker_source import BrokerSource
from tests.support.owned_processes import OWNER_FILE, members, reap_left_behind
from tests.support.private_broker import PrivateBroker


def _channel(url: str):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    return connection, channel


def _kept(url: str) -> bytes | None:
    """The message in the queue; a node that has just started says for a moment that the queue's home is down."""
    deadline = time.monotonic() + 20
    while True:
        connection, channel = _channel(url)
        try:
            body: bytes | None = channel.basic_get("kept", auto_ack=True)[2]
        except pika.exceptions.ChannelClosedByBroker:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return body
        finally:
            connection.close()


@pytest.mark.broker
def test_confirmed_messages_and_ports_survive_a_kill(private_broker: PrivateBroker):
    # Given a confirmed persistent message in a durable queue that the node has had since before its last start: one that
    # was declared a moment before the kill was gone once, as the node's own tables are not synced with each answer
    url = private_broker.create_vhost("survives a kill/1")
    connection, channel = _channel(url)
    channel.queue_declare("kept", durable=True)
    connection.close()
    private_broker.restart()
    connection, channel = _channel(url)
    channel.basic_publish("", "kept", b"x", pika.BasicProperties(delivery_mode=2), mandatory=True)
    # When the node is killed, which its client notices, and started again
    private_broker.kill()
    assert not private_broker.is_running
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(time_limit=5)
    private_broker.restart()
    # Then the same URL leads to the same message
    assert _kept(url) == b"x"
    private_broker.delete_vhost("survives a kill/1")


@pytest.mark.broker
def test_queues_are_purged_and_deleted_and_connections_closed_on_request(private_broker: PrivateBroker):
    # Given two queues with a message each
    url = private_broker.create_vhost("cleared")
    connection, channel = _channel(url)
    for name, kind in (("one", "classic"), ("two", "quorum")):
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind})
        channel.basic_publish("", name, b"x", mandatory=True)
    # When all are purged they are empty, and when all are deleted they are gone
    assert sorted(private_broker.purge_queues("cleared")) == ["one", "two"]
    assert [channel.basic_get(name)[0] for name in ("one", "two")] == [None, None]
    assert sorted(private_broker.delete_queues("cleared")) == ["one", "two"]
    with private_broker.management() as management:
        assert management.queues("cleared") == []
    # And when all connections are closed, the client is told so
    assert private_broker.close_all_connections() >= 1
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.process_data_events(time_limit=5)
    private_broker.delete_vhost("cleared")


def test_each_test_gets_a_virtual_host_of_its_own(vhost_url: str, broker: BrokerSource):
    connection, channel = _channel(vhost_url)
    channel.queue_declare("mine")
    connection.close()
    assert vhost_url != broker.amqp_url


@pytest.mark.broker
@pytest.mark.slow
def test_stop_leaves_neither_processes_nor_folder(private_broker: PrivateBroker):
    with PrivateBroker() as node:
        folder = node.folder
        assert len(members(folder)) >= 3
    assert members(folder) == []
    assert not folder.exists()
    assert private_broker.is_running


def test_what_a_killed_test_run_left_behind_is_found_and_ended(tmp_path, monkeypatch):
    # Given a folder whose owner is dead, with a process of its HOME, and one whose owner is this run
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    orphaned, owned = tmp_path / "brokerha-broker-orphaned", tmp_path / "brokerha-broker-owned"
    processes = []
    for folder in (orphaned, owned):
        folder.mkdir()
        environment = os.environ | {"HOME": str(folder / "home")}
        processes.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment))
    (orphaned / OWNER_FILE).write_text("1 0\n")
    started_at = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    (owned / OWNER_FILE).write_text(f"{os.getpid()} {started_at}\n")
    left, kept = processes
    try:
        # When somebody starts anew
        reaped = _reap_while_collecting(left)
        # Then the first is gone and the second untouched
        assert reaped == [orphaned]
        assert left.returncode == -9
        assert not orphaned.exists()
        assert kept.poll() is None
        assert members(owned) == [kept.pid]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _reap_while_collecting(child: subprocess.Popen[bytes]):
    """An orphan has init to collect it; ours is our child, so somebody must wait for it meanwhile."""
    collector = threading.Thread(target=child.wait)
    collector.start()
    reaped = reap_left_behind()
    collector.join(timeout=10)
    return reaped
