"""Pages of several seeds as one."""

from __future__ import annotations

import pytest

from tests.system.nemesis.sums import summed

PAGE = """# Nemesis, seed {seed}, three nodes of RabbitMQ 4.0.5: 40.5 minutes, 3 faults of 2 families, 2 laps; 1,020 writes acknowledged, 7 refused, 1 unknown, 30 reads; 0 violations

Acknowledged / refused / unknown, and reads where there are any; pauses are of the slowest writer, in seconds.

| fault | times | bank | keys | median pause | longest |
|---|---|---|---|---|---|
| kill | 2 | 20 / 1 / 0, 30 read | 1,000 / 0 / 1 | 1.0 | {longest} |
| stop | 1 | 0 / 6 / 0 | 0 / 0 / 0 | 2.0 | 2.0 |
"""


def test_figures_are_added_and_the_longest_pause_of_all_is_kept() -> None:
    told = summed([PAGE.format(seed=2, longest="3.5"), PAGE.format(seed=1, longest="1.5")]).splitlines()
    assert told[2:5] == [
        "| 1 | RabbitMQ 4.0.5 | 40.5 | 3 | 2 | 1,020 | 7 | 1 | 30 | 0 |",
        "| 2 | RabbitMQ 4.0.5 | 40.5 | 3 | 2 | 1,020 | 7 | 1 | 30 | 0 |",
        "| **all** | | 81.0 | 6 | 4 | 2,040 | 14 | 2 | 60 | 0 |",
    ]
    assert told[-2:] == ["| kill | 4 | 40 | 2,000 | 3.5 |", "| stop | 2 | 0 | 0 | 2.0 |"]


def test_what_is_no_page_is_refused() -> None:
    with pytest.raises(ValueError, match="no page of a nemesis"):
        summed(["# Something else"])
