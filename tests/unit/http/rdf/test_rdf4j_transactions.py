"""RDF4J transactions: its actions, its status codes, its words, on the machinery of all transactions."""

from __future__ import annotations

import pytest

from brokerha.model.errors import Aborted
from tests.unit.http.asking import FORM, NQUADS, QUERY, TURTLE, UPDATE, Node

TRANSACTIONS = "/repositories/main/transactions"
WILD = "<http://www.openrdf.org/schema/sesame#wildcard>"


def begun(node: Node, settings: str = "") -> str:
    answer = node.ask("POST", TRANSACTIONS + settings)
    assert answer.status == 201, answer.text
    address = answer.headers["location"]
    assert address.startswith("http://node/repositories/main/transactions/")
    return address.removeprefix("http://node")


def act(node: Node, tx: str, action: str, body: bytes | str = b"", headers: dict[str, str] | None = None, more: str = "") -> str:
    answer = node.ask("PUT", f"{tx}?action={action}{more}", body, headers)
    assert answer.status == 200, answer.text
    return answer.text


def test_what_is_added_is_seen_inside_and_outside_only_after_the_commit(node: Node) -> None:
    tx = begun(node)
    act(node, tx, "ADD", "<urn:a> <urn:b> <urn:c> .", TURTLE)
    act(node, tx, "ADD", "<urn:a> <urn:b> <urn:d> .", TURTLE, "&context=%3Curn:g%3E")
    act(node, tx, "UPDATE", "INSERT DATA { <urn:a> <urn:b> 1 }", UPDATE)
    act(node, tx, "UPDATE", "update=INSERT+DATA+%7B+%3Curn:a%3E+%3Curn:b%3E+2+%7D", FORM)

    assert act(node, tx, "SIZE").strip() == "4"
    assert act(node, tx, "SIZE", more="&context=%3Curn:g%3E").strip() == "1"
    assert "true" in act(node, tx, "QUERY", "ASK { <urn:a> <urn:b> 1 }", QUERY)
    assert "true" in act(node, tx, "QUERY", "query=ASK+%7B+%3Curn:a%3E+%3Curn:b%3E+2+%7D", FORM)
    assert "true" in act(node, tx, "QUERY", more="&query=ASK%7B%3Curn:a%3E+%3Curn:b%3E+2%7D")
    assert "<urn:d>" in act(node, tx, "GET", headers={"Accept": "application/n-quads"}, more="&context=%3Curn:g%3E")
    assert node.get("/repositories/main/size").text.strip() == "0"

    assert act(node, tx, "COMMIT") == ""
    assert node.get("/repositories/main/size").text.strip() == "4"
    assert len(node.front.results) == 1


def test_statements_are_removed_and_the_wild_card_stands_for_any_term(node: Node) -> None:
    lines = "".join(f"<urn:a> <urn:b> <urn:{name}> .\n" for name in "xyz") + "<urn:c> <urn:b> <urn:x> .\n"
    node.ask("POST", "/repositories/main/statements", lines, NQUADS)
    tx = begun(node)

    act(node, tx, "DELETE", "<urn:c> <urn:b> <urn:x> .", NQUADS)
    act(node, tx, "DELETE", "<urn:nothing> <urn:b> <urn:x> .", NQUADS)
    assert act(node, tx, "SIZE").strip() == "3"
    act(node, tx, "DELETE", f"<urn:a> {WILD} {WILD} .\n", NQUADS)

    assert act(node, tx, "SIZE").strip() == "0"


def test_two_bodies_of_one_transaction_do_not_share_blank_nodes(node: Node) -> None:
    tx = begun(node)
    for _ in range(2):
        act(node, tx, "ADD", "_:x <urn:b> <urn:c> .", TURTLE)

    assert act(node, tx, "SIZE").strip() == "2"


@pytest.mark.parametrize(("method", "suffix"), [("DELETE", ""), ("PUT", "?action=ROLLBACK"), ("POST", "/rollback")])
def test_a_rollback_is_204_and_leaves_nothing(node: Node, method, suffix) -> None:
    tx = begun(node)
    act(node, tx, "ADD", "<urn:a> <urn:b> <urn:c> .", TURTLE)

    assert node.ask(method, tx + suffix).status == 204
    assert not node.front.results
    assert node.ask("PUT", f"{tx}?action=PING").status == 404


def test_the_action_may_stand_in_the_path(node: Node) -> None:
    tx = begun(node)

    assert node.ask("PUT", f"{tx}/add", "<urn:a> <urn:b> <urn:c> .", TURTLE).status == 200
    assert node.get(f"{tx}/size").text.strip() == "1"
    assert node.ask("POST", f"{tx}/commit").status == 200
    assert len(node.front.repositories["main"]) == 1


def test_a_ping_tells_the_idle_time_and_prepare_that_it_is_open(node: Node) -> None:
    tx = begun(node)

    assert act(node, tx, "PING").strip() == "60000"
    assert act(node, tx, "PREPARE") == ""
    assert node.front.transactions.open


def test_after_a_failed_commit_the_rollback_of_a_client_still_succeeds(node: Node, monkeypatch) -> None:
    tx = begun(node)
    transactions = node.front.transactions

    def fails(front, txid, open_tx, arguments):
        transactions._end(txid, "aborted", 0, "check 'x' failed")
        raise Aborted("check 'x' failed")

    monkeypatch.setattr(transactions, "_commit", fails)

    assert node.ask("PUT", f"{tx}?action=COMMIT").status == 409
    assert node.ask("DELETE", tx).status == 204
    assert node.ask("DELETE", f"{TRANSACTIONS}/never").status == 404


@pytest.mark.parametrize(
    "settings",
    [
        "?isolation-level=http://www.openrdf.org/schema/sesame%23SNAPSHOT_READ",
        "?isolation-level=READ_COMMITTED",
        "?transaction-setting__org.eclipse.rdf4j.common.transaction.IsolationLevel=NONE",
        "?isolation-level=http://www.openrdf.org/schema/sesame%23SERIALIZABLE",
        "?transaction-setting__org.eclipse.rdf4j.common.transaction.IsolationLevel=SNAPSHOT",
    ],
)
def test_levels_of_isolation_are_taken(node: Node, settings) -> None:
    begun(node, settings)
    assert node.ask("POST", TRANSACTIONS, settings[1:], FORM).status == 201
    assert node.ask("POST", TRANSACTIONS + settings, settings[1:], FORM).status == 201


@pytest.mark.parametrize(
    ("form", "status", "text"),
    [
        ("transaction-setting__org.eclipse.rdf4j.common.transaction.IsolationLevel=CHAOS", 400, "'CHAOS' is not known"),
        ("isolation-level=DIRTY", 400, "SNAPSHOT, SERIALIZABLE are"),
        ("transaction-setting__colour=red", 400, "'colour' is not known"),
        ("transaction-setting__NoIsolationLevel=NONE", 400, "'NoIsolationLevel' is not known"),
        ("isolation-level=NONE&isolation-level=NONE", 400, "2 times"),
        ("isolationlevel=SERIALIZABLE", 400, "no parameter 'isolationlevel'"),
    ],
)
def test_settings_in_a_form_are_judged_as_in_the_url(node: Node, form: str, status: int, text: str) -> None:
    for answer in (node.ask("POST", TRANSACTIONS, form, FORM), node.ask("POST", f"{TRANSACTIONS}?{form}")):
        assert answer.status == status, answer.text
        assert text in answer.text
    assert not node.front.transactions.open


def test_one_level_in_the_url_and_another_in_the_form_is_refused(node: Node) -> None:
    assert node.ask("POST", f"{TRANSACTIONS}?isolation-level=NONE", "isolation-level=READ_COMMITTED", FORM).status == 400
    assert node.ask("POST", TRANSACTIONS, "isolation-level=SERIALIZABLE", {"Content-Type": "text/plain"}).status == 415


def test_what_stands_beside_a_form_in_the_url_counts_too(node: Node) -> None:
    tx = begun(node)
    node.ask("PUT", f"{tx}?action=UPDATE&insert-graph-uri=urn:g", "update=INSERT+DATA+%7B+%3Curn:a%3E+%3Curn:b%3E+1+%7D", FORM)

    assert act(node, tx, "SIZE", more="&context=%3Curn:g%3E").strip() == "1"
    assert "false" in act(node, tx, "QUERY", "%24x=%3Curn:z%3E", FORM, more="&query=ASK%7BGRAPH+%3Fg+%7B%3Fx+%3Fp+%3Fo%7D%7D")


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        (f"{TRANSACTIONS}?isolation-level=http://www.openrdf.org/schema/sesame%23CHAOS", 400, "SERIALIZABLE are"),
        (f"{TRANSACTIONS}?transaction-setting__org.eclipse.rdf4j.common.transaction.IsolationLevel=", 400, "is not known"),
        (f"{TRANSACTIONS}?transaction-setting__colour=red", 400, "'colour' is not known"),
        ("/repositories/nowhere/transactions", 404, "does not exist"),
        (f"{TRANSACTIONS}/t?action=DANCE", 400, "no action 'DANCE'"),
        (f"{TRANSACTIONS}/t", 400, "no action ''"),
        (f"{TRANSACTIONS}/t?action=ADD", 415, "send one of"),
        (f"{TRANSACTIONS}/t?action=UPDATE", 415, "application/sparql-update"),
        (f"{TRANSACTIONS}/t?action=COMMIT", 404, "t is not open"),
    ],
)
def test_what_is_not_held_or_not_there_is_refused_clearly(node: Node, target, status, text) -> None:
    answer = node.ask("POST", target)

    assert answer.status == status, answer.text
    assert text in answer.text
    assert not node.front.transactions.open


def test_an_update_may_stand_in_the_url(node: Node) -> None:
    address = node.ask("POST", "/repositories/main/transactions").headers["location"].removeprefix("http://node")
    update = "update=INSERT+DATA+%7B+%3Curn:a%3E+%3Curn:b%3E+1+%7D"
    assert node.ask("PUT", f"{address}?action=UPDATE&{update}").status == 200
    assert node.ask("PUT", f"{address}?action=UPDATE&{update}", "x", {"Content-Type": "image/png"}).status == 415
    assert node.ask("PUT", f"{address}?action=UPDATE").status == 415
    assert node.ask("PUT", f"{address}?action=COMMIT").status == 200
    assert node.get("/repositories/main/size").text == "1"
