"""Two commits that must look like one: engines behind their record, power losses, full disks, trimming."""

from __future__ import annotations

from pathlib import Path

import lmdb
import msgpack
import pytest

from brokerha.model.errors import StoreDamaged, StoreDiffers, StoreError, StoreFull
from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.operations import APPLIED, REJECTED, Result
from brokerha.stores.execution import batch, effects_log, evaluation, worker_store
from brokerha.stores.rdf.repository import RdfRepository
from tests.contracts.store_contract import A, B, C, logged, quads, rows, run, transaction
from tests.contracts.store_staged_contract import commit, ok, stage
from tests.unit.stores.line_engine import lose_power
from tests.unit.stores.store_place import COUNT, Place, files_limited_to


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
    results = run(store, [("add", "main", quads(A))], [("add", "main", quads(B)), COUNT], [("remove", "main", quads(A)), COUNT])
    assert [result.outcome for result in results] == [APPLIED] * 3
    assert place.lines() == ['<urn:all> <urn:count> "1"', B]
    assert store.recompute() == store.applied()


def test_much_that_waits_is_committed_before_an_operation_that_reads_everything(place: Place) -> None:
    store = place.open()
    many = [("add", "main", quads(*(f"<urn:s{n}> <urn:p> <urn:{name}>" for n in range(300)))) for name in "ab"]
    results = run(store, [many[0]], [many[1]], [("put", "t", b"k", b"v"), ("add", "main", quads(A)), COUNT], [COUNT])
    assert place.engines.main.commits == [2, 4]
    assert '<urn:all> <urn:count> "601"' in place.lines()
    assert results[3] == Result(APPLIED, "", b"", results[2].fingerprint)
    assert store.logged(1, 4) == logged(results)
    assert store.recompute() == store.applied()


def test_a_batch_with_large_effects_is_committed_in_parts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "COMMIT_LIMIT_BYTES", 2500)
    store = place.open()
    place.places.clear()
    results = run(store, *[[("put", "t", b"%d" % number, bytes(1000))] for number in range(7)])
    assert place.places.count("LMDB committed") == 3
    assert store.logged(1, 7) == logged(results)
    assert store.recompute() == store.applied()


def test_when_a_later_part_of_a_batch_fails_the_rest_can_be_given_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "COMMIT_LIMIT_BYTES", 100)
    store = place.open(map_size_bytes=400_000)
    items = [transaction(("put", "t", b"a", bytes(200)), ("add", "main", quads(A)))]
    items += [transaction(("remove-repository", "main")), transaction(("create-repository", "main"))]
    items += [transaction(("put", "t", b"a", bytes(500_000)))]
    with pytest.raises(StoreError):
        store.execute(1, items)
    assert store.recompute() == store.applied()
    kept = store.applied().lsn
    assert 1 <= kept < 4
    results = store.execute(1, items[:3])
    assert [result.outcome for result in results] == [APPLIED] * 3
    assert store.applied().lsn == 3
    assert store.recompute() == store.applied()


def test_a_batch_that_fails_takes_made_and_removed_repositories_back(place: Place) -> None:
    store = place.open(map_size_bytes=400_000)
    run(store, [("create-repository", "r"), ("add", "r", quads(A))])
    before = store.applied()
    with pytest.raises(StoreError):
        run(
            store,
            [("create-repository", "s"), ("remove-repository", "r")],
            [("remove-repository", "s"), ("create-repository", "r")],
            [("put", "t", b"large", bytes(500_000))],
        )
    assert store.applied() == store.recompute() == before
    assert sorted(path.name for path in (place.directory / "repositories").iterdir()) == ["main.0", "r.1"]
    assert place.engines.opened["r.1"].held == {A}


def test_repositories_are_limited_in_number(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "REPOSITORY_LIMIT", 3)
    store = place.open()
    (made,) = run(store, [("create-repository", "r")])
    full = Result(REJECTED, "there are 3 repositories, which is the limit", b"", made.fingerprint)
    assert run(store, [("create-repository", "s"), ("create-repository", "t")]) == [full]
    assert run(store, [("remove-repository", "r"), ("create-repository", "s"), ("create-repository", "t")])[0].outcome == APPLIED
    (refused,) = run(store, [("create-repository", "u")])
    assert refused[:3] == full[:3]


def test_a_rejected_transaction_leaves_no_directory_behind(place: Place) -> None:
    store = place.open()
    run(store, [("create-repository", "r"), ("update", "r", "nonsense")])
    run(store, [("create-repository", "r"), ("remove-repository", "r")])
    assert [path.name for path in (place.directory / "repositories").iterdir()] == ["main.0"]


def test_a_directory_that_cannot_be_filled_is_not_left_behind(tmp_path: Path) -> None:
    home, is_full = tmp_path / "w1" / "repositories", False

    class Engine(RdfRepository):
        """Breaks off, with a part of its files, while the disk is full."""

        def __init__(self, directory: Path) -> None:
            super().__init__(directory)
            check()

        def backup(self, directory: Path) -> None:
            super().backup(directory)
            check()

    def check() -> None:
        if is_full:
            raise StoreError("the disk is full")

    store = worker_store.WorkerStore(tmp_path / "w1", cluster="orders", node="w1", open_engine=Engine)
    run(store, [("add", "main", quads(A))])
    is_full = True
    for number in range(2):
        with pytest.raises(StoreError, match="full"):
            run(store, [("create-repository", "new")])
        ok(stage(store, number + 1, ("add", "main", quads(B))))
        assert [path.name for path in home.iterdir()] == ["main.0"]
    is_full = False
    ok(stage(store, 3, ("add", "main", quads(C))))
    ok(commit(store, 3))
    assert store.recompute() == store.applied()
    store.close()


def test_effects_that_the_engine_lost_with_the_power_are_applied_again(place: Place) -> None:
    store = place.open(flush_after_lsns=3)
    run(store, [("add", "main", quads(A))], [("add", "main", quads(B))], [("create-repository", "r"), ("add", "r", quads(A))])
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


def test_a_long_way_is_brought_up_in_parts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place.open()
    for number in range(20):
        run(store, [("add", "main", quads(f"<urn:s> <urn:p> <urn:{number}>"))])
    store.close()
    lose_power(place.directory)
    monkeypatch.setattr(effects_log, "WAITING_LINES_LIMIT", 6)
    store = place.open()
    assert place.engines.main.commits == [7, 14, 20]
    assert store.recompute() == store.applied()


def test_an_engine_older_than_it_was_flushed_is_refused(place: Place) -> None:
    store = place.open(flush_after_lsns=1)
    run(store, [("add", "main", quads(A))])
    run(store, [("add", "main", quads(B))])
    store.close()
    (place.directory / "repositories/main.0/flushed").unlink()
    with pytest.raises(StoreDamaged, match="repository main is at LSN 0 and has been at 2 before"):
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


def test_the_effects_log_keeps_what_was_asked_and_not_much_more(place: Place) -> None:
    store = place.open(flush_after_lsns=10, keep_results=25)
    given = logged([run(store, [("put", "t", b"k", b"%d" % number)])[0] for number in range(100)])
    assert store.logged(75, 100) == []
    assert store.logged(76, 100) == given[75:]
    assert store.logged(76, 77) == given[75:77]
    assert store.logged_from() == 76


def test_a_range_of_long_lines_is_read_in_parts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_store, "LOGGED_BYTES", 1500)
    store = place.open()
    lines = [line for number in range(5) for line in logged(run(store, [("put", "t", b"%d" % number, bytes(1000))]))]
    assert store.logged(1, 9) == lines[:2]
    assert store.logged(3, 9) == lines[2:4]
    assert store.logged(5, 9) == lines[4:]
    # What was executed already is answered again as a whole, whatever its size.
    assert len(store.execute(1, [(line.txid, line.timestamp, b"") for line in lines])) == 5


def test_a_bulk_load_does_not_fill_the_effects_log(place: Place) -> None:
    store = place.open(keep_bytes=2_000_000, flush_after_bytes=1_000_000)
    for number in range(60):
        run(store, [("put", "t", b"%d" % (number % 3), bytes([number]) * 100_000)])
    held = [lsn for lsn in range(1, 61) if store.logged(lsn, lsn)]
    assert held == list(range(store.logged_from(), 61))
    assert 15 <= len(held) <= 35
    assert place.engines.main.flushes == 0
    assert store.recompute() == store.applied()


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
    with pytest.raises(StoreDamaged, match="repository main is at LSN 0 of 2, and the effects log lacks LSN 1"):
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


def test_a_full_disk_costs_the_batch_and_nothing_else(place: Place) -> None:
    store = place.open()
    run(store, [("put", "t", b"k", b"1"), ("add", "main", quads(A))])
    before = store.applied()
    for limit_bytes in (50_000, 200_000):
        with files_limited_to(limit_bytes), pytest.raises(StoreFull, match="the disk is full"):
            run(store, [("delete", "t", b"k")], [("put", "t", b"large", bytes(500_000)), ("add", "main", quads(B))])
        assert store.applied() == store.recompute() == before
    run(store, [("put", "t", b"large", bytes(500_000))])
    assert store.applied().lsn == 2
    store.close()
    store = place.open()
    assert store.recompute() == store.applied()


def test_an_effect_that_does_not_fit_this_copy_is_an_error_and_changes_nothing(place: Place) -> None:
    store = place.open()
    before = store.applied()
    effects = [[("put", "t", b"k", b"v")], [("quads", "nowhere", [], [A])]]
    with pytest.raises(StoreDiffers, match="this copy is not like the others"):
        store.apply(1, [("tx", 1, APPLIED, "", msgpack.packb(effect), UNKNOWN) for effect in effects])
    assert store.applied() == store.recompute() == before


def test_a_line_that_differs_leaves_what_was_committed_before_it_for_its_size(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given lines of which each two make a commit, the fourth of them wrong.
    monkeypatch.setattr(batch, "COMMIT_LIMIT_BYTES", 1500)
    other = Place(tmp_path / "other").open()
    right = logged(run(other, *[[("put", "t", b"%d" % number, bytes(1000))] for number in range(6)]))
    applied = other.applied()
    other.close()
    store = place.open()
    with pytest.raises(StoreDiffers) as found:
        store.apply(1, [*right[:3], right[3]._replace(fingerprint=right[0].fingerprint), *right[4:]])
    assert (found.value.lsn, found.value.fingerprint) == (4, right[3].fingerprint)
    assert store.logged(1, 9) == right[:2]
    assert store.applied() == store.recompute()
    store.apply(1, right)
    assert store.logged(1, 9) == right
    assert store.applied() == applied


def test_the_same_history_gives_the_same_bytes_of_effect_in_batches_of_any_size(place: Place, tmp_path: Path) -> None:
    history = [
        [("put", "t", b"%d" % (n % 5), b"%d" % n), ("add", "main", quads(A) if n % 2 else quads(B, C)), COUNT] for n in range(30)
    ]
    history.insert(10, [("update", "main", "nonsense"), ("put", "t", b"x", b"")])
    one_batch = run(place.open(), *history)
    other = Place(tmp_path / "other")
    store = other.open()
    one_by_one = [result for operations in history for result in run(store, operations)]
    store.close()
    assert one_by_one == one_batch
    assert one_batch[10] == Result(REJECTED, "MALFORMED: nonsense", b"", one_batch[9].fingerprint)
