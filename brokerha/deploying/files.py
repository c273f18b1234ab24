"""Files to be written: compared with what is there, and never overwritten without being told to.

Invariants: either all files of a plan are written or, when one of them is there with another content, none; a file is there with its
whole content or not at all; one that holds a secret was never readable by others, not even for a moment.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Final

from brokerha.model.errors import ConfigurationError

NEW: Final = "new"
SAME: Final = "up-to-date"
DIFFERS: Final = "differs"
OPEN_MODE: Final = 0o644
SECRET_MODE: Final = 0o600
FOLDER_MODE: Final = 0o755
SECRET_FOLDER_MODE: Final = 0o700
_TEMPLATES: Final = Path(__file__).with_name("templates")


@dataclass(frozen=True, slots=True)
class File:
    """One file of a plan; ``path`` is relative to the folder of the plan, or absolute."""

    path: Path
    text: str = field(repr=False)
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a generator wants to be there, and what a person does then."""

    files: tuple[File, ...]
    folders: tuple[Path, ...] = ()
    """Private folders that programs need, empty at first."""
    next_steps: tuple[str, ...] = ()
    """Commands and sentences, in their order."""


def filled(template: str, **values: object) -> str:
    """A file of the folder templates with its ``$names`` replaced. Raises KeyError when one has no value."""
    return Template(_TEMPLATES.joinpath(template).read_text(encoding="utf-8")).substitute(values)


@dataclass(frozen=True, slots=True)
class Found:
    """How a file of a plan compares with what is there."""

    path: Path
    status: str


def compare(plan: Plan, folder: Path) -> list[Found]:
    """Each file with ``new``, ``up-to-date`` or ``differs``; a secret that others may read differs. Raises ConfigurationError."""
    return [Found(folder / file.path, _status(folder / file.path, file)) for file in plan.files]


def write(plan: Plan, folder: Path, *, force: bool) -> list[Found]:
    """Write what is new, and with ``force`` what differs; returns what was found before.

    Raises ConfigurationError when something differs and must not be overwritten (then nothing is written), or cannot be written.
    """
    found = compare(plan, folder)
    differing = [str(each.path) for each in found if each.status == DIFFERS]
    if differing and not force:
        raise ConfigurationError(f"there with another content: {', '.join(differing)}; --force overwrites, --check compares only")
    try:
        for private in plan.folders:
            (folder / private).mkdir(mode=SECRET_FOLDER_MODE, parents=True, exist_ok=True)
        for file, each in zip(plan.files, found, strict=True):
            if each.status != SAME:
                _put(each.path, file)
    except OSError as error:
        raise ConfigurationError(f"{error.filename}: {error.strerror}: choose another folder with --deploy") from None
    return found


def read_secret(path: Path) -> str:
    """Content of a file without its last line break; empty when there is none. Raises ConfigurationError."""
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None


def _status(path: Path, file: File) -> str:
    try:
        there = path.read_bytes()
        is_open = file.is_secret and path.stat().st_mode & 0o077
    except FileNotFoundError:
        return NEW
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    return SAME if there == file.text.encode() and not is_open else DIFFERS


def _put(path: Path, file: File) -> None:
    mode, folder_mode = (SECRET_MODE, SECRET_FOLDER_MODE) if file.is_secret else (OPEN_MODE, FOLDER_MODE)
    path.parent.mkdir(mode=folder_mode, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as out:  # noqa: PTH123  (a descriptor, not a path)
            out.write(file.text.encode())
            out.flush()
            os.fsync(out.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def statuses(found: Sequence[Found]) -> set[str]:
    """All statuses that occur."""
    return {each.status for each in found}
