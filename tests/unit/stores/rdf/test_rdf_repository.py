"""A repository as a place: commits with their position, crashes, directories, graphs that come and go."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyoxigraph import NamedNode, Quad, Store

from brokerha.model.errors import StoreDamaged, StoreError, StoreStuck
from brokerha.model.invariants import InvariantBroken
from brokerha.stores.rdf.change import PendingQuads, QuadChange, canonical, change_text, parse_lines
from brokerha.stores.rdf.errors import is_of_files
from brokerha.stores.rdf.repository import RdfRepository
from brokerha.stores.rdf.terms import SYSTEM_GRAPH
from tests.unit.stores.rdf_site import Site, on_quads
from tests.unit.stores.store_place import files_limited_to

ROOT = Path(__file__).resolve().parents[4]

# Reads `lines` of a program, one commit each, and ends without closing anything when it has done what it should.
DYING = """
import os, sys
from pathlib import Path
from brokerha.model.operations import Update
from brokerha.stores.rdf.repository import RdfRepository
from brokerha.stores.rdf.change import PendingQuads
from brokerha.stores.sparql.modify import Modify

repository = RdfRepository(Path(sys.argv[1]))
for lsn in range(1, 101):
    removed = [f'<urn:s{lsn - 1}> <urn:p> "v" <urn:g>'] if lsn > 1 and lsn % 2 else []
    repository.commit(removed, [f'<urn:s{lsn}> <urn:p> "v" <urn:g>', f'_:b{lsn} <urn:p> <urn:s{lsn}>'], lsn)
if sys.argv[2] == "evaluating":
    Modify._report = lambda *_: os._exit(8)  # In the middle of the engine's transaction, with changes applied in it.
    pending = PendingQuads()
    pending.added.add('<urn:pending> <urn:p> "v"')
    repository.change_of(
        [(0, Update("update", "main", "DELETE { ?s ?p ?o } WHERE { ?s ?p ?o FILTER(true) } ; INSERT { ?s ?p 1 } WHERE { ?s ?p ?o }"))], "tx", 0, pending
    )
os._exit(9)
"""


def line(number: int, graph: str = "") -> str:
    return f'<urn:s{number}> <urn:p> "v"{graph}'


@pytest.mark.parametrize("on_disk", [True, False])
def test_position_and_data_move_together(tmp_path: Path, on_disk: bool) -> None:
    repository = RdfRepository(tmp_path / "r" if on_disk else None)
    assert repository.position == 0
    for lsn in range(1, 200):
        removed = [line(lsn - 10)] if lsn % 20 == 0 else []
        repository.commit(removed, [line(lsn)], lsn)
        assert repository.position == lsn
    assert repository.size() == len(list(repository.lines())) == 199 - 9
    if on_disk:
        repository.flush()
        repository.close()
        again = RdfRepository(tmp_path / "r")
        assert again.position == 199
        assert again.size() == 190


def test_a_commit_of_nothing_moves_the_position(tmp_path: Path) -> None:
    repository = RdfRepository(tmp_path / "r")
    repository.commit([], [], 7)
    repository.close()
    assert RdfRepository(tmp_path / "r").position == 7


def test_a_commit_repeated_is_a_commit_done_once() -> None:
    site = Site()
    for _ in range(3):
        site.repository.commit([line(1)], [line(2), "_:b <urn:p> _:b", "_:b <urn:p> <urn:o> _:g"], 5)
    assert site.lines() == sorted([line(2), "_:b <urn:p> _:b", "_:b <urn:p> <urn:o> _:g"])
    assert site.repository.position == 5
    assert site.repository.size() == 3


def test_a_commit_below_the_position_is_in_the_store_already() -> None:
    site = Site()
    site.repository.commit([], [line(1)], 5)
    site.repository.commit([line(1)], [line(2)], 6)
    site.repository.commit([], [line(1)], 5)
    assert site.lines() == [line(2)]
    assert site.repository.position == 6


def test_a_commit_removes_and_adds_every_kind_of_quad() -> None:
    everything = canonical(
        parse_lines([
            "<urn:a> <urn:p> <urn:o>",
            '<urn:a> <urn:p> "x"@en <urn:g>',
            '<urn:a> <urn:p> "a\\nb\\"c\\\\d\\u0001{}<>"',
            '_:a <urn:p> "_:no blank node"',
            "_:a.b <urn:p> _:0 _:g",
            "<urn:a> <urn:p> _:a <urn:g>",
            "<urn:a> <urn:p> <<( _:a <urn:p> <<( <urn:x> <urn:y> _:z )>> )>>",
            '<urn:\u00e9> <urn:p> "\u00e9"^^<urn:type> _:\u00e9',
        ])
    )  # fmt: skip
    site = Site()
    site.repository.commit([line(1)], everything, 1)
    assert site.lines() == sorted(everything)
    # Removal forces the way through a text of updates, for what is added too.
    site.repository.commit([line(1)], [], 2)
    half = sorted(everything)[::2]
    site.repository.commit(half, [line(3)], 3)
    assert site.lines() == sorted([*set(everything) - set(half), line(3)])
    site.repository.commit([line(3)], half, 4)
    assert site.lines() == sorted(everything)
    site.repository.commit(everything, [], 5)
    assert site.lines() == []
    assert site.repository.contexts() == []


def test_damage_of_the_files_is_told_from_a_fault_of_the_request() -> None:
    assert is_of_files(OSError("no space left"))
    assert is_of_files(RuntimeError("Corruption: block checksum mismatch"))
    assert not is_of_files(RuntimeError("The custom function <urn:Corruption:f> is not supported"))


def test_no_text_is_needed_for_no_change() -> None:
    assert change_text([], []) == ""


def test_an_empty_graph_is_no_graph(tmp_path: Path) -> None:
    repository = RdfRepository(tmp_path / "r")
    repository.commit([], [line(1, " <urn:g>"), line(2, " <urn:g>"), line(3, " _:g"), line(4)], 1)
    assert repository.contexts() == ["<urn:g>", "_:g"]
    repository.commit([line(1, " <urn:g>"), line(3, " _:g")], [], 2)
    assert repository.contexts() == ["<urn:g>"]
    repository.commit([line(2, " <urn:g>")], [], 3)
    assert repository.contexts() == []
    _, pieces = repository.query("ASK { GRAPH ?g { } }", "text/boolean")
    assert b"".join(pieces) == b"false"


def test_a_graph_that_a_crash_left_empty_is_gone_when_the_store_opens(tmp_path: Path) -> None:
    repository = RdfRepository(tmp_path / "r")
    repository.commit([], [line(1, " <urn:g>")], 1)
    repository.close()
    engine = Store(str(tmp_path / "r"))
    engine.add_graph(NamedNode("urn:empty"))
    del engine
    again = RdfRepository(tmp_path / "r")
    assert again.contexts() == ["<urn:g>"]
    _, pieces = again.query("SELECT ?g { GRAPH ?g { } }", "text/csv")
    assert b"".join(pieces) == b"g\r\nurn:g\r\n"


@pytest.mark.parametrize("moment", ["between", "evaluating"])
def test_a_process_that_dies_leaves_whole_commits_only(tmp_path: Path, moment: str) -> None:
    # Given a process that dies between commits, or while an update is evaluated with pending changes under it
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path / "r"), moment], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == {"between": 9, "evaluating": 8}[moment], done.stderr
    # When the directory is opened again
    repository = RdfRepository(tmp_path / "r")
    # Then all commits are there, with their position, and nothing else
    assert repository.position == 100
    left = {f'<urn:s{lsn}> <urn:p> "v" <urn:g>' for lsn in range(1, 101) if lsn % 2 or lsn == 100}
    assert set(repository.lines()) == left | {f"_:b{lsn} <urn:p> <urn:s{lsn}>" for lsn in range(1, 101)}


def test_a_copy_of_the_files_of_a_running_store_opens_at_a_commit(tmp_path: Path) -> None:
    repository = RdfRepository(tmp_path / "r")
    for lsn in range(1, 50):
        repository.commit([line(lsn - 1)], [line(lsn)], lsn)
        repository.change_of([(0, on_quads("update", "DELETE WHERE { ?s ?p ?o }"))], "tx", 0, PendingQuads())
    shutil.copytree(tmp_path / "r", tmp_path / "copy")
    copy = RdfRepository(tmp_path / "copy")
    assert (copy.position, list(copy.lines())) == (49, [line(49)])


def test_a_second_opening_of_a_directory_says_why_not(tmp_path: Path) -> None:
    first = RdfRepository(tmp_path / "r")
    with pytest.raises(StoreError, match=r"cannot be opened: IO error: .*lock") as found:
        RdfRepository(tmp_path / "r")
    assert not isinstance(found.value, StoreDamaged)
    first.close()
    RdfRepository(tmp_path / "r").close()


def test_a_directory_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(StoreError, match="cannot be opened"):
        RdfRepository(tmp_path / "file" / "r")


def test_a_closed_repository_says_so(tmp_path: Path) -> None:
    repository = RdfRepository(tmp_path / "r")
    repository.close()
    repository.close()
    for use in (repository.size, repository.lines, repository.flush, lambda: repository.commit([], [], 1)):
        with pytest.raises(StoreError, match="closed"):
            use()


def test_evaluating_never_changes_what_others_read(tmp_path: Path) -> None:
    # Given a repository in which each commit replaces one quad by another, so that there is always exactly one
    repository = RdfRepository(tmp_path / "r")
    repository.commit([], [line(0)], 1)
    stop, seen = threading.Event(), set[str]()

    def read() -> None:
        while not stop.is_set():
            _, pieces = repository.query("SELECT (COUNT(*) AS ?n) { ?s ?p ?o }", "text/csv")
            seen.add(b"".join(pieces).decode())
            seen.add(f"size {repository.size()} of {len(list(repository.lines()))}")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    # When updates are evaluated with pending changes, and commits made, while others read
    pending = PendingQuads()
    pending.include(QuadChange((), tuple(line(1000 + n) for n in range(50))))
    copying = on_quads("update", "INSERT { ?s <urn:q> ?o } WHERE { ?s ?p ?o }")
    for lsn in range(2, 60):
        repository.change_of([(0, copying)], "tx", 0, pending)
        repository.commit([line(lsn - 2)], [line(lsn - 1)], lsn)
    stop.set()
    for reader in readers:
        reader.join()
    # Then nobody saw anything else than one quad
    assert seen == {"n\r\n1\r\n", "size 1 of 1"}


def test_lines_stay_in_their_thread_instead_of_ending_the_process() -> None:
    site = Site()
    site.run("INSERT DATA { <urn:a> <urn:p> 1 , 2 }")
    faults: list[BaseException] = []
    lines = site.repository.lines()

    def take() -> None:
        try:
            next(lines)
        except InvariantBroken as fault:
            faults.append(fault)

    other = threading.Thread(target=take)
    other.start()
    other.join()
    assert "stays in the thread" in str(faults[0])


def test_lines_are_those_of_one_commit() -> None:
    site = Site()
    site.run("INSERT DATA { <urn:a> <urn:p> 1 , 2 , 3 }")
    lines = site.repository.lines()
    first = next(lines)
    site.run("DELETE WHERE { ?s ?p ?o }")
    assert len({first, *lines}) == 3
    assert site.lines() == []


def test_the_system_graph_holds_few_positions(tmp_path: Path) -> None:
    repository = RdfRepository(tmp_path / "r")
    for lsn in range(1, 301):
        repository.commit([], [line(lsn)], lsn)
    repository.close()
    engine = Store(str(tmp_path / "r"))
    positions: list[Quad] = list(engine.quads_for_pattern(None, None, None, SYSTEM_GRAPH))
    assert 1 <= len(positions) <= 65


@pytest.mark.parametrize("doing", ["commit", "flush", "move"])
def test_after_a_write_that_failed_the_engine_reads_and_takes_more_only_when_it_is_opened_anew(tmp_path: Path, doing: str) -> None:
    repository = RdfRepository(tmp_path / "r")
    repository.commit((), [line(1)], 1)
    write = {
        "commit": lambda: repository.commit((), [line(2)], 2),
        "flush": repository.flush,
        "move": lambda: repository.move_to(0),
    }[doing]
    with files_limited_to(16), pytest.raises(StoreStuck, match=r"cannot be written: .*the store is opened anew"):
        write()
    with pytest.raises(StoreStuck):
        write()
    assert list(repository.lines()) == [line(1)]
    repository.close()
    # As the copy does it: the tracebacks of errors hold the engine open.
    gc.collect()

    repository = RdfRepository(tmp_path / "r")
    assert repository.position == 1
    repository.commit((), [line(2)], 2)
    repository.flush()
    assert sorted(repository.lines()) == [line(1), line(2)]
