"""Small files and whole directories that survive a power failure.

A file and its name are separate on a disk: a file is durable after its own fsync, its name after that of its directory. Stores
change a small file with `replace_file` only: a reader sees the old or the new bytes, never a mixture, even if the process is
killed.

    write `name.new`  ->  fsync  ->  rename over `name`  ->  fsync of the directory
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def no_crash(_place: str) -> None:
    """Do nothing at a crash point; tests replace it with a function that raises or kills."""


def replace_file(path: Path, content: bytes) -> None:
    """Replace a small file, which then has the old or the new content after a crash; durable on return. Raises OSError."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    fsync_path(path.parent)


def fsync_path(path: Path) -> None:
    """Make a file, or the names in a directory, durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(directory: Path) -> None:
    """Make a directory and all files below it durable. Raises OSError."""
    for folder, _, names in os.walk(directory):
        for name in names:
            fsync_path(Path(folder, name))
        fsync_path(Path(folder))


def delete_tree(path: Path) -> None:
    """Delete a directory or a file as far as possible; the next start deletes the rest."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
