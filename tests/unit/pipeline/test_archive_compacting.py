"""Which files are put together, and that no row is rewritten often."""

from __future__ import annotations

import random
from itertools import pairwise

from brokerha.pipeline.archive_compacting import groups
from brokerha.pipeline.archive_manifest import ArchiveFile

TARGET = 10_000


def file_of(first_lsn: int, rows: int, size_bytes: int = 1) -> ArchiveFile:
    last_lsn = first_lsn + rows - 1
    return ArchiveFile(f"{first_lsn}-{last_lsn}", first_lsn, last_lsn, rows, size_bytes, "", "", "", 0, 0, "", "")


def files_of(*rows: int) -> list[ArchiveFile]:
    found: list[ArchiveFile] = []
    for each in rows:
        found.append(file_of(found[-1].last_lsn + 1 if found else 1, each))
    return found


def sizes(files: list[ArchiveFile]) -> list[list[int]]:
    return [[file.rows for file in group] for group in groups(files, TARGET, 1000)]


def test_small_files_beside_each_other_become_one() -> None:
    assert sizes(files_of(10, 10, 10)) == [[10, 10, 10]]
    assert sizes(files_of(10)) == []
    assert sizes(files_of()) == []


def test_a_large_file_is_not_rewritten_for_small_ones() -> None:
    assert sizes(files_of(10, 10, 5_000, 20, 20)) == [[10, 10], [20, 20]]
    assert sizes(files_of(5_000, 2_000)) == []
    assert sizes(files_of(TARGET, 10, 10, TARGET)) == [[10, 10]]


def test_no_group_is_larger_than_a_file_should_be() -> None:
    assert sizes(files_of(*[3_000] * 7)) == [[3_000] * 3, [3_000] * 3]
    large = [file_of(1, 10, 600), file_of(11, 10, 300), file_of(21, 10, 300)]
    assert [[file.size_bytes for file in group] for group in groups(large, TARGET, 1000)] == [[600, 300]]


def test_an_archive_that_grows_for_years_has_few_files_and_rewrites_each_row_a_few_times() -> None:
    chance = random.Random(1)
    files: list[ArchiveFile] = []
    rewritten = total = 0
    for _ in range(3_000):
        files.append(file_of(total + 1, rows := chance.randrange(1, 60)))
        total += rows
        while wanted := groups(files, TARGET, 10**9):
            for group in wanted:
                rows = sum(file.rows for file in group)
                place = files.index(group[0])
                files[place : place + len(group)] = [file_of(group[0].first_lsn, rows)]
                rewritten += rows
    assert all(one.last_lsn + 1 == other.first_lsn for one, other in pairwise(files))
    assert len(files) <= 1.5 * total / TARGET + 14
    assert rewritten <= 14 * total
