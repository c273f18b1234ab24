"""When a worker looks at its data: after a bad end first thing, after the second before anything else, and soon after a load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.nodes.worker.tasks import Scrubbing, ScrubLimits
from brokerha.stores.copies.lives import LOOKING, Lives
from brokerha.stores.copies.worker_copy import WorkerCopy
from tests.contracts.store_contract import run
from tests.unit.stores.killed_copies import opened

WAIT_S = 20.0
SELDOM = ScrubLimits(every_s=3600)
"""So that no look of a test is one that was due anyway."""


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[WorkerCopy]:
    copy = opened(tmp_path / "w1")
    run(copy, [("put", "t", b"k", b"v")])
    yield copy
    copy.close()


def lives_after(copy: WorkerCopy, bad_ends: int) -> Lives:
    """What the copy would know after so many bad ends."""
    copy.lives.bad_ends = bad_ends
    return copy.lives


class Looks(Scrubbing):
    """Tells of each look that has ended."""

    def __init__(self, copy: WorkerCopy, lives: Lives | None) -> None:
        super().__init__(copy, "w1", SELDOM, lives)
        self.told: list[str] = []
        self.looked = threading.Semaphore(0)
        self.is_trusted = True

    def begin(self) -> None:
        self.start(self.told.append, lambda: self.is_trusted)

    def look(self, *arguments: object, **named: object) -> object:  # type: ignore[override]
        finding = super().look(*arguments, **named)  # type: ignore[arg-type]
        self.looked.release()
        return finding

    def has_looked(self) -> bool:
        return self.looked.acquire(timeout=WAIT_S)


def test_after_a_good_end_nothing_is_looked_at_before_it_is_time(copy: WorkerCopy) -> None:
    looks = Looks(copy, lives_after(copy, 0))
    looks.look_first(looks.told.append)
    looks.begin()
    looks.on_trusted()
    looks.close(WAIT_S)
    assert looks.looks == 0


def test_after_a_bad_end_the_data_is_looked_at_as_soon_as_the_copy_is_trusted(copy: WorkerCopy) -> None:
    lives = lives_after(copy, 1)
    looks = Looks(copy, lives)
    looks.is_trusted = False
    looks.look_first(looks.told.append)
    looks.begin()
    assert looks.looks == 0
    looks.is_trusted = True
    looks.on_trusted()
    assert looks.has_looked()
    looks.close(WAIT_S)
    assert (looks.looks, looks.told, lives.bad_ends) == (1, [], 0)


def test_after_the_second_bad_end_the_data_is_looked_at_before_anything_else(copy: WorkerCopy, tmp_path: Path) -> None:
    lives = lives_after(copy, 2)
    looks = Looks(copy, lives)
    looks.look_first(looks.told.append)
    assert (looks.looks, looks.told, lives.bad_ends) == (1, [], 0)
    assert not (tmp_path / "w1" / LOOKING).exists()
    looks.begin()
    looks.on_trusted()
    looks.close(WAIT_S)
    assert looks.looks == 1


def test_damage_that_is_found_before_anything_else_is_told(copy: WorkerCopy, tmp_path: Path) -> None:
    lives = lives_after(copy, 2)
    file = tmp_path / "w1/copy.1/data/data.mdb"
    with file.open("r+b") as pages:
        pages.seek(8192)
        pages.write(bytes(file.stat().st_size - 8192))
    looks = Looks(copy, lives)
    looks.look_first(looks.told.append)
    assert "has a damaged page" in looks.told[0]
    assert lives.bad_ends == 2


def test_a_look_before_anything_else_ends_when_the_node_is_stopped(copy: WorkerCopy) -> None:
    lives = lives_after(copy, 2)
    looks = Looks(copy, lives)
    looks.close(0)
    looks.look_first(looks.told.append)
    assert (looks.looks, lives.bad_ends) == (0, 2)


def test_what_was_loaded_is_looked_at_although_it_is_not_time(copy: WorkerCopy) -> None:
    looks = Looks(copy, None)
    looks.begin()
    for count in (1, 2):
        looks.look_soon()
        assert looks.has_looked()
        assert looks.looks == count
    looks.close(WAIT_S)


@pytest.mark.parametrize("is_early", [False, True])
def test_a_scrub_that_is_switched_on_while_the_worker_runs_begins_even_before_it_was_started(
    copy: WorkerCopy, is_early: bool
) -> None:
    looks = Looks(copy, None)
    looks.limits = ScrubLimits(every_s=0)
    if not is_early:
        looks.begin()
    looks.limits = ScrubLimits(every_s=0.02)
    looks.on_limits()
    if is_early:
        time.sleep(0.1)
        assert looks.looks == 0
        looks.begin()
    assert looks.has_looked()
    looks.close(WAIT_S)


def test_other_settings_do_not_put_a_scrub_off(copy: WorkerCopy) -> None:
    looks = Looks(copy, None)
    looks.limits = ScrubLimits(every_s=0.5)
    looks.on_limits()
    looks.begin()
    end_s = time.monotonic() + WAIT_S
    while not looks.looked.acquire(timeout=0.05):
        assert time.monotonic() < end_s
        looks.on_limits()
    looks.close(WAIT_S)
