"""kill -9 of a process while turns are appended, the log is trimmed, segments are closed and a snapshot is held: nothing acknowledged is lost.

All that `append` returned for is there, and each turn is there whole or not at all. test_every_write.py does it at each write by count.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from brokerha.log.disks import FileDisk
from brokerha.log.log import Log
from tests.unit.log.turns import body_of

TURN = 3

WRITER = """
import pathlib, sys
from brokerha.log.copies import LogCopy
from brokerha.log.disks import FileDisk
from tests.unit.log.turns import Author

copy = LogCopy(FileDisk(pathlib.Path(sys.argv[1])), "orders", "m1", segment_bytes=20_000, ids_held=20)
journal = copy.journal
lsn = journal.state().lsn
author = Author("m1")
author.lsn = author.executed = lsn
author.streams["m1"] = [(0, "")] * lsn
author.used["m1"] = lsn
author.clock = lsn * 10
while True:
    txids = [f"t{n}" for n in range(author.lsn + 1, author.lsn + 4)]
    journal.append(author.whole(*txids))
    if author.lsn % 30 == 0:
        copy.make_snapshot(f"s{author.lsn}")
        journal.keep(author.lsn - 100, 1)
    print(author.lsn, flush=True)
"""


def acknowledged_before_kill(directory: Path, turns: int) -> int:
    """Let a process append, kill it after some turns, and return the last LSN that it was told is durable."""
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen([sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, text=True, cwd=root) as writer:
        assert writer.stdout is not None
        for _ in range(turns):
            writer.stdout.readline()
        writer.kill()
        rest = writer.stdout.read()
    # A line may have been cut by the kill; the last whole one counts.
    lines = [line for line in rest.split("\n")[:-1] if line]
    return int(lines[-1]) if lines else 0


def test_nothing_acknowledged_is_lost_and_no_turn_is_half_there(tmp_path: Path) -> None:
    choose = random.Random(9)
    last = 0
    for _ in range(6):
        acknowledged = acknowledged_before_kill(tmp_path / "journal", choose.randrange(1, 120))
        journal = Log(FileDisk(tmp_path / "journal"), "orders", "m1", ids_held=20)
        state = journal.state()
        assert state.lsn >= acknowledged
        assert state.lsn > last
        assert state.lsn % TURN == 0
        assert (state.executed_lsn, state.parked) == (state.lsn, [])
        assert state.streams["m1"] == (state.lsn, [])
        for lsn in range(journal.first_lsn(), state.lsn + 1):
            assert journal.lsn_of(f"t{lsn}") == lsn
            assert journal.body("m1", f"t{lsn}") == body_of(f"t{lsn}")
        assert len(journal.results(journal.first_lsn(), 10_000)) == state.lsn - journal.first_lsn() + 1
        assert list(journal.verify()) == []
        journal.close()
        last = state.lsn
