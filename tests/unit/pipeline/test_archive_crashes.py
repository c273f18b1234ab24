"""`kill -9` of the archive job at every step: what is kept is contiguous, without duplicates, and the next run ends it as if nothing was."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from brokerha.pipeline.archive import ArchiveState
from brokerha.pipeline.archive_manifest import read_manifest
from tests.unit.pipeline.archive_place import Killed, Log, Place
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(11, 330)
COMPACTION: dict[str, Any] = {"has_compaction": True, "has_vacuum": True, "keep_replaced_s": 0.0}


def what_it_holds(state: ArchiveState) -> list[tuple[object, ...]]:
    """All of a manifest but when and how often it was written."""
    return [(file.path, file.sha256, file.chain, file.rows, file.last_txid) for file in state.files]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return Log(tmp_path_factory.mktemp("log") / "log", ENTRIES)


def killed_at(place: Place, step: int, **options: Any) -> bool:
    """One job that is killed at its n-th crash point; false when it has fewer."""
    steps = iter(range(step))

    def crash_point(_name: str) -> None:
        if next(steps, None) is None:
            raise Killed

    try:
        place.run(crash_point=crash_point, **options)
    except Killed:
        return True
    return False


@pytest.mark.parametrize("options", [{}, COMPACTION], ids=["archive", "with compaction and vacuum"])
def test_a_job_killed_at_any_step_is_ended_by_the_next_one(tmp_path: Path, log: Log, options: dict[str, Any]) -> None:
    whole = Place(tmp_path / "whole", log)
    whole.run(**options)
    step = 0
    while True:
        place = Place(tmp_path / f"{step}", log)
        was_killed = killed_at(place, step, **options)
        if (place.path / "manifest.json").exists():
            place.check()
        place.run(**options)
        place.check()
        assert place.state.last_lsn == 330
        assert place.entries() == whole.entries()
        assert place.paths() == {file.path for file in place.state.files}
        if not options:
            assert what_it_holds(place.state) == what_it_holds(whole.state)
        if not was_killed:
            break
        step += 1
    assert step >= (10 if not options else 15)


def test_a_job_killed_again_and_again_comes_to_its_end(tmp_path: Path, log: Log) -> None:
    place = Place(tmp_path / "archive", log)
    chance = random.Random(3)
    for _ in range(60):
        killed_at(place, chance.randrange(6), **COMPACTION)
        if place.archive.exists():
            place.check()
    place.run(**COMPACTION)
    place.check()
    assert place.state.last_lsn == 330


def test_what_a_killed_job_left_in_staging_and_in_the_log_is_no_part_of_the_archive(tmp_path: Path, log: Log) -> None:
    place = Place(tmp_path / "archive", log)
    place.run(to_lsn=100)
    assert killed_at(place, 2)
    assert place.paths() > {"log/1-100.parquet"}
    place.check()
    place.run(to_lsn=100)
    assert place.paths() == {"log/1-100.parquet"}


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_a_manifest_that_was_being_written_is_not_looked_at(tmp_path: Path, log: Log, cut: int) -> None:
    place = Place(tmp_path / "archive", log)
    place.run(to_lsn=100)
    text = (place.path / "manifest.json").read_bytes()
    (place.path / "manifest.json.new").write_bytes(text[:cut])
    place.run()
    place.check()


JOB = textwrap.dedent("""
    import sys
    from contextlib import nullcontext
    from pathlib import Path
    from brokerha.pipeline.archive_job import ArchiveOptions, Around, run
    from brokerha.pipeline.archive_tasks import TasksHere
    from brokerha.pipeline.sources import SourceSpec
    options = ArchiveOptions(Path(sys.argv[1]), SourceSpec(backup=sys.argv[2]), file_entries=20, has_compaction=True, has_vacuum=True,
                             keep_replaced_s=0.0)
    print("ready", flush=True)
    run(options, Around(spark=lambda: nullcontext(TasksHere()), tell=lambda done, total: print(done, flush=True)))
""")


def test_a_process_that_is_really_killed_leaves_a_whole_archive(tmp_path: Path, log: Log) -> None:
    place = Place(tmp_path / "archive", log)
    for lines in (1, 2, 3, 5):
        with subprocess.Popen(
            [sys.executable, "-c", JOB, str(place.path), str(log.path)], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(Path.cwd())}
        ) as process:  # fmt: skip
            assert process.stdout is not None
            for _ in range(lines):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
        if place.archive.exists():
            state = read_manifest((place.path / "manifest.json").read_bytes(), "it")
            assert state.last_lsn == 0 or list(place.archive.verify()) == []
    place.run(**COMPACTION)
    place.check()
    assert place.state.last_lsn == 330
