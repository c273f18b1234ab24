"""What every store must do with snapshots of tables by name; test_stores.py runs it on each. Fixtures as in store_contract.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from brokerha.model.errors import Conflict, InvalidRequest, NotFound, UnknownSnapshot
from brokerha.model.operations import APPLIED, REJECTED, Operation, pack_operations, unpack_effect
from brokerha.model.reserved import branches, table_snapshots
from brokerha.ports.store import Store
from tests.contracts.store_contract import effect, fingerprint, logged, read, rows, run
from tests.contracts.store_observing_contract import observe
from tests.contracts.store_pending_contract import opened, wanted
from tests.contracts.store_prepared_contract import commit, held, prepare, prepared, refused, rollback

TABLE = table_snapshots.TABLE


def put(key: bytes, value: bytes, table: str = "t") -> Operation:
    return "put", table, key, value


def did(store: Store, *operations: Operation) -> None:
    (result,) = run(store, operations)
    assert (result.outcome, result.reason) == (APPLIED, "")


def kept(store: Store) -> int:
    """How many rows the snapshots of a store take."""
    return store.applied().items - sum(len(rows(store, table)) for table in json.loads(read(store, "tables")))


def names(store: Store) -> list[str]:
    return [each["name"] for each in json.loads(read(store, "snapshots"))]


class StoreSnapshotsContract:
    """Tests of make, read, list and drop."""

    def test_a_snapshot_shows_what_its_tables_held(self, store: Store) -> None:
        did(store, put(b"a", b"1"), put(b"b", b"1"), put(b"a", b"1", "u"))
        did(store, ("snapshot", "s", "t"), put(b"c", b"1"))
        before = rows(store, "t")
        did(store, put(b"a", b"2"), ("delete", "t", b"b"), put(b"d", b"2"), put(b"a", b"2", "u"))
        did(store, put(b"a", b"3"), put(b"b", b"3"))
        assert rows(store, "t", snapshot="s") == before == [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]
        assert read(store, "get", "t", key=b"a", snapshot="s") == b"1"
        with pytest.raises(NotFound, match="there is no such key"):
            read(store, "get", "t", key=b"d", snapshot="s")
        assert rows(store, "t") == [(b"a", b"3"), (b"b", b"3"), (b"c", b"1"), (b"d", b"2")]
        assert json.loads(read(store, "snapshots")) == [{"name": "s", "tables": ["t"], "lsn": 2}]
        assert store.recompute() == store.applied()

    def test_a_key_is_copied_once_and_only_when_it_changes(self, store: Store) -> None:
        did(store, put(b"a", b"1"), ("snapshot", "s", "t"))
        assert effect(store, put(b"a", b"1"), ("delete", "t", b"x")) == []
        assert len(effect(store, put(b"a", b"2"))) == 2
        assert len(effect(store, put(b"a", b"3"))) == 1
        assert len(effect(store, put(b"a", b"3", "other"))) == 1

    @pytest.mark.parametrize(
        "arguments",
        [
            {},
            {"reverse": True},
            {"limit": 2},
            {"limit": 2, "reverse": True},
            {"prefix": b"b"},
            {"from": b"b", "to": b"bc"},
            {"from": b"c", "to": b"b"},
            {"prefix": b"b", "reverse": True, "limit": 1},
        ],
    )
    def test_ranges_of_a_snapshot_are_ranges_of_then(self, store: Store, arguments: dict[str, Any]) -> None:
        did(store, *(put(key, b"1") for key in (b"a", b"b", b"ba", b"bc", b"c", b"\xff")), put(b"a", b"1", "t2"))
        did(store, ("snapshot", "s", "t"))
        before = rows(store, "t", **arguments)
        did(store, ("delete", "t", b"b"), put(b"bb", b"2"), put(b"bc", b"2"), put(b"0", b"2"), ("delete", "t", b"\xff"))
        did(store, ("snapshot", "later", "t"))
        did(store, put(b"b", b"3"), ("delete", "t", b"c"), ("delete", "t", b"a"))
        assert rows(store, "t", snapshot="s", **arguments) == before

    def test_several_snapshots_of_a_table_share_copies(self, store: Store) -> None:
        did(store, put(b"a", b"1"), ("snapshot", "one", "t"))
        did(store, ("snapshot", "two", "t"))
        changes = effect(store, put(b"a", b"2"))
        assert len(changes) == 2
        did(store, ("snapshot", "three", "t"))
        did(store, ("delete", "t", b"a"))
        found = [rows(store, "t", snapshot=name) for name in ("one", "two", "three")]
        assert found == [[(b"a", b"1")], [(b"a", b"1")], [(b"a", b"2")]]

    @pytest.mark.parametrize("order", [("one", "two", "three"), ("two", "one", "three"), ("three", "two", "one")])
    def test_a_drop_leaves_others_what_they_read_and_in_the_end_nothing(self, store: Store, order: tuple[str, ...]) -> None:
        before = {}
        for number, name in enumerate(("one", "two", "three")):
            did(store, put(b"a", b"%d" % number), put(b"new%d" % number, b""), ("snapshot", name, "t"))
            before[name] = rows(store, "t")
        did(store, put(b"a", b"9"), ("delete", "t", b"new0"))
        for name in order:
            did(store, ("drop-snapshot", name))
            del before[name]
            assert names(store) == sorted(before)
            assert {each: rows(store, "t", snapshot=each) for each in before} == before
            assert store.recompute() == store.applied()
        assert kept(store) == 0

    def test_a_large_drop_is_cleared_away_by_those_who_write_after_it(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("brokerha.stores.tables.snapshots.DROP_ROWS", 3)
        monkeypatch.setattr("brokerha.stores.tables.snapshots.WRITE_ROWS", 2)
        keys = [b"%d" % number for number in range(9)]
        did(store, *(put(key, b"1") for key in keys), ("snapshot", "old", "t"))
        did(store, ("snapshot", "new", "t"))
        did(store, *(put(key, b"2") for key in keys))
        did(store, ("drop-snapshot", "new"))
        assert (names(store), kept(store)) == (["old"], 11)
        for number in range(5):
            assert rows(store, "t", snapshot="old") == [(key, b"1") for key in keys]
            did(store, put(keys[number], b"3"))
        assert kept(store) == 10
        assert rows(store, "t", snapshot="old") == [(key, b"1") for key in keys]
        did(store, ("drop-snapshot", "old"))
        did(store, ("snapshot", "old", "t"))
        for number in range(6):
            assert rows(store, "t", snapshot="old") == [(key, b"3" if at < 5 else b"2") for at, key in enumerate(keys)]
            did(store, put(keys[number], b"4"))
        did(store, ("drop-snapshot", "old"))
        assert effect(store, ("delete", "t", b"not there")) == []
        for number in range(9):
            did(store, ("delete", "t", keys[number]))
        assert kept(store) == 0
        assert store.recompute() == store.applied()

    def test_all_tables_when_none_is_named(self, store: Store) -> None:
        (result,) = run(store, [("snapshot", "s")])
        assert (result.outcome, result.reason) == (REJECTED, "there is no table to make a snapshot of")
        did(store, put(b"a", b"1"), put(b"a", b"1", "u"), ("put", "urn:brokerha:repositories", b"main/setting/title", b"T"))
        did(store, put(b"a", b"1", "v"), ("snapshot", "s"))
        assert json.loads(read(store, "snapshots"))[0]["tables"] == ["t", "u", "v"]
        did(store, ("delete", "u", b"a"), ("delete", "v", b"a"))
        assert rows(store, "u", snapshot="s") == rows(store, "v", snapshot="s") == [(b"a", b"1")]

    def test_what_there_is_not_is_named(self, store: Store) -> None:
        did(store, put(b"a", b"1"), ("snapshot", "s", "t"))
        for kind, arguments in (("get", {"key": b"a"}), ("range", {})):
            with pytest.raises(UnknownSnapshot, match="there is no snapshot 'x'"):
                read(store, kind, "t", snapshot="x", **arguments)
            with pytest.raises(UnknownSnapshot, match="snapshot 's' has no table 'u'"):
                read(store, kind, "u", snapshot="s", **arguments)
        assert refused(store, ("drop-snapshot", "x")) == "there is no snapshot 'x'"
        assert refused(store, ("snapshot", "s", "t")).startswith("there is a snapshot 's' already")
        did(store, ("drop-snapshot", "s"), ("snapshot", "s", "u"), ("snapshot", "y", "t"), ("drop-snapshot", "y"))
        assert json.loads(read(store, "snapshots")) == [{"name": "s", "tables": ["u"], "lsn": 4}]

    def test_limits(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(16):
            did(store, ("snapshot", str(number), "t"))
        assert refused(store, ("snapshot", "more", "t")).startswith("table 't' has 16 snapshots, which is the limit")
        did(store, ("snapshot", "more", "u"), ("drop-snapshot", "3"), ("snapshot", "again", "t"))
        monkeypatch.setattr("brokerha.model.reserved.table_snapshots.COUNT_LIMIT", 17)
        assert refused(store, ("snapshot", "last", "u")) == "there are 17 snapshots, which is the limit: drop some"
        monkeypatch.setattr("brokerha.model.reserved.table_snapshots.TABLES_LIMIT", 1)
        monkeypatch.setattr("brokerha.model.reserved.table_snapshots.COUNT_LIMIT", 100)
        did(store, put(b"a", b"x" * 600), put(b"a", b"x" * 600, "v"))
        assert refused(store, ("snapshot", "last")) == "2 tables; a snapshot has at most 1: name those that matter"
        monkeypatch.setattr("brokerha.stores.tables.snapshots.SIZE_LIMIT_BYTES", 1000)
        did(store, ("snapshot", "w", "w"), put(b"a", b"y" * 900, "w"))
        assert "the limit of both is 1000: split it" in refused(store, put(b"a", b"z" * 600, "w"))
        assert "the limit of both is 1000: split it" in prepare(store, put(b"a", b"z" * 600, "w")).reason
        did(store, ("delete", "w", b"a"))

    def test_clients_neither_see_nor_write_the_table(self, store: Store) -> None:
        did(store, ("snapshot", "s", "t"), put(b"a", b"1"))
        assert json.loads(read(store, "tables")) == ["t"]
        with pytest.raises(InvalidRequest, match="brokerha's own"):
            read(store, "range", TABLE)
        for operation in (
            ("put", TABLE, b"sx", b""),
            ("delete", TABLE, b"ss"),
            ("control-add", "c", "key", TABLE, "b", "absent"),
            ("snapshot", "x", TABLE),
            ("snapshot", "x", branches.TABLE),
            ("snapshot", "x", "urn:brokerha:repositories"),
        ):
            with pytest.raises(InvalidRequest, match="brokerha's own"):
                pack_operations([operation])
        for wrong in ((), ("",), ("x", b"t"), ("x", "t", "t"), ("x" * 65,), ("x", "a\0b")):
            with pytest.raises(InvalidRequest, match=r"snapshot|table name"):
                pack_operations([("snapshot", *wrong)])
        with pytest.raises(InvalidRequest, match="snapshot"):
            read(store, "range", "t", snapshot="x" * 65)

    def test_what_is_prepared_is_kept_for_snapshots_when_it_is_committed(self, store: Store) -> None:
        did(store, put(b"a", b"1"), put(b"b", b"1"), ("snapshot", "s", "t"))
        prepared(store, put(b"a", b"2"), ("delete", "t", b"b"))
        assert refused(store, ("snapshot", "late", "t")) == held("table 't'")
        assert refused(store, ("snapshot", "late")) == held("table 't'")
        did(store, ("snapshot", "other", "u"))
        result = commit(store)
        assert len([change for change in unpack_effect(result.effect) if change[1] == TABLE]) == 2
        assert rows(store, "t") == [(b"a", b"2")]
        assert rows(store, "t", snapshot="s") == [(b"a", b"1"), (b"b", b"1")]
        for operation in (("snapshot", "x", "t"), ("drop-snapshot", "s")):
            assert "cannot be prepared" in prepare(store, operation).reason
        assert store.recompute() == store.applied()

    def test_an_isolated_read_demands_that_the_snapshot_is_the_same(self, store: Store) -> None:
        did(store, put(b"a", b"1"), ("snapshot", "s", "t"))
        found = observe(store, wanted("get", "t", key=b"a", snapshot="s"), wanted("range", "t", snapshot="s"))
        assert len(found.demands) == 1
        did(store, put(b"a", b"2"))
        assert observe(store, wanted("get", "t", key=b"a", snapshot="s"), seen=found.demands).answers[0][1] == b"1"
        prepared(store, *found.demands)
        assert refused(store, ("drop-snapshot", "s")) == held("snapshot 's'")
        rollback(store)
        did(store, ("drop-snapshot", "s"), ("snapshot", "s", "t"))
        with pytest.raises(Conflict):
            observe(store, wanted("get", "t", key=b"b"), seen=found.demands)
        missing = observe(store, wanted("get", "t", key=b"a", snapshot="x"))
        assert (missing.error, len(missing.demands)) == ("UnknownSnapshot", 1)
        did(store, ("snapshot", "x", "t"))
        with pytest.raises(Conflict):
            observe(store, wanted("get", "t", key=b"b"), seen=missing.demands)

    def test_what_is_pending_is_not_laid_over_a_snapshot(self, store: Store) -> None:
        did(store, put(b"a", b"1"), ("snapshot", "s", "t"))
        pending = opened(put(b"a", b"2"), put(b"b", b"2"), ("snapshot", "x", "t"))
        assert read(store, "get", "t", key=b"a", snapshot="s", **pending) == b"1"
        assert rows(store, "t", snapshot="s", **pending) == [(b"a", b"1")]
        assert rows(store, "t", **pending) == [(b"a", b"2"), (b"b", b"2")]

    def test_it_is_there_after_a_restart_and_on_copies(self, store: Store, other: Store, reopened: Callable[[Any], Store]) -> None:
        results = run(store, [put(b"a", b"1"), ("snapshot", "s", "t")])
        other.apply(1, logged(results))
        store = reopened(store)
        for each in (store, other):
            did(each, put(b"a", b"2"))
            assert rows(each, "t", snapshot="s") == [(b"a", b"1")]
        assert fingerprint(store) == fingerprint(other)
