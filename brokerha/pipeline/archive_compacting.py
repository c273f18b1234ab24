"""Which small files of an archive are put together: adjacent ones, so that each row is rewritten a few times in years, never each time.

    10 rows │ 10 │ 10 │ 10 │ 100,000 │ 20 │ 20      ->      40 │ 100,000 │ 40

A group becomes one file when that is at least twice as large as its largest one, or when the file behind it would be too much for it.
So a row moves to a file of twice the size each time, but for the last time, and what is as large as a file should be moves no more.
Must never touch a file.

>>> groups([])
[]
"""

from __future__ import annotations

from collections.abc import Sequence

from brokerha.pipeline.archive_manifest import ArchiveFile

TARGET_ROWS = 1_000_000
TARGET_BYTES = 256 * 1024 * 1024
"""Rows and bytes of a file that is left as it is; no group is made larger."""
Group = tuple[ArchiveFile, ...]


def groups(
    files: Sequence[ArchiveFile], target_rows: int = TARGET_ROWS, target_bytes: int = TARGET_BYTES
) -> list[Group]:
    """Groups of two adjacent files or more, in order; each is to become one file."""
    found: list[Group] = []
    group: list[ArchiveFile] = []
    rows = size_bytes = 0
    for file in files:
        if rows + file.rows > target_rows or size_bytes + file.size_bytes > target_bytes:
            # Files never become smaller, so nothing will ever join this group: it is put together for good.
            found += [tuple(group)] if len(group) > 1 else []
            group, rows, size_bytes = [], 0, 0
        group.append(file)
        rows, size_bytes = rows + file.rows, size_bytes + file.size_bytes
    return [*found, *_worthwhile(group)]


def _worthwhile(group: Sequence[ArchiveFile]) -> list[Group]:
    """The group, or what is worth it on both sides of its largest file: less than half of it, so this ends soon."""
    if len(group) < 2:
        return []
    largest = max(group, key=lambda file: file.rows)
    if sum(file.rows for file in group) >= 2 * largest.rows:
        return [tuple(group)]
    place = group.index(largest)
    return [*_worthwhile(group[:place]), *_worthwhile(group[place + 1 :])]
