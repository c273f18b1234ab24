"""A copy that ends each process that looks at it is given up; one whose process is merely killed again and again never is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.model.errors import StoreDamaged
from brokerha.stores.copies.lives import DEATHS_LIMIT, LIFE, LOOKING, Lives
from tests.contracts.store_contract import rows, run
from tests.unit.stores.killed_copies import Killed, opened


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    process = Killed()
    yield process
    process.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The directory of a closed copy."""
    copy = opened(tmp_path / "w1")
    run(copy, [("put", "t", b"k%d" % number, b"v") for number in range(20)])
    copy.close()
    return tmp_path / "w1"


def lived(home: Path, number: int = 1, steps: int = 0, is_whole: bool = False) -> Lives:
    """A life that ends badly, in a look after so many steps or elsewhere."""
    lives = Lives(home)
    lives.begin(number)
    if is_whole:
        lives.found_whole()
    for _ in range(steps):
        lives.look_goes_on()
    return lives


def test_bad_ends_are_counted_until_one_ends_in_order(tmp_path: Path) -> None:
    assert [lived(tmp_path).bad_ends for _ in range(4)] == [0, 1, 2, 3]
    lives = lived(tmp_path)
    assert lives.must_look_first
    lives.end()
    assert lived(tmp_path).bad_ends == 0


def test_a_life_that_was_given_up_counts_although_its_end_was_in_order(tmp_path: Path) -> None:
    lives = lived(tmp_path)
    lives.counts_as_bad()
    lives.end()
    assert lived(tmp_path).bad_ends == 1


def test_after_all_was_looked_at_counting_begins_again(tmp_path: Path) -> None:
    lived(tmp_path)
    lived(tmp_path)
    lived(tmp_path, is_whole=True)
    lives = lived(tmp_path)
    # It ended badly all the same, so it is looked at first thing; but nothing has to wait for that.
    assert (lives.bad_ends, lives.must_look_first) == (1, False)


def test_a_copy_with_another_number_begins_anew(tmp_path: Path) -> None:
    for _ in range(3):
        lived(tmp_path, number=1, steps=7)
    assert lived(tmp_path, number=2).bad_ends == 0


def test_looks_that_end_the_process_at_the_same_place_are_damage(tmp_path: Path) -> None:
    for _ in range(DEATHS_LIMIT):
        lived(tmp_path, steps=7)
    with pytest.raises(StoreDamaged, match="ended the process 3 times at the same place, step 7"):
        lived(tmp_path)


def test_kills_at_other_places_are_no_damage_however_many(tmp_path: Path) -> None:
    for steps in [7, 7, 8, 7, 7, 9, 1, 2, 3, 4, 0, 0, 0, 0]:
        assert lived(tmp_path, steps=steps).must_look_first in {True, False}
    assert lived(tmp_path).bad_ends == 14


def test_a_look_that_came_back_counts_for_nothing(tmp_path: Path) -> None:
    for _ in range(5):
        lived(tmp_path, steps=7).look_ended()
    assert lived(tmp_path).bad_ends == 5


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b'{"copy": 1}', b'{"copy": 1, "bad_ends": "x", "places": []}', b"\0" * 9])
def test_a_file_that_says_nothing_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LIFE).write_bytes(content)
    (tmp_path / LOOKING).write_bytes(content)
    assert lived(tmp_path).bad_ends == 0


def test_a_process_that_is_killed_any_number_of_times_keeps_its_copy(home: Path, killed: Killed) -> None:
    for _ in range(7):
        assert killed("live", "living", 1, home) == signal.SIGKILL
    copy = opened(home)
    assert (len(rows(copy, "t")), copy.trouble, copy.lives.bad_ends) == (20, "", 7)
    copy.close()
    copy = opened(home)
    assert copy.lives.bad_ends == 0
    copy.close()


def test_a_copy_that_ends_each_process_that_looks_at_it_is_moved_aside(home: Path, killed: Killed) -> None:
    # Given one that died in its first life, and in the look of the second.
    for _ in range(2):
        assert killed("live", "living", 1, home) == signal.SIGKILL
    for _ in range(DEATHS_LIMIT):
        assert killed("look", "look: step", 1, home) == signal.SIGKILL
    copy = opened(home)
    assert "looking at the data ended the process 3 times at the same place" in copy.trouble
    assert (copy.applied().lsn, copy.lives.bad_ends) == (0, 0)
    assert (home / "aside.1").is_dir()
    copy.close()


def test_an_emptied_page_is_found_before_a_process_that_died_of_it_dies_again(home: Path, killed: Killed) -> None:
    assert killed("live", "living", 1, home) == signal.SIGKILL
    file = home / "copy.1/data/data.mdb"
    content = file.read_bytes()
    file.write_bytes(content[:8192] + bytes(len(content) - 8192))
    copy = opened(home)
    assert "has a damaged page" in copy.trouble
    copy.close()


def test_an_emptied_page_in_a_running_copy_is_damage_and_not_the_end_of_the_process(home: Path) -> None:
    copy = opened(home)
    assert copy.recompute() == copy.applied()
    file = home / "copy.1/data/data.mdb"
    with file.open("r+b") as pages:
        pages.seek(8192)
        pages.write(bytes(file.stat().st_size - 8192))
    with pytest.raises(StoreDamaged, match="has a damaged page"):
        copy.recompute()
    copy.close()
