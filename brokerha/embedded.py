"""A whole cluster inside your program: the same nodes and wire format, without another process.

    with EmbeddedCluster("cluster.toml") as cluster:
        db = cluster.client("m1")
        db.put("prices", b"sku-1", b"9.90")

The nodes have no HTTP here: `http` of the file is not served (``brokerha up`` does). `client` is no session; ``client().session()``
reads its own writes.

With ``embedded://`` as broker the nodes use an in-process transport. With an AMQP address they use that broker, although they live
in one process. Nodes can be stopped and restarted one by one on their own data; the demonstration shows this way that no data is
lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import structlog

from brokerha.client import Client
from brokerha.http.app import open_door
from brokerha.model.errors import BrokerhaError, Closed, ConfigurationError, InvalidRequest, NotReady, error_named
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.requests import REFUSED, UNKNOWN, WAIT, Reply
from brokerha.nodes.building import open_process, open_worker
from brokerha.nodes.config.cluster import ClusterConfig, load_config
from brokerha.nodes.front import questions
from brokerha.nodes.loop import complete
from brokerha.nodes.master.node import MasterNode
from brokerha.nodes.master.process_node import ProcessNode
from brokerha.nodes.worker.node import WorkerNode
from brokerha.ports.front import Front, ReadOutcome


class EmbeddedCluster:
    """All nodes of a cluster file in this process, without their HTTP doors."""

    def __init__(self, config: ClusterConfig | str | Path) -> None:
        """``config``: the path of a cluster file, or its parsed form. Raises ConfigurationError."""
        self.config = config if isinstance(config, ClusterConfig) else load_config(Path(config), os.environ)
        if not structlog.is_configured():
            # Standard output belongs to the program, which can also replace standard error.
            structlog.configure(logger_factory=lambda *_names: structlog.PrintLogger(sys.stderr))
        self.masters: dict[NodeId, MasterNode] = {}
        """Masters without backups."""
        self.processes: dict[NodeId, ProcessNode] = {}
        """Processes of masters with backups."""
        self.workers: dict[NodeId, WorkerNode] = {}

    def start(self) -> None:
        """Start every node; when one cannot start, stop the started ones and raise its error."""
        try:
            for worker in self.config.workers:
                self.start_node(worker.id)
            for process in self._process_ids():
                self.start_node(process)
        except BaseException:
            self.stop()
            raise

    def _process_ids(self) -> list[NodeId]:
        return [process for master in self.config.masters for process in self.config.processes_of(master.id)]

    def start_node(self, node_id: NodeId) -> None:
        """Start one node on its own data; do nothing when it runs."""
        if node_id in self.masters or node_id in self.processes or node_id in self.workers:
            return
        if node_id in self._process_ids():
            node = open_process(self.config, node_id)
            if isinstance(node, ProcessNode):
                self.processes[node_id] = node
            else:
                self.masters[node_id] = node
            node.start()
        elif any(worker.id == node_id for worker in self.config.workers):
            self.workers[node_id] = open_worker(self.config, node_id)
            self.workers[node_id].start()
        else:
            message = f"no master, backup or worker {node_id} in the cluster file"
            raise ConfigurationError(message)

    def stop_node(self, node_id: NodeId) -> None:
        """Stop one node; do nothing when it does not run."""
        master = self.masters.pop(node_id, None) or self.processes.pop(node_id, None)
        node = master or self.workers.pop(node_id, None)
        if node is not None:
            node.stop()

    def stop(self) -> None:
        """Stop all nodes, masters first. Idempotent."""
        for node_id in [*self.masters, *self.processes, *self.workers]:
            self.stop_node(node_id)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def client(self, *master_ids: NodeId) -> Client:
        """Return a client of these masters, or of all; the first that can take a write gets it; its `session` reads its own writes."""
        return Client(FrontWire(self, master_ids or tuple(m.id for m in self.config.masters)))

    def fronts(self, master_ids: Sequence[NodeId]) -> Iterator[Front]:
        """Yield the running primaries of these masters, in that order."""
        for master_id in master_ids:
            if master_id in self.masters:
                yield self.masters[master_id]
            acting = (self.processes.get(process) for process in self.config.processes_of(master_id))
            yield from (node for node in acting if node is not None and node.role == "master")


GRACE_S = 5.0
"""Extra time to wait for a transaction step; the node answers in time by itself."""


class FrontWire:
    """A Wire that calls the fronts of an embedded cluster directly."""

    RETRY_S = 0.1

    def __init__(self, cluster: EmbeddedCluster, master_ids: Sequence[NodeId]) -> None:
        self._cluster = cluster
        self._master_ids = tuple(master_ids)
        self._lock = threading.Lock()
        self._is_closed = False
        self._steps: set[Future[Any]] = set()
        """Answers to steps of transactions that somebody waits for."""

    def _front(self, wanted: NodeId = "") -> Front:
        """Return the node to ask. Raises Closed, NotReady."""
        if self._is_closed:
            raise Closed
        wanted_ids = (wanted,) if wanted else self._master_ids
        for front in self._cluster.fronts(wanted_ids):
            return front
        message = f"none of {', '.join(wanted_ids)} is running"
        raise NotReady(message)

    def _rows(self, timeout_ms: int) -> list[dict[str, Any]]:
        fronts = list(self._cluster.fronts(self._master_ids))
        answers = [front.transact("list", "", {}, timeout_ms).result(timeout_ms / 1000 + 1) for front in fronts]
        return [row for answer in answers for row in answer["transactions"]]

    def submit(
        self, writes: Sequence[tuple[TxId, bytes]], level: str, copies: int, timeout_ms: int, apart: str = WAIT
    ) -> list[Future[Reply]]:
        """Hand writes to the first running master; the next one gets those that it leaves open when it stops or is demoted."""
        return [self._submit(txid, body, level, copies, timeout_ms, apart) for txid, body in writes]

    def _submit(self, txid: TxId, body: bytes, level: str, copies: int, timeout_ms: int, apart: str) -> Future[Reply]:
        answer: Future[Reply] = Future()
        attempts = max(1, int(timeout_ms / 1000 / self.RETRY_S))

        def attempt(left: int, earlier: Reply | None = None) -> None:
            try:
                inner = self._front().submit(body, txid, level, copies, timeout_ms, apart)
            except NotReady as error:
                # The outcome is unknown only if an earlier master had the write.
                again(left, earlier or Reply(0, txid, REFUSED, 0, "NotReady", str(error)))
            except Closed as error:
                complete(answer, earlier or error)
            except BrokerhaError as error:
                complete(answer, error)
            else:
                inner.add_done_callback(lambda done: take(left, done.result(), earlier))

        def take(left: int, reply: Reply, earlier: Reply | None) -> None:
            if reply.status == UNKNOWN and reply.is_parting:
                again(left, reply)
            elif earlier and reply.status == REFUSED and not isinstance(error_named(reply.error, ""), InvalidRequest):
                # A temporary refusal says nothing about the earlier master, which can have taken the write in.
                again(left, earlier)
            else:
                complete(answer, reply)

        def again(left: int, reply: Reply) -> None:
            if left <= 0:
                complete(answer, reply)
                return
            timer = threading.Timer(self.RETRY_S, attempt, (left - 1, reply if reply.status == UNKNOWN else None))
            timer.daemon = True
            timer.start()

        attempt(attempts)
        return answer

    def read(self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn, timeout_ms: int) -> Future[ReadOutcome]:
        """Read through the first running master; inside a transaction through the transaction's master."""
        arguments = dict(arguments)
        return self._front(arguments.pop("node", "")).read(kind, name, arguments, min_lsn, timeout_ms)

    def ask(self, what: str, arguments: dict[str, Any], timeout_ms: int) -> Any:
        """Ask a question about the cluster."""
        if what == "transactions":
            return self._rows(timeout_ms)
        front = self._front(str(arguments.get("node", "")))
        if what == "transact":
            step = front.transact(arguments["action"], arguments["txid"], arguments["arguments"], timeout_ms)
            return self._result(step, timeout_ms / 1000 + GRACE_S)
        return questions.answer(front, what, {**arguments, "timeout_ms": timeout_ms})

    def _result(self, step: Future[Any], seconds: float) -> Any:
        """Wait for the answer to a step. Raises its error, or Closed as soon as the wire is closed."""
        answer: Future[Any] = Future()
        step.add_done_callback(lambda done: complete(answer, done.exception() or done.result()))
        with self._lock:
            if self._is_closed:
                complete(answer, Closed())
            self._steps.add(answer)
        try:
            return answer.result(seconds)
        finally:
            with self._lock:
                self._steps.discard(answer)

    def close(self) -> None:
        """End the steps that somebody waits for; there are no connections. Idempotent."""
        with self._lock:
            self._is_closed = True
            waiting = list(self._steps)
        for answer in waiting:
            complete(answer, Closed())


def serve(config: ClusterConfig) -> int:
    """Run the whole cluster in this process with its HTTP fronts until SIGTERM or SIGINT; return the exit code."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with contextlib.ExitStack() as stack, EmbeddedCluster(config) as cluster:
        nodes: list[Front] = [*cluster.masters.values(), *cluster.processes.values(), *cluster.workers.values()]
        for node in nodes:
            server = open_door(config, node.node_id, node)
            if server is not None:
                server.start()
                stack.callback(server.stop, 5.0)
        stopping.wait()
    return 0
