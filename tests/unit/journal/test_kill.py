"""kill -9 while turns are appended, the log is trimmed and the file exchanged: nothing that was acknowledged is lost.

All that `append` returned for is there, and each turn is there whole or not at all.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from brokerha.journal.lmdb_journal import LmdbJournal
from tests.unit.journal.turns import body_of

TURN = 3

WRITER = """
import pathlib, sys
from brokerha.journal import compaction
from brokerha.journal.lmdb_journal import LmdbJournal
from tests.unit.journal.turns import Author
compaction.is_due = lambda *_: True

journal = LmdbJournal(pathlib.Path(sys.argv[1]), "orders", "m1", ids_buffered=20, tail_records=5)
lsn = journal.state().lsn
author = Author("m1")
author.lsn = author.executed = author.clock = lsn
author.streams["m1"] = [(0, "")] * lsn
author.used["m1"] = lsn
author.clock = lsn * 10
while True:
    txids = [f"t{n}" for n in range(author.lsn + 1, author.lsn + 4)]
    journal.append(author.whole(*txids))
    if author.lsn % 30 == 0:
        journal.trim(author.lsn - 100)
        journal.compact()
    print(author.lsn, flush=True)
"""


def acknowledged_before_kill(directory: Path, turns: int) -> int:
    """Let a process append, kill it after some turns, and return the last LSN that it was told is durable."""
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory)], stdout=subprocess.PIPE, text=True, cwd=root
    ) as writer:
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
        journal = LmdbJournal(tmp_path / "journal", "orders", "m1", ids_buffered=20, tail_records=5)
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
