"""Reads of clients that know nothing of LSNs show what was written through the same door."""

from __future__ import annotations

from brokerha.http import HttpLimits
from tests.unit.http.asking import TURTLE, UPDATE, Node

REPO = "/repositories/main"


def least(node: Node) -> list[int]:
    """The least LSN of each read so far."""
    return [lsn for _, _, _, lsn, _ in node.front.reads]


def test_a_read_waits_for_what_was_written_here(node: Node) -> None:
    node.get(f"{REPO}/size")
    node.ask("POST", f"{REPO}/statements", "<urn:a> <urn:b> <urn:c> .", TURTLE)
    node.ask("POST", f"{REPO}/statements", "DELETE WHERE { ?s ?p ?o }", UPDATE)
    for path in ("size", "statements", "contexts", "namespaces", "sparql?query=ASK%7B%7D", "rdf-graphs/service?default"):
        node.get(f"{REPO}/{path}")
    assert least(node) == [0, 2, 2, 2, 2, 2, 2]


def test_a_transaction_begins_on_a_repository_that_was_just_made(node: Node) -> None:
    node.ask("PUT", "/repositories/new")
    assert node.ask("POST", "/repositories/new/transactions").status == 201
    assert least(node) == [1]


def test_who_says_what_is_enough_gets_just_that(node: Node) -> None:
    node.ask("POST", f"{REPO}/statements", "<urn:a> <urn:b> <urn:c> .", TURTLE)
    node.get(f"{REPO}/size", Brokerha_Min_Lsn="0")
    assert least(node) == [0]


def test_what_was_not_applied_yet_is_not_waited_for(node: Node) -> None:
    node.ask("POST", f"{REPO}/statements", "<urn:a> <urn:b> <urn:c> .", TURTLE, Brokerha_Ack="synchronised")
    node.get(f"{REPO}/size")
    assert least(node) == [0]


def test_after_a_while_it_does_not_count_any_more() -> None:
    node = Node(limits=HttpLimits(own_writes_s=-1.0))
    node.ask("POST", f"{REPO}/statements", "<urn:a> <urn:b> <urn:c> .", TURTLE)
    node.get(f"{REPO}/size")
    assert least(node) == [0]


def test_keys_and_queues_are_read_so_too(node: Node) -> None:
    node.ask("PUT", "/kv/t/k", b"1")
    node.get("/kv/t/k")
    node.get("/kv/t")
    node.ask("POST", "/queues/q", b"message")
    node.get("/queues/q")
    assert least(node) == [1, 1, 2]
