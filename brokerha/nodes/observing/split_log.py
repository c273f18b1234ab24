"""Each going back of a master since its start: a log line, numbers for /metrics, and fields of its status row.

    goes back        split, LSN, how many were given up, number of the epoch given up, lineage, whether the content stays

`note` is called after turns and reads the split book only when a lineage has begun. The entries before the first call were logged
by the process before.
"""

from __future__ import annotations

from typing import Any

import structlog

from brokerha.master.core import MasterCore
from brokerha.master.split_report import source_of
from brokerha.model.given_up import Split
from brokerha.model.ids import NodeId
from brokerha.model.numbers import Numbers

log = structlog.get_logger()


class SplitLog:
    """Compares, logs and counts; used by one thread."""

    def __init__(self, master: NodeId) -> None:
        self._master = master
        self._lineage: int | None = None
        self._count = 0
        self._given_up = 0
        self._last: Split | None = None

    def note(self, core: MasterCore) -> None:
        """Log the changes since the last call."""
        lineage = core.sync.lineage
        if self._lineage is None:
            self._lineage = lineage
        if lineage == self._lineage:
            return
        for split in core.history.splits():
            if split.lineage > self._lineage:
                self._lineage = split.lineage
                self._on_split(split)

    def _on_split(self, split: Split) -> None:
        self._count, self._given_up, self._last = self._count + 1, self._given_up + split.total, split
        tell = log.warning if split.total else log.info
        tell(
            "goes back",
            node=self._master,
            split=split.number,
            lsn=split.lsn,
            given_up=split.total,
            epoch=split.epoch,
            lineage=split.lineage,
            keeps_content=split.keeps_content,
        )

    def metrics(self) -> Numbers:
        """Return the numbers since the start."""
        return {"splits_total": self._count, "transactions_given_up_total": self._given_up}

    def fields(self, core: MasterCore) -> dict[str, Any]:
        """Return the fields of the master's status row about splits."""
        return {
            "split_recovery": core.sync.mode,
            "split_recovery_from": source_of(core.sync),
            "splits": self._count,
            "given_up": self._given_up,
            "last_split": told(self._last) if self._last is not None else "",
        }


def told(split: Split) -> str:
    """Describe one going back in words."""
    return f"went back to LSN {split.lsn:,}, {split.total:,} given up, epoch {split.epoch}"
