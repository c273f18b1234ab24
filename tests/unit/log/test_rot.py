"""Any bit of any file of a log flips: then its answers are those of before, or it says that it is damaged; it never gives another answer.

The one exception is the last write while nothing says that it was durable: it looks like one that a crash tore (FORMAT.md).
"""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.log.disks import MemoryDisk
from brokerha.log.log import Log
from brokerha.model.errors import JournalDamaged
from tests.unit.log.turns import Author, everything

BOUNDS: dict[str, Any] = {"segment_bytes": 1_500, "cache_bytes": 1, "ids_held": 8}
TXIDS = [f"t{n}" for n in range(1, 30)]


def written(*, is_ended: bool) -> tuple[dict[str, bytes], dict[str, object]]:
    """The files of a log with several segments, runs of ids, a queue that went back, and a trim; and all that it answers."""
    log = Log(MemoryDisk(), "orders", "m1", name="j", **BOUNDS)
    author = Author("m1", "m2")
    for n in range(1, 12):
        log.append(author.whole(f"t{2 * n - 1}", f"t{2 * n}"))
        if n == 6:
            log.append([author.go_back(author.lsn - 1)])
            log.append([author.add(5), author.execute(5)])
    log.trim(4)
    log.append(author.whole("t25", "t26"))
    found = answers(log)
    if is_ended:
        log.end()
    return {name: bytes(file) for name, file in log.disk.files.items()}, found  # type: ignore[attr-defined]


def answers(log: Log) -> dict[str, object]:
    return everything(log, TXIDS, ["m1", "m2"])


def read_back(files: dict[str, bytes]) -> dict[str, object] | None:
    """What a start finds and answers; None when it is damage. Other errors are ours."""
    disk = MemoryDisk()
    disk.files = {name: bytearray(file) for name, file in files.items()}
    try:
        return answers(Log(disk, "orders", "m1", **BOUNDS))
    except JournalDamaged:
        return None


def flipped(files: dict[str, bytes], name: str, offset: int) -> dict[str, bytes]:
    data = bytearray(files[name])
    data[offset] ^= 1 << offset % 8
    return {**files, name: bytes(data)}


@pytest.mark.parametrize("part", range(4))
def test_no_flipped_bit_changes_an_answer_of_a_log_that_was_ended(part: int) -> None:
    files, wanted = written(is_ended=True)
    assert sum(name.endswith(".log") for name in files) > 2
    assert any("/ids-" in name for name in files)
    damages = 0
    for name, data in files.items():
        for offset in range(part, len(data.rstrip(b"\0")), 4):
            found = read_back(flipped(files, name, offset))
            assert found is None or found == wanted, (name, offset)
            damages += found is None
    assert damages > 100


def test_until_something_says_that_the_last_write_was_durable_damage_to_it_looks_torn() -> None:
    files, wanted = written(is_ended=False)
    name = max(name for name in files if name.endswith(".log"))
    end = len(files[name].rstrip(b"\0"))
    found = read_back(flipped(files, name, end - 30))
    assert found is not None
    assert found != wanted
    assert found["lsns"] != wanted["lsns"]


def test_looking_after_it_says_that_the_last_write_was_durable_once() -> None:
    disk = MemoryDisk()
    log = Log(disk, "orders", "m1", name="j")
    author = Author("m1")
    log.append(author.whole("a"))
    while log.keep(0):
        pass
    before = {name: bytes(file) for name, file in disk.files.items()}
    name = max(name for name in before if name.endswith(".log"))
    assert read_back(before)
    end = len(before[name].rstrip(b"\0"))
    assert read_back(flipped(before, name, end - 60)) is None
    log.keep(0)
    assert {name: bytes(file) for name, file in disk.files.items()} == before
    # And it goes on after that
    log.append(author.whole("b"))
    assert Log(disk, "orders", "m1").lsn_of("b") == 2
