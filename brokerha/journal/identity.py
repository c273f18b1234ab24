"""Whose journal lies in a directory, without opening it as one: for commands that are given a directory and no cluster file."""

from __future__ import annotations

from pathlib import Path

import lmdb
import msgpack

from brokerha.journal.directory import DATA, check_file
from brokerha.journal.recovery import IDENTITY
from brokerha.journal.rows import BadRow, read_checked
from brokerha.model.errors import JournalError
from brokerha.model.ids import NodeId


def owner_of_journal(directory: Path) -> tuple[str, NodeId]:
    """(cluster, node) of a journal; also while a node has it open. Raises JournalDamaged, JournalError."""
    if not (directory / DATA).exists():
        raise JournalError(f"there is no journal in {directory}")
    check_file(directory / DATA)
    try:
        with lmdb.open(str(directory), readonly=True, lock=False, max_dbs=1) as environment:
            meta = environment.open_db(b"meta", create=False)
            with environment.begin(db=meta) as transaction:
                identity = msgpack.unpackb(read_checked(transaction.get(IDENTITY, b"")))
                return str(identity["cluster"]), str(identity["node"])
    except (lmdb.Error, BadRow, ValueError, KeyError, TypeError) as error:
        raise JournalError(f"the journal in {directory} does not say whose it is: {error}") from None
