"""The command of the simulator: one seed with its story, fresh seeds of a kind, a violation with the command that repeats it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.simulator import Report, Summary
from tests.simulator import __main__ as command
from tests.simulator.drawing import CHOSEN_FROM, MEMBERS_FROM, MODES_FROM, SPLITS_FROM


class Ran(NamedTuple):
    """What the command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys) -> Callable[..., Ran]:
    def run(*arguments: str) -> Ran:
        code = command.main(arguments)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def report(seed: int, violation: str | None = None) -> Report:
    return Report(seed, 10, {"crash": 2}, violation, "d1", "masters=3")


def test_one_seed_is_counted_and_told(run, monkeypatch):
    def simulate(seed: int, trace=None) -> Report:
        print("0.1 m1 takes Post", file=trace)
        return report(seed)

    monkeypatch.setattr(command, "run", simulate)
    ran = run("--seed", "7", "--trace")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "0.1 m1 takes Post"
    assert ran.out.splitlines()[-1] == report(7).words()


def test_a_violation_is_exit_code_2_with_the_command_to_repeat(run, monkeypatch):
    def campaign(seeds, deadline_s, processes, progress) -> Summary:
        summary = Summary()
        for seed in seeds:
            summary.take(report(seed, "S1: not a prefix" if seed == 4 else None))
            progress(summary)
        assert (deadline_s, processes) == (None, 3)
        return summary

    monkeypatch.setattr(command, "campaign", campaign)
    ran = run("--seeds", "3-5", "--processes", "3")
    assert ran.code == 2
    assert ran.out.startswith("3 seeds, 30 steps")
    assert "seed 4 breaks S1: not a prefix" in ran.out
    assert "again: python -m tests.simulator --seed 4 --trace" in ran.out


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ([], ["masters", "backups", "splits", "members", "none", "simple", "smart", "chosen", "masters"]),
        (["--kind", "masters"], ["masters"] * 9),
        (["--kind", "backups"], ["backups"] * 9),
        (["--kind", "splits"], ["splits"] * 9),
        (["--kind", "members"], ["members"] * 9),
        (["--kind", "splits", "--mode", "quorum"], ["splits"] * 9),
        (["--kind", "splits", "--mode", "none"], ["none"] * 9),
        (["--mode", "none"], ["none"] * 9),
        (["--mode", "quorum"], ["splits"] * 9),
        (["--kind", "splits", "--mode", "SIMPLE"], ["simple"] * 9),
        (["--kind", "splits", "--mode", "Smart"], ["smart"] * 9),
    ],
)
def test_minutes_run_fresh_seeds_that_are_named(run, monkeypatch, options: list[str], kinds: list[str]):
    taken: list[int] = []

    def campaign(seeds, deadline_s, processes, progress) -> Summary:
        taken.extend(itertools.islice(seeds, 9))
        assert deadline_s == 30.0
        return Summary()

    monkeypatch.setattr(command, "campaign", campaign)
    ran = run("--minutes", "0.5", *options)
    assert ran.code == 0
    assert ran.err == f"brokerha: fresh seeds from {taken[0]} on\n"
    assert len(set(taken)) == 9
    assert [_kind(seed) for seed in taken] == kinds


def _kind(seed: int) -> str:
    if seed >= CHOSEN_FROM:
        return "chosen"
    if seed >= min(MODES_FROM.values()):
        return max((first, mode) for mode, first in MODES_FROM.items() if seed >= first)[1]
    if seed >= MEMBERS_FROM:
        return "members"
    return "splits" if seed >= SPLITS_FROM else "backups" if seed % 2 else "masters"


def test_a_seed_says_itself_what_it_draws(run):
    assert "which kind of world it draws" in run("--kind", "splits", "--seeds", "1-2").err
    assert "which kind of world it draws" in run("--kind", "splits", "--seed", "1").err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--kind", "backups"], "--mode smart chooses fresh seeds that split: leave out --kind backups"),
        (["--seed", "7"], "a seed says itself which strategy it draws"),
        (["--seeds", "1-2"], "a seed says itself which strategy it draws"),
    ],
)
def test_a_strategy_is_chosen_for_fresh_seeds_that_split_only(run, options: list[str], words: str):
    ran = run("--mode", "smart", *options)
    assert (ran.code, ran.out) == (64, "")
    assert words in ran.err
