"""Which directories a store refuses to open, and what it does with what a crash or a disk left in one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from brokerha.model.errors import StoreDamaged, StoreError
from tests.contracts.store_contract import A, quads, read, rows, run
from tests.unit.stores.store_place import Place


def test_a_second_process_is_told_who_has_the_store(place: Place) -> None:
    place.open()
    with pytest.raises(StoreError, match=f"open in process {os.getpid()}") as found:
        place.open()
    assert not isinstance(found.value, StoreDamaged)


@pytest.mark.parametrize(("cluster", "node"), [("orders", "w2"), ("other", "w1")])
def test_a_store_of_another_node_or_cluster_is_refused(place: Place, cluster: str, node: str) -> None:
    place.open().close()
    with pytest.raises(StoreError, match="belongs to node w1 of cluster orders") as found:
        place.open(node=node, cluster=cluster)
    assert not isinstance(found.value, StoreDamaged)
    place.open()


def test_the_name_of_a_copy_stays_and_another_copy_has_another(place: Place, tmp_path: Path) -> None:
    store = place.open()
    name = store.journal
    store.close()
    assert place.open().journal == name
    other = Place(tmp_path / "other").open()
    assert other.journal != name
    other.close()


def test_repositories_without_a_record_are_not_deleted(place: Place) -> None:
    store = place.open()
    run(store, [("add", "main", quads(A))])
    store.close()
    (place.directory / "data/data.mdb").unlink()
    with pytest.raises(StoreDamaged, match="no record of them"):
        place.open()
    assert (place.directory / "repositories/main.0/written").exists()


def test_directories_left_over_from_a_crash_are_deleted(place: Place) -> None:
    place.open().close()
    (place.directory / "repositories/r.7").mkdir()
    store = place.open()
    run(store, [("create-repository", "r")])
    assert sorted(path.name for path in (place.directory / "repositories").iterdir()) == ["main.0", "r.8"]


def test_a_store_whose_file_was_cut_off_is_refused(place: Place) -> None:
    store = place.open()
    run(store, [("put", "t", b"%d" % number, bytes(3000)) for number in range(100)])
    store.close()
    file = place.directory / "data/data.mdb"
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(StoreDamaged, match="damaged or cut off"):
        place.open()


def change_row(place: Place, key: bytes, change: Callable[[bytes], bytes]) -> None:
    """Change one row of the table of the store's own records."""
    with lmdb.Environment(str(place.directory / "data"), max_dbs=8) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True, db=meta) as writing:
            writing.put(key, change(writing.get(key) or b""))


def test_a_store_of_another_format_is_refused(place: Place) -> None:
    place.open().close()
    change_row(place, b"format", lambda _: b"5")
    with pytest.raises(StoreError, match="the store has format 5, this program knows 4: use a later brokerha") as found:
        place.open()
    assert not isinstance(found.value, StoreDamaged)


def test_a_store_of_the_format_before_is_taken_on_and_counts_as_changed_then(place: Place) -> None:
    store = place.open()
    run(store, [("put", "t", b"k", b"v")], [("add", "main", A)])
    before = store.applied()
    store.close()
    # As an older version left it: without the tables that it did not know.
    with lmdb.Environment(str(place.directory / "data"), max_dbs=16) as environment:
        for name in (b"queues", b"places", b"counts", b"changes"):
            table = environment.open_db(name)
            with environment.begin(write=True) as writing:
                writing.drop(table)
    change_row(place, b"format", lambda _: b"2")
    store = place.open()
    assert store.applied() == before == store.recompute()
    results = run(store, *[[("expect-since", "table", "t", lsn)] for lsn in (1, 2)], [("put", "t", b"k", b"w")])
    assert [result.outcome for result in results] == ["rejected", "applied", "applied"]
    store.close()
    store = place.open()
    results = run(store, *[[("expect-since", *each)] for each in (("table", "t", 4), ("table", "never", 1))])
    assert [result.reason[-8:] for result in results] == ["at LSN 5", "at LSN 2"]


@pytest.mark.parametrize(
    ("key", "problem"), [(b"state", "the state row of the store is damaged"), (b"identity", "does not say whose it is")]
)
def test_a_damaged_record_of_the_store_itself_is_refused(place: Place, key: bytes, problem: str) -> None:
    place.open().close()
    # The sum of nothing is nothing, so that rows of nothing but zeros need care of their own.
    for damage in (lambda row: row[:-1] + bytes([row[-1] ^ 1]), lambda _: bytes(4), lambda _: b""):
        change_row(place, key, damage)
        with pytest.raises(StoreDamaged, match=problem):
            place.open()


def test_a_store_that_lost_its_format_is_not_taken_for_a_new_one(place: Place) -> None:
    place.open().close()
    with lmdb.Environment(str(place.directory / "data"), max_dbs=8) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True, db=meta) as writing:
            writing.delete(b"format")
    with pytest.raises(StoreDamaged, match="does not say what format it has"):
        place.open()


def test_a_value_that_the_disk_changed_is_an_error(place: Place) -> None:
    store = place.open()
    run(store, [("put", "t", b"k", b"precious value")])
    # The engine is up to date, so that nothing is read when the store opens.
    run(store, [("put", "t", b"l", b"other"), ("add", "main", quads(A))])
    store.close()
    content = (place.directory / "data/data.mdb").read_bytes()
    changed = content.replace(b"precious value", b"precious valuE")
    (place.directory / "data/data.mdb").write_bytes(changed)
    store = place.open()
    with pytest.raises(StoreDamaged, match="damaged"):
        read(store, "get", "t", key=b"k")
    with pytest.raises(StoreDamaged, match="damaged"):
        rows(store, "t")
    with pytest.raises(StoreDamaged, match="effects log is damaged at LSN 1"):
        store.logged(1, 1)
    assert read(store, "get", "t", key=b"l") == b"other"
    with pytest.raises(StoreDamaged, match=r"key b't\\x00k' is damaged"):
        store.recompute()
