"""Runs one node in the foreground: what ``brokerha node`` and supervisord start.

The HTTP front starts first, so that probes get an answer while the node catches up. A signal stops the node in order; a
fault of the loop ends the process with a code that a supervisor restarts, and so does a worker that has to be started again
(too many queries that cannot be stopped, worker/guarding.py). A broker that is away ends nothing.

Stopping in order takes a bounded time there, and none when memory runs out: what never ends may hold anything, and an end
without any order is safe.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import structlog

from brokerha.model.errors import ConfigurationError
from brokerha.nodes.master.node import MasterNode
from brokerha.nodes.master.process_node import ProcessNode
from brokerha.nodes.worker.node import WorkerNode

log = structlog.get_logger()

STOP_S = 10.0
FAULT = 2
"""Exit code that says: start me again."""
LEAVE_S = 20.0
"""Longest stop of a node that has to be started again."""
COLLECTED_AFTER: Final = (20_000, 20, 50)
"""So many more objects than were freed begin a search of the youngest; so many of these one of the older ones. What a turn makes holds
no cycles, so what is searched here are the transactions under way."""


def serve(node: MasterNode | ProcessNode | WorkerNode, server: Any | None, leave: Callable[[int], object] = os._exit) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code (0 in order, 2 after a fault or to be started again).

    Raises ConfigurationError when the broker is another cluster's, once the node has stopped.
    With queries that cannot be stopped the process ends by ``leave`` at once: the interpreter's own end would pull the
    ground from under their threads.
    """
    stopping = threading.Event()

    def stop(number: int) -> None:
        log.info("stopping", node=node.node_id, signal=signal.Signals(number).name)
        if isinstance(node, WorkerNode):
            node.hurry()
        stopping.set()

    _on_signals(stop)
    node.start()
    if server is not None:
        server.start()
    _collect_rarely()
    log.info("started", node=node.node_id, role=node.role, http=getattr(server, "url", None))
    while not stopping.wait(1.0):
        if not node.loop.is_running:
            log.error("the loop has ended", node=node.node_id)  # It has said why.
            break
        if isinstance(node, WorkerNode) and node.must_restart:
            log.error("ending, to be started again", node=node.node_id, reason=node.must_restart)
            if node.must_leave_at_once:
                _leave(leave, FAULT)
                return FAULT
            break
    late = threading.Timer(LEAVE_S, _leave, (leave, FAULT))
    late.daemon = True
    if not stopping.is_set():
        late.start()
    if server is not None:
        server.stop(STOP_S)
    node.stop(STOP_S)
    late.cancel()
    log.info("stopped", node=node.node_id)
    if isinstance(node.loop.fault, ConfigurationError):
        raise node.loop.fault
    code = 0 if stopping.is_set() else FAULT
    if isinstance(node, WorkerNode) and (node.must_restart or node.reads.stuck):
        _leave(leave, code)
    return code


def _on_signals(act: Callable[[int], object]) -> None:
    """Call ``act`` for each SIGTERM and SIGINT, in a thread: a handler that interrupts the holder of a lock, as of the log, waits for it for ever."""
    received, sent = os.pipe()

    def wait() -> None:
        while number := os.read(received, 1):
            act(number[0])

    threading.Thread(target=wait, name="signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: os.write(sent, bytes([number])))


def _collect_rarely() -> None:
    """Leave what a started node holds out of the search for garbage, and search less often: it took a sixth of a lone write."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def _leave(leave: Callable[[int], object], code: int) -> None:
    """End the process without the interpreter's own end, but with all lines of the log."""
    sys.stdout.flush()
    sys.stderr.flush()
    leave(code)
