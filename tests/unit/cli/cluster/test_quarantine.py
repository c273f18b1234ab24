"""`brokerha quarantine`: what it refuses before it asks anybody, and how a message is shown."""

from __future__ import annotations

import msgpack
import pytest

from brokerha.cli.cluster.quarantine import SHOWN_BYTES, body_of, row_of
from brokerha.transports.tools.quarantine import Quarantined


def message(body: bytes, content_type: str = "text/plain", exchange: str = "brokerha.writes", key: str = "any") -> Quarantined:
    return Quarantined("0a1b", "m1", "wrong", exchange, key, 1_700_000_000_000, body, {"content_type": content_type}, 1)


@pytest.mark.parametrize("command", ["retry", "drop"])
@pytest.mark.parametrize("given", [(), ("0a1b", "--all")])
def test_which_messages_has_to_be_said_in_one_way(run, command, given):
    ran = run("quarantine", command, *given)
    assert ran.code == 64
    assert "which messages? write their IDs, or --all" in ran.err


def test_all_are_not_dropped_without_a_second_word(run):
    ran = run("quarantine", "drop", "--all")
    assert ran.code == 64
    assert "write --yes" in ran.err


def test_a_cluster_without_a_broker_has_none(run, tmp_path):
    (tmp_path / "cluster.toml").write_text('[cluster]\nname = "a"\nbroker = "embedded://a"\n[[master]]\nid = "m1"\n')
    ran = run("quarantine", "list")
    assert ran.code == 78
    assert "an embedded cluster has no broker" in ran.err


def test_a_broker_that_is_not_there_is_exit_code_3(run, monkeypatch):
    monkeypatch.setenv("BROKERHA_BROKER_URL", "amqp://guest:guest@127.0.0.1:1/orders")
    ran = run("quarantine", "list")
    assert ran.code == 3
    assert "nothing listens at 127.0.0.1:1" in ran.err
    assert "guest:guest" not in ran.err
    assert ran.err.endswith("; start the broker, or correct its address\n")


@pytest.mark.parametrize(
    ("body", "content_type", "shown"),
    [
        ("größer".encode(), "text/plain", "größer"),
        (b"\xff\x00", "application/octet-stream", "ff00"),
        (msgpack.packb([["put", "t", b"k", b"1"]]), "application/x-msgpack", "[['put', 't', b'k', b'1']]"),
        (b"\xc1", "application/x-msgpack", "c1"),
        (b"a" * (SHOWN_BYTES + 1000), "text/plain", "a" * SHOWN_BYTES + " … 1,000 bytes more"),
    ],
)
def test_a_body_is_shown_as_far_as_it_can_be_read(body, content_type, shown):
    assert body_of(message(body, content_type)) == shown


def test_only_what_apps_published_can_be_tried_again():
    assert row_of(message(b""))["can_be_retried"]
    assert not row_of(message(b"", exchange="brokerha.sync"))["can_be_retried"]
    # Through the default exchange, by the name of a queue:
    for queue in ("brokerha.writes.any", "brokerha.reads.any", "brokerha.m1.writes", "brokerha.m1.reads"):
        assert row_of(message(b"", exchange="", key=queue))["can_be_retried"]
    for queue in ("brokerha.m1.sync", "brokerha.tx.m1.7.writes", "writes", ""):
        assert not row_of(message(b"", exchange="", key=queue))["can_be_retried"]
    assert row_of(message(b""))["seen"] == "2023-11-14T22:13:20+00:00"
