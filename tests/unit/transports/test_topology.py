"""The names and arguments in the broker: a contract with everybody who writes to them or looks at them."""

from __future__ import annotations

import pytest

from brokerha.model.operations import BODY_LIMIT_BYTES
from brokerha.model.wire.tx_queues import tx_queue_name
from brokerha.transports import topology
from brokerha.transports.topology import topology_of


def test_a_master_reads_its_inboxes_and_the_messages_of_apps():
    rows = topology_of("m1", "master").queues_to_consume()
    assert [(row.exchange, row.key, row.name) for row in rows] == [
        ("brokerha.sync", "m1", "brokerha.m1.sync"),
        ("brokerha.data", "m1", "brokerha.m1.data"),
        ("brokerha.writes", "any", "brokerha.writes.any"),
        ("brokerha.writes", "m1", "brokerha.m1.writes"),
        ("brokerha.reads", "any", "brokerha.reads.any"),
        ("brokerha.reads", "m1", "brokerha.m1.reads"),
    ]


@pytest.mark.parametrize("role", ["worker", "backup"])
def test_other_roles_read_their_inboxes_only(role: str):
    assert [row.name for row in topology_of("w1", role).queues_to_consume()] == ["brokerha.w1.sync", "brokerha.w1.data"]


def test_a_backup_declares_what_its_master_serves_and_reads_its_own_inboxes():
    backup, master = topology_of("m1b", "backup", "m1"), topology_of("m1", "master")
    assert [row.name for row in backup.inboxes()] == ["brokerha.m1b.sync", "brokerha.m1b.data"]
    assert backup.queues_of_apps() == master.queues_of_apps()


def test_queues_of_transactions_have_names_that_are_never_shared_and_never_too_long():
    assert tx_queue_name("m1", "order-4711", "m1b") == "brokerha.tx.m1.order-4711.m1b"
    parts = [("a", "b.c", "d"), ("a", "b", "d"), ("a", "b.c.d", "d")]
    assert len({tx_queue_name(*part) for part in parts}) == len(set(parts))
    longest = tx_queue_name("m" * 32, "~" * 128, "b" * 32, 9_999)
    assert len(topology.consumer_tag("b" * 32, longest).encode()) <= 255


def test_a_queue_of_a_transaction_is_bounded_refuses_when_full_and_expires():
    arguments = topology.tx_queue_row("q", 5000).arguments
    assert (arguments["x-expires"], arguments["x-overflow"], arguments["x-queue-type"]) == (5000, "reject-publish", "classic")
    assert arguments["x-max-length-bytes"] >= 2 * BODY_LIMIT_BYTES


@pytest.mark.parametrize("role", ["master", "worker"])
def test_every_node_declares_every_exchange_and_the_queue_for_rejected_messages(role: str):
    declared = topology_of("n1", role, cluster="orders")
    names = [exchange.name for exchange in declared.exchanges]
    # Whose the virtual host is comes first: who is refused for it has declared nothing.
    assert names == [f"brokerha.{each}" for each in ("cluster", "sync", "data", "writes", "reads", "rejected", "changes")]
    assert "brokerha.rejected" in {row.name for row in declared.queues}


def test_every_queue_is_bounded_and_none_has_an_argument_that_newer_brokers_refuse():
    for row in (*topology_of("m1", "master").queues, topology.log_stream_row("m1")):
        assert row.arguments["x-max-length-bytes"] > 0
        assert not row.arguments.keys() & {"x-queue-mode", "x-expires", "x-queue-master-locator"}


def test_queues_of_apps_refuse_when_they_are_full_and_inboxes_drop_their_oldest():
    overflow = {row.name: row.arguments["x-overflow"] for row in topology_of("m1", "master").queues}
    assert {name for name, what in overflow.items() if what == "reject-publish"} == {
        "brokerha.writes.any",
        "brokerha.m1.writes",
        "brokerha.reads.any",
        "brokerha.m1.reads",
    }


def test_all_masters_declare_the_shared_queues_alike():
    shared = [{row.name: row for row in topology_of(node, "master").queues if row.name.endswith(".any")} for node in ("a", "b")]
    assert shared[0] == shared[1]


def test_names_for_the_dashboard_say_who_does_what():
    assert topology.connection_name("m1", "master", "in") == "m1 master in"
    assert topology.consumer_tag("m1", topology.sync_queue("m1")) == "m1 reads brokerha.m1.sync"
