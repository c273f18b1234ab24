"""Tests of RabbitMQ lie where they are looked for, and the longest of them begin first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.broker_tests import LONGEST, PLACES, ROOT, check_places, longest_first


def test_every_place_and_every_file_that_is_named_exists():
    assert [name for name in (*PLACES, *LONGEST) if not (ROOT / name).exists()] == []
    check_places(ROOT / name for name in LONGEST)


def test_a_test_that_asks_for_a_broker_where_nobody_looks_ends_the_run():
    with pytest.raises(pytest.UsageError, match=r"tests/unit/sync/test_core\.py asks for a broker"):
        check_places([ROOT / "tests/unit/sync/test_core.py"])


def test_only_a_worker_of_a_run_begins_with_the_longest_files_and_keeps_the_order_of_others():
    names = ["tests/a.py", LONGEST[1], "tests/b.py", LONGEST[0]]
    items: list[Any] = [SimpleNamespace(path=ROOT / name) for name in names]
    longest_first(cast("Any", SimpleNamespace()), items)
    assert [item.path for item in items] == [ROOT / name for name in names]
    longest_first(cast("Any", SimpleNamespace(workerinput={})), items)
    assert [item.path for item in items] == [
        ROOT / name for name in (LONGEST[0], LONGEST[1], "tests/a.py", "tests/b.py")
    ]
