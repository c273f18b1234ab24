"""Status of nodes over time, stored beside the archive: a report needs lags and states, which the log does not hold.

    <archive>/_observations      a Delta table of its own, which readers of the archive ignore

Observations are no proof, and nothing depends on them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from brokerha.model.errors import StoreError
from brokerha.model.ids import Lsn, NodeId
from brokerha.pipeline.places import add_action, begin_table, committing, delta_url, first_line, write_table

FOLDER = "_observations"


@dataclass(frozen=True, slots=True)
class Observation:
    """The status of one node at one moment, from the status of the cluster."""

    time_us: int
    """Microseconds since 1970, by the clock of the asking machine."""
    node: NodeId
    role: str
    """``master``, ``backup`` or ``worker``."""
    master: NodeId
    """The node itself, or its master."""
    state: str
    applied_lsn: Lsn | None
    lag_entries: int | None
    lag_s: float | None
    """None when it is unknown; the same holds for all optional fields here."""
    items: int | None
    epoch: int | None
    view: int | None


_FIELDS = [
    (field.name, {"str": "string", "NodeId": "string", "float | None": "float64"}.get(str(field.type), "int64"))
    for field in dataclasses.fields(Observation)
]
"""Columns of the table; annotations are strings here."""


def observed(status: Mapping[str, Any], time_us: int) -> list[Observation]:
    """Return the observations of all nodes in one answer to ``status``."""
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
    """Store observations. Raises StoreError."""
    import pyarrow as pa
    from deltalake import DeltaTable, Schema

    rows = pa.Table.from_pylist([dataclasses.asdict(each) for each in seen], schema := pa.schema(_FIELDS))
    where = f"{archive}/{FOLDER}"
    # delta-rs's own writer fails for a folder name with brackets or non-ASCII letters.
    if (kept := write_table(where, schema, rows.to_batches())) is None:
        return
    if not DeltaTable.is_deltatable(delta_url(where)):
        begin_table(where, schema, [add_action(*kept)], "observations")
        return
    with committing(where):
        DeltaTable(delta_url(where)).create_write_transaction([add_action(*kept)], "append", Schema.from_arrow(schema))


def read(archive: str) -> list[Observation]:
    """Return all observations in order of time. Raises StoreError."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        found = DeltaTable(delta_url(f"{archive}/{FOLDER}")).to_pyarrow_table()
    except TableNotFoundError:
        return []
    except (DeltaError, OSError) as error:
        raise StoreError(f"cannot read the observations in {archive}: {first_line(error)}") from None
    return [Observation(**row) for row in found.sort_by([("time_us", "ascending"), ("node", "ascending")]).to_pylist()]
