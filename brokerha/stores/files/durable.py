"""Small files and whole directories that are still there after the power went.

A name and what it names are two things on a disk: a file is durable after its own fsync, its name after that of its directory.
`replace_file` is the only way in which brokerha's stores change a small file: a reader sees the old or the new
bytes, never a mixture, whenever the process is killed.

    write `name.new`  ->  fsync  ->  rename over `name`  ->  fsync of the directory
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def no_crash(_place: str) -> None:
    """Do nothing at a crash point; tests give something there that raises or kills."""


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file so that it has the old or the new content, whatever happens; durable on return. Raises OSError."""
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
    """Make everything below a directory durable, and the directory itself. Raises OSError."""
    for folder, _, names in os.walk(directory):
        for name in names:
            fsync_path(Path(folder, name))
        fsync_path(Path(folder))


def delete_tree(path: Path) -> None:
    """Delete a directory or a file as far as possible; a part that is left over is deleted by the next start."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
