"""What every store must do with namespaces and settings of repositories; test_stores.py runs it on each. Fixtures as in store_contract.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from brokerha.model.errors import InvalidRequest, UnknownRepository
from brokerha.model.operations import APPLIED, REJECTED, Operation
from brokerha.model.reserved.about import TABLE, namespace_key, setting_key
from brokerha.ports.store import Store
from tests.contracts.store_contract import effect, logged, read, run

FOAF = b"http://xmlns.com/foaf/0.1/"


def namespace(repository: str = "main", prefix: str = "foaf", iri: bytes = FOAF) -> Operation:
    return ("put", TABLE, namespace_key(repository, prefix), iri)


def about(store: Store, name: str = "") -> Any:
    return json.loads(read(store, "about", name))


class StoreAboutContract:
    """Tests of the reserved table."""

    def test_namespaces_and_settings_belong_to_their_repository(self, store: Store) -> None:
        run(
            store,
            [("create-repository", "r"), ("put", TABLE, setting_key("r", "title"), "Bücher".encode())],
            [namespace("r"), namespace("r", "", b"urn:x:")],
        )
        of_r = {"namespaces": {"": "urn:x:", "foaf": FOAF.decode()}, "settings": {"title": "Bücher"}}
        assert about(store, "r") == {"r": of_r}
        assert about(store) == {"main": {"namespaces": {}, "settings": {}}, "r": of_r}
        with pytest.raises(UnknownRepository):
            read(store, "about", "nowhere")

    def test_they_need_a_repository(self, store: Store) -> None:
        results = run(store, [namespace("r")], [("delete", TABLE, namespace_key("r", "foaf"))])
        assert [(each.outcome, each.reason) for each in results] == [(REJECTED, "repository 'r' does not exist")] * 2
        assert run(store, [("create-repository", "r"), namespace("r")])[0].outcome == APPLIED
        assert run(store, [("remove-repository", "r"), namespace("r")])[0].outcome == REJECTED

    def test_they_go_with_their_repository(self, store: Store) -> None:
        run(store, [("create-repository", "r"), ("create-repository", "r2"), namespace("r"), namespace("r2")])
        assert effect(store, ("remove-repository", "r")) == [
            ["delete", TABLE, namespace_key("r", "foaf")],
            ["remove-repository", "r"],
        ]
        run(store, [("create-repository", "r")])
        assert about(store, "r")["r"]["namespaces"] == {}
        assert about(store, "r2")["r2"]["namespaces"] == {"foaf": FOAF.decode()}

    def test_only_what_was_put_behind_a_removal_stays(self, store: Store) -> None:
        run(store, [namespace(prefix="old")])
        again = [namespace(prefix="lost"), ("remove-repository", "main"), ("create-repository", "main"), namespace()]
        run(store, again)
        assert about(store)["main"]["namespaces"] == {"foaf": FOAF.decode()}

    def test_another_store_that_applies_the_log_has_the_same(self, store: Store, other: Store) -> None:
        results = run(store, [("create-repository", "r"), namespace("r")], [namespace()], [("remove-repository", "r")])
        other.apply(1, logged(results))
        assert about(other) == about(store)
        assert other.applied() == store.applied() == other.recompute()

    def test_a_restart_changes_nothing_about_them(self, store: Store, reopened: Callable[[Store], Store]) -> None:
        run(store, [namespace()])
        assert about(reopened(store))["main"]["namespaces"] == {"foaf": FOAF.decode()}

    def test_their_table_is_no_table_of_a_user(self, store: Store) -> None:
        run(store, [namespace()])
        for kind, arguments in (("get", {"key": namespace_key("main", "foaf")}), ("range", {})):
            with pytest.raises(InvalidRequest, match="brokerha's own"):
                read(store, kind, TABLE, **arguments)
