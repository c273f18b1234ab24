"""Damage of the files of a store with its real engine is told as damage, wherever it is met; a full disk is not.

What the engine says of its files was found by changing, cutting and deleting each of them (rdf/errors.py).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import lmdb
import pytest

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.operations import Operation
from brokerha.stores.execution.worker_store import StoreOptions, WorkerStore
from brokerha.stores.files.environment import store_errors
from brokerha.stores.rdf.errors import engine_errors, is_of_files, store_error
from brokerha.stores.rdf.repository import RdfRepository
from tests.contracts.store_contract import read, run

QUADS = "".join(f'<urn:s{n}> <urn:p> "{n} and a text of some length" <urn:g{n % 3}> .\n' for n in range(500))
# Not one that counts or sorts: over a damaged table the engine never comes back from it (rdf/errors.py).
COPY: Operation = ("update", "main", "INSERT { ?s <urn:q> ?o } WHERE { GRAPH ?g { ?s <urn:p> ?o } }")


class _AtRest(RdfRepository):
    """An engine that has put its tables together: one that is about to may have read them before they change."""

    def __init__(self, directory: Path | None) -> None:
        super().__init__(directory)
        self._engine().optimize()


def opened(directory: Path, engine: type[RdfRepository] = RdfRepository) -> WorkerStore:
    # Flushed after each batch, so that what was written is in tables of the engine and not in its log.
    options = StoreOptions(flush_after_lsns=1)
    return WorkerStore(directory, cluster="orders", node="w1", options=options, open_engine=engine)


@contextmanager
def running(directory: Path, engine: type[RdfRepository] = RdfRepository) -> Iterator[WorkerStore]:
    store = opened(directory, engine)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A closed store with quads."""
    with running(tmp_path / "w1") as store:
        run(store, [("add", "main", QUADS)])
        run(store, [("put", "t", b"k", b"v"), ("add", "main", "<urn:a> <urn:p> <urn:b> .\n")])
    return tmp_path / "w1"


def files(directory: Path, pattern: str) -> list[Path]:
    found = sorted((directory / "repositories/main.0").glob(pattern))
    assert found
    return found


def changed(file: Path) -> None:
    """Another byte in each 2 KiB of a file."""
    content = bytearray(file.read_bytes())
    for place in range(min(100, len(content) // 2), len(content), 2048):
        content[place] ^= 0x41
    file.write_bytes(content)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def statements(store: WorkerStore) -> bytes:
    return read(store, "statements", "main", accept="application/n-quads")


def as_turtle(store: WorkerStore) -> bytes:
    return read(store, "statements", "main", accept="application/trig")


def query(store: WorkerStore) -> bytes:
    return read(store, "query", "main", query="SELECT * { GRAPH ?g { ?s ?p ?o } }")


QUERIES = [
    "SELECT DISTINCT ?p { GRAPH ?g { ?s ?p ?o } }",
    "SELECT * { GRAPH ?g { ?s ?p ?o OPTIONAL { ?s <urn:q> ?x } FILTER(STRLEN(STR(?o)) > 3) } }",
    "SELECT * { GRAPH ?g { ?s <urn:p>/<urn:q> ?o } }",
    "CONSTRUCT { ?s ?p ?o } { GRAPH ?g { ?s ?p ?o } }",
    "DESCRIBE ?s { GRAPH ?g { ?s <urn:p> ?o } }",
]
"""None that counts, sorts or subtracts, has a path with + or *, or asks for what it has to search: those never come back."""


def size(store: WorkerStore) -> bytes:
    return read(store, "size", "main")


def size_of_a_graph(store: WorkerStore) -> bytes:
    return read(store, "size", "main", context="<urn:g1>")


def recompute(store: WorkerStore) -> object:
    return store.recompute()


def add(store: WorkerStore) -> object:
    return run(store, [("add", "main", QUADS)])


def update(store: WorkerStore) -> object:
    return run(store, [COPY])


def remove(store: WorkerStore) -> object:
    return run(store, [("remove-repository", "main")])


EVERYTHING = [statements, as_turtle, query, size, size_of_a_graph, recompute, add, update, remove]


@pytest.mark.parametrize(("harm", "use"), [*((changed, use) for use in EVERYTHING), (cut, statements), (Path.unlink, statements)])
def test_tables_of_the_engine_that_were_changed_are_damage(
    filled: Path, harm: Callable[[Path], None], use: Callable[[WorkerStore], object]
) -> None:
    for file in files(filled, "*.sst"):
        harm(file)
    # It may be met when the store opens, or not before something is read or written.
    with pytest.raises(StoreDamaged, match=r"Corruption: .*take the content from another worker"), running(filled) as store:
        use(store)


def test_a_table_of_the_engine_that_changes_while_it_runs_is_damage_in_each_read(filled: Path) -> None:
    with running(filled, _AtRest) as store:
        for file in files(filled, "*.sst"):
            with suppress(FileNotFoundError):  # Its content is in another already.
                changed(file)
        for use in (statements, as_turtle, query, size, size_of_a_graph, recompute, update):
            with pytest.raises(StoreDamaged, match="Corruption"):
                use(store)
        for text in QUERIES:
            with pytest.raises(StoreDamaged, match="Corruption"):
                read(store, "query", "main", query=text)
        # Names of graphs are known without the engine.
        assert b"urn:g2" in read(store, "contexts", "main")


@pytest.mark.parametrize(
    ("pattern", "harm"),
    [("MANIFEST-*", Path.unlink), ("MANIFEST-*", changed), ("MANIFEST-*", cut), ("CURRENT", Path.unlink), ("CURRENT", cut)],
)
def test_an_engine_whose_files_do_not_fit_each_other_is_damage_when_it_opens(
    filled: Path, pattern: str, harm: Callable[[Path], None]
) -> None:
    for file in files(filled, pattern):
        harm(file)
    with pytest.raises(StoreDamaged, match="take the content from another worker"):
        opened(filled)


def test_an_engine_that_lost_all_its_files_is_damage(filled: Path) -> None:
    for file in files(filled, "*"):
        file.unlink()
    with pytest.raises(StoreDamaged, match="is at LSN 0 and has been at 2 before"):
        opened(filled)


@pytest.mark.parametrize(
    ("error", "is_damage"),
    [
        (lmdb.CorruptedError("x"), True),
        (lmdb.BadTxnError("x"), True),
        (lmdb.PageNotFoundError("x"), True),
        (lmdb.InvalidError("x"), True),
        (lmdb.VersionMismatchError("x"), True),
        (lmdb.CursorFullError("x"), True),
        (lmdb.MapFullError("x"), False),
        (lmdb.ReadersFullError("x"), False),
        (lmdb.DiskError("x"), False),
        (lmdb.LockError("x"), False),
        (OSError(errno.ENOSPC, "x"), False),
        (OSError(errno.EIO, "x"), False),
        (PermissionError(errno.EACCES, "x"), False),
    ],
)
def test_what_the_tables_say_of_their_pages_is_damage_and_a_disk_that_takes_no_more_is_not(
    error: Exception, is_damage: bool
) -> None:
    with pytest.raises(StoreError) as found, store_errors("cannot read"):
        raise error
    assert isinstance(found.value, StoreDamaged) == is_damage
    assert str(found.value).startswith("cannot read: ")


@pytest.mark.parametrize(("path", "said"), [("b", "Permission denied"), ("b/.lock", "Permission denied (b/.lock)")])
def test_what_the_system_says_names_each_path_once(path: str, said: str) -> None:
    with pytest.raises(StoreError) as found, store_errors("cannot write into b"):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    assert str(found.value) == f"cannot write into b: {said}"


@pytest.mark.parametrize(
    ("error", "is_damage"),
    [
        (RuntimeError("Corruption: block checksum mismatch"), True),
        (FileNotFoundError("IO error: No such file or directory: While open a file for random read: 000040.sst"), True),
        (OSError("IO error: No space left on device: While appending to file: 000044.log"), False),
        (OSError("IO error: While lock file: LOCK: Resource temporarily unavailable"), False),
    ],
)
def test_what_the_engine_says_of_its_files_is_damage_and_a_full_disk_is_not(error: Exception, is_damage: bool) -> None:
    with pytest.raises(StoreError) as found, engine_errors("cannot read"):
        raise error
    assert isinstance(found.value, StoreDamaged) == is_damage
    assert type(store_error(error, "x")) is type(found.value)
    assert is_of_files(error)


@pytest.mark.parametrize("said", ["Permission denied", "Too many open files"])
def test_a_file_that_cannot_be_read_now_is_no_damage_in_whatever_the_engine_wraps_it(said: str) -> None:
    """A good copy was moved aside for it, and began anew."""
    text = "Invalid argument: Found options incompatible with filesystem: IO error: While open a file for random read: CURRENT"
    assert type(store_error(RuntimeError(f"{text}: {said}"), "x")) is StoreError
    assert type(store_error(RuntimeError(f"{text}: No such file or directory"), "x")) is StoreDamaged


def test_a_fault_of_the_program_is_not_taken_for_damage() -> None:
    with pytest.raises(RecursionError), engine_errors("cannot read"):
        raise RecursionError


def test_a_request_with_the_words_of_damage_in_it_is_only_rejected(tmp_path: Path) -> None:
    with running(tmp_path / "w1") as store:
        (result,) = run(store, [("update", "main", "COPY <Corruption:x> TO <urn:y>")])
        assert result.outcome == "rejected"
        assert "Corruption:x" in result.reason
