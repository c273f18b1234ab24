"""Runs of many seeds, and a report of each: the interface for `python -m tests.simulator` and the tests."""

from __future__ import annotations

import multiprocessing
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from time import monotonic
from typing import TextIO

from brokerha.model.invariants import InvariantBroken
from tests.simulator.checks.truth import Violation
from tests.simulator.drawing import draw
from tests.simulator.options import Options
from tests.simulator.processes import Crashed
from tests.simulator.world import World

HOUR_US = 3_600_000_000
SEEDS_AT_ONCE = 8
"""Seeds that one process runs before it reports."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one seed."""

    seed: int
    steps: int
    faults: dict[str, int]
    """How often each kind of fault struck."""
    violation: str | None
    """The broken invariant, or None."""
    digest: str
    """Equal for equal runs."""
    options: str
    acknowledged: int = 0
    """Writes whose client got an acknowledgement."""
    lsn: int = 0
    virtual_us: int = 0
    story: tuple[str, ...] = ()
    """The last events before a violation."""

    def words(self) -> str:
        """Return several lines with which another person can reproduce the failure."""
        if self.violation is None:
            return f"seed {self.seed}: {self.steps} steps, {self.acknowledged} writes acknowledged, digest {self.digest}"
        lines = [
            f"seed {self.seed} breaks {self.violation}",
            f"options: {self.options}",
            "the last events:",
            *(f"  {event}" for event in self.story),
            f"again: python -m tests.simulator --seed {self.seed} --trace",
        ]
        return "\n".join(lines)


@dataclass(slots=True)
class Summary:
    """The result of a campaign."""

    seeds: int = 0
    steps: int = 0
    acknowledged: int = 0
    virtual_us: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[Report] = field(default_factory=list)

    def take(self, report: Report) -> None:
        """Add one report."""
        self.seeds += 1
        self.steps += report.steps
        self.acknowledged += report.acknowledged
        self.virtual_us += report.virtual_us
        self.faults.update(report.faults)
        if report.violation is not None:
            self.failures.append(report)

    def words(self) -> str:
        """One line for the closing summary."""
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"{self.seeds:,} seeds, {self.steps:,} steps, {self.virtual_us / HOUR_US:.1f} virtual hours, "
            f"{self.acknowledged:,} writes acknowledged, {len(self.failures)} violations; faults: {kinds}"
        )


def simulate(seed: int, steps: int | None = None, trace: TextIO | None = None, options: Options | None = None) -> Report:
    """Run one seed; ``steps`` limits its safety phase, ``trace`` receives the story, ``options`` replace those of the seed."""
    chosen = options or draw(seed)
    if steps is not None:
        chosen = replace(chosen, safety_steps=steps)
    world = World(chosen, trace)
    try:
        violation = _violation(world)
    finally:
        world.home.close()
    truth = world.checkers.truth
    digest = blake2b(f"{world.trace.crc} {world.steps} {truth.canon}".encode(), digest_size=8).hexdigest()
    return Report(
        seed=seed,
        steps=world.steps,
        faults=dict(sorted(world.faults_seen.items())),
        violation=violation,
        digest=digest,
        options=chosen.words(),
        acknowledged=world.clients.acknowledged,
        lsn=truth.lsn,
        virtual_us=world.now_us,
        story=tuple(world.trace.last_lines()) if violation else (),
    )


def _violation(world: World) -> str | None:
    """Run a world; return the violation, or None. An unexpected exception is a violation too."""
    try:
        world.run()
    except Violation as violation:
        return str(violation)
    except InvariantBroken as broken:
        return f"invariant of the code: {broken} ({_place(broken)})"
    except (Exception, Crashed) as error:  # noqa: BLE001 - whatever the cores raise is what the simulator is looking for.
        return f"{type(error).__name__}: {error} ({_place(error)})"
    return None


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))


def campaign(
    seeds: Iterable[int], deadline_s: float | None = None, processes: int = 2, progress: Callable[[Summary], None] | None = None
) -> Summary:
    """Run seeds in several processes until the seeds or the time end; call ``progress`` after each.

    Endless seeds need a deadline.
    """
    summary = Summary()
    begin = monotonic()
    remaining = iter(seeds)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        running: set[Future[list[Report]]] = set()
        while True:
            is_over = deadline_s is not None and monotonic() - begin >= deadline_s
            while not is_over and len(running) < 2 * processes and (some := list(islice(remaining, SEEDS_AT_ONCE))):
                running.add(pool.submit(_several, some))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for report in [report for future in done for report in future.result()]:
                summary.take(report)
                summary.seconds = monotonic() - begin
                if progress is not None:
                    progress(summary)
    summary.failures.sort(key=lambda report: report.seed)
    return summary


def _several(seeds: list[int]) -> list[Report]:
    return [simulate(seed) for seed in seeds]
