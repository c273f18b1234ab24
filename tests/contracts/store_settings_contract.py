"""What every store must do with settings at run time; test_stores.py runs it on each. Fixtures as in store_contract.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import APPLIED, REJECTED, Operation
from brokerha.model.reserved.settings import TABLE, Row, packed
from brokerha.ports.store import Store
from tests.contracts.store_contract import logged, read, run
from tests.contracts.store_observing_contract import observe
from tests.contracts.store_pending_contract import wanted

IDLE = {"at": 7, "by": "anna", "from": "127.0.0.1 at m1", "value": "2000"}


def setting(name: str = "idle-round-ms", value: str | None = "2000") -> Operation:
    return "put", TABLE, name.encode(), packed(Row(value, "anna", 7, "127.0.0.1 at m1"))


def settings(store: Store) -> Any:
    return json.loads(read(store, "settings"))


class StoreSettingsContract:
    """Tests of the reserved table."""

    def test_they_are_read_with_who_when_and_from_where(self, store: Store) -> None:
        assert settings(store) == {}
        run(store, [setting()], [setting("tx-log-max-size", "5000")], [setting("tx-log-max-size", None)])
        taken_back = {"at": 7, "by": "anna", "from": "127.0.0.1 at m1", "value": None}
        assert settings(store) == {"idle-round-ms": IDLE, "tx-log-max-size": taken_back}

    @pytest.mark.parametrize(
        ("operation", "reason"),
        [
            (setting("no-such", "1"), "no setting"),
            (setting(value="0"), "1 to 600000"),
            (setting(value="2s"), "whole number of milliseconds"),
            (setting(value=""), "whole number of milliseconds"),
            (("put", TABLE, b"idle-round-ms", b"2000"), "at, by, from and value"),
            (("delete", TABLE, b"idle-round-ms"), "never deleted"),
        ],
    )
    def test_they_are_judged_when_they_are_executed(self, store: Store, operation: Operation, reason: str) -> None:
        run(store, [setting()])
        # No client packs such a body.
        (result,) = store.execute(2, [("tx-2", 1_000_000, msgpack.packb([operation]))])
        assert result.outcome == REJECTED
        assert reason in result.reason
        assert settings(store) == {"idle-round-ms": IDLE}

    def test_one_that_was_decided_upon_other_settings_is_rejected(self, store: Store) -> None:
        results = run(store, [setting()], [("expect-since", "table", TABLE, 0), setting("tx-log-max-size", "5000")])
        assert [each.outcome for each in results] == [APPLIED, REJECTED]

    def test_another_store_that_applies_the_log_has_the_same(self, store: Store, other: Store) -> None:
        other.apply(1, logged(run(store, [setting()], [setting("scrub-every-s", "0.5")])))
        assert settings(other) == settings(store)
        assert other.applied() == store.applied() == other.recompute()

    def test_a_restart_changes_nothing_about_them(self, store: Store, reopened: Callable[[Store], Store]) -> None:
        run(store, [setting()])
        assert settings(reopened(store)) == {"idle-round-ms": IDLE}

    def test_their_table_is_no_table_of_a_user(self, store: Store) -> None:
        run(store, [setting(), ("put", "t", b"k", b"v")])
        for kind, arguments in (("get", {"key": b"idle-round-ms"}), ("range", {})):
            with pytest.raises(InvalidRequest, match="brokerha's own"):
                read(store, kind, TABLE, **arguments)
        assert json.loads(read(store, "tables")) == ["t"]
        assert run(store, [("snapshot", "s")])[0].outcome == APPLIED
        assert json.loads(read(store, "snapshots"))[0]["tables"] == ["t"]

    def test_who_read_them_conflicts_with_who_changes_them(self, store: Store) -> None:
        run(store, [setting()])
        assert observe(store, wanted("settings")).demands == [("expect-since", "table", TABLE, 1)]
