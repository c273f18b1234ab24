"""``python -m tests.bench pipeline``: speed of read, archive, audit and rebuild, compared with a simple loop over the same entries.

    folder/log ──generated──┬─> plain loop, one process                 each step in its own process (pipeline_steps.py):
                            └─> Spark with 1 core, with 2, by a master      seconds, seconds until Spark started, processor time, memory

**Memory** is the sum of all processes of a step: driver, JVM, Python workers, each with its share of common memory (PSS), sampled
every quarter of a second; executors of a cluster are not included. **Processor time** is more reliable than seconds when other
programs run on the same cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import typer

from brokerha.cli.common import exits
from brokerha.cli.common.command import Answer, columns
from brokerha.model.errors import NotReady
from tests.bench.options import BenchOptions
from tests.bench.pipeline_steps import STEPS

COLUMNS = columns(
    "step", "where", "seconds", "start_s=START", "entries_per_s=ENTRIES/S", "rows_per_s=ROWS/S", "cpu_s",
    "peak_mb=MB MOST", "jvm_mb=OF JVM", "times_plain", "times_plain_with_start=WITH START", "load_average=LOAD",
)  # fmt: skip
LOOK_S: Final = 0.25
STEP_WITHIN_S: Final = 3600.0
_PLAIN_OF: Final = {"read-tuples": "read"}
"""Steps that are compared with the plain loop of another step."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Usage:
    """Resources of a process and all its descendants."""

    peak_bytes: int = 0
    jvm_bytes: int = 0
    """Memory of the JVM, at the same moment."""
    _cpu: dict[int, float] = field(default_factory=dict)

    @property
    def cpu_s(self) -> float:
        """Processor time up to the last sample."""
        return sum(self._cpu.values())

    def look(self, root: int) -> None:
        """Take a sample from /proc."""
        total = jvm = 0
        for pid in _family(root):
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
                self._cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
                size_bytes = _share(pid)
                total += size_bytes
                if Path(f"/proc/{pid}/comm").read_text("utf-8").strip() == "java":
                    jvm += size_bytes
        if total > self.peak_bytes:
            self.peak_bytes, self.jvm_bytes = total, jvm


def _family(root: int) -> list[int]:
    """Return a process and all its descendants."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                waiting += map(int, task.read_text("utf-8").split())
    return found


def _share(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def pipeline(options: BenchOptions) -> Answer:
    """Run the measurement. With a folder, reuse the log in it, and keep all results there.

    Raises NotReady when a step fails, StoreError.
    """
    steps = options.steps.split(",") if options.steps else STEPS
    if unknown := sorted(set(steps) - set(STEPS)):
        raise typer.BadParameter(f"there is no step {unknown[0]!r}; there are {', '.join(STEPS)}")
    entries, where = options.entries, options.spark.split(",")
    with contextlib.ExitStack() as stack:
        place = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="brokerha-bench-")))
        place.mkdir(parents=True, exist_ok=True)
        generate_s = _generated(place, entries)
        rows: list[dict[str, Any]] = []
        plain: dict[str, float] = {}
        for step in steps:
            of_plain = _PLAIN_OF.get(step, step)
            if of_plain not in plain:
                rows.append(_measured(place, of_plain, "plain", entries, None))
                plain[of_plain] = rows[-1]["seconds"]
            if step not in {"archive", "read", "read-tuples"} and not (place / "archive").exists():
                _measured(place, "archive", where[-1], entries, None)
            rows += [_measured(place, step, each, entries, plain[of_plain]) for each in where]
    log_rows = max((row["rows"] for row in rows), default=0)
    rows = [{**row, "rows": log_rows, "rows_per_s": round(log_rows / row["seconds"])} for row in rows]
    data = {"entries": entries, "rows": log_rows, "generate_s": round(generate_s, 2), "steps": rows}
    return Answer(data, rows, COLUMNS)


def _name_of(where: str) -> str:
    cores = f"{where} core{'s' * (where != '1')}" if where.isdecimal() else where
    return "plain loop" if where == "plain" else f"Spark, {cores}"


def _generated(place: Path, entries: int) -> float:
    from brokerha.stores.backup.directory import BackupDirectory
    from tests.bench.pipeline_log import write_backup

    begun_s = time.perf_counter()
    log = place / "log"
    if log.exists():
        found = BackupDirectory(log).manifest().last_lsn
        if found != entries:
            raise NotReady(f"{log} holds {found} entries: choose another folder, or --entries {found}")
    else:
        write_backup(log, entries)
        exits.say(f"a log of {entries:,} entries, made in {time.perf_counter() - begun_s:.1f} s")
    return time.perf_counter() - begun_s


def _measured(place: Path, step: str, where: str, entries: int, plain_s: float | None) -> dict[str, Any]:
    """Measure one row. Raises NotReady."""
    usage = Usage()
    before_s = _of_children_s()
    command = [sys.executable, "-m", "tests.bench.pipeline_steps", str(place), step, where]
    deadline_s = time.monotonic() + STEP_WITHIN_S
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
    ):
        try:
            told = None
            while told is None:
                usage.look(child.pid)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    told, _ = child.communicate(timeout=LOOK_S)
                if told is None and time.monotonic() > deadline_s:
                    raise NotReady(f"the step {step} took longer than {STEP_WITHIN_S:g} s")
        finally:
            child.terminate()
        if child.returncode != 0 or not told:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["it said nothing"])[-1]
            raise NotReady(f"the step {step} ({where}) failed: {last}")
    # The first misses processes that ended between two samples, the second those that were not waited for.
    cpu_s = max(usage.cpu_s, _of_children_s() - before_s)
    found = json.loads(told.strip().splitlines()[-1])
    seconds, start_s = found["seconds"], found["start_s"]
    row = {
        "step": step,
        "where": _name_of(where),
        "rows": found["rows"],
        "seconds": round(seconds, 2),
        "start_s": round(start_s, 2),
        "entries_per_s": round(entries / seconds),
        "cpu_s": round(cpu_s, 1),
        "peak_mb": round(usage.peak_bytes / 1e6),
        "jvm_mb": round(usage.jvm_bytes / 1e6),
        "times_plain": round(plain_s / seconds, 2) if plain_s else None,
        "times_plain_with_start": round(plain_s / (seconds + start_s), 2) if plain_s else None,
        "load_average": round(os.getloadavg()[0], 1),
    }
    exits.say(_sentence(row))
    return row


def _of_children_s() -> float:
    """Return the processor time of all descendants that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _sentence(row: dict[str, Any]) -> str:
    text = f"{row['step']}, {row['where']}: {row['seconds']:.1f} s"
    if row["start_s"]:
        text += f" after {row['start_s']:.1f} s until Spark was there"
    text += f", {row['cpu_s']:.1f} s of processors, {row['peak_mb']:,} MB"
    return text if row["times_plain"] is None else f"{text}, {row['times_plain']:.2f} times the plain loop"
