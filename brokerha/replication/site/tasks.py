"""Tasks: long work that a master gives to a worker: a backup, a scrub of its data (replication, section 6).

    begin -> Task ... TaskReport (running) ... TaskReport (done or failed)

A worker that makes a backup answers no reads meanwhile. It goes on following the log, so that the site stays as writable as before.
The last serving worker keeps serving beside its work: what it copies is a snapshot. The order is repeated until the worker reports;
a worker that dies fails its task. Results of finished tasks are kept for a while, for later questions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from brokerha.model.errors import NotReady
from brokerha.model.ids import Instant, NodeId
from brokerha.model.wire.messages import Outgoing, Task, TaskReport
from brokerha.replication.site.config import WorkerFeed
from brokerha.replication.site.site import Site

AGAIN_MS = 2000
"""A task is repeated when its worker was silent for so long."""
KEPT = 100
"""Number of finished tasks that are remembered."""
EXCLUSIVE = frozenset({"backup"})
"""Kinds of which a worker does only one at a time; it answers no reads meanwhile if another worker does."""


@dataclass(slots=True)
class Work:
    """One task."""

    task: Task
    node: NodeId
    began_ms: int
    told_ms: int
    report: TaskReport | None = None
    ended_ms: int | None = field(default=None)

    def row(self, mono_ms: int) -> dict[str, Any]:
        """Return its state, progress in units, rate, and time left in seconds (None while unknown)."""
        report = self.report
        done, total = (report.done, report.total) if report is not None else (0, 0)
        passed_s = ((self.ended_ms or mono_ms) - self.began_ms) / 1000
        per_s = done / passed_s if passed_s > 0 else 0.0
        is_running = self.ended_ms is None
        return {
            "request": self.task.request,
            "kind": self.task.kind,
            "worker": self.node,
            "state": report.state if report is not None else "running",
            "done": done,
            "total": total,
            "per_s": round(per_s, 1),
            "left_s": round((total - done) / per_s, 1) if is_running and per_s > 0 else None,
            "reason": report.reason if report is not None else "",
            "answer": dict(report.answer) if report is not None else {},
        }


class Tasks:
    """All tasks of one master."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._works: dict[str, Work] = {}

    def begin(self, kind: str, arguments: dict[str, Any], node: NodeId, protect_single: bool, now: Instant) -> str:
        """Give a task to a worker (empty: the least busy one); return its request. Raises NotReady."""
        worker = self._chosen(node, now.mono_ms)
        moment_us = now.wall_us
        while f"{kind}-{moment_us}" in self._works:
            moment_us += 1
        request = f"{kind}-{moment_us}"
        if kind in EXCLUSIVE:
            worker.task, worker.serves_meanwhile = request, False
            worker.serves_meanwhile = protect_single and not self._site.readable(now.mono_ms)
        self._works[request] = Work(Task(request, kind, arguments), worker.node, now.mono_ms, now.mono_ms - AGAIN_MS)
        for old in [name for name, work in self._works.items() if work.ended_ms is not None][:-KEPT]:
            del self._works[old]
        return request

    def _chosen(self, node: NodeId, mono_ms: int) -> WorkerFeed:
        free = [worker for worker in self._site.in_sync(mono_ms) if worker.is_following and not worker.task]
        able = [worker for worker in free if not node or worker.node == node]
        if not able:
            raise NotReady(f"worker {node} is not in sync, or busy" if node else "no worker of this site is in sync and free")
        return min(able, key=lambda worker: (worker.is_readable, worker.said.running_reads, worker.node))

    def on_report(self, sender: NodeId, report: TaskReport, now: Instant) -> None:
        """Take in a worker's report."""
        work = self._works.get(report.request)
        if work is None or work.node != sender or work.ended_ms is not None:
            return
        work.report, work.told_ms = report, now.mono_ms
        if report.state != "running":
            self._end(work, now.mono_ms)

    def _end(self, work: Work, mono_ms: int) -> None:
        work.ended_ms = mono_ms
        worker = self._site.workers.get(work.node)
        if worker is not None and worker.task == work.task.request:
            worker.task = ""

    def messages(self, now: Instant) -> list[Outgoing]:
        """Return orders to send; tasks of dead workers fail."""
        outgoing = []
        for work in self._works.values():
            if work.ended_ms is not None:
                continue
            worker = self._site.workers.get(work.node)
            if worker is None or not self._site.is_alive(worker, now.mono_ms):
                why = f"worker {work.node} died meanwhile, and whether it had finished is not known"
                work.report = TaskReport(work.task.request, "failed", 0, 0, why, {})
                self._end(work, now.mono_ms)
            elif now.mono_ms - work.told_ms >= AGAIN_MS:
                work.told_ms = now.mono_ms
                outgoing.append(Outgoing(work.node, work.task))
        return outgoing

    def deadline_ms(self) -> int | None:
        """Return when an order has to be repeated."""
        return min((w.told_ms + AGAIN_MS for w in self._works.values() if w.ended_ms is None), default=None)

    def row(self, request: str, mono_ms: int) -> dict[str, Any] | None:
        """Return the state of a task; None for one that is not known."""
        work = self._works.get(request)
        return work.row(mono_ms) if work is not None else None

    def rows(self, mono_ms: int) -> list[dict[str, Any]]:
        """Return all tasks that are remembered, the oldest first."""
        return [work.row(mono_ms) for work in self._works.values()]
