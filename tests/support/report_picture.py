"""Takes the picture of docs/pipeline.md: ``python -m tests.support.report_picture [FILE]``, needs a browser and a Java runtime.

A day of a shop with three masters is archived, ``brokerha pipeline report`` makes its page, and a browser shows the upper part of it.
"""

from __future__ import annotations

import math
import random
import sys
import tempfile
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from brokerha.cli.main import main
from brokerha.model.operations import REJECTED
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.observations import Observation, append
from tests.bench.pipeline_log import entries
from tests.support.browser import browsing
from tests.unit.pipeline.made_archives import archive_of

FILE = Path(__file__).resolve().parents[2] / "docs" / "report.png"
SIZE = (1100, 1010)
COUNT = 20_000
BEGIN_US = 1_795_500_000_000_000 // 86_400_000_000 * 86_400_000_000 + 6 * 3_600_000_000
SPAN_US = 14 * 3_600_000_000
AWAY = (0.37, 0.41)
"""Parts of the day between which the third master is away."""


def day(chance: random.Random) -> Iterator[LogEntry]:
    """Few writes in the morning, many at noon; a master is away for half an hour, and a new epoch begins when it comes back."""
    steps = list(accumulate(chance.expovariate(0.4 + math.sin(math.pi * number / COUNT)) for number in range(COUNT)))
    for step, entry in zip(steps, entries(COUNT), strict=True):
        part = step / steps[-1]
        there = ("m1", "m1", "m2", "m2") if AWAY[0] < part < AWAY[1] else ("m1", "m1", "m1", "m2", "m2", "m3")
        changed = entry._replace(
            timestamp=BEGIN_US + int(part * SPAN_US), origin=chance.choice(there), epoch=1 if part < AWAY[1] else 2
        )
        if not entry.effect and entry.outcome == REJECTED:
            changed = changed._replace(reason=f"check stock-not-negative does not hold: {entry.lsn % 7 + 1} rows")
        yield changed


def seen(chance: random.Random) -> Iterator[Observation]:
    """What nodes said every five minutes."""
    for number in range(SPAN_US // 300_000_000):
        time_us = BEGIN_US + number * 300_000_000
        for master in ("m1", "m2", "m3"):
            lag_s = chance.expovariate(6)
            yield Observation(time_us, f"{master}a", "worker", master, "in-sync", 1, 1, lag_s, 1, None, None)


def take(file: Path) -> None:
    """Make archive, report and picture."""
    with tempfile.TemporaryDirectory() as folder:
        chance = random.Random(8)
        archive = archive_of(Path(folder) / "archive", list(day(chance)), 4_000, "shop")
        append(archive.where, seen(chance))
        page = Path(folder) / "report.html"
        assert main(["pipeline", "report", "--archive", archive.where, "--out", str(page)]) == 0
        with browsing(page.as_uri(), SIZE) as browser:
            browser.colours("light")
            browser.picture(file, whole=False)


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
