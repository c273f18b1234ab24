"""What only the journal on a disk has: an owner, an identity, a largest size, threads that read."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import lmdb
import msgpack
import pytest

from brokerha.journal import lmdb_journal, recovery
from brokerha.journal.beginning import Beginning
from brokerha.journal.database import Database
from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.journal.rows import checked
from brokerha.model.errors import JournalError, JournalForeign, JournalFull, JournalInUse
from brokerha.model.records import Accepted, Record, Started
from tests.unit.journal.turns import Author, body_of, everything, filled


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def journal(directory: Path) -> Iterator[LmdbJournal]:
    journal = LmdbJournal(directory, "orders", "m1")
    yield journal
    journal.close()


def test_a_second_open_is_refused_and_names_the_process(directory: Path, journal: LmdbJournal) -> None:
    with pytest.raises(JournalInUse, match=f"process {os.getpid()} has the journal"):
        LmdbJournal(directory, "orders", "m1")
    journal.append([Started(1)])
    journal.close()
    LmdbJournal(directory, "orders", "m1").close()


def test_a_second_process_is_refused_and_told_who_has_it(directory: Path, journal: LmdbJournal) -> None:
    program = (
        "import sys, pathlib\n"
        "from brokerha.journal.lmdb_journal import LmdbJournal\n"
        "LmdbJournal(pathlib.Path(sys.argv[1]), 'orders', 'm1')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(directory)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert f"JournalInUse: process {os.getpid()} has the journal" in done.stderr


@pytest.mark.parametrize(("cluster", "node"), [("other", "m1"), ("orders", "m2")])
def test_a_journal_of_another_cluster_or_node_is_refused(
    directory: Path, journal: LmdbJournal, cluster: str, node: str
) -> None:
    journal.close()
    with pytest.raises(JournalForeign, match=f"node m1 of cluster orders, not to node {node} of cluster {cluster}"):
        LmdbJournal(directory, cluster, node)
    LmdbJournal(directory, "orders", "m1").close()


def test_a_journal_of_a_later_format_is_refused(directory: Path, journal: LmdbJournal) -> None:
    identity = {"format": 4, "cluster": "orders", "node": "m1", "journal": "x"}
    with journal._database.env.begin(write=True) as txn:
        txn.put(recovery.IDENTITY, checked(msgpack.packb(identity)), db=journal._database.tables.meta)
    journal.close()
    with pytest.raises(JournalError, match="has format 4, this program reads 2 to 3"):
        LmdbJournal(directory, "orders", "m1")


def test_a_backup_is_not_restored_over_a_journal(directory: Path, journal: LmdbJournal) -> None:
    journal.close()
    with pytest.raises(JournalError, match="a backup is restored into a new directory"):
        LmdbJournal(directory, "orders", "m1", begin_at=Beginning(7, (1, "a", "m1"), b"", 0))
    LmdbJournal(directory, "orders", "m1").close()


def test_two_journals_have_two_names(tmp_path: Path) -> None:
    names = set()
    for n in (1, 2):
        journal = LmdbJournal(tmp_path / str(n), "orders", "m1")
        names.add(journal.state().journal)
        journal.close()
    assert len(names) == 2


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JournalError, match="file/journal"):
        LmdbJournal(tmp_path / "file" / "journal", "orders", "m1")


def test_a_full_map_takes_no_part_of_a_turn_and_stays_readable(directory: Path) -> None:
    # Given a journal that may grow to one megabyte
    journal = LmdbJournal(directory, "orders", "m1", map_size_bytes=1024 * 1024)
    author = Author("m1", "m2")
    turns = 0

    def large_turn() -> list[Record]:
        txid = f"t{turns}"
        return [Accepted(((txid, bytes(10_000)),)), author.stamp(txid), author.add(1)]

    turn = large_turn()
    # When turns are appended until it is full
    with contextlib.suppress(JournalFull):
        while turns < 1_000:
            journal.append(turn)
            turns += 1
            turn = large_turn()
    with pytest.raises(JournalFull, match="largest size"):
        journal.append(turn)
    assert turns > 10
    # Then all whole turns are there, nothing of the last one, and it can be read
    ids = [f"t{n}" for n in range(turns + 1)]
    found = everything(journal, ids, ["m1"])
    assert found["lsns"] == [*range(1, turns + 1), None]
    assert journal.state().lsn == turns
    journal.close()
    # And a larger map takes the turn again
    journal = LmdbJournal(directory, "orders", "m1", map_size_bytes=4 * 1024 * 1024)
    assert everything(journal, ids, ["m1"]) == found
    journal.append(turn)
    assert journal.lsn_of(ids[-1]) == turns + 1
    assert list(journal.verify()) == []
    journal.close()


def test_a_limit_of_the_operating_system_counts_as_a_full_disk(directory: Path) -> None:
    program = (
        "import resource, sys, pathlib\n"
        "from brokerha.journal.lmdb_journal import LmdbJournal\n"
        "from brokerha.model.errors import JournalFull\n"
        "from brokerha.model.records import Accepted\n"
        "journal = LmdbJournal(pathlib.Path(sys.argv[1]), 'orders', 'm1')\n"
        "journal.append([Accepted((('first', b'x'),))])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40 << 20, 40 << 20))\n"
        "try:\n"
        "    journal.append([Accepted((('second', bytes(60 << 20)),))])\n"
        "except JournalFull as error:\n"
        "    print('full', journal.body('m1', 'first'), journal.body('m1', 'second'), journal.state().parked)\n"
        "journal.append([Accepted((('third', b'z'),))])\n"
        "print(journal.state().parked)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(directory)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.splitlines() == ["full b'x' None ['first']", "['first', 'third']"], done.stderr


def test_after_an_error_of_the_disk_nothing_more_is_written(
    directory: Path, journal: LmdbJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    author = filled(journal, turns=2)

    def put_state(*_: object) -> None:
        raise lmdb.Error("mdb_txn_commit: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "_put_state", put_state)
        with pytest.raises(JournalError, match="Input/output error"):
            journal.append(author.whole("t3"))
    assert (journal.lsn_of("t2"), journal.lsn_of("t3")) == (2, None)
    with pytest.raises(JournalError, match="nothing more is written until the node is started again"):
        journal.append([Started(1)])
    journal.close()
    opened = LmdbJournal(directory, "orders", "m1")
    assert opened.state().lsn == 2
    opened.append([Started(1)])
    opened.close()


def test_other_threads_read_while_turns_are_appended(journal: LmdbJournal) -> None:
    # Given a thread that reads whatever is there, over and over
    problems: list[str] = []
    done = threading.Event()
    reads = 0

    def read() -> None:
        nonlocal reads
        while not done.is_set():
            found = journal.ordered(1, 1_000)
            reads += 1
            for lsn, (_, txid, origin) in enumerate(found, 1):
                if journal.lsn_of(txid) != lsn or journal.body(origin, txid) != body_of(txid):
                    problems.append(txid)

    thread = threading.Thread(target=read)
    thread.start()
    # When turns are appended meanwhile
    filled(journal, turns=60, per_turn=3)
    done.set()
    thread.join(timeout=60)
    # Then what it saw was always whole
    assert problems == []
    assert reads > 0


def test_what_is_read_does_not_depend_on_what_is_cached(directory: Path) -> None:
    large = LmdbJournal(directory, "orders", "m1")
    filled(large, turns=30, per_turn=4)
    ids = [f"t{n}" for n in range(1, 125)]
    warm = everything(large, ids, ["m1", "m2"])
    large.close()
    small = LmdbJournal(directory, "orders", "m1", cache_bytes=1)
    assert everything(small, ids, ["m1", "m2"]) == warm
    small.close()


def test_a_body_that_waits_for_long_does_not_make_a_restart_read_the_log(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a body whose entry never comes, and many turns after it
    journal = LmdbJournal(directory, "orders", "m1", tail_records=8)
    author = Author("m1", "m2")
    journal.append([author.hold("m2", "lost"), author.accept("parked")])
    filled(journal, turns=50, author=author)
    journal.close()
    # When it is opened again
    read: list[int] = []
    records = recovery.records

    def noted(database: Database, start: int) -> Iterator[tuple[int, Record]]:
        read.append(start)
        return records(database, start)

    monkeypatch.setattr(recovery, "records", noted)
    journal = LmdbJournal(directory, "orders", "m1", tail_records=8)
    # Then only the newest records are read for the tail, and nothing was forgotten
    assert min(read) > 190
    assert journal.state().parked == ["parked"]
    assert journal.body("m2", "lost") == body_of("lost", "m2")
    journal.close()


def test_trimming_goes_only_as_far_as_ids_are_written(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given many ids in memory, and calls that write few of them
    monkeypatch.setattr(lmdb_journal, "TRIM_IDS", 10)
    journal = LmdbJournal(directory, "orders", "m1")
    filled(journal, turns=40, per_turn=2)
    # When it is trimmed until everything is gone
    dropped = [journal.trim(below=61) for _ in range(7)]
    assert sum(dropped) == 0
    for _ in range(40):
        dropped.append(journal.trim(below=61))
        # Then each id has its LSN at every moment, though its record may be gone
        assert [journal.lsn_of(f"t{n}") for n in range(1, 81)] == list(range(1, 81))
    assert sum(dropped) == 60
    journal.close()
    journal = LmdbJournal(directory, "orders", "m1")
    assert [journal.lsn_of(f"t{n}") for n in range(1, 81)] == list(range(1, 81))
    assert list(journal.verify()) == []
    journal.close()


def test_trimmed_pages_are_used_again(directory: Path) -> None:
    journal = LmdbJournal(directory, "orders", "m1", ids_buffered=1)
    author = Author("m1", "m2")
    pages = []
    for _ in range(6):
        filled(journal, turns=60, per_turn=5, author=author)
        while journal.trim(below=author.lsn - 20):
            pass
        while journal.forget_ids(below=author.lsn - 20):
            pass
        pages.append(journal._database.env.info()["last_pgno"])
    journal.close()
    # The file grows while the first rounds fill it, and then no more.
    assert pages[-1] <= pages[2] * 1.1
