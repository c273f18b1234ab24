"""Clients that run transactions: move tokens of the bank, take messages, prepare, commit, roll back, give up, die, come back.

    begin -> operations ... -> commit                          a transaction of one client
    begin -> operations ... -> prepare -> commit or rollback   one of a coordinator, which can die in between and recover
    pending -> a read at a worker -> saw                       in isolated transactions, once or more after begin

A client with an unknown outcome asks until it gets an answer; some steps are sent twice; operators decide prepared transactions by
hand and forget them. checks/transactions.py compares every answer with the truth.

Memory of the clients of transactions: one run each, from begin to a known outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgpack

from brokerha.model.errors import Conflict
from brokerha.model.etags import etag_of
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.operations import Operation, unpack_operations
from brokerha.model.outside.authors import taken_author
from brokerha.model.outside.isolation import READ_COMMITTED, SERIALIZABLE, SNAPSHOT
from brokerha.model.requests import ACCEPTED, APPLIED_LEVEL, SYNCHRONISED, TxCommand, TxReply
from brokerha.model.reserved import branches
from brokerha.transactions.states import Phase
from tests.simulator.backups import SimProcess
from tests.simulator.checks.model import QUEUE, TABLES, Model
from tests.simulator.clients.workload import USERS, Clients
from tests.simulator.cluster import Cluster
from tests.simulator.nodes import SimMaster

COMMIT = "commit"
ROLLBACK = "rollback"
ABANDON = "abandon"
ISOLATIONS = (READ_COMMITTED, SERIALIZABLE, READ_COMMITTED, SNAPSHOT)
"""Isolation levels of the transactions, in turn."""
PAUSE_US = (10_000, 400_000)
"""Pause between two questions, and before a refused step is repeated."""
PATIENCE_US = 3_000_000
"""How long a client waits for the answer to a step."""
BEGIN_TRIES = 6
FIRST_TICKET = 1 << 40
DEPOSIT = "deposit"


@dataclass(slots=True)
class Run:
    """One transaction of one client."""

    number: int
    master: NodeId
    chunks: list[list[Operation]]
    """Operations of each call."""
    end: str
    """`COMMIT`, `ROLLBACK` or `ABANDON`: the client's intention."""
    xid: str = ""
    """Name by a coordinator, which prepares it first; empty for a transaction of one client."""
    level: str = APPLIED_LEVEL
    isolation: str = READ_COMMITTED
    looks: int = 0
    """Remaining reads before the commit; only in isolated transactions."""
    found: list[Operation] = field(default_factory=list)
    """Findings of its reads, as expectations, that the transaction has been told."""
    read_lsn: Lsn = 0
    """LSN of its last read: all findings held there."""
    session: str = ""
    timeout_ms: int = 0
    txid: TxId = ""
    """Id of the last attempt to begin."""
    at: NodeId = ""
    """The process that the client uses."""
    sent: int = 0
    """Number of answered calls."""
    is_two_phase: bool = False
    is_done: bool = False
    is_asking: bool = False
    """Whether the client does not know the outcome, and asks for it."""
    questions: int = 0
    tries: int = 0

    # Answers and requests, for the checks.
    asked_commit: bool = False
    asked_rollback: bool = False
    by_hand: bool = False
    told_prepared: bool = False
    told_committed: str = ""
    """The level in the answer to its commit; empty without such an answer."""
    told_aborted: bool = False

    @property
    def operations(self) -> list[Operation]:
        """All operations, in order."""
        return [operation for chunk in self.chunks for operation in chunk]

    def is_body(self, body: bytes) -> bool:
        """Tell whether a body is that of the whole transaction: its operations, the findings of its reads, and its user."""
        operations = unpack_operations(body)
        by = [one.user for one in taken_author(operations)]
        own = len(self.operations)
        demands = [tuple(each) for each in operations[own:]]
        written = {each[1:3] for each in self.operations if each[0] in {"put", "delete"}}
        needed = [each for each in self.found if self.isolation == SERIALIZABLE or each[1:3] in written]
        is_own = [tuple(each) for each in operations[:own]] == self.operations and by == [self.user] * bool(self.user)
        return is_own and all(each in demands for each in needed) and all(each[0] == "expect-key" for each in demands)

    @property
    def user(self) -> str:
        """The user that begins it."""
        return USERS[self.number % len(USERS)]


@dataclass(slots=True)
class Step:
    """One step without an answer."""

    node: NodeId
    action: str
    run: Run
    txid: TxId
    is_late: bool = False
    """Whether the client does not wait for it any more."""
    level: str = field(default="")
    found: list[Operation] = field(default_factory=list)
    """In a step `saw`: the finding of the read, at this LSN."""
    lsn: Lsn = 0


class TxClients:
    """All clients of transactions of a world."""

    def __init__(self, world: Cluster, clients: Clients, model: Model) -> None:
        self.world = world
        self._clients = clients
        self._model = model
        self.runs: list[Run] = []
        self.by_txid: dict[TxId, Run] = {}
        self.steps: dict[int, Step] = {}
        self.undone = 0
        self._ticket = FIRST_TICKET
        self._number = 0
        self.deposit: list[Operation] = []

    @property
    def open_count(self) -> int:
        """Number of unanswered steps."""
        return len(self.steps)

    def is_known(self, txid: TxId) -> bool:
        """Tell whether it is one of these transactions."""
        return txid in self.by_txid

    def is_body_of(self, txid: TxId, body: bytes) -> bool:
        """Tell whether a body is exactly that of a client's transaction, or of a step of it as a branch."""
        run, branch = self.by_txid.get(branches.branch_id(txid)), branches.branch_of(body)
        if branch is not None:
            is_its_step = branch.txid == branches.branch_id(txid) and branches.named_ids(branch.txid)[branch.step] == txid
            return is_its_step and (branch.step != branches.PREPARE or self.is_body_of(branch.txid, branch.body))
        return run is not None and run.txid == txid and run.is_body(body)

    # ---- actions

    def begin(self) -> None:
        """Plan all transactions of the run."""
        load, rng, world = self.world.options.tx, self.world.rng, self.world
        if not load.runs:
            return
        self.deposit = [("put", TABLES[0], token, token) for token in self.tokens]
        clients = self._clients
        world.at(world.now_us, clients.hand_in, clients.new_write(DEPOSIT, self.deposit, ACCEPTED), None)
        at_us = world.now_us
        for number in range(load.runs):
            at_us += int(rng.expovariate(1 / load.gap_us))
            world.at(at_us, self._start, number)

    @property
    def tokens(self) -> list[bytes]:
        """Tokens in the bank."""
        return [b"token-%d" % number for number in range(self.world.options.tx.tokens)]

    def _start(self, number: int) -> None:
        world, rng, load = self.world, self.world.rng, self.world.options.tx
        master = rng.choice(world.masters)
        luck = rng.random()
        end = ABANDON if luck < load.abandoned else ROLLBACK if luck < load.abandoned + load.rolled_back else COMMIT
        level = rng.choice((ACCEPTED, SYNCHRONISED, APPLIED_LEVEL)) if master.config.feed.workers else SYNCHRONISED
        run = Run(number, master.node, self._chunks(number), end, level=level, timeout_ms=load.timeout_ms)
        run.is_two_phase = rng.random() < load.two_phase
        run.session = f"client-{number}" if rng.random() < 0.5 else ""
        run.isolation = ISOLATIONS[number % len(ISOLATIONS)]
        run.looks = 0 if run.isolation == READ_COMMITTED else 1 + number % 3
        self.add(run)
        self._begin(run)

    def add(self, run: Run) -> None:
        """Follow one run until it is done, for example of a scenario."""
        self.runs.append(run)
        self.undone += 1

    def _chunks(self, number: int) -> list[list[Operation]]:
        rng, model = self.world.rng, self._model
        chunks: list[list[Operation]] = []
        for token in rng.sample(self.tokens, rng.randint(1, min(3, len(self.tokens)))):
            source, message = model.place_of(token)
            if source:
                target = rng.choice([place for place in (*TABLES, QUEUE) if place != source])
                chunks.append(transfer(token, source, message, target))
        if not chunks or rng.random() < 0.3:
            chunks.append([("put", "each", b"tx-%d" % number, b"x" * rng.choice((1, 10, 300)))])
        return chunks

    # ---- steps

    def acting(self, node: NodeId) -> SimMaster | SimProcess | None:
        """Return a process that takes steps for a master; mostly the one of the highest view."""
        acting: list[Any] = list(self.world.master(node).acting)
        if not acting:
            return None
        return acting[0] if self.world.rng.random() < 0.8 else self.world.rng.choice(acting)  # type: ignore[no-any-return]

    def _begin(self, run: Run) -> None:
        process = self.acting(run.master)
        runner = process.master if process is not None else None
        run.tries += 1
        if process is None or runner is None:
            self._begin_later(run)
            return
        self._number += 1
        core = runner.core
        run.txid = f"{run.master}.{process.journal.state().journal[:8]}.{core.sync.incarnation:x}.{self._number:x}.t"
        run.xid = f"1:{run.number:04x}{run.tries:02x}:" if run.is_two_phase else ""
        run.at = process.node
        self.by_txid[run.txid] = run
        arguments = {
            "xid": run.xid,
            "timeout_ms": run.timeout_ms,
            "session": run.session,
            "user": run.user,
            "isolation": run.isolation,
        }
        self._send(run, process, "begin", arguments)

    def _send(self, run: Run, process: SimMaster | SimProcess, action: str, arguments: dict[str, Any]) -> None:
        self._ticket += 1
        world = self.world
        level = str(arguments.get("level", ""))
        step = Step(process.node, action, run, run.txid, level=level)
        step.found, step.lsn = arguments.get("found", []), arguments.get("lsn", 0)
        self.steps[self._ticket] = step
        timeout_ms = world.rng.choice((300, 1_000, 3_000)) if not world.is_calm else 5_000
        process.submit(TxCommand(self._ticket, action, run.txid, arguments, timeout_ms))
        world.at(world.now_us + PATIENCE_US, self._give_up, self._ticket)

    def _give_up(self, ticket: int) -> None:
        step = self.steps.get(ticket)
        if step is not None and not step.is_late:
            step.is_late = True
            self._lost(step)

    def _talk(self, run: Run, action: str, arguments: dict[str, Any]) -> None:
        """Send a step to the client's process; ask for the outcome when that one is gone."""
        process = next((each for each in self.world.master(run.master).acting if each.node == run.at), None)
        if process is None:
            self.ask(run)
            return
        self._send(run, process, action, arguments)
        if self.world.rng.random() < self.world.options.tx.again and action in ("operations", "rollback"):
            self._send(run, process, action, arguments)

    def _next(self, run: Run) -> None:
        """Do the next step of an open transaction."""
        if run.looks:
            run.looks -= 1
            self._talk(run, "pending", {})
        elif run.sent < len(run.chunks):
            first = sum(map(len, run.chunks[: run.sent]))
            self._talk(run, "operations", {"first": first, "operations": list(run.chunks[run.sent])})
        elif run.end == ABANDON:
            self.ask(run)
        elif run.end == ROLLBACK and not (run.is_two_phase and run.number % 2):
            self.roll_back(run)
        elif run.is_two_phase:
            self._talk(run, "prepare", {"session": run.session})
        else:
            self.commit(run)

    def commit(self, run: Run) -> None:
        """Commit in one phase, or run the second phase."""
        run.asked_commit = True
        arguments = {"one_phase": not run.is_two_phase, "level": run.level, "copies": 1, "session": run.session}
        self._talk(run, "commit", arguments)

    def roll_back(self, run: Run) -> None:
        """Roll back an open or prepared transaction."""
        run.asked_rollback = True
        self._talk(run, "rollback", {"session": run.session})

    # ---- answers

    def on_reply(self, node: NodeId, reply: TxReply) -> None:
        """Check an answer, and continue."""
        step = self.steps.pop(reply.ticket, None)
        self.world.checkers.on_tx_reply(node, step, reply)
        if step is None or step.is_late or step.txid != step.run.txid or step.run.is_done or step.run.is_asking:
            return
        if not reply.error:
            self._went_well(step, reply)
        elif reply.error in ("Aborted", "Conflict", "Rejected"):
            self._finish(step.run)
        elif step.action == "begin":
            self._begin_later(step.run)
        elif step.action == "operations" and reply.error in ("NotReady", "InvalidRequest"):
            step.run.end = ROLLBACK
            self.roll_back(step.run)
        else:
            self.ask(step.run)

    def _went_well(self, step: Step, reply: TxReply) -> None:
        run, rng = step.run, self.world.rng
        match step.action:
            case "begin":
                self._next(run)
            case "pending":
                self._look(run, reply.answer)
            case "saw":
                run.found += [each for each in step.found if not any(each[:3] == known[:3] for known in run.found)]
                run.read_lsn = max(run.read_lsn, step.lsn)
                self._next(run)
            case "operations":
                done = sum(map(len, run.chunks[: run.sent + 1]))
                if reply.answer["count"] >= done:
                    run.sent += 1
                    self._next(run)
            case "prepare" if reply.answer["state"] == "prepared":
                self._decide_by_hand(run)
                if rng.random() < self.world.options.tx.coordinator_dies:
                    self.world.faults_seen["coordinator died"] += 1
                    self._later(self.ask, run, 4)
                else:
                    self.decide(run)
            case "commit" | "rollback" | "prepare":
                self._finish(run)

    def _look(self, run: Run, pending: dict[str, Any]) -> None:
        """Read at a worker, like the front of the master; the worker also judges the findings of earlier reads."""
        rng = self.world.rng
        key = rng.choice(self.tokens) if rng.random() < 0.7 else b"k%d" % rng.randrange(self.world.options.load.keys)
        reads = (msgpack.packb(("get", "last" if key.startswith(b"k") else rng.choice(TABLES), {"key": key})),)
        inside = {"pending": pending["body"], "txid": run.txid} if pending["body"] else {}
        for worker in self.world.workers:
            copy = worker.copy
            if worker.config.master != run.master or not worker.is_up or worker.is_damaged or copy.applied().lsn < pending["lsn"]:
                continue
            try:
                answer = copy.read("together", "", {"reads": reads, "seen": pending["seen"], **inside})
            except Conflict:
                run.end = ROLLBACK
                break
            *_, packed = msgpack.unpackb(b"".join(answer.pieces), use_list=False)
            found = list(msgpack.unpackb(packed, use_list=False))
            self.world.faults_seen["isolated read"] += 1
            self._talk(run, "saw", {"found": found, "lsn": answer.lsn})
            return
        self._next(run)

    def decide(self, run: Run) -> None:
        """Let the coordinator decide a prepared transaction; its decision is final."""
        if run.end == COMMIT:
            self.commit(run)
        else:
            self.roll_back(run)

    def on_death(self, node: NodeId) -> None:
        """Break the connections of a dead process's clients."""
        for ticket in [ticket for ticket, step in self.steps.items() if step.node == node]:
            step = self.steps.pop(ticket)
            if not step.is_late:
                self._lost(step)

    def _lost(self, step: Step) -> None:
        run = step.run
        if run.is_done or run.is_asking or step.txid != run.txid:
            return
        if step.action == "begin":
            self._begin_later(run)
        else:
            self.ask(run)

    def _begin_later(self, run: Run) -> None:
        if run.tries <= BEGIN_TRIES:
            self._later(self._begin, run)
        else:
            self._finish(run)

    def _finish(self, run: Run) -> None:
        self.undone -= not run.is_done
        run.is_done = True

    def _later(self, action: Any, run: Run, longer: int = 1) -> None:
        world = self.world
        world.at(world.now_us + longer * world.rng.randint(*PAUSE_US), action, run)

    # ---- recovery

    def ask(self, run: Run) -> None:
        """Ask for the outcome of a transaction until it is known; a coordinator that finds it prepared decides."""
        run.is_asking = True
        self._later(self._ask, run)

    def _ask(self, run: Run) -> None:
        process = self.acting(run.master)
        runner = process.master if process is not None else None
        if run.is_done:
            return
        if process is not None and run.asked_commit and self.world.rng.random() < self.world.options.tx.again:
            run.is_asking, run.at = False, process.node
            self.commit(run)
            return
        run.questions += 1
        self.world.at(self.world.now_us + PATIENCE_US, self._ask_again, run, run.questions)
        if process is not None and runner is not None and not runner.failure:
            answer = runner.core.transacting.outcome(run.txid, process.clock.now())
            runner.when_safe(partial(self._on_outcome, run, process, run.questions, answer))
        else:
            self.ask(run)

    def _ask_again(self, run: Run, question: int) -> None:
        """Ask again after no answer: the asked process can have lost its role."""
        if run.is_asking and run.questions == question:
            self._ask(run)

    def _on_outcome(self, run: Run, process: SimMaster | SimProcess, question: int, answer: dict[str, Any] | None) -> None:
        """Handle the outcome that the front of a process returns."""
        world = self.world
        world.trace.note(world.now_us, process.node, "tells", f"outcome of {run.txid}: {answer}")
        self.world.checkers.on_outcome(run.master, run.txid, answer)
        if run.is_done or run.questions != question:
            return
        state = answer["state"] if answer is not None else "unknown"
        run.at, run.is_asking = process.node, False
        is_ordered = state == "synchronised" and not world.master(run.master).config.feed.workers
        if state in ("aborted", "committed", "applied") or is_ordered:
            self._forget(run, process)
        elif state == "prepared" and run.is_two_phase:
            self._decide_by_hand(run)
            self.decide(run)
        elif state == "open" and run.end != ABANDON and not run.is_two_phase:
            self.roll_back(run)
        else:
            self.ask(run)

    # ---- by hand

    def _decide_by_hand(self, run: Run) -> None:
        """Sometimes let an operator decide instead of the coordinator."""
        world, rng = self.world, self.world.rng
        if not run.by_hand and rng.random() < world.options.tx.by_hand:
            process = self.acting(run.master)
            if process is not None:
                world.faults_seen["decided by hand"] += 1
                run.by_hand = True
                arguments: dict[str, Any] = {"by_hand": True, "session": ""}
                action = rng.choice((COMMIT, ROLLBACK))
                if action == COMMIT:
                    arguments |= {"one_phase": False, "level": ACCEPTED, "copies": 1}
                self._send(run, process, action, arguments)

    def _forget(self, run: Run, process: SimMaster | SimProcess) -> None:
        """Forget a decision by hand, or an overruled one, once the coordinator knows it."""
        runner = process.master
        kept = runner.core.transacting.coordinator.book.table.get(run.txid) if runner is not None else None
        if kept is None:
            self._finish(run)
            return
        self._send(run, process, "forget", {})
        self.ask(run)

    def forget_all(self) -> None:
        """Forget decisions by hand whose coordinator had left before."""
        for master in self.world.masters:
            process = master.acting[0] if master.is_up else None
            runner = process.master if process is not None else None
            if process is None or runner is None or self.steps:
                continue
            for txid, kept in runner.core.transacting.coordinator.book.table.items():
                run = self.by_txid.get(txid)
                if kept.phase is Phase.HEURISTIC and run is not None and run.is_done:
                    self._send(run, process, "forget", {})


def transfer(token: bytes, source: str, message: str, target: str) -> list[Operation]:
    """Return operations that move a token from one place to another, or do nothing at all."""
    operations: list[Operation] = []
    if source == QUEUE:
        operations.append(("accept", QUEUE, message))
    else:
        operations += [("expect-key", source, token, etag_of(token)), ("delete", source, token)]
    if target == QUEUE:
        operations.append(("publish", QUEUE, "text/plain", token))
    else:
        operations += [("expect-key", target, token, ""), ("put", target, token, token)]
    return operations
