"""The status of the whole cluster, gathered from its masters: the contract of ``status -o json``.

    {"cluster", "epoch", "members", "excluded", "masters", "state", "nodes": [one row for each node, with FIELDS]}

Each master knows itself and its workers. The asked master asks all others and waits a moment. A master without an answer is shown
as unreachable, never left out. When the acting process of a master is unknown, all its processes are asked. The answer of the
acting process counts; without one, each standby counts with its own row.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from brokerha.model import states
from brokerha.model.ids import NodeId
from brokerha.model.wire.messages import Outgoing, StatusReport, StatusRequest
from brokerha.ports.transport import Problem, Transport

if TYPE_CHECKING:
    from brokerha.nodes.loop import NodeLoop

FIELDS = (
    "id", "role", "state", "reason", "action", "master", "received_lsn", "applied_lsn", "lag_entries", "lag_s", "stale_s",
    "fingerprint", "items", "incoming", "in_doubt", "seen_s", "probe",
    "readable", "free_bytes", "primary", "view",
    "epoch", "proposer", "members", "excluded", "masters",
    "split_recovery", "split_recovery_from", "splits", "given_up", "last_split", "restart_for",
)  # fmt: skip
"""Fields of one row; none is removed within a major version."""


ROLES = ("master", "backup", "worker")


_NO_BROKER = "the node that tells this reaches nobody over its broker"
_BROKER_FIRST = "first do what the row of that node asks for"


class StatusGathering:
    """Asks the other masters for their rows; any thread can call it."""

    def __init__(self, node: NodeId, masters: Iterable[NodeId]) -> None:
        self._node = node
        self._others = tuple(master for master in masters if master != node)
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._reports: dict[str, dict[NodeId, tuple[dict[str, Any], ...]]] = {}
        self._standby: dict[str, dict[tuple[NodeId, str], dict[str, Any]]] = {}
        """Rows of standby processes, by master and process."""

    def look_for(self, others: tuple[NodeId, ...]) -> None:
        """Set the other masters."""
        self._others = others

    def others(self) -> tuple[NodeId, ...]:
        """Return the other masters."""
        return self._others

    def gather(
        self, loop: NodeLoop, transport: Transport, timeout_ms: int, masters: tuple[NodeId, ...] | None = None
    ) -> list[dict[str, Any]]:
        """Return the rows of the given masters (all others by default) and of their workers; a silent master is *unreachable*."""
        request = f"{self._node}.{next(self._numbers)}"
        with self._changed:
            self._reports[request], self._standby[request] = {}, {}
        others = self._others if masters is None else masters
        asked = [Outgoing(master, StatusRequest(request)) for master in others]
        loop.call(lambda: transport.send(asked))
        deadline = time.monotonic() + timeout_ms / 1000
        with self._changed:
            while len(self._reports[request]) < len(others):
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            reports, standby = self._reports.pop(request), self._standby.pop(request)
        rows: list[dict[str, Any]] = []
        missing = silent if transport.status().state == "connected" else not_asked
        for master in others:
            if found := reports.get(master):
                rows.extend(dict(row) for row in found)
                continue
            standing_by = [row for (of, _), row in standby.items() if of == master]
            rows += [without_primary(master) if standing_by else missing(master), *standing_by]
        return rows

    def gather_all(self, loop: NodeLoop, transport: Transport, timeout_ms: int) -> list[dict[str, Any]]:
        """Gather for a node that is no master: it learns the masters from the answers. The time limit is for both rounds."""
        asked, deadline_s = self._others, time.monotonic() + timeout_ms / 1000
        rows = self.gather(loop, transport, timeout_ms)
        latest = latest_of(rows)
        if latest is None or not latest["masters"]:
            return rows
        self._others = tuple(latest["masters"])
        added = tuple(master for master in self._others if master not in asked)
        if added:
            rows += self.gather(loop, transport, max(0, round((deadline_s - time.monotonic()) * 1000)), added)
        return [row for row in rows if row["master"] in self._others]

    def on_report(self, sender: NodeId, report: StatusReport) -> None:
        """Take an answer; drop it when its request is over."""
        with self._changed:
            if report.request not in self._reports:
                return
            if _view_of(report.nodes) < 0:
                # A standby speaks as itself, possibly under the id of its master.
                for row in report.nodes:
                    if row["master"] in self._others:
                        self._standby[report.request][str(row["master"]), str(row["id"])] = dict(row)
                return
            if sender not in self._others:
                return
            # A former primary that does not know its successor answers too.
            reports = self._reports[report.request]
            if _view_of(report.nodes) > _view_of(reports.get(sender, ())):
                reports[sender] = report.nodes
            self._changed.notify_all()


def _view_of(nodes: Iterable[dict[str, Any]]) -> int:
    """Return the view of the reporting master; -1 for a standby."""
    return max((row.get("view") or 0 for row in nodes if row.get("role") == "master"), default=-1)


def silent(master: NodeId) -> dict[str, Any]:
    """Return the row of a master that does not answer."""
    return _row_of(master, states.describe(states.UNREACHABLE, "did not answer"))


def heard_of(master: NodeId, problem: Problem | None = None) -> dict[str, Any]:
    """Return the row of a master that does not answer here, although it was heard; ``problem`` if its messages are set aside."""
    reason, action = "is heard, but did not answer", "ask again; if it stays so, look at what links the brokers: brokerha doctor"
    if problem:
        reason, action = f"did not answer; its messages are set aside: {problem.reason}", problem.remedy
    return _row_of(master, {**states.describe(states.UNREACHABLE, reason), "action": action})


def not_asked(master: NodeId) -> dict[str, Any]:
    """Return the row of a master that is possibly running: it was asked over a broker that is away."""
    reason = f"cannot be asked: {_NO_BROKER}"
    return _row_of(master, {**states.describe(states.UNREACHABLE, reason), "action": _BROKER_FIRST})


def cut_off(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a worker or backup while the broker is away: a silent one is possibly running."""
    if row["state"] not in {states.UNKNOWN, states.JOINING}:
        return row
    return {**row, "reason": f"nothing can be said of it: {_NO_BROKER}", "action": _BROKER_FIRST}


def without_primary(master: NodeId) -> dict[str, Any]:
    """Return the row of a master of which only standby processes answer."""
    return _row_of(master, states.describe(states.WAITING_FOR_PRIMARY, "no process of it is primary"))


def _row_of(master: NodeId, described: dict[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(FIELDS)
    return {**row, "id": master, "role": "master", **described, "master": master}


def summary(cluster: str, epoch: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the whole answer; rows are unique by id and role and sorted: a master, its backups, its workers.

    The answering master in the latest epoch gives the epoch, its members and the excluded masters. When none answers, ``epoch`` is
    used, and the other fields are empty.

    When two rows are about one node, the later one wins, which is the node's own; its missing fields come from the other row.
    """
    unique: dict[Any, dict[str, Any]] = {}
    for row in rows:
        known = {name: value for name, value in row.items() if value is not None}
        # The process with a master's own id can be a standby while a backup is primary.
        name = (row["id"], row["role"])
        unique[name] = {**row, **unique.get(name, {}), **known}
    nodes = sorted(unique.values(), key=lambda row: (str(row["master"]), ROLES.index(row["role"]), str(row["id"])))
    nodes = [{name: row.get(name) for name in FIELDS} for row in nodes]
    words = {row["state"] for row in nodes}
    state = states.OK if words <= states.HEALTHY else "degraded" if words <= states.HEALTHY | states.DEGRADED else "action-needed"
    latest = latest_of(nodes)
    if latest is None:
        latest = {"epoch": epoch, "members": [], "excluded": [], "masters": []}
    told = {name: latest[name] for name in ("epoch", "members", "excluded", "masters")}
    return {"cluster": cluster, **told, "state": state, "nodes": nodes}


def latest_of(rows: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the row of a master in the latest epoch; None when none answers."""
    told = (row for row in rows if row.get("epoch"))
    return max(told, key=lambda row: (row["epoch"], row["proposer"] or ""), default=None)
