"""What each fault of a broker node costs the writers of a cluster, as a table in docs/benchmarks/broker-nodes.md.

    BROKERHA_TEST_RABBITMQ=4 python -m tests.system.nemesis.broker_table --rounds 3

Each node of the broker is killed, stopped, frozen, drained and cut off from the others in turn, in each round, under all workloads. Of each fault that
counts which the slowest writer waited for an answer. What was promised is checked at the end, as ever. The section of this version of RabbitMQ is replaced.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.system.nemesis.running import Nemesis, opened
from tests.system.nemesis.schedule import Step

PAGE = Path(__file__).resolve().parents[3] / "docs" / "benchmarks" / "broker-nodes.md"
FAULTS = {
    "broker kill": "killed (SIGKILL)",
    "broker stop": "stopped (`rabbitmqctl stop`)",
    "broker drain": "put into maintenance mode (`rabbitmq-upgrade drain`)",
    "broker partition": "cut off from the others (`pause_minority`)",
    "broker freeze": "frozen (SIGSTOP), `net_ticktime` 8 s",
}
NODES = 3
LASTS_S = {"broker freeze": 15.0}
"""Longer than the others take to give it up; else 5 s."""


class Chosen(random.Random):
    """Strikes the broker node that it was made with."""

    def __init__(self, place: int) -> None:
        super().__init__(0)
        self._place = place

    def randrange(self, *_arguments: object) -> int:
        return self._place


def main() -> int:
    """The command: 1 when a promise was broken, and nothing is written."""
    parser = argparse.ArgumentParser(prog="broker_table", description="What a broker node that fails costs writers.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=sorted(FAULTS), help="these faults only")
    options = parser.parse_args()
    rounds, families = options.rounds, options.only or list(FAULTS)
    pauses: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), "broker nodes", 1, print) as nemesis:
        nemesis.drawn = Chosen
        for _ in range(rounds):
            nemesis.lap(_round(nemesis, families, pauses))
        page, version, writers = nemesis.page, nemesis.page.title.split()[-1], len(nemesis.longest)
    print(page.text())
    if page.violations:
        return 1
    load = os.getloadavg()
    lines = [f"## RabbitMQ {version}", ""]
    lines += [
        f"{rounds} rounds, {writers} writers, load average {load[2]:.0f} to {load[0]:.0f} on {os.cpu_count()} processors. {page.summary()}.",
        "",
    ]
    lines += ["| a node is | times | median s | worst s |", "|---|---|---|---|"]
    lines += [
        f"| {FAULTS[family]} | {len(found)} | {statistics.median(found):.1f} | {max(found):.1f} |"
        for family, found in pauses.items()
    ]
    before = PAGE.read_text(encoding="utf-8")
    kept = re.sub(rf"\n## RabbitMQ {re.escape(version)}\n.*?(?=\n## |\Z)", "", before, flags=re.DOTALL).rstrip()
    PAGE.write_text(kept + "\n\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return 0


def _round(nemesis: Nemesis, families: list[str], pauses: dict[str, list[float]]) -> Iterator[Step]:
    """One fault after the other; what it cost is known when the next one is asked for."""
    number = 0
    for family in families:
        for place in range(NODES):
            number += 1
            yield Step(number, family, "", 2.0, LASTS_S.get(family, 5.0), place)
            pauses[family].append(max(nemesis.longest.values()))


if __name__ == "__main__":
    sys.exit(main())
