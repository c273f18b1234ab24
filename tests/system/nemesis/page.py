"""The page of results: what each workload was told while each family of faults lasted, its longest pause, and what was not as promised."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from tests.system.nemesis.clients import OK, READ, REFUSED, UNKNOWN

LOOK_EVERY_S: Final = 0.01
VIOLATIONS_SHOWN: Final = 30


class Pauses:
    """Looks all the time how far each client is: how long the slowest of them was without an answer since `begin`."""

    def __init__(self, done: Callable[[], Mapping[str, int]]) -> None:
        self._done = done
        self._lock = threading.Lock()
        self._at: dict[str, tuple[int, float]] = {}
        self._longest: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Forget the pauses that are over; one that lasts counts from now on."""
        with self._lock:
            now_s = time.monotonic()
            self._at = {name: (count, now_s) for name, count in self._done().items()}
            self._longest = {}

    def longest(self) -> dict[str, float]:
        """Of each client the longest pause in seconds."""
        with self._lock:
            now_s = time.monotonic()
            return {name: max(self._longest.get(name, 0.0), now_s - since_s) for name, (_, since_s) in self._at.items()}

    def end(self) -> None:
        """No more looking."""
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            with self._lock:
                now_s = time.monotonic()
                for name, count in self._done().items():
                    before, since_s = self._at.setdefault(name, (count, now_s))
                    if count != before:
                        self._longest[name] = max(self._longest.get(name, 0.0), now_s - since_s)
                        self._at[name] = (count, now_s)


class Page:
    """See the head of the module."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.faults: Counter[str] = Counter()
        self.violations: list[str] = []
        self.laps = self.steps = 0
        self._told: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        self._pauses: dict[str, list[float]] = defaultdict(list)
        self._began_s = time.monotonic()

    def step(self, family: str, also: str, told: Mapping[str, Counter[str]], pauses: Mapping[str, float]) -> None:
        """One fault is over, and everybody has had answers since."""
        self.steps += 1
        self.faults.update(filter(None, (family, also)))
        for workload, counts in told.items():
            self._told[family][workload] += counts
        self._pauses[family].append(max(pauses.values(), default=0.0))

    def total(self, *outcomes: str) -> int:
        """All answers that say this."""
        return sum(counts[outcome] for row in self._told.values() for counts in row.values() for outcome in outcomes)

    def summary(self) -> str:
        """One line."""
        minutes = (time.monotonic() - self._began_s) / 60
        return (
            f"{self.title}: {minutes:.1f} minutes, {self.faults.total()} faults of {len(self.faults)} families, {self.laps} laps; {self.total(OK):,} writes acknowledged, "
            f"{self.total(REFUSED):,} refused, {self.total(UNKNOWN):,} unknown, {self.total(READ):,} reads; {len(self.violations)} violations"
        )

    def text(self) -> str:
        """The page, as Markdown."""
        workloads = sorted({workload for row in self._told.values() for workload in row})
        lines = [
            f"# {self.summary()}",
            "",
            "Acknowledged / refused / unknown, and reads where there are any; pauses are of the slowest writer, in seconds.",
            "",
        ]
        lines.append("| fault | times | " + " | ".join(workloads) + " | median pause | longest |")
        lines.append("|---|" + "---|" * (len(workloads) + 3))
        for family, row in sorted(self._told.items()):
            pauses = self._pauses[family]
            cells = [_cell(row[workload]) for workload in workloads]
            lines.append(
                f"| {family} | {self.faults[family]} | {' | '.join(cells)} | {statistics.median(pauses):.1f} | {max(pauses):.1f} |"
            )
        lines += ["", *(f"- {violation}" for violation in self.violations[:VIOLATIONS_SHOWN])]
        return "\n".join(lines).rstrip() + "\n"


def _cell(counts: Counter[str]) -> str:
    reads = f", {counts[READ]:,} read" if counts[READ] else ""
    return f"{counts[OK]:,} / {counts[REFUSED]:,} / {counts[UNKNOWN]:,}{reads}"
