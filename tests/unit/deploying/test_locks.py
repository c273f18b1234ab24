"""The locks of the image (docker/*.lock) against what the project asks for: nothing missing, nothing too old, nothing left over.

No index is asked. What a package needs is read from this environment, where each of them is installed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
IMAGE = {
    "python_version": "3.11",
    "python_full_version": "3.11.14",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
}
"""Where the locks are used."""
PIN = re.compile(r"^([a-zA-Z0-9._-]+)==(\S+) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
AGAIN = "run make lock"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = {"requirements.lock": PROJECT["project"]["dependencies"], "build.lock": PROJECT["build-system"]["requires"]}
"""File -> what is asked for."""


def pins_of(lock: str) -> dict[str, str]:
    """Name -> version."""
    text = (ROOT / "docker" / lock).read_text(encoding="utf-8")
    pins = {name: version for name, version, _ in PIN.findall(text)}
    assert len(pins) == len(re.findall(r"^\w", text, re.MULTILINE)), "a line without a version or a hash"
    return pins


def applying(texts: Iterable[str], extras: Iterable[str] = ()) -> Iterator[Requirement]:
    """Those that hold in the image."""
    for requirement in map(Requirement, texts):
        asked = [{**IMAGE, "extra": extra} for extra in (*extras, "")]
        if requirement.marker is None or any(map(requirement.marker.evaluate, asked)):
            yield requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_what_is_needed_and_nothing_else(lock: str):
    pins, used = pins_of(lock), set[str]()
    waiting = list(applying(LOCKS[lock]))
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{requirement} is missing in docker/{lock}: {AGAIN}"
        assert pins[name] in requirement.specifier, f"docker/{lock} has {name} {pins[name]}, {requirement} is asked for: {AGAIN}"
        if name not in used:
            used.add(name)
            try:
                needed = requires(name) or []
            except PackageNotFoundError:
                pytest.skip(f"{name} is not installed here: make venv")
            waiting += applying(needed, requirement.extras)
    assert not pins.keys() - used, f"nothing needs these: {AGAIN}"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_says_nothing_about_the_machine_that_wrote_it(lock: str):
    assert not re.findall(r"index-url|find-links|://", (ROOT / "docker" / lock).read_text(encoding="utf-8"))
