"""Operators' commands about the workers of a master, and about its masters. pins.py and split_report.py have more.

Each returns plain data, or raises InvalidRequest or NotReady with the problem and what to do. A lasting change becomes a record
that the next batch writes; no answer tells of it before it is durable (the caller waits for a turn). A repeated command has the
same effect as one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from brokerha.master.belonging import no_command
from brokerha.master.command_arguments import check_command
from brokerha.master.core import MasterCore
from brokerha.master.pins import PinCommands
from brokerha.master.split_report import split_recovery
from brokerha.model.epochs import ADD
from brokerha.model.errors import USE_FORCE, InvalidRequest, NotFound, NotReady
from brokerha.model.ids import Instant, NodeId, is_node_id
from brokerha.model.records import WorkersChanged
from brokerha.replication.site.config import Standing, Trust, WorkerFeed
from brokerha.sync.membership import DONE, Wish
from brokerha.sync.peers import NEVER

MEMBER, EXCLUDED, INVITED, JOINER, RETIRED = "member", "excluded", "invited", "joiner", "retired"
"""The standing of a master in the epoch of the master that is asked."""
Arguments = dict[str, Any]
Answer = dict[str, Any]


class PeerCommands:
    """Commands about the masters of the cluster: add one, take one out, list them (rule R15).

        peer-add    {node}           wish that a node becomes a master
        peer-remove {node, force}    wish that a master leaves; force: although the majority may be gone for good
        peers       {}               all masters as this one sees them, and the state of its last wish

    The first two are answered at once with the state of the wish (`sync/membership.py`); a client that wants to know its end asks
    `peers` again. A restart of its master forgets a wish: until the epoch is decided nothing has happened, and repeating it does no
    harm.
    """

    def __init__(self, core: MasterCore) -> None:
        self._core = core

    def add(self, arguments: dict[str, Any], now: Instant) -> Answer:
        """Wish for one more master. Raises InvalidRequest, NotReady."""
        node = self._node(arguments)
        if node in self._core.site.workers or node in self._core.config.feed.others:
            raise InvalidRequest(f"{node} is a worker: a master has an id of its own")
        return self._answer(self._core.sync.epochs.membership.add(self._core.sync, node, now))

    def remove(self, arguments: dict[str, Any], now: Instant) -> Answer:
        """Wish for one master less. Raises InvalidRequest, NotReady."""
        node, is_forced = self._node(arguments), arguments.get("force") is True
        return self._answer(self._core.sync.epochs.membership.remove(self._core.sync, node, now, is_forced=is_forced))

    def _node(self, arguments: dict[str, Any]) -> NodeId:
        node: NodeId = arguments["node"]
        if refused := no_command(self._core.sync):
            raise NotReady(refused)
        return node

    def _answer(self, wish: Wish) -> Answer:
        sync = self._core.sync
        is_new = wish is sync.epochs.membership.wish
        masters = list(sync.epoch.configuration.masters)
        return {"master": sync.node, **self._told(wish), "changed": is_new, "masters": masters}

    def peers(self, _arguments: dict[str, Any], now: Instant) -> Answer:
        """Return all masters, and the change under way."""
        sync = self._core.sync
        configuration, wish = sync.epoch.configuration, sync.epochs.membership.wish
        peers = [self._own(), *(self._row(node, now.mono_ms) for node in (*sync.peers.peers, *sync.peers.outside))]
        return {
            "master": sync.node,
            "epoch": sync.epoch.number,
            "proposer": sync.epoch.proposer,
            "masters": list(configuration.masters),
            "members": list(sync.epoch.members),
            "before": list(configuration.before),
            "retired": [{"node": node, "journal": journal} for node, journal in configuration.retired],
            "refused": no_command(sync),
            "change": self._told(wish) if wish is not None else None,
            "peers": sorted(peers, key=lambda row: str(row["node"])),
        }

    def _own(self) -> Answer:
        sync = self._core.sync
        standing = RETIRED if sync.retired else JOINER if sync.is_joiner() else self._standing(sync.node)
        return {
            "node": sync.node,
            "standing": standing,
            "heard": True,
            "heard_s": 0.0,
            "epoch": sync.epoch.number,
            "journal": sync.journal,
            "other_journal": "",
            "lsn": sync.lsn,
            "lag": 0,
        }

    def _row(self, node: NodeId, mono_ms: int) -> Answer:
        sync = self._core.sync
        peer, row = sync.peers.peer(node), sync.peers.last_row(node)
        heard_ms = peer.heard_ms if peer is not None else NEVER
        return {
            "node": node,
            "standing": self._standing(node),
            "heard": sync.peers.is_heard(node, mono_ms),
            "heard_s": None if heard_ms == NEVER else max(0, mono_ms - heard_ms) / 1000,
            "epoch": row.epoch[0] if row is not None else None,
            "journal": sync.peers.journals.get(node, ""),
            "other_journal": sync.peers.impostors.get(node, ""),
            "lsn": row.lsn if row is not None else None,
            "lag": max(0, sync.lsn - row.lsn) if row is not None else None,
        }

    def _standing(self, node: NodeId) -> str:
        epoch = self._core.sync.epoch
        if node in epoch.members:
            return MEMBER
        return EXCLUDED if node in epoch.configuration.masters else INVITED

    def _told(self, wish: Wish) -> Answer:
        """Return a wish as plain data."""
        sync, stage = self._core.sync, wish.stage
        is_retired = any(node == wish.node for node, _ in sync.epoch.configuration.retired)
        if wish.kind == ADD and wish.state != DONE and is_retired and sync.peers.last_row(wish.node) is None:
            stage += f"; {wish.node} was taken out before: it comes back with an empty data directory only"
        return {"kind": wish.kind, "node": wish.node, "state": wish.state, "stage": stage, "forced": wish.is_forced}


class SiteCommands:
    """The commands of one master."""

    def __init__(self, core: MasterCore, *, protect_single_worker: bool) -> None:
        self._core = core
        self._site = core.site
        self._protects = protect_single_worker
        pins, peers = PinCommands(core), PeerCommands(core)
        self._commands: dict[str, Callable[[Arguments, Instant], Answer]] = {
            "worker-add": self._add,
            "worker-remove": self._remove,
            "worker-on": self._on,
            "worker-off": self._off,
            "worker-trust": self._trust,
            "worker-copy": self._copy,
            "worker-repair": self._repair,
            "workers": self._list,
            "node-pause": self._pause,
            "node-coin": self._coin,
            "node-continue": self._continue,
            "backup": self._backup,
            "scrub": self._scrub,
            "task": self._task,
            "tasks": lambda _, now: {"tasks": core.tasks.rows(now.mono_ms)},
            "pin": pins.pin,
            "unpin": pins.unpin,
            "pins": pins.pins,
            "peer-add": peers.add,
            "peer-remove": peers.remove,
            "peers": peers.peers,
            "split-recovery": partial(split_recovery, core),
        }

    def run(self, name: str, arguments: Arguments, now: Instant) -> Answer:
        """Carry out a command. Raises InvalidRequest, NotReady."""
        check_command(name, arguments)
        if name == "promote":
            raise InvalidRequest(
                "this master has no backups, so nothing of it can be promoted: ask a process of the one that is meant"
            )
        if name not in self._commands:
            raise InvalidRequest(f"the command {name} is for a node with a cluster file, which this master has not")
        return self._commands[name](arguments, now)

    # ---- members

    def _add(self, arguments: Arguments, now: Instant) -> Answer:
        node = arguments["worker"]
        is_readable = arguments.get("readable", True) is not False
        if not is_node_id(node):
            raise InvalidRequest(f"{node!r} is no node id: 1 to 32 of a-z, 0-9 and -")
        if node in self._core.sync.epoch.configuration.masters:
            raise InvalidRequest(f"{node} is a master")
        worker = self._site.workers.get(node)
        if worker is not None and worker.is_readable == is_readable:
            return {"worker": node, "changed": False}
        if worker is None:
            self._site.workers[node] = WorkerFeed(node, is_readable)
            self._core.feed.greet(node)
        else:
            worker.is_readable = is_readable
        return self._changed(node)

    def _remove(self, arguments: Arguments, now: Instant) -> Answer:
        node = arguments["worker"]
        if node not in self._site.workers:
            return {"worker": node, "changed": False}
        others = [worker for worker in self._site.in_sync(now.mono_ms) if worker.node != node]
        if self._protects and self._site.workers[node].is_on and not others and arguments.get("force") is not True:
            raise InvalidRequest(f"{node} is the last worker in sync: bring another one in first, or {USE_FORCE}")
        self._site.forget(node)
        self._core.feed.on_changed_workers()
        return self._changed(node)

    def _on(self, arguments: Arguments, now: Instant) -> Answer:
        return self._switch(self._worker(arguments), is_on=True, now=now)

    def _off(self, arguments: Arguments, now: Instant) -> Answer:
        worker = self._worker(arguments)
        others = [other for other in self._site.in_sync(now.mono_ms) if other is not worker]
        if self._protects and worker.is_on and not others and arguments.get("force") is not True:
            raise InvalidRequest(f"{worker.node} is the last worker in sync: switch another one on first, or {USE_FORCE}")
        answer = self._switch(worker, is_on=False, now=now)
        reason = self._site.read_only_reason(now.mono_ms)
        return {**answer, "read_only": reason} if reason else answer

    def _pause(self, arguments: Arguments, now: Instant) -> Answer:
        return self._state_of(arguments, self._off(self._of_node(arguments), now))

    def _coin(self, arguments: Arguments, now: Instant) -> Answer:
        node = self._worker(self._of_node(arguments)).node
        raise InvalidRequest(f"{node} is a worker: its master coins it when it continues; brokerha node continue {node}")

    def _continue(self, arguments: Arguments, now: Instant) -> Answer:
        return self._state_of(arguments, self._on(self._of_node(arguments), now))

    def _of_node(self, arguments: Arguments) -> Arguments:
        """Return the arguments for a worker, which pauses by being switched off. Raises InvalidRequest for a master."""
        node = arguments["node"]
        if node == self._core.sync.node:
            raise InvalidRequest(f"{node} is a master: its backups and its workers can be paused")
        return {"worker": node, "force": arguments.get("force") is True}

    def _state_of(self, arguments: Arguments, answer: Answer) -> Answer:
        worker = self._site.workers[arguments["node"]]
        return {"node": worker.node, "changed": answer["changed"], "state": worker.state, "reason": worker.reason}

    def _switch(self, worker: WorkerFeed, *, is_on: bool, now: Instant) -> Answer:
        if worker.is_switched_on is is_on:
            return {"worker": worker.node, "changed": False}
        worker.is_switched_on = is_on
        worker.order = ""
        # Judge by a recent report; else by the next one, because the log may have moved past the last report.
        progress = worker.progress
        is_recent = progress is not None and progress.applied_lsn >= worker.applied
        if not is_on or (is_recent and self._site.is_alive(worker, now.mono_ms)):
            self._site.judge(worker, now.mono_ms)
        return self._changed(worker.node)

    def _changed(self, node: NodeId) -> Answer:
        workers = tuple((each.node, each.is_readable, each.is_switched_on) for each in self._site.workers.values())
        self._core.to_write.append(WorkersChanged(workers))
        return {"worker": node, "changed": True}

    # ---- content

    def _trust(self, arguments: Arguments, now: Instant) -> Answer:
        """Take the content of a worker as the content of this site; the others are healed from it."""
        worker = self._worker(arguments)
        progress = worker.progress
        if progress is None or not self._site.is_alive(worker, now.mono_ms):
            raise NotReady(f"{worker.node} is not heard: start it first")
        others = [other for other in self._site.in_sync(now.mono_ms) if other is not worker]
        # A worker ahead of lost results does not count: only one copy can be where results begin anew.
        good = [other.node for other in others if not self._site.lacks_results_of(other)]
        if good and arguments.get("force") is not True:
            raise InvalidRequest(
                f"{', '.join(good)} is in sync with the log: nothing needs to be chosen; {USE_FORCE} to choose all the same"
            )
        lsn, first = progress.applied_lsn, self._core.history.first_lsn()
        if lsn > self._site.lsn or lsn + 1 < first:
            raise InvalidRequest(
                f"{worker.node} is at LSN {lsn}; the log here has {first} to {self._site.lsn}: restore from a backup"
            )
        if progress.trouble and not progress.differs_lsn:
            raise InvalidRequest(f"{worker.node} is damaged ({progress.trouble}): choose another one, or restore from a backup")
        worker.condemn("")
        worker.trust, worker.order = Trust.CHOSEN, ""
        if progress.differs_lsn:
            # It stopped before a line where its content differed: the results begin anew from there.
            worker.trust = Trust.NONE
            self._site.adopt(worker, f"the copy of {worker.node} was chosen")
        for other in self._site.workers.values():
            if other is not worker:
                other.condemn(f"{worker.node} was chosen instead")
                self._site.judge(other, now.mono_ms)
        self._site.judge(worker, now.mono_ms)
        return {"worker": worker.node, "lsn": lsn, "fingerprint": progress.fingerprint}

    def _copy(self, arguments: Arguments, now: Instant) -> Answer:
        """Have a worker take a new copy from an in-sync worker."""
        worker = self._worker(arguments)
        if not [other for other in self._site.in_sync(now.mono_ms) if other is not worker]:
            raise NotReady(f"no other worker of this site is in sync: {worker.node} has nobody to copy from")
        worker.condemn("told to take a new copy")
        worker.order = ""
        self._site.judge(worker, now.mono_ms)
        return {"worker": worker.node, "changed": True}

    def _repair(self, arguments: Arguments, now: Instant) -> Answer:
        """Have the whole site take the content of workers of another site."""
        sources = tuple(arguments["from"])
        if any(source in self._site.workers for source in sources):
            raise InvalidRequest("name one or more workers of another site to take the content from")
        unknown = [source for source in sources if source not in self._core.config.feed.others]
        if unknown:
            known = ", ".join(self._core.config.feed.others) or "none"
            raise InvalidRequest(f"{', '.join(unknown)}: not a worker of another site; known are {known}")
        self._site.repair_sources = sources
        # First all of them, so that none is healed from another one that is to be replaced as well.
        for worker in self._site.workers.values():
            worker.condemn(f"the site takes the content of {', '.join(sources)}")
            worker.order = ""
            if worker.is_on:
                worker.standing = Standing.OUT_OF_SYNC
        for worker in self._site.workers.values():
            self._site.judge(worker, now.mono_ms)
        return {"workers": list(self._site.workers), "from": list(sources)}

    def _list(self, _arguments: Arguments, now: Instant) -> Answer:
        rows = [
            {
                "id": worker.node,
                "state": worker.state,
                "reason": worker.reason,
                "readable": worker.is_readable,
                "switched_on": worker.is_switched_on,
                "applied_lsn": worker.applied,
                "fingerprint": worker.fingerprint,
                "probe": worker.node == self._core.feed.probe,
                "alive": self._site.is_alive(worker, now.mono_ms),
            }
            for worker in self._site.workers.values()
        ]
        return {"master": self._core.sync.node, "read_only": self._site.read_only_reason(now.mono_ms), "workers": rows}

    # ---- tasks

    def _backup(self, arguments: Arguments, now: Instant) -> Answer:
        wanted = {name: value for name, value in arguments.items() if name != "worker"}
        node = self._worker(arguments).node if arguments.get("worker") else ""
        request = self._core.tasks.begin("backup", wanted, node, self._protects, now)
        return self._core.tasks.row(request, now.mono_ms) or {}

    def _scrub(self, arguments: Arguments, now: Instant) -> Answer:
        request = self._core.tasks.begin("scrub", {}, self._worker(arguments).node, False, now)
        return self._core.tasks.row(request, now.mono_ms) or {}

    def _task(self, arguments: Arguments, now: Instant) -> Answer:
        row = self._core.tasks.row(arguments["request"], now.mono_ms)
        if row is None:
            raise NotFound(f"task {arguments['request']} is not known at this master (any more)")
        return row

    def _worker(self, arguments: Arguments) -> WorkerFeed:
        node = arguments["worker"]
        worker = self._site.workers.get(node)
        if worker is None:
            known = ", ".join(self._site.workers) or "none"
            raise InvalidRequest(f"{node} is no worker of {self._core.sync.node}; its workers are {known}")
        return worker
