"""Writes the file of a report: beside its place first, then renamed, so that a reader never sees half of one."""

from __future__ import annotations

import os
from pathlib import Path

from brokerha.model.errors import StoreError
from brokerha.pipeline.report import ReportFacts
from brokerha.pipeline.report_page import page


def write(facts: ReportFacts, out: Path) -> int:
    """Write the page; returns its size in bytes. Raises StoreError when the place cannot be written."""
    data = page(facts).encode()
    partial = _partial(out)
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StoreError(f"cannot write {out}: {error.strerror}") from None
    return len(data)


def check_place(out: Path) -> None:
    """Raises StoreError when the page could not be written: before the work, not after it."""
    partial = _partial(out)
    try:
        if not out.parent.is_dir():
            raise StoreError(f"cannot write {out}: there is no folder {out.parent}")
        if out.is_dir():
            raise StoreError(f"cannot write {out}: it is a folder; name a file with --out")
        # Only to make a file tells it: permissions say nothing about a disk that is read-only or a name that is too long.
        partial.touch()
        partial.unlink()
    except OSError as error:
        raise StoreError(f"cannot write {out}: {error.strerror}") from None


def _partial(out: Path) -> Path:
    return out.with_name(f".{out.name}.{os.getpid()}")
