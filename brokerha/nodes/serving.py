"""Runs one node in the foreground: what ``brokerha node`` and supervisord start.

The HTTP front starts first, so that probes get an answer while the node catches up. A signal stops the node in order; a
fault of the loop ends the process with a code that a supervisor restarts. A broker that is away ends nothing.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

import structlog

from brokerha.nodes.master_node import MasterNode
from brokerha.nodes.worker_node import WorkerNode

log = structlog.get_logger()

STOP_S = 10.0


def serve(node: MasterNode | WorkerNode, server: Any | None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code (0 in order, 2 after a fault)."""
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
    if server is not None:
        server.stop(STOP_S)
    node.stop(STOP_S)
    log.info("stopped", node=node.node_id)
    return 0 if stopping.is_set() else 2
