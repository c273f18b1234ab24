"""Runs the checks part by part and closes with a table of what was covered: the engine of ``make test``.

Each part is one command with a deadline; a part that fails does not keep the others from running, but the exit code
is 1. The rules come first because they take seconds, the broker last because it takes minutes. Where real clocks run, at most forty
tests that failed run once more, alone: a machine that stands still for half a minute fails whatever runs in it. Who passes then does
not fail the part, and the table names it as unstable, with why it had failed:

    rules     ruff (style, layout), mypy --strict, import contracts
    cores     tests without a broker that are not slow, in parallel: those of the cores with branch coverage; then, without,
              those of all around them, and those that run thousands of clusters
    rabbitmq4 the tests of the wire over RabbitMQ 4, and there the nemesis; beside those around the cores, as both wait a lot
    slow      slow tests without a broker: simulated clusters, long histories
    spark     tests on Spark without a broker, in one session, beside the slow ones
    broker    tests over RabbitMQ, four at a time, on one broker that is lent to all of them; beside them, one after the other, those of the
              pipeline: each starts a Java machine or several, and two of them at a time leave nothing to the others

    python -m tests.support.all_parts                  everything
    python -m tests.support.all_parts rules cores      only these parts

Tests add lines of their own to the closing summary through the fixture ``covered``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.conftest import SUMMARY_VARIABLE
from tests.support.places import OF_SLOW, OF_THE_PIPELINE, PLACES

_ROOT = Path(__file__).resolve().parents[2]
_RESULTS = _ROOT / "build" / "test"
_BIN = Path(sys.executable).parent
_PYTHON = sys.executable
_ROUNDS = "tests/system/test_split_rounds.py"
_BRANCH_COVERAGE_MIN_PERCENT = 95
_NO_TESTS_SELECTED = 5
_INTERRUPTED = 130
_AGAIN_MOST = 40
_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class Part:
    """One command. ``name`` names its result file too; ``within_s`` is the time after which it is killed."""

    name: str
    caption: str
    command: Sequence[str]
    within_s: int
    tries_again: bool = False
    """Whether what failed beside others runs once more without them."""
    beside: bool = False
    """Whether it runs at the same time as the part before it; what it says comes when both are done."""


@dataclass(slots=True)
class Outcome:
    """What came of a part; ``unstable`` are the tests that passed only alone, with why they had failed."""

    part: Part
    counted: list[str]
    """What the table says besides the problem: how many tests passed, failed and were skipped."""
    problem: str
    """Empty if it passed."""
    seconds: float
    processor_s: float
    """Of the processes that ended in order: one that was killed with its parent is not in it."""
    unstable: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        return not self.problem

    @property
    def details(self) -> str:
        return "; ".join(filter(None, [", ".join(self.counted), self.problem])) or "clean"


def _pytest(name: str, *options: str) -> list[str]:
    # A cache for each part: what failed is written there, and parts that run beside each other would overwrite it.
    files = [f"--junit-xml={_RESULTS / name}.xml", "-o", f"cache_dir={_RESULTS / name}.cache"]
    return [_PYTHON, "-m", "pytest", "-q", *files, *options]


def _over_rabbitmq(name: str, *options: str) -> list[str]:
    return [_PYTHON, "-m", "tests.support.broker_source", "run", "--", *_pytest(name, "-m", "broker and not campaign", *options)]


def _ignore(places: Sequence[str]) -> list[str]:
    return [f"--ignore={place}" for place in places]


def _coverage_options() -> list[str]:
    return ["--cov", f"--cov-report=json:{_RESULTS / 'coverage.json'}"]


_COUNTED = tuple(
    f"tests/{place}"
    for place in (
        "interaction",
        "simulation/test_seeds.py",
        "unit/master",
        "unit/model",
        "unit/paper",
        "unit/replication",
        "unit/sync",
        "unit/transactions",
    )
)
"""Tests of the cores. What the others reach of them is not counted: to count takes half as long again."""
_QUICK = "not broker and not slow and not campaign and not spark"
_NEMESIS = "tests/system/nemesis/test_nemesis.py"
_CRASH_POINTS = "tests/unit/transactions/test_crash_points.py"
_NOT_COUNTED = ("tests/simulation", _CRASH_POINTS)
"""They run thousands of clusters, in half the time when nobody counts branches; what they reach is reached by others too."""
_ON_BOTH = (
    _NEMESIS,
    "tests/system/test_log_stream.py",
    "tests/system/test_amqp_door.py",
    "tests/contracts/test_transports.py",
    "tests/contracts/test_rabbitmq_faults.py",
    "tests/contracts/test_pika_wire.py",
    "tests/contracts/test_identity.py",
    "tests/contracts/test_tx_queues.py",
    "tests/contracts/test_tx_queue_faults.py",
)
"""Whatever speaks to a broker, over both of its versions; the broker part runs all over the one of this machine, but for the nemesis: it is
long, and RabbitMQ 4 has more that may go wrong."""

PARTS: dict[str, list[Part]] = {
    "rules": [
        Part("ruff", "style, and what is banned", [str(_BIN / "ruff"), "check", "."], 120),
        Part("format", "layout of the code (make format)", [str(_BIN / "ruff"), "format", "--check", "."], 120),
        Part("mypy", "types, strict", [_PYTHON, "-m", "mypy"], 600),
        Part("imports", "who may import whom", [str(_BIN / "lint-imports"), "--no-cache"], 120),
    ],
    "cores": [
        Part(
            "cores",
            "the cores, their branches counted",
            _pytest("cores", "-m", _QUICK, "-n", "2", f"--ignore={_CRASH_POINTS}", *_coverage_options(), *_COUNTED),
            1800,
        ),
        Part(
            "crashes",
            "scenarios, planted mistakes, every crash point",
            _pytest(
                "crashes", "-m", _QUICK, "-n", "2", *_ignore([each for each in _COUNTED if "simulation" in each]), *_NOT_COUNTED
            ),
            1800,
        ),
        Part(
            "adapters",
            "all around them, without a broker",
            _pytest("adapters", "-m", _QUICK, "-n", "3", *_ignore((*_COUNTED, *_NOT_COUNTED))),
            1800,
            tries_again=True,
        ),
    ],
    "rabbitmq4": [
        Part(
            "rabbitmq4",
            "the same wire over RabbitMQ 4",
            ["env", "BROKERHA_TEST_RABBITMQ=4", *_over_rabbitmq("rabbitmq4", "-n", "2", "--dist", "loadfile", *_ON_BOTH)],
            2700,
            tries_again=True,
            beside=True,
        )
    ],
    "slow": [
        Part(
            "slow",
            "simulated clusters, long histories",
            # The longest of them spread over both processors themselves.
            _pytest("slow", "-m", "slow and not broker and not campaign and not spark", *OF_SLOW),
            2700,
            tries_again=True,
        )
    ],
    "spark": [
        Part(
            "spark",
            "on Spark, in one session",
            # All of them lie there: their mark comes from this folder.
            _pytest("spark", "-m", "spark and not broker and not campaign", "tests/spark"),
            1800,
            tries_again=True,
            beside=True,
        )
    ],
    "broker": [
        Part(
            "broker",
            "over RabbitMQ",
            # Four at a time, because most of them wait for a node or a clock; by files, which share a running site.
            _over_rabbitmq(
                "broker", "-n", "4", "--dist", "loadfile", "--no-loadscope-reorder", *_ignore((_NEMESIS, *OF_THE_PIPELINE)), *PLACES
            ),
            2700,
            tries_again=True,
        ),
        Part(
            "pipeline",
            "the pipeline over RabbitMQ",
            _over_rabbitmq("pipeline", *OF_THE_PIPELINE),
            2700,
            tries_again=True,
            beside=True,
        ),
    ],
}
_SEEDS = {"SEEDS": 8000, "SPLITS": 4800, "MODE": 1280, "CHOSEN": 1280, "MEMBERS": 1200}
CAMPAIGNS: dict[str, list[Part]] = {
    "campaigns": [
        Part(
            "seeds",
            "long seeds, nineteen thousand",
            [
                "env",
                "BROKERHA_SIMULATION_FIRST_SEED=0",
                *(f"BROKERHA_SIMULATION_{name}={number}" for name, number in _SEEDS.items()),
                *_pytest("seeds", "-m", "slow", "tests/simulation/test_seeds.py"),
            ],
            10_800,
        ),
        Part(
            "campaigns",
            "long forms, over RabbitMQ and on Spark",
            [
                _PYTHON,
                "-m",
                "tests.support.broker_source",
                "run",
                "--",
                *_pytest("campaigns", "-m", "campaign", f"--ignore={_ROUNDS}"),
            ],
            3600,
        ),
        *(
            Part(
                f"rounds-{mode}",
                f"every shape of a split under load, {mode}",
                [
                    _PYTHON,
                    "-m",
                    "tests.support.broker_source",
                    "run",
                    "--",
                    *_pytest(f"rounds-{mode}", "-m", "campaign", "-k", mode, _ROUNDS),
                ],
                3600,
            )
            for mode in ("quorum", "none", "simple", "smart")
        ),
    ]
}
"""Run only when they are named."""


def main(names: Sequence[str]) -> int:
    """Runs the named groups of parts (none: all but campaigns), prints the table. 0 all passed, 1 something failed, 64 usage."""
    known = PARTS | CAMPAIGNS
    if unknown := [name for name in names if name not in known]:
        print(f"no such part: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 64
    shutil.rmtree(_RESULTS, ignore_errors=True)
    _RESULTS.mkdir(parents=True)
    chosen = [part for name, parts in known.items() if name in (names or PARTS) for part in parts]
    outcomes: list[Outcome] = []
    try:
        for together in _steps(chosen):
            outcomes.extend(_run_together(together))
    except KeyboardInterrupt:
        return _INTERRUPTED
    if (coverage := _coverage_outcome()) is not None:
        outcomes.append(coverage)
    _print_table(outcomes)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _steps(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts of each step, which run at the same time."""
    steps: list[list[Part]] = []
    for part in parts:
        if part.beside and steps:
            steps[-1].append(part)
        else:
            steps.append([part])
    return steps


def _run_together(parts: Sequence[Part]) -> list[Outcome]:
    """The first says what it does while it does it; the others write it down until all are done. Only then runs once more what failed."""
    logs = [_RESULTS / f"{part.name}.log" for part in parts[1:]]
    with ThreadPoolExecutor(len(parts)) as pool:
        others = [pool.submit(_run, part, log) for part, log in zip(parts[1:], logs, strict=True)]
        outcomes = [_run(parts[0]), *(other.result() for other in others)]
    for log in logs:
        print(log.read_text(encoding="utf-8", errors="replace"), flush=True)
    return [_again(outcome) for outcome in outcomes]


def _run(part: Part, log: Path | None = None) -> Outcome:
    print(f"\n== {part.name}: {part.caption}", flush=True)
    started_at = time.monotonic()
    with log.open("wb") if log is not None else nullcontext() as output:
        problem, used_s = _problem(part, output)
    return Outcome(part, _counted(part), problem, time.monotonic() - started_at, used_s)


def _again(outcome: Outcome) -> Outcome:
    """Runs once more what failed, alone."""
    part, failed = outcome.part, _failures(outcome.part)
    if not (outcome.problem and part.tries_again and 0 < len(failed) <= _AGAIN_MOST):
        return outcome
    print(f"\n== {part.name}: {len(failed)} once more, alone", flush=True)
    started_at = time.monotonic()
    # The result file is written anew, so that it names what failed both times.
    problem, used_s = _problem(part, None, "--last-failed", "--last-failed-no-failures=none", "-n", "0")
    outcome.seconds += time.monotonic() - started_at
    outcome.processor_s += used_s
    if not problem:
        outcome.problem, outcome.unstable = "", failed
        outcome.counted.append(f"{len(failed)} of them only alone")
    return outcome


def _problem(part: Part, output: IO[bytes] | None, *options: str) -> tuple[str, float]:
    """Runs the command of a part; returns what went wrong, empty when nothing did, and the processor time that it took, in seconds."""
    environment = os.environ | {SUMMARY_VARIABLE: str(_lines_file(part))}
    # Else each of some thousand processes compiles all that it imports: half of the second that a node's start takes.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        [*part.command, *options], cwd=_ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
    )
    try:
        code, used_s = _waited(process, part.within_s)
    except BaseException:
        _end_group(process)
        raise
    if code is None:
        used_s = _end_group(process)
        return f"not done after {part.within_s} s", used_s
    if code == _NO_TESTS_SELECTED:
        return "no test was selected", used_s
    return "" if code == 0 else f"exit code {code}", used_s


def _waited(process: subprocess.Popen[bytes], within_s: float) -> tuple[int | None, float]:
    """The exit code, None if it still runs after ``within_s``; the processor time of it and of all below it that ended in order, in seconds."""
    end_at = time.monotonic() + within_s
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, used.ru_utime + used.ru_stime
        if time.monotonic() > end_at:
            return None, 0.0
        time.sleep(0.1)


def _end_group(process: subprocess.Popen[bytes]) -> float:
    """Nothing that a part started survives it: first asked, then made to end. Returns the processor time as ``_waited``."""
    os.killpg(process.pid, signal.SIGTERM)
    code, used_s = _waited(process, 20)
    if code is None:
        os.killpg(process.pid, signal.SIGKILL)
        _, used_s = _waited(process, 20)
    return used_s


def _lines_file(part: Part) -> Path:
    return _RESULTS / f"{part.name}.lines"


def _counted(part: Part) -> list[str]:
    return [f"{number:,} {kind}" for kind, number in _counts(part).items() if number or kind == "passed"]


def _counts(part: Part) -> dict[str, int]:
    """How many tests passed, failed and were skipped, from the file that pytest wrote; {} if there is none."""
    try:
        suites = ET.parse(_RESULTS / f"{part.name}.xml").getroot().iter("testsuite")
    except (OSError, ET.ParseError):
        return {}
    total = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for suite in suites:
        for kind in total:
            total[kind] += int(suite.get(kind, "0"))
    failed = total["failures"] + total["errors"]
    return {"passed": total["tests"] - failed - total["skipped"], "failed": failed, "skipped": total["skipped"]}


def _failures(part: Part) -> list[str]:
    """The tests that failed, each with the first line of its reason: what a reader of the last page needs."""
    try:
        cases = ET.parse(_RESULTS / f"{part.name}.xml").getroot().iter("testcase")
    except (OSError, ET.ParseError):
        return []
    return [
        f"{case.get('classname')}::{case.get('name')}: {reason.get('message', '').partition(chr(10))[0][:_REASON_CHARS]}"
        for case in cases
        for reason in case
        if reason.tag in {"failure", "error"}
    ]


def _coverage_outcome() -> Outcome | None:
    """Branch coverage of the cores against the floor; None if it was not measured."""
    file = _RESULTS / "coverage.json"
    if not file.exists():
        return None
    totals = json.loads(file.read_text(encoding="utf-8"))["totals"]
    branches = totals.get("num_branches", 0)
    percent = 100.0 * totals.get("covered_branches", 0) / branches if branches else 100.0
    details = f"{percent:.1f} % of {branches:,} branches, {totals['percent_covered']:.1f} % with statements"
    part = Part("coverage", f"branches of the cores, at least {_BRANCH_COVERAGE_MIN_PERCENT} %", [], 0)
    problem = "" if percent >= _BRANCH_COVERAGE_MIN_PERCENT else "too few"
    return Outcome(part, [details], problem, 0.0, 0.0)


def _print_table(outcomes: Sequence[Outcome]) -> None:
    print("\n== what was covered, in how long, with how much of the processors")
    for outcome in outcomes:
        mark = "ok  " if outcome.passed else "FAIL"
        seconds = f"{outcome.seconds:5.0f} s{outcome.processor_s:6.0f} s" if outcome.seconds else " " * 15
        print(f"{mark} {outcome.part.name:9}{seconds}  {outcome.part.caption:42} {outcome.details}")
        lines = _lines_file(outcome.part)
        if lines.exists():
            for line in lines.read_text(encoding="utf-8").splitlines():
                print(f"{'':29} - {line}")
    for outcome in outcomes:
        for failure in outcome.unstable:
            print(f"unstable: {failure}")
        for failure in _failures(outcome.part):
            print(f"failed: {failure}")
    failed = [outcome.part.name for outcome in outcomes if not outcome.passed]
    print(f"failed: {', '.join(failed)}" if failed else "all passed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
