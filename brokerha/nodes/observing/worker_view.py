"""What one worker shows of itself: its status row, probes and metrics. Beside master_view.py, which is that of a master."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brokerha.model import states
from brokerha.model.numbers import Numbers
from brokerha.nodes.loop import NodeLoop
from brokerha.nodes.observing.check_lines import broker_check, check_lines, lag_check, loop_check
from brokerha.nodes.observing.load_watch import LoadWatch
from brokerha.nodes.observing.status import StatusGathering, summary
from brokerha.nodes.observing.wire_metrics import wire_metrics
from brokerha.nodes.reads.pool import ReadPool
from brokerha.nodes.worker.guarding import Guard
from brokerha.nodes.worker.runner import WorkerRunner
from brokerha.nodes.worker.scrubbing import Scrubbing
from brokerha.ports.transport import Transport

MASTER_ANSWERS_MS = 1000
"""How long a probe waits for the master to say how old this copy is."""


@dataclass(slots=True)
class WorkerView:
    """Questions about one worker. `status`, and `ready` with an age, ask masters and wait: never from the loop's thread."""

    cluster: str
    runner: WorkerRunner
    transport: Transport
    loop: NodeLoop
    gathering: StatusGathering
    reads: ReadPool
    guard: Guard
    load_watch: LoadWatch
    scrubbing: Scrubbing | None
    restart_for: Callable[[], list[str]] = list
    """Names settings that wait for the next start."""

    @property
    def must_restart(self) -> str:
        """Why this process has to be started again; empty while all is well."""
        return self.guard.must_restart or self.reads.must_restart

    def row(self) -> dict[str, Any]:
        """The status row of this worker, as far as it knows itself."""
        core, wire, config = self.runner.core, self.transport.status(), self.runner.config
        state, reason = core.word()
        if wire.state != "connected":
            state, reason = (states.BLOCKED if wire.state == "blocked" else states.WAITING_FOR_BROKER), wire.reason
        reason = self.must_restart or reason
        lag = core.master_lsn - core.applied
        return {
            "id": config.node,
            "role": "worker",
            **states.describe(state, reason),
            "master": config.master,
            "received_lsn": core.master_lsn,
            "applied_lsn": core.applied,
            "lag_entries": lag,
            "lag_s": 0.0 if not lag else None,
            "fingerprint": core.fingerprint,
            "items": core.items,
            "incoming": 0,
            "in_doubt": 0,
            "seen_s": 0.0,
            "probe": None,
            "readable": None,
            "free_bytes": core.free_bytes or None,
            "restart_for": tuple(self.restart_for()),
        }

    def status(self, timeout_ms: int) -> dict[str, Any]:
        """The whole cluster as seen from here."""
        return summary(self.cluster, 1, [*self.gathering.gather(self.loop, self.transport, timeout_ms), self.row()])

    def ready(self, max_lag: int | None, max_lag_s: float | None) -> tuple[bool, list[str]]:
        """Whether reads can be served, with a line for each check. How old this copy is only its master knows: it is asked."""
        core = self.runner.core
        word, reason = core.word()
        lag_s = self._lag_s() if max_lag_s is not None and self.loop.is_running else None
        return check_lines(
            {
                "loop": loop_check(self.loop.is_running),
                "store": core.failure,
                "trusted": "" if core.may_be_read else ": ".join(filter(None, (word, reason))),
                "lag": lag_check(core.master_lsn - core.applied, lag_s, max_lag, max_lag_s),
                "broker": broker_check(self.transport.status()) if max_lag_s is not None else "",
            }
        )

    def _lag_s(self) -> float | None:
        """Age of what this copy lacks, or of what its master does not know to be up to date, in seconds; None when nobody can say."""
        config = self.runner.config
        rows = self.gathering.gather(self.loop, self.transport, MASTER_ANSWERS_MS, (config.master,))
        by_id = {(row["id"], row["role"]): row for row in rows}
        stale_s = by_id.get((config.master, "master"), {}).get("stale_s")
        lag_s = by_id.get((config.node, "worker"), {}).get("lag_s")
        return None if stale_s is None or lag_s is None else float(max(stale_s, lag_s))

    def metrics(self) -> Numbers:
        """Numbers for /metrics."""
        core, node = self.runner.core, self.runner.config.node
        numbers: Numbers = {
            "applied_lsn": core.applied,
            ("lag_entries", node): max(0, core.master_lsn - core.applied),
            "items": core.items,
            **self.reads.metrics(),
            **self.load_watch.metrics(),
            "turns_total": self.runner.turns,
            "memory_bytes": self.guard.memory_bytes,
            ("state_info", self.row()["state"]): 1,
        }
        numbers.update(wire_metrics(self.transport.status()))
        if self.scrubbing is not None:
            last = self.scrubbing.last
            numbers["scrub_looks_total"] = self.scrubbing.looks
            numbers["scrub_damage_total"] = self.scrubbing.damages
            numbers["scrub_last_lsn"] = last.lsn if last is not None else 0
        return numbers
