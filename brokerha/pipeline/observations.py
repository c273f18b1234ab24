"""What nodes said of themselves, kept beside the archive: the log knows no lag and no states, and a report wants both.

    <archive>/_observations      a Delta table of its own, which readers of the archive pass over

Observations prove nothing and nothing depends on them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from brokerha.model.errors import StoreError
from brokerha.model.ids import Lsn, NodeId
from brokerha.pipeline.parquet_files import add_action, begin_table, write_table
from brokerha.pipeline.places import committing, delta_url, first_line

FOLDER = "_observations"


@dataclass(frozen=True, slots=True)
class Observation:
    """One node at one moment, as the status of the cluster showed it."""

    time_us: int
    """Microseconds since 1970, of the machine that asked."""
    node: NodeId
    role: str
    """``master``, ``backup`` or ``worker``."""
    master: NodeId
    """The node itself, or the one that it belongs to."""
    state: str
    applied_lsn: Lsn | None
    lag_entries: int | None
    lag_s: float | None
    """None where it is not known, as all that may be None here."""
    items: int | None
    epoch: int | None
    view: int | None


_FIELDS = [
    (field.name, {"str": "string", "NodeId": "string", "float | None": "float64"}.get(str(field.type), "int64"))
    for field in dataclasses.fields(Observation)
]
"""Columns of the table; annotations are text here."""


def observed(status: Mapping[str, Any], time_us: int) -> list[Observation]:
    """All nodes of one answer to ``status``."""
    return [
        Observation(
            time_us=time_us,
            node=row["id"],
            master=row["master"] or "",
            epoch=status.get("epoch") if row.get("epoch") is None else row["epoch"],
            **{name: row[name] for name in ("role", "state")},
            **{name: row.get(name) for name in ("applied_lsn", "lag_entries", "lag_s", "items", "view")},
        )
        for row in status["nodes"]
    ]


def append(archive: str, seen: Iterable[Observation]) -> None:
    """Keep observations. Raises StoreError."""
    import pyarrow as pa
    from deltalake import DeltaTable, Schema

    rows = pa.Table.from_pylist([dataclasses.asdict(each) for each in seen], schema := pa.schema(_FIELDS))
    where = f"{archive}/{FOLDER}"
    # delta-rs's own writer fails where a folder has brackets or letters beyond ASCII in its name.
    if (kept := write_table(where, schema, rows.to_batches())) is None:
        return
    if not DeltaTable.is_deltatable(delta_url(where)):
        begin_table(where, schema, [add_action(*kept)], "observations")
        return
    with committing(where):
        DeltaTable(delta_url(where)).create_write_transaction([add_action(*kept)], "append", Schema.from_arrow(schema))


def read(archive: str) -> list[Observation]:
    """All that was kept, in the order of their times. Raises StoreError."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        found = DeltaTable(delta_url(f"{archive}/{FOLDER}")).to_pyarrow_table()
    except TableNotFoundError:
        return []
    except (DeltaError, OSError) as error:
        raise StoreError(f"cannot read the observations in {archive}: {first_line(error)}") from None
    return [Observation(**row) for row in found.sort_by([("time_us", "ascending"), ("node", "ascending")]).to_pylist()]
