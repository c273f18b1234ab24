"""Damage at rest is found, named and refused; nothing that is damaged is ever given out as if it were whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from brokerha.log.disks import FileDisk, MemoryDisk
from brokerha.log.log import Log, open_log
from brokerha.model.errors import JournalDamaged, JournalError, JournalInUse
from brokerha.model.records import Started
from tests.support.logs import disk_of, memory_log
from tests.unit.log.turns import everything, filled

ADVICE = "this node's copy is damaged, its peers hold the same data: stop the node, move the directory away"
TXIDS = [f"t{n}" for n in range(1, 41)]


def written() -> Log:
    """A log of several segments, with runs of ids; nothing is held in memory."""
    log = memory_log("m1", "j", segment_bytes=4_000, ids_held=20, cache_bytes=1)
    author = filled(log, turns=20, per_turn=2)
    log.append([author.go_back(38), *author.synchronised("x1")])
    return log


def flipped(disk: MemoryDisk, name: str, offset: int, bit: int = 4) -> MemoryDisk:
    copy = disk.copy()
    copy.files[name][offset] ^= 1 << bit
    return copy


def answers(log: Log) -> dict[str, object]:
    return everything(log, TXIDS, ["m1"])


def test_a_flipped_bit_is_found_by_the_start_or_by_whoever_reads_it_and_never_believed() -> None:
    log = written()
    disk, choose = disk_of(log), Random(5)
    whole = answers(log)
    active = max(name for name in disk.files if name.endswith(".log"))
    last = log._segments.active.length
    refused = found_later = 0
    for name, data in disk.files.items():
        for offset in [choose.randrange(len(data)) for _ in range(40)]:
            other = flipped(disk, name, offset, choose.randrange(8))
            try:
                opened = Log(other, "orders", "m1", cache_bytes=1)
            except JournalError:
                refused += 1
                continue
            try:
                same = answers(opened) == whole
            except JournalDamaged:
                found_later += 1
                continue
            # What is left is padding, a part of the last write, or what nobody reads any more.
            is_last_write = name == active and offset >= last - 600
            assert same or is_last_write, (name, offset)
    assert refused > 100
    assert found_later > 50


def test_damage_before_a_later_write_is_refused_with_place_and_remedy() -> None:
    log = memory_log("m1", "j")
    filled(log, turns=3)
    with pytest.raises(JournalDamaged, match=rf"the bytes from offset 32 on, which were durable.*00000000\.log: {ADVICE}"):
        Log(flipped(disk_of(log), "1/00000000.log", 100), "orders", "m1")


def test_a_write_that_was_torn_does_not_count_and_the_next_one_takes_its_place() -> None:
    log = memory_log("m1", "j")
    author = filled(log, turns=3)
    whole = len(disk_of(log).files["1/00000000.log"])
    state = log.state()
    log.append(author.whole("t4", "t5"))
    # The last bytes only fill the frame up.
    for size in range(whole, len(disk_of(log).files["1/00000000.log"]) - 7):
        disk = disk_of(log).copy()
        del disk.files["1/00000000.log"][size:]
        found = Log(disk, "orders", "m1")
        assert found.state() == state
        found.append([Started(9)])
        assert Log(disk, "orders", "m1").state().incarnation == 9


def test_frames_that_a_longer_write_left_behind_a_shorter_one_do_not_count() -> None:
    # Given a write of several records that failed, and a shorter one in its place that begins with the same bytes
    log = memory_log("m1", "j")
    disk = disk_of(log)
    log.append([Started(1), Started(2), Started(3)])
    torn = bytes(disk.files["1/00000000.log"])
    other = memory_log("m1", "j")
    other.append([Started(1)])
    whole = bytes(disk_of(other).files["1/00000000.log"])
    disk_of(other).files["1/00000000.log"] = bytearray(whole + torn[len(whole) :])
    assert Log(disk_of(other).copy(), "orders", "m1").state().incarnation == 1


def test_frames_of_two_torn_writes_at_one_place_do_not_make_a_whole_one() -> None:
    # Given a power cut that kept only the later page of a write, and another that kept only the first one of the next write there
    log = memory_log("m1", "j")
    log.append([Started(1)])
    disk, begin = disk_of(log), log._segments.active.length
    file, second = disk.files["1/00000000.log"], begin + 32

    def written_there(*starts: int) -> bytes:
        other = Log(disk.copy(), "orders", "m1")
        other.append([Started(start) for start in starts])
        return bytes(disk_of(other).files["1/00000000.log"])

    file[begin:] = bytes(32) + written_there(2, 3)[second:]
    assert Log(disk, "orders", "m1").last_number == 1
    file[begin:second] = written_there(4, 5)[begin:second]
    # Then neither write is there
    assert Log(disk, "orders", "m1").last_number == 1


def test_a_file_that_is_gone_is_named() -> None:
    log = written()
    needed = ["1/checkpoint", *log._segments.files(), *log._named]
    assert len(needed) >= 5
    for name in needed:
        disk = disk_of(log).copy()
        del disk.files[name]
        with pytest.raises(JournalError, match=name):  # noqa: PT012
            for problem in Log(disk, "orders", "m1", cache_bytes=1).verify():
                raise JournalError(problem)


def test_verification_names_each_problem_and_goes_on() -> None:
    log = written()
    assert list(log.verify()) == []
    segment, ids = log._segments.files()[0], log._content.ids.files()[0]
    disk = flipped(flipped(disk_of(log), segment, 300), ids, 20)
    problems = list(Log(disk, "orders", "m1", cache_bytes=1).verify())
    assert any(segment in problem and "offset" in problem for problem in problems)
    assert any("ids that are known are not what was written" in problem for problem in problems)


def test_a_promise_that_is_not_what_was_written_is_damage() -> None:
    log = memory_log("m1", "j")
    log.promise(7)
    with pytest.raises(JournalDamaged, match="promise: this node's copy is damaged"):
        Log(flipped(disk_of(log), "promise", 8), "orders", "m1")


def test_a_promise_without_a_log_is_damage() -> None:
    disk = MemoryDisk()
    disk.files["promise"] = bytearray(b"x")
    with pytest.raises(JournalDamaged, match="a promise of this process and no log"):
        Log(disk, "orders", "m1")


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Path]:
    """A directory that another process has open."""
    code = (
        "import sys, pathlib; from brokerha.log.disks import FileDisk; from brokerha.log.log import Log\n"
        "log = Log(FileDisk(pathlib.Path(sys.argv[1])), 'orders', 'm1'); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "m1")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield tmp_path / "m1"
        process.kill()


def test_a_directory_that_another_process_has_open_is_refused_and_names_it(held: Path) -> None:
    with pytest.raises(JournalInUse, match=r"process \d+ has the journal in .* open: stop it first"):
        FileDisk(held)
    with pytest.raises(JournalInUse, match=r"process \d+"), open_log(held):
        pass


def test_a_stopped_log_is_read_by_several_and_written_by_nobody_meanwhile(tmp_path: Path) -> None:
    log = Log(FileDisk(tmp_path), "orders", "m1", segment_bytes=2_000)
    filled(log, turns=10, per_turn=2)
    wanted = answers(log)
    log.close()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.log")}
    with open_log(tmp_path) as one, open_log(tmp_path) as other:
        assert answers(one) == answers(other) == wanted
        assert (one.cluster, one.node, one.executed_lsn) == ("orders", "m1", 20)
        with pytest.raises(JournalError, match="for reading only"):
            one.append([Started(1)])
        with pytest.raises(JournalInUse, match="which reads it"):
            FileDisk(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.log")} == before


def test_where_there_is_no_log_none_is_made_by_reading(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no journal in"), open_log(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_folders_of_others_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    for folder in ("lost+found", "notes"):
        (tmp_path / folder).mkdir()
    (tmp_path / "notes" / "mine").touch()
    disk = FileDisk(tmp_path)
    assert disk.names() == []
    disk.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lost+found", "notes", "owner"]
