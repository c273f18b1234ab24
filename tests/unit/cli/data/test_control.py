"""`brokerha control`: what reaches the client, what is written about its answer, and the exit codes."""

from __future__ import annotations

import io
import json
import sys

import pytest

from brokerha.model.errors import InvalidRequest, Rejected
from tests.unit.cli.data.test_data import URL, Written

CHECKS = [
    {"name": "empty", "kind": "ask", "target": "main", "text": "ASK { ?s ?p ?o }", "expected": "false"},
    {"name": "stock", "kind": "key", "target": "items", "text": "sku-1", "expected": ">= 0"},
]


@pytest.mark.parametrize(
    ("arguments", "check"),
    [
        (("--ask", "ASK { }"), ("ask", "main", "ASK { }", "true")),
        (("--ask", "ASK { }", "--expect", "false", "--repository", "r"), ("ask", "r", "ASK { }", "false")),
        (("--select", "SELECT ?s { }", "--expect", "[[null]]"), ("select", "main", "SELECT ?s { }", "[[null]]")),
        (("--key", "items", "sku-1", ">= 0"), ("key", "items", "sku-1", ">= 0")),
        (("--key", "items", "-k", "absent"), ("key", "items", "-k", "absent")),
    ],
)
def test_a_check_is_sent_and_its_place_is_shown(run, cluster, arguments, check):
    client = cluster(control_add=Written())
    ran = run("control", "add", "c", *arguments, *URL)
    assert (ran.code, ran.out) == (0, "applied: LSN 7, transaction t1\n")
    assert ("control_add", "c", *check) in client.calls


def test_a_query_comes_from_standard_input(run, cluster, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ASK { }\n")))
    client = cluster(control_add=Written())
    run("control", "add", "c", "--ask", "-", *URL)
    assert ("control_add", "c", "ask", "main", "ASK { }\n", "true") in client.calls


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--ask, as --select, or as --key, one of them"),
        (("--ask", "ASK { }", "--select", "SELECT"), "one of them"),
        (("--select", "SELECT ?s { }"), "--select needs --expect"),
        (("--key", "t", "k", "present", "--expect", "true"), "its third value"),
    ],
)
def test_a_wrong_command_line_is_named(run, cluster, arguments, words):
    cluster()
    ran = run("control", "add", "c", *arguments, *URL)
    assert ran.code == 64
    assert words in ran.err


def test_a_check_that_does_not_hold_is_an_error_with_its_reason(run, cluster):
    reason = "check 'c' failed: expected true, found false (ASK in repository 'main')"
    cluster(control_add=Rejected(reason), control_remove=Rejected("check 'c' does not exist"))
    added = run("control", "add", "c", "--ask", "ASK { }", *URL)
    assert (added.code, added.err) == (2, f"brokerha: {reason}; nothing was changed\n")
    assert run("control", "remove", "c", *URL).code == 2


def test_a_check_that_is_none_is_an_error(run, cluster):
    cluster(control_add=InvalidRequest("a check has no NOW"))
    ran = run("control", "add", "c", "--ask", "ASK { FILTER(NOW() > 1) }", *URL)
    assert (ran.code, ran.err) == (2, "brokerha: a check has no NOW\n")


def test_checks_are_listed_as_a_table_or_as_json(run, cluster):
    client = cluster(control_list=[CHECKS])
    table = run("control", "list", *URL).out.splitlines()
    assert table[0].split() == ["NAME", "KIND", "ABOUT", "TEXT", "EXPECTED"]
    assert table[2].split() == ["stock", "key", "items", "sku-1", ">=", "0"]
    assert json.loads(run("control", "list", "-o", "json", "--min-lsn", "9", *URL).out) == {"checks": CHECKS}
    assert ("control_list", {"min_lsn": 9}) in client.calls


def test_a_check_is_removed(run, cluster):
    client = cluster(control_remove=Written())
    assert run("control", "remove", "c", *URL).code == 0
    assert ("control_remove", "c") in client.calls
