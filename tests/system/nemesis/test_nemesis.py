"""The nemesis for a minute: one fault of each kind that harms what speaks to the broker, over everything that is done with a cluster.

The long form: ``make nemesis`` (tests/system/nemesis).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.support.private_broker import BrokerError
from tests.system.nemesis.faults import FAULTS
from tests.system.nemesis.running import run
from tests.system.nemesis.schedule import schedule
from tests.system.nemesis.site import NemesisSite

SEED = 15
SHORT = (
    "kill primary",
    "kill",
    "kill",
    "stop",
    "pause primary",
    "clock",
    "disk full",
    "broker restart",
    "broker kill",
    "broker drain",
    "connections",
    "purge",
    "delete",
)


def test_a_seed_repeats_its_schedule_and_each_family_comes_before_one_comes_again() -> None:
    families = tuple(FAULTS)
    one, again, other = (list(itertools.islice(schedule(seed, families), 3 * len(families))) for seed in (7, 7, 8))
    assert one == again
    assert one != other
    assert {step.family for step in one[: len(families)]} == set(families)
    assert {step.also for step in one} > {""}


@pytest.mark.parametrize("failures", [0, 2, 3])
def test_a_broker_node_that_starts_only_the_third_time_is_started(failures: int) -> None:
    left = iter([BrokerError("disturbed")] * failures)
    broker = Mock(is_running=False)

    def restart() -> None:
        if (error := next(left, None)) is not None:
            raise error
        broker.is_running = True

    broker.restart.side_effect = restart
    with pytest.raises(BrokerError) if failures == 3 else nullcontext():
        NemesisSite.start_brokers(Mock(brokers=Mock(nodes=[broker])))
    assert broker.is_running is (failures < 3)


@pytest.mark.broker
@pytest.mark.slow
def test_nothing_that_is_promised_is_broken_whatever_happens(tmp_path: Path, covered: Callable[[str], None]) -> None:
    page = run(tmp_path, SEED, 0, SHORT)
    assert not page.violations, page.text()
    covered(page.summary())
