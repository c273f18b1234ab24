"""What only the store in files can get wrong: two commits, power losses, full disks, wrong directories, readers beside the writer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import lmdb
import msgpack
import pytest

from brokerha.model.errors import StoreError, TimedOut
from brokerha.model.operations import APPLIED, REJECTED, Operation, Result
from brokerha.stores.worker_store import StoreOptions, WorkerStore
from tests.contracts.store_contract import A, B, C, quads, read, rows, run, transaction
from tests.unit.stores.line_engine import Engines, lose_power

COUNT: Operation = ("update", "main", "COUNT")


class Place:
    """A directory for one store, opened and opened again by a test; time stands still unless the test moves it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.engines = Engines()
        self.now_s = 0.0
        self.places: list[str] = []
        self.stores: list[WorkerStore] = []

    def open(self, node: str = "w1", cluster: str = "orders", **options: float) -> WorkerStore:
        store = WorkerStore(
            self.directory,
            cluster=cluster,
            node=node,
            options=StoreOptions(**{"map_size_bytes": 64 * 1024 * 1024, "flush_after_s": 1e9, **options}),  # type: ignore[arg-type]
            open_engine=self.engines,
            clock=lambda: self.now_s,
            crash_point=self.places.append,
        )
        self.stores.append(store)
        return store

    def lines(self) -> list[str]:
        return sorted(self.engines.main.held)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path / "w1")
    yield found
    for store in found.stores:
        store.close()


def test_the_record_is_durable_before_any_engine_hears_of_it(place: Place) -> None:
    store = place.open()
    place.places.clear()
    run(store, [("add", "main", quads(A))], [("put", "t", b"k", b"v")])
    assert place.places == ["LMDB committed", "engine committed", "engines committed"]


def test_an_engine_gets_one_net_change_for_a_batch(place: Place) -> None:
    store = place.open()
    run(store, [("add", "main", quads(A, B))], [("remove", "main", quads(A))], [("add", "main", quads(C))])
    assert place.engines.main.commits == [3]
    assert place.lines() == [B, C]


def test_an_operation_that_reads_everything_sees_what_waits(place: Place) -> None:
    store = place.open()
    results = run(
        store, [("add", "main", quads(A))], [("add", "main", quads(B)), COUNT], [("remove", "main", quads(A)), COUNT]
    )
    assert [result.outcome for result in results] == [APPLIED] * 3
    assert place.lines() == ['<urn:all> <urn:count> "1"', B]
    assert store.recompute() == store.applied()


def test_much_that_waits_is_committed_before_an_operation_that_reads_everything(place: Place) -> None:
    store = place.open()
    many = [("add", "main", quads(*(f"<urn:s{n}> <urn:p> <urn:{name}>" for n in range(300)))) for name in "ab"]
    results = run(store, [many[0]], [many[1]], [("put", "t", b"k", b"v"), ("add", "main", quads(A)), COUNT], [COUNT])
    assert place.engines.main.commits == [2, 4]
    assert '<urn:all> <urn:count> "601"' in place.lines()
    assert results[3] == Result(APPLIED, "", b"")
    assert store.results(1, 4) == results
    assert store.recompute() == store.applied()


def test_a_rejected_transaction_leaves_no_directory_behind(place: Place) -> None:
    store = place.open()
    run(store, [("create-repository", "r"), ("update", "r", "nonsense")])
    run(store, [("create-repository", "r"), ("remove-repository", "r")])
    assert [path.name for path in (place.directory / "repositories").iterdir()] == ["main.0"]


def test_effects_that_the_engine_lost_with_the_power_are_applied_again(place: Place) -> None:
    store = place.open(flush_after_lsns=3)
    run(
        store,
        [("add", "main", quads(A))],
        [("add", "main", quads(B))],
        [("create-repository", "r"), ("add", "r", quads(A))],
    )
    assert place.engines.main.flushes == 1
    run(store, [("remove", "main", quads(A))])
    run(store, [("add", "r", quads(C)), ("put", "t", b"k", b"v")])
    applied = store.applied()
    store.close()
    lose_power(place.directory)

    store = place.open()
    assert store.applied() == store.recompute() == applied
    assert place.lines() == [B]
    assert place.engines.opened["r.1"].held == {A, C}


def test_an_engine_that_lost_all_it_ever_had_is_filled_again_from_the_log(place: Place) -> None:
    store = place.open()
    run(store, [("add", "main", quads(A))])
    run(store, [("remove-repository", "main")], [("create-repository", "main"), ("add", "main", quads(B))])
    applied = store.applied()
    store.close()
    lose_power(place.directory)
    store = place.open()
    assert store.applied() == store.recompute() == applied
    assert place.engines.opened["main.1"].held == {B}


def test_an_engine_older_than_it_was_flushed_is_refused(place: Place) -> None:
    store = place.open(flush_after_lsns=1)
    run(store, [("add", "main", quads(A))])
    run(store, [("add", "main", quads(B))])
    store.close()
    (place.directory / "repositories/main.0/flushed").unlink()
    with pytest.raises(StoreError, match="repository main is at LSN 0 and has been at 2 before"):
        place.open()


def test_engines_are_flushed_by_number_and_by_time_and_only_when_they_changed(place: Place) -> None:
    store = place.open(flush_after_lsns=2, flush_after_s=30)
    engine = place.engines.main
    run(store, [("add", "main", quads(A))])
    assert engine.flushes == 0
    run(store, [("add", "main", quads(B))])
    assert engine.flushes == 1
    run(store, [("put", "t", b"k", b"1")], [("put", "t", b"k", b"2")])
    assert engine.flushes == 1
    run(store, [("add", "main", quads(C))])
    place.now_s = 30
    run(store, [("put", "t", b"k", b"3")])
    assert engine.flushes == 2


def test_the_effects_log_keeps_what_was_asked_and_no_much_more(place: Place) -> None:
    store = place.open(flush_after_lsns=10, keep_results=25)
    given = [run(store, [("put", "t", b"k", b"%d" % number)])[0] for number in range(100)]
    assert store.results(75, 100) == []
    assert store.results(76, 100) == given[75:]
    assert store.results(76, 77) == given[75:77]


def test_the_effects_log_is_never_trimmed_past_what_engines_have_durably(place: Place) -> None:
    store = place.open(flush_after_lsns=50, keep_results=1)
    for number in range(99):
        run(store, [("add", "main", quads(f"<urn:s> <urn:p> <urn:{number}>"))])
    assert place.engines.main.flushes == 1
    applied = store.applied()
    store.close()
    lose_power(place.directory)
    assert place.open().recompute() == applied


def test_an_engine_whose_effects_are_not_there_any_more_is_refused(place: Place) -> None:
    store = place.open()
    run(store, [("add", "main", quads(A))])
    run(store, [("add", "main", quads(B))])
    store.close()
    lose_power(place.directory)
    with lmdb.Environment(str(place.directory / "data"), max_dbs=8) as environment:
        effects = environment.open_db(b"effects")
        with environment.begin(write=True) as writing:
            writing.delete((1).to_bytes(8, "big"), db=effects)
    with pytest.raises(StoreError, match="repository main is at LSN 0 of 2, and the effects log lacks LSN 1"):
        place.open()


def test_when_an_engine_is_full_the_batch_waits_for_it_and_is_not_executed_twice(place: Place) -> None:
    store = place.open()
    run(store, [("put", "t", b"k", b"1")])
    before = store.applied()
    batch = [transaction(("put", "t", b"k", b"2"), ("add", "main", quads(A))), transaction(("delete", "t", b"k"))]
    place.engines.main.refuses = lambda: True
    for _ in range(2):
        with pytest.raises(StoreError, match="the disk is full"):
            store.execute(2, batch)
        assert store.applied() == before

    place.engines.main.refuses = lambda: False
    results = store.execute(2, batch)
    assert [len(result.effect) > 1 for result in results] == [True, True]
    assert store.applied().lsn == 3
    assert store.recompute() == store.applied()
    assert place.lines() == [A]


def test_a_store_left_behind_its_record_by_a_full_disk_comes_up_after_a_restart(place: Place) -> None:
    store = place.open()
    place.engines.main.refuses = lambda: True
    with pytest.raises(StoreError):
        run(store, [("add", "main", quads(A)), ("create-repository", "r"), ("add", "r", quads(B))])
    store.close()
    store = place.open()
    assert store.applied().lsn == 1
    assert store.recompute() == store.applied()
    assert place.lines() == [A]


def test_when_the_record_is_full_nothing_of_the_batch_is_kept(place: Place) -> None:
    store = place.open(map_size_bytes=400_000)
    run(store, [("put", "t", b"k", b"1"), ("add", "main", quads(A))])
    before = store.applied()
    large = ("put", "t", b"large", bytes(500_000))
    with pytest.raises(StoreError, match="largest size"):
        run(store, [("create-repository", "r"), ("add", "main", quads(B))], [("delete", "t", b"k")], [large])
    assert store.applied() == store.recompute() == before
    assert rows(store, "t") == [(b"k", b"1")]
    assert place.lines() == [A]
    run(store, [("create-repository", "r"), ("add", "main", quads(C))])
    assert store.applied().lsn == 2
    assert store.recompute() == store.applied()


def test_an_effect_that_does_not_fit_this_copy_is_an_error_and_changes_nothing(place: Place) -> None:
    store = place.open()
    before = store.applied()
    effects = [[("put", "t", b"k", b"v")], [("quads", "nowhere", [], [A])]]
    with pytest.raises(StoreError, match="this copy is not like the others"):
        store.apply(1, [(APPLIED, "", msgpack.packb(effect)) for effect in effects])
    assert store.applied() == store.recompute() == before


def test_a_second_process_is_told_who_has_the_store(place: Place) -> None:
    place.open()
    with pytest.raises(StoreError, match=f"open in process {os.getpid()}"):
        place.open()


@pytest.mark.parametrize(("cluster", "node"), [("orders", "w2"), ("other", "w1")])
def test_a_store_of_another_node_or_cluster_is_refused(place: Place, cluster: str, node: str) -> None:
    place.open().close()
    with pytest.raises(StoreError, match="belongs to node w1 of cluster orders"):
        place.open(node=node, cluster=cluster)
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
    with pytest.raises(StoreError, match="no record of them"):
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
    with pytest.raises(StoreError, match="damaged or cut off"):
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
    with pytest.raises(StoreError, match="damaged"):
        read(store, "get", "t", key=b"k")
    with pytest.raises(StoreError, match="damaged"):
        rows(store, "t")
    with pytest.raises(StoreError, match="effects log is damaged at LSN 1"):
        store.results(1, 1)
    assert read(store, "get", "t", key=b"l") == b"other"
    assert store.recompute() != store.applied()


def test_a_read_that_may_not_go_on_stops(place: Place) -> None:
    store = place.open()
    run(store, [("put", "t", b"k", b"v")])
    with pytest.raises(TimedOut):
        list(store.read("range", "t", {}, lambda: False).pieces)


def slowly(pieces: Iterator[bytes], beside: threading.Thread) -> Iterator[bytes]:
    """Pieces, each after giving another thread time to come by."""
    for piece in pieces:
        beside.join(0.05)
        yield piece


def test_reads_end_when_the_store_is_closed(place: Place) -> None:
    store = place.open()
    run(store, [("put", "t", b"%d" % number, bytes(900_000)) for number in range(8)])
    pieces = store.read("range", "t", {}).pieces
    next(pieces)
    closing = threading.Thread(target=store.close)
    closing.start()
    with pytest.raises(StoreError, match="closed"):
        list(slowly(pieces, closing))
    closing.join(20)
    assert not closing.is_alive()
    for ask in (lambda: store.read("get", "t", {"key": b"1"}), lambda: run(store, [COUNT]), store.recompute):
        with pytest.raises(StoreError, match="closed"):
            ask()


def test_readers_see_whole_batches_only(place: Place) -> None:
    store = place.open()
    run(store, [("put", "t", b"%d" % number, b"0") for number in range(50)])
    is_over = threading.Event()
    mixed: list[object] = []
    seen = 0

    def look() -> None:
        nonlocal seen
        last = -1
        while not is_over.is_set():
            answer = store.read("range", "t", {})
            values = {int(value) for _, value in msgpack.unpackb(b"".join(answer.pieces))}
            if len(values) != 1 or min(values) < last or min(values) + 1 < answer.lsn:
                mixed.append((values, answer.lsn, last))
            last = min(values)
            seen += 1

    reader = threading.Thread(target=look)
    reader.start()
    for value in range(1, 200):
        run(store, [("put", "t", b"%d" % number, b"%d" % value) for number in range(50)])
    is_over.set()
    reader.join(20)
    assert not mixed
    assert seen > 0


def test_recomputing_beside_a_writer_gives_what_was_added_up(place: Place) -> None:
    store = place.open()
    expected = {0: store.applied()}
    is_over = threading.Event()
    found = []

    def look() -> None:
        while not is_over.is_set():
            found.append(store.recompute())

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(1, 150):
        run(
            store,
            [
                ("put", "t", b"%d" % (number % 7), b"%d" % number),
                ("add", "main", quads(f"<urn:s> <urn:p> <urn:{number}>")),
            ],
        )
        expected[number] = store.applied()
    is_over.set()
    reader.join(20)
    assert found
    assert all(one == expected[one.lsn] for one in found)


def test_the_same_history_gives_the_same_bytes_of_effect_in_batches_of_any_size(place: Place, tmp_path: Path) -> None:
    history = [
        [("put", "t", b"%d" % (n % 5), b"%d" % n), ("add", "main", quads(A) if n % 2 else quads(B, C)), COUNT]
        for n in range(30)
    ]
    history.insert(10, [("update", "main", "nonsense"), ("put", "t", b"x", b"")])
    one_batch = run(place.open(), *history)
    other = Place(tmp_path / "other")
    store = other.open()
    one_by_one = [result for operations in history for result in run(store, operations)]
    store.close()
    assert one_by_one == one_batch
    assert one_batch[10] == Result(REJECTED, "MALFORMED: nonsense", b"")
