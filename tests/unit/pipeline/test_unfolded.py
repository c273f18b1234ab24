"""What large transactions in a log change, part by part, without Spark."""

from __future__ import annotations

import pyarrow.compute as pc

from brokerha.model.operations import Staged, unpack_effect
from brokerha.model.reserved.staging import TABLE, part_of
from brokerha.pipeline.rows import SCHEMA, table_of, unfolded
from tests.unit.pipeline.random_log import random_entries


def test_every_part_gives_its_rows_and_a_piece_of_a_message_none() -> None:
    entries = random_entries(5, 400)
    table = table_of(entries)
    commits = table.filter(pc.equal(table["kind"], "staged"))
    puts = table.filter(pc.and_(pc.equal(table["name"], TABLE), pc.equal(table["kind"], "put")))
    sizes: dict[tuple[str, int], int] = {}
    for at in range(commits.num_rows):
        commit = commits.slice(at, 1).combine_chunks().to_batches()[0]
        name = commit["name"][0].as_py()
        for place in range(puts.num_rows):
            part = puts.slice(place, 1).select(["lsn", "key", "value"]).combine_chunks().to_batches()[0]
            if part_of(part["key"][0].as_py())[0] == name:
                found = unfolded(commit, part, SCHEMA.names)
                sizes[name, part_of(part["key"][0].as_py())[1]] = found.num_rows
    staged = [change for entry in entries for change in unpack_effect(entry.effect) if isinstance(change, Staged)]
    assert len(staged) > 10
    for change in staged:
        has_piece = int(change.name.removeprefix("large")) % 2 == 1
        assert (sizes[change.name, 1] == 0) is has_piece
        assert sizes[change.name, 2] > 0
        # The row that says of which messages the pieces are is no part.
        assert sizes.get((change.name, 0), 0) == 0
