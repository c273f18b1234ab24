"""Runs one node in the foreground: what ``brokerha node`` and supervisord start.

The HTTP front starts first, so that probes get an answer while the node catches up. A signal stops the node in order; a
fault of the loop ends the process with a code that a supervisor restarts, and so do queries that cannot be stopped when
there are too many of them. A broker that is away ends nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import structlog

from brokerha.nodes.master_node import MasterNode
from brokerha.nodes.worker_node import WorkerNode

log = structlog.get_logger()

STOP_S = 10.0


def serve(node: MasterNode | WorkerNode, server: Any | None, leave: Callable[[int], object] = os._exit) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code (0 in order, 2 after a fault or to be started again).

    With queries that cannot be stopped the process ends by ``leave`` at once: the interpreter's own end would pull the
    ground from under their threads.
    """
    stopping = threading.Event()

    def stop(number: int, _frame: object) -> None:
        log.info("stopping", node=node.node_id, signal=signal.Signals(number).name)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    node.start()
    if server is not None:
        server.start()
    log.info("started", node=node.node_id, role=node.role, http=getattr(server, "url", None))
    while not stopping.wait(1.0):
        if not node.loop.is_running:
            log.error("the loop has ended", node=node.node_id, fault=repr(node.loop.fault))
            break
        if isinstance(node, WorkerNode) and node.must_restart:
            log.error("ending, to be started again", node=node.node_id, reason=node.must_restart)
            break
    if server is not None:
        server.stop(STOP_S)
    node.stop(STOP_S)
    log.info("stopped", node=node.node_id)
    code = 0 if stopping.is_set() else 2
    if isinstance(node, WorkerNode) and node.reads.stuck:
        sys.stdout.flush()
        sys.stderr.flush()
        leave(code)
    return code
