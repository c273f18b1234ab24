"""The door of tests about rights in single graphs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.http.guard.graph_rights import Door


@pytest.fixture(scope="module")
def shared() -> Door:
    return Door()


@pytest.fixture
def door(shared: Door) -> Iterator[Door]:
    yield shared
    shared.reset()
