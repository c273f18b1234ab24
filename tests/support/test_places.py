"""Tests of RabbitMQ and slow tests lie where they are looked for, and the longest of the former begin first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.places import LONGEST, OF_SLOW, PLACES, ROOT, check_places, longest_first


def marked(name: str, *marks: str) -> Any:
    """A test in this file, with these marks."""
    return SimpleNamespace(path=ROOT / name, get_closest_marker=lambda mark: mark if mark in marks else None)


def test_every_place_and_every_file_that_is_named_exists() -> None:
    assert [name for name in (*PLACES, *OF_SLOW, *LONGEST) if not (ROOT / name).exists()] == []
    check_places(marked(name, "broker") for name in LONGEST)


@pytest.mark.parametrize(("mark", "said"), [("broker", "asks for a broker"), ("slow", "is slow")])
def test_a_test_where_nobody_looks_ends_the_run(mark: str, said: str) -> None:
    with pytest.raises(pytest.UsageError, match=rf"tests/unit/sync/test_core\.py {said}"):
        check_places([marked("tests/unit/sync/test_core.py", mark)])


def test_slow_tests_of_other_parts_lie_where_those_look() -> None:
    check_places([marked("tests/system/test_settings.py", "slow", "broker"), marked("tests/spark/test_audit.py", "slow", "spark")])
    check_places([marked("tests/unit/sync/test_core.py")])


def test_only_a_worker_of_a_run_begins_with_the_longest_files_and_keeps_the_order_of_others() -> None:
    names = ["tests/a.py", LONGEST[1], "tests/b.py", LONGEST[0]]
    items: list[Any] = [SimpleNamespace(path=ROOT / name) for name in names]
    longest_first(cast("Any", SimpleNamespace()), items)
    assert [item.path for item in items] == [ROOT / name for name in names]
    longest_first(cast("Any", SimpleNamespace(workerinput={})), items)
    assert [item.path for item in items] == [ROOT / name for name in (LONGEST[0], LONGEST[1], "tests/a.py", "tests/b.py")]
