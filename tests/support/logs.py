"""Logs without a machine, for tests: the shipped one over a disk in memory."""

from __future__ import annotations

from typing import Any, cast

from brokerha.log.copies import LogCopy
from brokerha.log.current import Beginning
from brokerha.log.disks import MemoryDisk
from brokerha.log.log import Log

CLUSTER = "orders"


def memory_log(node: str, name: str, begin_at: Beginning | None = None, **bounds: Any) -> Log:
    """An empty log of a node with a given name."""
    return Log(MemoryDisk(), CLUSTER, node, name=name, begin_at=begin_at, **bounds)


def memory_copy(node: str, name: str, chunk_bytes: int = 64) -> LogCopy:
    """An empty log with the place where it lives."""
    return LogCopy(MemoryDisk(), CLUSTER, node, name=name, chunk_bytes=chunk_bytes)


def disk_of(log: Log) -> MemoryDisk:
    """The disk of a log in memory; `is_full` makes it refuse to write."""
    return cast("MemoryDisk", log.disk)


def reopened(log: Log) -> Log:
    """The log that a process finds that starts after the one that had it was killed; the old one stays as it is."""
    return type(log)(disk_of(log).copy(), CLUSTER, log.node)


def reopened_copy(copy: LogCopy, chunk_bytes: int = 64) -> LogCopy:
    """The same for a log with the place where it lives."""
    return LogCopy(disk_of(copy.journal).copy(), CLUSTER, copy.journal.node, chunk_bytes=chunk_bytes)
