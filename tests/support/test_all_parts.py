"""What fails beside others runs once more alone, and is named; what fails twice fails its part."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import all_parts
from tests.support.all_parts import Outcome, Part

ALONE = "import os\n\n\ndef test_alone(): assert 'PYTEST_XDIST_WORKER' not in os.environ, 'beside others'\n"
NEVER = "def test_never(): assert False\n"
WELL = "def test_well(): pass\n"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Runs these tests as a part."""
    monkeypatch.setattr(all_parts, "_RESULTS", tmp_path)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    # To load all plugins takes longer than these tests.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist")

    def run(*tests: str, tries_again: bool = True) -> Outcome:
        for number, test in enumerate(tests):
            (tmp_path / f"test_{number}.py").write_text(test)
        pytest_here = [sys.executable, "-m", "pytest", "-q", f"--rootdir={tmp_path}", f"--junit-xml={tmp_path / 'some.xml'}"]
        (outcome,) = all_parts._run_together([Part("some", "", [*pytest_here, "-n", "1", str(tmp_path)], 60, tries_again)])
        return outcome

    return run


def test_one_that_passes_only_alone_is_named_and_fails_nothing(run: Callable[..., Outcome]) -> None:
    outcome = run(WELL, ALONE)
    assert outcome.passed
    assert outcome.details == "1 passed, 1 failed, 1 of them only alone"
    (unstable,) = outcome.unstable
    assert "test_alone: AssertionError: beside others" in unstable
    assert not all_parts._failures(outcome.part)


def test_one_that_fails_twice_fails_its_part(run: Callable[..., Outcome]) -> None:
    outcome = run(WELL, ALONE, NEVER)
    assert (outcome.passed, outcome.unstable) == (False, ())
    (failure,) = all_parts._failures(outcome.part)
    assert "test_never" in failure


def test_many_do_not_run_again(run: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_parts, "_AGAIN_MOST", 5)
    outcome = run(*[ALONE] * 6)
    assert (outcome.passed, len(all_parts._failures(outcome.part))) == (False, 6)


def test_other_parts_do_not_run_again(run: Callable[..., Outcome]) -> None:
    assert not run(ALONE, tries_again=False).passed


def test_two_parts_run_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Each waits for what the other one writes."""
    monkeypatch.setattr(all_parts, "_RESULTS", tmp_path)
    wait = "echo $0 speaks; touch $0; for _ in $(seq 200); do test -e $1 && exit 0; sleep 0.05; done; exit 3"
    parts = [
        Part(mine, "", ["sh", "-c", wait, str(tmp_path / mine), str(tmp_path / other)], 60, beside=mine == "two")
        for mine, other in (("one", "two"), ("two", "one"))
    ]
    assert all_parts._steps([*parts, parts[0]]) == [parts, [parts[0]]]
    assert [outcome.problem for outcome in all_parts._run_together(parts)] == ["", ""]
    said = capfd.readouterr().out
    assert all(f"{tmp_path / name} speaks" in said for name in ("one", "two"))


def test_a_part_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_parts, "_RESULTS", tmp_path)
    (outcome,) = all_parts._run_together([Part("long", "", ["sleep", "600"], 1)])
    assert outcome.problem == "not done after 1 s"
