"""What Spark's tasks write into a staging folder, written by this process: from the fold, into several files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brokerha.pipeline.archive import Archive, ArchiveState
from brokerha.pipeline.rebuilding_content import (
    BODY,
    CONTENT_TYPE,
    GRAPH_FOLDER,
    KEYS_FOLDER,
    LINE,
    MESSAGE_ID,
    MESSAGES_FOLDER,
    PLACE,
    QUEUE_NAME,
    ROW_KEY,
    VALUE,
    Small,
    folded,
)

FILES = 3


def stage_here(archive: Archive, state: ArchiveState, lsn: int, staging: Path) -> Small:
    content = folded(archive, state, lsn)
    for name in content.repositories:
        lines = [(line,) for line in content.quads(name)]
        _write(staging / GRAPH_FOLDER / f"name={name}", [(LINE, pa.string())], lines)
    _write(staging / KEYS_FOLDER, [(ROW_KEY, pa.binary()), (VALUE, pa.binary())], list(content.keys()))
    messages = [
        (queue.encode(), place, message.id.encode(), message.content_type, message.body)
        for queue, place, message in content.messages()
    ]
    columns = [
        (QUEUE_NAME, pa.binary()), (PLACE, pa.int64()), (MESSAGE_ID, pa.binary()), (CONTENT_TYPE, pa.string()), (BODY, pa.binary()),
    ]  # fmt: skip
    _write(staging / MESSAGES_FOLDER, columns, messages)
    return Small(content.repositories, content.counts, content.checks, content.changes)


def _write(folder: Path, columns: list[tuple[str, Any]], rows: Sequence[tuple[Any, ...]]) -> None:
    """Each file has each third row, and so keeps the order of those that it has."""
    folder.mkdir(parents=True)
    for number in range(FILES):
        table = pa.table(
            {
                name: pa.array([row[place] for row in rows[number::FILES]], kind)
                for place, (name, kind) in enumerate(columns)
            }
        )
        pq.write_table(table, folder / f"part-{number}.parquet")
    (folder / "_SUCCESS").touch()
