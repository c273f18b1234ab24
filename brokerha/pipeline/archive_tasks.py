"""The tasks of the archive job: what each does, how their errors travel, and how a round is cut into them.

    Tasks.write(ranges)  ──>  written(range) on a core somewhere  ──>  [StagedFile, …]  or  Failure

Tasks run wherever `Tasks` runs them: in this process (`TasksHere`) or on Spark (brokerha/spark/archive.py). They know the archive
by its path and the source by its description, and bring back values. Must never raise a
BrokerhaError through Spark, which would make a page of text of it and try again what cannot succeed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from brokerha.model import errors
from brokerha.model.errors import BrokerhaError
from brokerha.model.ids import Lsn
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.archive_compacting import Group
from brokerha.pipeline.archive_files import Range, StagedFile, merge_files, write_range
from brokerha.pipeline.sources import SourceSpec, open_source

LEAST_ENTRIES = 10_000
"""Of a range, unless there are no more: a task for less is not worth its start."""
ROUND_RANGES = 2
"""Ranges of one round for each task that runs at a time: what a kill may cost."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of a task, as it travels to the job."""

    name: str
    text: str

    @classmethod
    def of(cls, error: BrokerhaError) -> Failure:
        """Under the name of the nearest class that everyone knows."""
        known = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
        return cls(known.__name__, str(error))

    @property
    def error(self) -> BrokerhaError:
        """The error again."""
        return errors.error_named(self.name, self.text)


Done = list[StagedFile] | Failure


class Tasks(Protocol):
    """Runs tasks somewhere, several at a time; each task answers, with its files or with what went wrong."""

    @property
    def parallel(self) -> int:
        """How many run at a time."""

    def write(self, spec: SourceSpec, staging: Path, ranges: Sequence[Range]) -> list[Done]:
        """Write ranges into staging; one answer for each, in their order."""

    def merge(self, archive: Path, staging: Path, wanted: Sequence[Group]) -> list[Done]:
        """Write groups of files into one each."""


class TasksHere:
    """Tasks in this process, one after the other."""

    parallel = 1

    def write(self, spec: SourceSpec, staging: Path, ranges: Sequence[Range]) -> list[Done]:
        """One after the other."""
        return [written(spec, each, staging) for each in ranges]

    def merge(self, archive: Path, staging: Path, wanted: Sequence[Group]) -> list[Done]:
        """One after the other."""
        return [merged(archive, each, staging) for each in wanted]


def written(spec: SourceSpec, wanted: Range, staging: Path) -> Done:
    """The task of one range; runs anywhere."""
    try:
        with open_source(spec) as source:
            return write_range(source, wanted, staging)
    except BrokerhaError as error:
        return Failure.of(error)


def merged(archive: Path, group: Group, staging: Path) -> Done:
    """The task of one group; runs anywhere."""
    try:
        return [merge_files(Archive(archive), group, staging)]
    except BrokerhaError as error:
        return Failure.of(error)


def ranges_of(first_lsn: Lsn, last_lsn: Lsn, parallel: int, file_entries: int) -> list[Range]:
    """The next round: adjacent ranges from an LSN on, of about equal size, as many as are done at a time or a few more.

    >>> ranges_of(1, 30_000, 2, 100_000)
    [Range(first_lsn=1, last_lsn=15000), Range(first_lsn=15001, last_lsn=30000)]
    """
    entries = min(last_lsn - first_lsn + 1, parallel * ROUND_RANGES * file_entries)
    count = max(-(-entries // file_entries), min(parallel, -(-entries // LEAST_ENTRIES)))
    size = -(-entries // count)
    end = first_lsn + entries - 1
    return [Range(first, min(first + size - 1, end)) for first in range(first_lsn, end + 1, size)]
