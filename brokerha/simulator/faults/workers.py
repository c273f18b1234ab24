"""What goes wrong with workers and their copies: lost, damaged, spoiled, frozen, switched off, told to take another copy, added late.

One worker of the world, the anchor, keeps its disk whatever happens and is never damaged, so that the content survives in every
run; it may die, be frozen, cut off, switched off and removed like any other. Where the log of its master does not reach back to it any more,
as that master took over the state of another one, the content survives in the others only: until it has caught up nobody loses a copy.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerha.simulator.faults.luck import Luck
from brokerha.simulator.network import both_ways
from brokerha.simulator.nodes import SimWorker


class WorkerFaults:
    """The bad luck of workers; the strength and the moments are those of `Faults`."""

    def __init__(self, faults: Luck) -> None:
        self._faults = faults
        self._world = faults.world
        self.kinds: dict[str, Callable[[], None]] = {
            "empty worker": self._empty,
            "damage worker": self._damage,
            "spoil worker": self._spoil,
            "freeze worker": self._freeze,
            "switch worker": self._switch,
            "copy worker": self._copy,
            "remove worker": self._remove,
            "late worker": self._late,
            "cut workers": self._cut,
        }

    def _any(self) -> SimWorker | None:
        return self._faults.one(self._world.workers)  # type: ignore[return-value]

    def _expendable(self) -> SimWorker | None:
        """A worker that may lose its copy."""
        worker, anchor = self._any(), self._world.anchor
        if worker is anchor or (anchor is not None and self._is_cut_off(anchor)):
            return None
        return worker

    def _is_cut_off(self, worker: SimWorker) -> bool:
        """Whether no process of its master holds the lines that this worker lacks."""
        lacks = self._faults.checkers.truth.applied[worker.node] + 1
        processes = self._world.master(worker.config.master).processes
        return all(process.journal.results_from() > lacks for process in processes)

    # ---- copies

    def _empty(self) -> None:
        worker = self._expendable()
        if worker is not None:
            self._faults.note("worker emptied", worker.node)
            worker.die()
            worker.empty()
            self._world.plan_restart(worker)

    def _spoil(self) -> None:
        worker = self._expendable()
        if worker is not None:
            self._faults.note("worker spoiled", worker.node)
            worker.die()
            worker.spoil()
            self._world.plan_restart(worker)

    def _damage(self) -> None:
        worker = self._expendable()
        if worker is not None:
            self._faults.note("worker damaged", worker.node)
            worker.damage()

    # ---- processes and links

    def _freeze(self) -> None:
        worker = self._any()
        if worker is not None:
            self._faults.note("worker frozen", worker.node)
            worker.freeze(self._faults.a_while())

    def _cut(self) -> None:
        links = self._world.worker_links
        self._faults.cut("cut workers", both_ways([self._world.rng.choice(links)]) if links else [])

    # ---- commands

    def _order(self, kind: str, worker: SimWorker | None, command: str) -> None:
        if worker is None:
            return
        answer = self._world.master(worker.config.master).command(command, worker=worker.node)
        if answer is not None:
            self._faults.note(kind, worker.node)

    def _switch(self) -> None:
        worker = self._any()
        self._order("worker switched off", worker, "worker-off")
        self._later("worker switched on", worker, "worker-on")

    def _remove(self) -> None:
        worker = self._any()
        self._order("worker removed", worker, "worker-remove")
        self._later("worker added", worker, "worker-add")

    def _late(self) -> None:
        """A worker comes to a site that may have forgotten the beginning of its log meanwhile."""
        last = self._world.masters[len(self._world.options.workers) - 1].node
        worker = self._faults.one([worker for worker in self._world.workers if worker.config.master == last])
        self._order("late worker added", worker, "worker-add")  # type: ignore[arg-type]

    def _later(self, kind: str, worker: SimWorker | None, command: str) -> None:
        self._world.at(self._world.now_us + self._faults.a_while(), self._order, kind, worker, command)

    def _copy(self) -> None:
        self._order("copy ordered", self._expendable(), "worker-copy")
