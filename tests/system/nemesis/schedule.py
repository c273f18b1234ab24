"""Which faults, in which order, for how long: a seed says all of it, whatever the cluster does meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

REST_S: Final = (0.5, 2.0)
LASTS_S: Final = (1.0, 5.0)
TWO_AT_ONCE: Final = 0.25
"""Share of steps in which a process suffers while another fault lasts."""
ALONE: Final = ("mode",)
"""What comes without another fault: where any side may go on, what was told may change."""
OF_PROCESSES: Final = ("kill", "pause", "clock", "slow disk")


class Step(NamedTuple):
    """One fault, or two."""

    number: int
    family: str
    also: str
    """A family of `OF_PROCESSES` that begins while the first one lasts; empty in most steps."""
    rest_s: float
    """Before it."""
    lasts_s: float
    seed: int
    """Whom it strikes."""


def schedule(seed: int, families: Sequence[str]) -> Iterator[Step]:
    """Steps without end; each family comes once before one comes again."""
    draw = random.Random(seed)
    number = 0
    while True:
        for family in draw.sample(families, len(families)):
            number += 1
            also = draw.choice([each for each in OF_PROCESSES if each != family])
            if draw.random() > TWO_AT_ONCE or family in ALONE:
                also = ""
            yield Step(number, family, also, draw.uniform(*REST_S), draw.uniform(*LASTS_S), draw.getrandbits(32))
