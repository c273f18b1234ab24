"""Damage at rest is found, named and refused; nothing that is damaged is ever given out as if it were whole."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerha.journal import recovery
from brokerha.journal.directory import DATA
from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.journal.rows import HEAD_BYTES, added_key, number_key, stream_key
from brokerha.journal.verification import verify_directory
from brokerha.model.codec import encode_record
from brokerha.model.errors import JournalDamaged, JournalError, JournalInUse
from brokerha.model.records import Started
from tests.unit.journal.turns import filled

ADVICE = "this node's copy is damaged, its peers hold the same data: stop the node, move the directory away"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A closed journal with ten turns of two transactions: 40 records."""
    journal = LmdbJournal(tmp_path / "journal", "orders", "m1", ids_buffered=4)
    filled(journal, turns=10, per_turn=2)
    journal.close()
    return tmp_path / "journal"


def flip(directory: Path, offset: int) -> None:
    with (directory / DATA).open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x10]))


def newest_offsets(directory: Path, content: bytes) -> list[int]:
    """Return where ``content`` lies in the file; older copies of a page may hold it as well."""
    data, offsets, start = (directory / DATA).read_bytes(), [], 0
    while (start := data.find(content, start)) >= 0:
        offsets.append(start)
        start += 1
    assert offsets
    return offsets


def record_bytes(directory: Path, number: int) -> bytes:
    journal = LmdbJournal(directory, "orders", "m1")
    found = dict(journal.records())[number]
    journal.close()
    return encode_record(found)


def test_each_flipped_byte_of_a_record_is_found_when_the_journal_is_opened(directory: Path, tmp_path: Path) -> None:
    content = record_bytes(directory, 17)
    offsets = newest_offsets(directory, content)
    for place in range(-HEAD_BYTES, len(content)):
        copy = tmp_path / "copy"
        shutil.copytree(directory, copy)
        for offset in offsets:
            flip(copy, offset + place)
        with pytest.raises(JournalDamaged, match=f"record 17 is not what was written.*{ADVICE}"):
            LmdbJournal(copy, "orders", "m1")
        shutil.rmtree(copy)


@pytest.fixture
def damaged(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LmdbJournal]:
    """An open journal whose record 17 (Accepted t9, t10) was damaged, further back than an opening looks."""
    for offset in newest_offsets(directory, record_bytes(directory, 17)):
        flip(directory, offset + 12)
    monkeypatch.setattr(recovery, "VERIFIED_AT_OPEN", 4)
    journal = LmdbJournal(directory, "orders", "m1")
    yield journal
    journal.close()


def test_a_damaged_record_is_named_by_whoever_reads_it(damaged: LmdbJournal) -> None:
    with pytest.raises(JournalDamaged, match="record 17"):
        damaged.body("m1", "t9")
    with pytest.raises(JournalDamaged, match="record 17"):
        list(damaged.records())
    assert [number for number, _ in damaged.records(18)] == list(range(18, 41))
    assert damaged.body("m1", "t8") is not None
    assert damaged.lsn_of("t9") == 9
    damaged.append([Started(1)])


def test_verification_names_the_damaged_record_and_goes_on(damaged: LmdbJournal) -> None:
    problems = list(damaged.verify())
    assert "record 17 is not what was written" in problems[0]
    assert [problem.split(" of")[0] for problem in problems[1:]] == [
        "LSN 9 has the body",
        "LSN 10 has the body",
    ]


def test_a_damaged_lsn_of_a_transaction_is_no_answer(directory: Path) -> None:
    for offset in newest_offsets(directory, b"t3" + (3).to_bytes(8, "big")):
        flip(directory, offset + 9)
    journal = LmdbJournal(directory, "orders", "m1")
    with pytest.raises(JournalDamaged, match="index row of transaction t3"):
        journal.lsn_of("t3")
    assert journal.lsn_of("t4") == 4
    assert any("t3: the checksum of a transaction id differs" in problem for problem in journal.verify())
    journal.close()


def rewrite(journal: LmdbJournal, table: str, key: bytes, change: Callable[[bytes], bytes]) -> None:
    """Change one row of an index behind the journal's back."""
    database = journal._database
    handle = getattr(database.tables, table)
    row = database.get(key, handle)
    assert row is not None
    with database.env.begin(write=True) as txn:
        txn.put(key, change(row), db=handle)
    database.refresh()


def test_an_index_row_that_points_to_another_record_is_damage_and_no_answer(directory: Path) -> None:
    journal = LmdbJournal(directory, "orders", "m1")
    # Given index rows that lead to the body of another transaction, and to records of another kind or range
    rewrite(journal, "added", added_key(3, 7), lambda row: row[:4] + row[12:20] + row[4:12] + row[20:])
    rewrite(journal, "outcomes", number_key(5), lambda row: number_key(6) + row[8:])
    rewrite(journal, "stream", stream_key("m1", 6), lambda row: number_key(2) + row[8:])
    # Then whoever uses them is told, and nobody gets a wrong body, result or entry
    with pytest.raises(JournalDamaged, match="does not hold transaction t3"):
        journal.body("m1", "t3")
    with pytest.raises(JournalDamaged, match="record 6 does not hold the result of LSN 5"):
        journal.results(5, 1)
    assert journal.stream("m1", 6, 1) == []
    assert len(list(journal.verify())) == 4
    journal.close()


def test_a_damaged_current_state_is_refused(directory: Path) -> None:
    for offset in newest_offsets(directory, b"fingerprint-20"):
        flip(directory, offset + 3)
    with pytest.raises(JournalDamaged, match="not what was written"):
        LmdbJournal(directory, "orders", "m1")


@pytest.mark.parametrize("kept", [1, 5_000, 60_000])
def test_a_file_that_was_cut_short_is_refused(directory: Path, kept: int) -> None:
    with (directory / DATA).open("r+b") as file:
        file.truncate(kept)
    with pytest.raises(JournalDamaged, match=f"{DATA}: {ADVICE}"):
        LmdbJournal(directory, "orders", "m1")
    assert len(list(verify_directory(directory))) == 1


@pytest.mark.parametrize("page", [0, 1])
def test_a_meta_page_that_would_hide_the_last_turn_is_refused(directory: Path, page: int) -> None:
    """Its transaction number decides which state LMDB takes for the newest."""
    flip(directory, page * 4096 + 16 + 128)
    with pytest.raises(JournalDamaged, match="do not follow on each other"):
        LmdbJournal(directory, "orders", "m1")


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / DATA).write_bytes(b"something else" * 1_000)
    with pytest.raises(JournalDamaged, match="meta page"):
        LmdbJournal(tmp_path, "orders", "m1")


def test_a_sound_journal_has_no_problems_and_is_not_changed_by_looking(directory: Path) -> None:
    before = (directory / DATA).read_bytes()
    assert list(verify_directory(directory)) == []
    assert (directory / DATA).read_bytes() == before


def test_a_journal_that_is_open_or_missing_is_not_verified_from_outside(directory: Path, tmp_path: Path) -> None:
    journal = LmdbJournal(directory, "orders", "m1")
    with pytest.raises(JournalInUse):
        list(verify_directory(directory))
    journal.close()
    with pytest.raises(JournalError, match="there is no journal"):
        list(verify_directory(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()


READ_ALL = """
import pathlib, sys
from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.journal.verification import verify_directory
from brokerha.model.errors import JournalError
from tests.unit.journal.turns import everything
path = pathlib.Path(sys.argv[1])
problems = list(verify_directory(path))
if problems:
    sys.exit(f"found: {problems[0]}")
try:
    journal = LmdbJournal(path, "orders", "m1")
    print(everything(journal, [f"t{n}" for n in range(1, 22)], ["m1", "m2"]))
except JournalError as error:
    sys.exit(f"found: {error}")
"""


def read_all(directory: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[3]
    return subprocess.run(
        [sys.executable, "-c", READ_ALL, str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=root,
    )


def test_verification_finds_any_flip_that_would_change_an_answer(directory: Path, tmp_path: Path) -> None:
    # Given a journal, and the answers that it gives
    sound = read_all(directory)
    assert sound.returncode == 0
    choose = random.Random(20)
    used = [offset for offset, byte in enumerate((directory / DATA).read_bytes()[: 1 << 20]) if byte]
    found = 0
    # When one byte anywhere in its file is damaged
    for _ in range(24):
        copy = tmp_path / "copy"
        shutil.copytree(directory, copy)
        offset = choose.choice(used)
        flip(copy, offset)
        done = read_all(copy)
        shutil.rmtree(copy)
        # Then that is found, or it lies where nothing is held, and all answers are the same
        if done.returncode == 1 and "found: " in done.stderr:
            found += 1
        else:
            assert (done.returncode, done.stdout) == (0, sound.stdout), f"byte {offset}: {done.stderr}"
    assert found > 0
