"""``python -m tests.simulator``: the shipped code in a world of faults, one seed or many.

    python -m tests.simulator --seed 7 --trace      one seed, with its story on standard output
    python -m tests.simulator --seeds 0-1999        these seeds
    python -m tests.simulator --minutes 5           fresh seeds for five minutes
    python -m tests.simulator --kind splits         fresh seeds of one kind of world, for one minute
    python -m tests.simulator --mode none           fresh seeds with splits, with another strategy than quorum

A violation ends with exit code 2 and the command that reproduces it.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from brokerha.cli.common import exits
from brokerha.cli.common.command import single
from brokerha.cli.common.terminal import progress
from brokerha.cli.main import main as run_command
from tests.simulator.drawing import CHOSEN_FROM, MEMBERS_FROM, MODES_FROM, SPLITS_FROM
from tests.simulator.runs import campaign
from tests.simulator.runs import simulate as run


class Kind(StrEnum):
    """Kinds of worlds; the number of a seed determines its kind."""

    ALL = "all"
    MASTERS = "masters"
    BACKUPS = "backups"
    SPLITS = "splits"
    MEMBERS = "members"


class Mode(StrEnum):
    """Strategies for splits; the number of a seed determines its strategy."""

    QUORUM = "quorum"
    NONE = "none"
    SIMPLE = "simple"
    SMART = "smart"


DEFAULT_MINUTES = 1.0
FRESH_WORLDS = 2**22
"""Fresh worlds begin below this number; the first seeds of the other kinds are far above it."""


def simulate(
    seed: Annotated[int | None, typer.Option("--seed", min=0, metavar="N", help="Run this seed alone.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", metavar="A-B", help="Run these seeds.")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.001, metavar="M", help="Run fresh seeds, or those of --seeds, for so long.")
    ] = None,
    kind: Annotated[
        Kind,
        typer.Option(
            "--kind",
            help="Which fresh seeds: masters alone, masters with backups and transactions, masters that lose each other, "
            "masters that come and go, or all in turn, those of each strategy and of its choice among them.",
        ),
    ] = Kind.ALL,
    mode: Annotated[
        Mode | None,
        typer.Option(
            "--mode", case_sensitive=False, help="Fresh seeds that split, with this strategy; quorum where --kind is given alone."
        ),
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Tell the story of --seed.")] = False,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, max=256, help="Seeds at once; one for each processor without it.")
    ] = None,
) -> int:
    """Run the shipped code in a world of faults.

    Without options: fresh seeds for one minute.

    Ends with exit code 2 when an invariant is broken, and says how to see it again.
    """
    if seed is not None and (seeds is not None or minutes is not None):
        raise typer.BadParameter("--seed runs one seed alone: leave out --seeds and --minutes")
    if trace and seed is None:
        raise typer.BadParameter("--trace tells one story: write it with --seed N")
    if kind is not Kind.ALL and (seed is not None or seeds is not None):
        raise typer.BadParameter("--kind chooses fresh seeds: a seed says itself which kind of world it draws")
    if mode is not None and (seed is not None or seeds is not None):
        raise typer.BadParameter("--mode chooses fresh seeds: a seed says itself which strategy it draws")
    if mode is not None and kind not in {Kind.ALL, Kind.SPLITS}:
        raise typer.BadParameter(f"--mode {mode.value} chooses fresh seeds that split: leave out --kind {kind.value}")
    if seed is not None:
        return _run_one(seed, is_told=trace)
    chosen = _range(seeds) if seeds is not None else _fresh(kind if mode is None else Kind.SPLITS, mode or Mode.QUORUM)
    if seeds is None and minutes is None:
        minutes = DEFAULT_MINUTES
    return _run_many(chosen, minutes, processes or os.cpu_count() or 1)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise typer.BadParameter(f"--seeds {text!r}: write the first and the last seed, such as 0-1999")
    return range(int(first), int(last) + 1)


def _fresh(kind: Kind, mode: Mode) -> Iterable[int]:
    first = random.SystemRandom().randrange(FRESH_WORLDS)
    seeds = _worlds(kind, first, mode)
    begin = next(seeds)
    exits.say(f"fresh seeds from {begin} on")
    return itertools.chain([begin], seeds)


def _worlds(kind: Kind, first: int, mode: Mode = Mode.QUORUM) -> Iterator[int]:
    """Yield seeds of a kind without end; of all kinds in turn."""
    splits_from = MODES_FROM.get(mode.value, SPLITS_FROM)
    for number in itertools.count(first):
        seeds = {
            Kind.MASTERS: 2 * number,
            Kind.BACKUPS: 2 * number + 1,
            Kind.SPLITS: splits_from + number,
            Kind.MEMBERS: MEMBERS_FROM + number,
        }
        if kind is Kind.ALL:
            yield from (*seeds.values(), *(begin + number for begin in (*MODES_FROM.values(), CHOSEN_FROM)))
        else:
            yield seeds[kind]


def _run_one(seed: int, *, is_told: bool) -> int:
    report = run(seed, trace=sys.stdout if is_told else None)
    print(report.words())
    return exits.FAILED if report.violation is not None else exits.DONE


def _run_many(seeds: Iterable[int], minutes: float | None, processes: int) -> int:
    total = len(seeds) if isinstance(seeds, range) else None
    with progress("seeds", total, "seeds") as meter:
        summary = campaign(
            seeds,
            deadline_s=None if minutes is None else minutes * 60,
            processes=processes,
            progress=lambda _so_far: meter.advance(1),
        )
    print(summary.words())
    for failure in summary.failures:
        print(failure.words())
    return exits.FAILED if summary.failures else exits.DONE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return run_command(arguments, single("python -m tests.simulator", simulate))


if __name__ == "__main__":
    sys.exit(main())
