"""Worlds with every kind of bad luck in which clients stage large transactions: each takes place once, whole, where it was committed, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.simulator import simulate
from tests.simulator.drawing import MEMBERS_FROM, SPLITS_FROM, draw, draw_members, draw_split
from tests.simulator.options import Options

SEEDS = 12
LARGE = 6


@pytest.mark.parametrize(
    ("drawn", "first"),
    [(draw, 2_000_000), (draw_split, SPLITS_FROM + 700_000), (draw_members, MEMBERS_FROM + 700_000)],
    ids=["plain", "split", "members"],
)
def test_seeds_with_large_transactions_pass(drawn: Callable[[int], Options], first: int) -> None:
    for seed in range(first, first + SEEDS):
        options = drawn(seed)
        report = simulate(seed, options=replace(options, load=replace(options.load, large=LARGE)))
        assert report.violation is None, report.words()
