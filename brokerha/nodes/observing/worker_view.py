"""Status row, probes, metrics and load times of one worker; master_view.py is the same for a master."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from brokerha.following.loading import Loading, Phase
from brokerha.model import states
from brokerha.model.numbers import Numbers
from brokerha.nodes.loop import NodeLoop
from brokerha.nodes.observing.probes import broker_check, check_lines, lag_check, loop_check, wire_metrics
from brokerha.nodes.observing.status import StatusGathering, summary
from brokerha.nodes.reads.pool import ReadPool
from brokerha.nodes.worker.guarding import Guard
from brokerha.nodes.worker.runner import WorkerRunner
from brokerha.nodes.worker.tasks import Scrubbing
from brokerha.ports.transport import Transport

MASTER_ANSWERS_MS = 1000
"""Longest time that a probe waits for the master to report the age of this copy."""


class LoadTimes(NamedTuple):
    """A load that was opened."""

    lsn: int
    total_bytes: int
    seconds: dict[str, float]
    """By the name of the phase."""


class LoadWatch:
    """The time of each phase of a load: noted once in each turn of a worker's loop, reported when the load is open.

        asking ── the source makes its snapshot ──> making room ──> fetching ── chunks ──> opening ──> told

    It only looks: the load is the core's, the clock is the shell's.

    >>> from brokerha.following.loading import LoadConfig
    >>> from brokerha.model.ids import Instant
    >>> watch, loading = LoadWatch(), Loading(LoadConfig(), ("w2",), "w1-7", Instant(0, 0))
    >>> watch.note(loading, 100), watch.note(None, 600), watch.last
    (False, False, None)
    """

    def __init__(self) -> None:
        self.count = 0
        """Number of loads opened since the start."""
        self.last: LoadTimes | None = None
        self._loading: Loading | None = None
        self._phase = Phase.FAILED
        self._since_ms = 0
        self._seconds: dict[str, float] = {}

    def note(self, loading: Loading | None, mono_ms: int) -> bool:
        """Note the load under way, or None; return whether one was opened since the last call."""
        is_opened = False
        if loading is not self._loading:
            is_opened = self._finish(mono_ms)
            self._loading, self._seconds = loading, {}
            if loading is not None:
                self._phase, self._since_ms = loading.phase, mono_ms
        elif loading is not None and loading.phase is not self._phase:
            self._add(mono_ms)
            self._phase = loading.phase
        return is_opened

    def _add(self, mono_ms: int) -> None:
        passed_s = (mono_ms - self._since_ms) / 1000
        self._seconds[self._phase.value] = self._seconds.get(self._phase.value, 0.0) + passed_s
        self._since_ms = mono_ms

    def _finish(self, mono_ms: int) -> bool:
        """Finish a load that the core has released; return whether it was opened, which means complete."""
        loading = self._loading
        if loading is None or loading.phase is not Phase.OPENING:
            return False
        self._add(mono_ms)
        self.count += 1
        self.last = LoadTimes(loading.lsn, loading.total_bytes, self._seconds)
        return True

    def metrics(self) -> Numbers:
        """Return the numbers for /metrics."""
        numbers: Numbers = {"loads_total": self.count}
        if self.last is not None:
            numbers["load_last_bytes"] = self.last.total_bytes
            numbers.update({("load_last_seconds", name): s for name, s in self.last.seconds.items()})
        return numbers


@dataclass(slots=True)
class WorkerView:
    """Answers about one worker. `status`, and `ready` with an age, ask masters and wait: never call them in the loop's thread."""

    cluster: str
    runner: WorkerRunner
    transport: Transport
    loop: NodeLoop
    gathering: StatusGathering
    reads: ReadPool
    guard: Guard
    load_watch: LoadWatch
    scrubbing: Scrubbing | None
    restart_for: Callable[[], list[str]]
    """Returns the settings that wait for the next start."""

    @property
    def must_restart(self) -> str:
        """Return why this process must be restarted; empty while all is well."""
        return self.guard.must_restart or self.reads.must_restart

    def row(self) -> dict[str, Any]:
        """Return the status row of this worker, as far as it knows itself."""
        core, wire, config = self.runner.core, self.transport.status(), self.runner.config
        state, reason = core.word()
        if wire.state != "connected":
            state, reason = (states.BLOCKED if wire.state == "blocked" else states.WAITING_FOR_BROKER), wire.reason
        reason = self.must_restart or reason
        lag = core.master_lsn - core.applied
        return {
            "id": config.node,
            "role": "worker",
            **states.describe(state, reason, wire.remedy if state == states.WAITING_FOR_BROKER else ""),
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
        """Return the status of the whole cluster as seen from here."""
        return summary(self.cluster, 1, [*self.gathering.gather_all(self.loop, self.transport, timeout_ms), self.row()])

    def ready(self, max_lag: int | None, max_lag_s: float | None) -> tuple[bool, list[str]]:
        """Return whether reads can be served, with a line for each check. It asks the master for the age of this copy."""
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
        """Return the larger of the copy's lag and the age of its master's data, in seconds; None when unknown."""
        config = self.runner.config
        rows = self.gathering.gather(self.loop, self.transport, MASTER_ANSWERS_MS, (config.master,))
        by_id = {(row["id"], row["role"]): row for row in rows}
        stale_s = by_id.get((config.master, "master"), {}).get("stale_s")
        lag_s = by_id.get((config.node, "worker"), {}).get("lag_s")
        return None if stale_s is None or lag_s is None else float(max(stale_s, lag_s))

    def metrics(self) -> Numbers:
        """Return the numbers for /metrics."""
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
