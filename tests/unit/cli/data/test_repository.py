"""`brokerha repository`: what reaches the client, what is written about its answer, and the exit codes."""

from __future__ import annotations

import json

import pytest

from brokerha.model.errors import Rejected, UnknownRepository
from tests.unit.cli.data.test_data import URL, Written


def test_all_are_listed_with_their_sizes(run, cluster):
    cluster(repositories=[["books", "main"]], size=12)
    ran = run("repository", "list", "-o", "json", *URL)
    assert ran.code == 0
    assert json.loads(ran.out) == {"repositories": [{"id": "books", "statements": 12}, {"id": "main", "statements": 12}]}


def test_one_that_is_removed_while_they_are_listed_is_left_out(run, cluster):
    cluster(repositories=[["books"]], size=UnknownRepository("repository 'books' does not exist"))
    assert json.loads(run("repository", "list", "-o", "json", *URL).out) == {"repositories": []}


def test_one_is_created_and_its_place_is_shown(run, cluster):
    client = cluster(create_repository=Written())
    ran = run("repository", "add", "books", *URL)
    assert (ran.code, ran.out) == (0, "applied: LSN 7, transaction t1\n")
    assert ("create_repository", "books") in client.calls


def test_one_that_is_there_already_is_what_was_wanted(run, cluster):
    cluster(create_repository=Rejected("repository 'books' exists already"), repositories=["books"])
    ran = run("repository", "add", "books", *URL)
    assert (ran.code, ran.out) == (0, "repository books is there already\n")


def test_another_rejection_is_an_error(run, cluster):
    cluster(create_repository=Rejected("check 'c' failed: it exists already"), repositories=["main"])
    assert run("repository", "add", "books", *URL).code == 2


def test_it_is_told_what_is_removed(run, cluster):
    client = cluster(size=1234, remove_repository=Written())
    ran = run("repository", "remove", "books", "-y", *URL)
    assert (ran.code, ran.out) == (0, "applied: LSN 7, transaction t1\n")
    assert "books is removed with its 1,234 statements" in ran.err
    assert ("remove_repository", "books") in client.calls


def test_one_that_is_not_there_is_an_error_and_nothing_is_written(run, cluster):
    client = cluster(size=UnknownRepository("repository 'boks' does not exist"))
    ran = run("repository", "remove", "boks", *URL)
    assert ran.code == 2
    assert "'boks' does not exist" in ran.err
    assert not [call for call in client.calls if call[0] == "remove_repository"]


@pytest.mark.parametrize("command", ["add", "remove"])
@pytest.mark.parametrize("name", ["", "b/c", "x" * 65, "näh"])
def test_a_name_that_is_none_is_a_wrong_command_line(run, cluster, command, name):
    client = cluster()
    assert run("repository", command, name, *URL).code == 64
    assert not client.calls
