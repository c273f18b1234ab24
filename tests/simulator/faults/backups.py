"""Faults of masters with backups: processes killed, frozen or separated; directories or queues lost; primaries changed by hand.

A directory is lost only if no promise is lost with it: the other processes hold everything that is safe, and no election is
running. The protocol does not cover the effects of a lost promise (brokerha/replication/PROTOCOL.md, section 9).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from tests.simulator.backups import SimGroup, SimProcess
from tests.simulator.faults.luck import Luck
from tests.simulator.network import both_ways


class BackupFaults:
    """Faults of masters with backups; `Faults` decides their strength and times."""

    def __init__(self, faults: Luck) -> None:
        self._faults = faults
        self._world = faults.world
        self.kinds: dict[str, Callable[[], None]] = {
            "kill process": lambda: self._faults.kill("process killed", self._process()),
            "kill primary": lambda: self._faults.kill("primary killed", self._primary()),
            "kill all processes": self._kill_all,
            "freeze process": lambda: self._freeze("process frozen", self._process()),
            "freeze primary": lambda: self._freeze("primary frozen", self._primary()),
            "cut processes": self._cut,
            "isolate primary": self._isolate_primary,
            "clog processes": self._clog,
            "empty process": self._empty,
            "full disk of process": self._fill,
            "hand over": self._hand_over,
            "purge tx-queues": self._purge,
            "delete tx-queue": self._delete_queue,
            "restart broker": self._restart_broker,
            "trim process": self._trim,
        }

    def _group(self) -> SimGroup:
        return self._world.rng.choice(self._world.groups)

    def _process(self) -> SimProcess | None:
        up = [process for process in self._group().processes if process.is_up]
        return self._world.rng.choice(up) if up else None

    def _primary(self) -> SimProcess | None:
        acting = self._group().acting
        return acting[0] if acting else None

    # ---- processes

    def _kill_all(self) -> None:
        group = self._group()
        self._faults.note("all processes of a master killed", group.node)
        self._faults.kill_all(group.processes)

    def _freeze(self, kind: str, process: SimProcess | None) -> None:
        if process is not None:
            self._faults.note(kind, process.node)
            fail_over_us = self._world.options.fail_over_ms * 1000
            process.freeze(self._world.rng.choice((fail_over_us // 2, 2 * fail_over_us, 5 * fail_over_us)))

    def _empty(self) -> None:
        """Empty the directory of a process."""
        process = self._process()
        if process is not None and self._faults.checkers.journals.may_be_emptied(process):
            self._faults.kill("process emptied", process, process.empty)

    def _fill(self) -> None:
        process = self._process()
        if process is not None:
            self._faults.fill(process)

    def _hand_over(self) -> None:
        """Let an operator ask some process for another primary."""
        group = self._group()
        told = [process for process in group.processes if process.is_up]
        if told:
            successor = self._world.rng.choice(group.processes)
            if self._world.rng.choice(told).promote(successor.node):
                self._faults.note("handed over by hand", successor.node)

    def _trim(self) -> None:
        """Trim the oldest part of a process's log, so that others must load."""
        world = self._world
        truth, process = self._faults.checkers.truth, self._process()
        if process is None:
            return
        done = min([mirror.lsn for mirror in truth.mirrors.values()] + list(truth.applied.values()))
        executed = truth.mirrors[process.group.node].executed
        done = min(done, executed) if process.group.config.feed.workers else done
        if done and process.journal.try_trim(world.rng.randint(1, done + 1)):
            self._faults.note("journal trimmed", process.node)

    # ---- between processes

    def _cut(self) -> None:
        pair = self._world.rng.choice(list(combinations([each.node for each in self._group().processes], 2)))
        ways = both_ways([pair])
        self._faults.cut("cut processes", ways if self._world.rng.random() < 0.6 else ways[:1])

    def _isolate_primary(self) -> None:
        """Separate the primary from its backups, but not from peers and workers."""
        primary = self._primary()
        if primary is not None:
            others = [each.node for each in primary.group.processes if each is not primary]
            self._faults.cut("isolate primary", both_ways((primary.node, other) for other in others))

    def _clog(self) -> None:
        rng, world = self._world.rng, self._world
        group = self._group()
        pairs = both_ways(combinations([each.node for each in group.processes], 2))
        self._faults.note("clog processes", group.node)
        for way in pairs:
            if rng.random() < 0.6:
                world.network.clog(way, rng.randint(1, 10) * 150_000)

    # ---- queues of transactions

    def _purge(self) -> None:
        if count := self._world.tx_queues.purge():
            self._faults.note("tx-queues purged", f"{count} events")

    def _delete_queue(self) -> None:
        names = self._world.tx_queues.names
        if names:
            name = self._world.rng.choice(names)
            self._faults.note("tx-queue deleted", name)
            self._world.tx_queues.delete(name)

    def _restart_broker(self) -> None:
        if count := self._world.tx_queues.restart():
            self._faults.note("broker restarted", f"{count} queues")
