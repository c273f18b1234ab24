"""The status of the whole cluster, gathered from its masters: the contract of ``status -o json``.

Each master knows itself and its workers. Whoever is asked asks all other masters and waits a moment; a master that does
not answer is shown as unreachable, never left out.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from brokerha.model import states
from brokerha.model.ids import NodeId
from brokerha.model.messages import Outgoing, StatusReport, StatusRequest
from brokerha.ports.transport import Transport

if TYPE_CHECKING:
    from brokerha.nodes.loop import NodeLoop

FIELDS = (
    "id", "role", "state", "reason", "action", "master", "received_lsn", "applied_lsn", "lag_entries", "lag_s",
    "fingerprint", "items", "incoming", "in_doubt", "seen_s", "probe",
    "readable", "free_bytes", "primary", "view",
)  # fmt: skip
"""Fields of one row; none is ever taken away within a major version."""


ROLES = ("master", "backup", "worker")


class StatusGathering:
    """Asks the other masters for their rows; callable from any thread."""

    def __init__(self, node: NodeId, masters: Iterable[NodeId]) -> None:
        self._node = node
        self._others = tuple(master for master in masters if master != node)
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._reports: dict[str, dict[NodeId, tuple[dict[str, Any], ...]]] = {}

    def gather(self, loop: NodeLoop, transport: Transport, timeout_ms: int) -> list[dict[str, Any]]:
        """Rows of all other masters and their workers; one row saying *unreachable* for a master that is silent."""
        request = f"{self._node}.{next(self._numbers)}"
        with self._changed:
            self._reports[request] = {}
        asked = [Outgoing(master, StatusRequest(request)) for master in self._others]
        loop.call(lambda: transport.send(asked))
        deadline = time.monotonic() + timeout_ms / 1000
        with self._changed:
            while len(self._reports[request]) < len(self._others):
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            reports = self._reports.pop(request)
        rows: list[dict[str, Any]] = []
        for master in self._others:
            found = reports.get(master)
            rows.extend(dict(row) for row in found) if found else rows.append(silent(master))
        return rows

    def on_report(self, sender: NodeId, report: StatusReport) -> None:
        """Take in an answer; those that nobody waits for any more are dropped."""
        with self._changed:
            if report.request in self._reports and sender in self._others:
                self._reports[report.request][sender] = report.nodes
                self._changed.notify_all()


def silent(master: NodeId) -> dict[str, Any]:
    """The row of a master that does not answer."""
    row: dict[str, Any] = dict.fromkeys(FIELDS)
    return {
        **row,
        "id": master,
        "role": "master",
        **states.describe(states.UNREACHABLE, "did not answer"),
        "master": master,
    }


def summary(cluster: str, epoch: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The whole answer; rows are unique by id and role and sorted: a master, its backups, its workers.

    Where two tell of a node, the later one counts, which is the node's own; what it does not know is taken from the other.
    """
    unique: dict[Any, dict[str, Any]] = {}
    for row in rows:
        known = {name: value for name, value in row.items() if value is not None}
        # The process with a master's own id may stand by while a backup is primary.
        name = (row["id"], row["role"])
        unique[name] = {**row, **unique.get(name, {}), **known}
    nodes = sorted(unique.values(), key=lambda row: (str(row["master"]), ROLES.index(row["role"]), str(row["id"])))
    nodes = [{name: row.get(name) for name in FIELDS} for row in nodes]
    words = {row["state"] for row in nodes}
    if words <= states.HEALTHY:
        state = states.OK
    else:
        state = "degraded" if words <= states.HEALTHY | states.DEGRADED else "action-needed"
    return {"cluster": cluster, "epoch": epoch, "state": state, "nodes": nodes}
