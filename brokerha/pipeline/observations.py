"""What nodes said of themselves, kept beside the archive: the log knows no lag and no states, and a report wants both.

    <archive>/observations/2026-05-01.jsonl      one JSON object in each line, appended; a file for each day (UTC)

Observations prove nothing and nothing depends on them. A line that a kill cut off is passed over by readers, and the next writer begins
a new one behind it.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brokerha.model.errors import StoreError
from brokerha.model.ids import Lsn, NodeId

FOLDER = "observations"


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


_NAMES = tuple(field.name for field in dataclasses.fields(Observation))


def observed(status: Mapping[str, Any], time_us: int) -> list[Observation]:
    """All nodes of one answer to ``status``."""
    return [
        Observation(
            time_us=time_us,
            node=row["id"],
            role=row["role"],
            master=row["master"] or "",
            state=row["state"],
            applied_lsn=row.get("applied_lsn"),
            lag_entries=row.get("lag_entries"),
            lag_s=row.get("lag_s"),
            items=row.get("items"),
            epoch=status.get("epoch") if row.get("epoch") is None else row["epoch"],
            view=row.get("view"),
        )
        for row in status["nodes"]
    ]


def append(archive: Path, seen: Iterable[Observation]) -> None:
    """Keep observations, each in the file of its day. Raises StoreError."""
    days: dict[str, list[str]] = {}
    for each in seen:
        day = datetime.fromtimestamp(each.time_us / 1e6, UTC).strftime("%Y-%m-%d")
        days.setdefault(day, []).append(json.dumps(dataclasses.asdict(each)))
    folder = archive / FOLDER
    for day, lines in days.items():
        path = folder / f"{day}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with path.open("a+b") as file:
                is_cut_off = file.seek(0, os.SEEK_END) > 0 and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
                file.write(("\n" * is_cut_off + "\n".join(lines) + "\n").encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from None


def read(archive: Path) -> Iterator[Observation]:
    """All that was kept, in the order of days, and within a day as it was written. Raises StoreError."""
    for path in sorted((archive / FOLDER).glob("*.jsonl")):
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    if (found := _parsed(line)) is not None:
                        yield found
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from None


def _parsed(line: str) -> Observation | None:
    """None for a line that was cut off. Fields of a later version are left out."""
    try:
        fields = json.loads(line)
        return Observation(**{name: fields[name] for name in _NAMES})
    except (ValueError, KeyError, TypeError):
        return None
