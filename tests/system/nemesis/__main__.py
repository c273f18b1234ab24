"""``python -m tests.system.nemesis --seed 7 --hours 0.1``: run, print the page, keep it in build/nemesis. 1 when a promise was broken."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
from pathlib import Path

from tests.system.nemesis.faults import FAULTS
from tests.system.nemesis.running import run

RESULTS = Path(__file__).resolve().parents[3] / "build" / "nemesis"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="nemesis", description="Everything happens to a cluster while everything is done with it."
    )
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(10_000), help="what the schedule is drawn from; a fresh one without it"
    )
    parser.add_argument("--hours", type=float, default=0.1, help="how long; all families come once at least")
    parser.add_argument("--only", action="append", choices=sorted(FAULTS), help="these families of faults only")
    options = parser.parse_args()
    folder = RESULTS / f"seed-{options.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"seed {options.seed}, logs in {folder}", flush=True)
    page = run(folder, options.seed, options.hours * 3600, options.only or tuple(FAULTS), lambda line: print(line, flush=True))
    text = page.text()
    (RESULTS / f"seed-{options.seed}.md").write_text(text, encoding="utf-8")
    print(f"\n{text}", end="")
    if page.violations:
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
