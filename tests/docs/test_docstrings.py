"""Every example in a docstring of the library is true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITH_EXAMPLES = [path.relative_to(ROOT) for path in sorted(ROOT.glob("brokerha/**/*.py")) if ">>> " in path.read_text()]


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=str)
def test_the_examples_of_a_module_are_true(path: Path) -> None:
    found = doctest.testmod(import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__")))
    assert found.attempted
    assert not found.failed
