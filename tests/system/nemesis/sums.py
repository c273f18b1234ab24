"""``python -m tests.system.nemesis.sums build/nemesis/*.md``: pages of several seeds as one, in Markdown."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HEAD: Final = re.compile(
    r"# Nemesis, seed (?P<seed>\d+), three nodes of (?P<broker>RabbitMQ [\d.]+): (?P<minutes>[\d.]+) minutes, (?P<faults>\d+) faults of \d+ families, "
    r"(?P<laps>\d+) laps; (?P<ok>[\d,]+) writes acknowledged, (?P<refused>[\d,]+) refused, (?P<unknown>[\d,]+) unknown, (?P<reads>[\d,]+) reads; (?P<violations>\d+) violations"
)
FIGURES: Final = ("minutes", "faults", "laps", "ok", "refused", "unknown", "reads", "violations")
COLUMNS: Final = "minutes | faults | laps | acknowledged | refused | unknown | reads | violations"


def number(text: str) -> float:
    """A figure of a page."""
    return float(text.replace(",", ""))


def summed(pages: Sequence[str]) -> str:
    """All pages as one. Raises ValueError for what is none."""
    rows, sums, times, acknowledged, longest = (
        [],
        dict.fromkeys(FIGURES, 0.0),
        defaultdict[str, int](int),
        defaultdict[str, dict[str, int]](dict),
        defaultdict[str, float](float),
    )
    workloads: list[str] = []
    for page in pages:
        head, *lines = page.splitlines()
        if (found := HEAD.match(head)) is None:
            raise ValueError(f"this is no page of a nemesis: {head[:80]}")
        rows.append(f"| {found['seed']} | {found['broker']} | " + " | ".join(found[figure] for figure in FIGURES) + " |")
        for figure in FIGURES:
            sums[figure] += number(found[figure])
        table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
        workloads = table[0][2:-2]
        for row in table[1:]:
            family = row[0]
            times[family] += int(row[1])
            longest[family] = max(longest[family], number(row[-1]))
            for workload, cell in zip(workloads, row[2:-2], strict=True):
                of_family = acknowledged[family]
                of_family[workload] = of_family.get(workload, 0) + int(number(cell.partition(" ")[0]))
    total = " | ".join(f"{sums[figure]:,.1f}" if figure == "minutes" else f"{int(sums[figure]):,}" for figure in FIGURES)
    written = [
        f"| seed | broker | {COLUMNS} |",
        "|---|" + "---|" * (len(FIGURES) + 1),
        *sorted(rows),
        f"| **all** | | {total} |",
        "",
    ]
    written += ["| fault | times | " + " | ".join(workloads) + " | longest pause, s |", "|---|" + "---|" * (len(workloads) + 2)]
    for family in sorted(times):
        cells = " | ".join(f"{acknowledged[family][workload]:,}" for workload in workloads)
        written.append(f"| {family} | {times[family]} | {cells} | {longest[family]:.1f} |")
    return "\n".join(written) + "\n"


if __name__ == "__main__":
    sys.stdout.write(summed([Path(path).read_text(encoding="utf-8") for path in sys.argv[1:]]))
