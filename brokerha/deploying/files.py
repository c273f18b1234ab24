"""Planned files: compared with existing ones, and overwritten only on request.

Invariants: all files of a plan are written, or none if an existing one differs; a file has its whole content or does not exist;
other users can never read a file with a secret, not even for a moment.
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
    """The files that a generator wants, and the next steps for a person."""

    files: tuple[File, ...]
    folders: tuple[Path, ...] = ()
    """Private, empty folders that programs need."""
    next_steps: tuple[str, ...] = ()
    """Commands and sentences, in order."""


def filled(template: str, **values: object) -> str:
    """Return a file of the folder templates with its ``$names`` replaced. Raises KeyError when one has no value."""
    return Template(_TEMPLATES.joinpath(template).read_text(encoding="utf-8")).substitute(values)


@dataclass(frozen=True, slots=True)
class Found:
    """Result of comparing a planned file with the existing one."""

    path: Path
    status: str


def compare(plan: Plan, folder: Path) -> list[Found]:
    """Return each file with ``new``, ``up-to-date`` or ``differs``; a secret others can read differs. Raises ConfigurationError."""
    return [Found(folder / file.path, _status(folder / file.path, file)) for file in plan.files]


def write(plan: Plan, folder: Path, *, force: bool) -> list[Found]:
    """Write new files, and with ``force`` also differing ones; return the result of the comparison before.

    Raises ConfigurationError when a file differs and must not be overwritten (nothing is written then), or cannot be written.
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
    """Return the content of a file without its last line break; empty without a file. Raises ConfigurationError."""
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
    """Return all statuses that occur."""
    return {each.status for each in found}
