"""A failed check of the control suite shows a user nothing of a store that this user cannot read."""

from __future__ import annotations

import json

import pytest

from brokerha.model.operations import Operation, pack_operations
from brokerha.model.wire.client_wire import WRITES_TYPE, encode_writes
from tests.unit.http.asking import JSON, UPDATE, Asked
from tests.unit.http.guard.graph_rights import Door

BREAK = "INSERT DATA { GRAPH <urn:w> { <urn:n> <urn:p> 1 } }"
NAMED = "check 'owner' failed: this user cannot read what it found"


@pytest.fixture
def guarded(door: Door) -> Door:
    """Have a check whose rows come from a graph that ann cannot read, and a check of a table that she cannot read."""
    text = "SELECT ?o { GRAPH <urn:b> { <urn:x> <urn:p> ?x } BIND(IF(EXISTS { GRAPH <urn:w> { <urn:n> ?q ?r } }, ?x, 'ok') AS ?o) }"
    check = {"kind": "select", "target": "books", "text": text, "expected": [['"ok"']]}
    assert door.by("admin", "PUT", "/cluster/control/owner", json.dumps(check), JSON).status == 204
    check = {"kind": "key", "target": "t of table 't'", "text": "k", "expected": "absent"}
    assert door.by("admin", "PUT", "/cluster/control/vault", json.dumps(check), JSON).status == 204
    return door


def ways(door: Door, user: str) -> dict[str, Asked]:
    """The answers to the same write by each kind of path, and to the question what came of it."""
    operation: Operation = ("update", "books", BREAK)
    txid = f"{user}-{door.front.new_txid()}"
    batch = encode_writes([(txid, pack_operations([operation]))])
    step = door.by(user, "POST", "/tx").headers["location"]
    assert door.by(user, "POST", f"{step}/operations", json.dumps([operation]), JSON).status == 200
    return {
        "update": door.by(user, "POST", "/repositories/books/sparql", BREAK, UPDATE),
        "tx": door.by(user, "POST", "/tx", json.dumps([operation]), {**JSON, "Accept": "application/json"}),
        "batch": door.by(user, "POST", "/tx/batch", batch, {"Content-Type": WRITES_TYPE}),
        "outcome": door.by(user, "GET", f"/tx/{txid}"),
        "commit": door.by(user, "POST", f"{step}/commit"),
    }


def test_a_user_with_rights_in_single_graphs_hears_which_check_failed_and_not_what_it_found(guarded: Door) -> None:
    for name, asked in ways(guarded, "ann").items():
        assert NAMED.encode() in asked.body, (name, asked.text)
        assert b"SECRET" not in asked.body, name
    for name, asked in ways(guarded, "admin").items():
        assert b"SECRET x" in asked.body, name


def test_the_outcome_of_a_write_of_somebody_else_shows_no_value_of_a_table_that_one_cannot_read(guarded: Door) -> None:
    asked = guarded.by(
        "admin", "POST", "/tx", json.dumps([["put", "t of table 't'", "k", "SECRET"]]), {**JSON, "Idempotency-Key": "v"}
    )
    assert (asked.status, "found SECRET" in asked.text) == (409, True)
    assert "SECRET" in guarded.by("bob", "GET", "/tx/v").text
    asked = guarded.by("ann", "GET", "/tx/v")
    assert ("check 'vault' failed" in asked.text, "SECRET" in asked.text) == (True, False)
