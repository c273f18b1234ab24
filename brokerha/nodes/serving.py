"""Runs one node in the foreground: what ``brokerha node`` and supervisord start.

The HTTP front starts first, so that probes get an answer while the node catches up. A signal stops the node in order. A fault of
the loop ends the process with a code that makes a supervisor restart it. The same holds for a worker that must be restarted (too
many queries that cannot be stopped, worker/guarding.py). The process goes on while the broker is away.

An orderly stop takes a bounded time then, and is skipped when memory runs out: a stuck query can hold any lock, and an abrupt end
is safe.
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
"""Exit code for "start me again"."""
LEAVE_S = 20.0
"""Longest stop of a node that must be restarted."""
COLLECTED_AFTER: Final = (20_000, 20, 50)
"""Thresholds of the garbage collector: new minus freed objects for a collection of the youngest, and numbers of these collections
for one of the older generations. A turn makes no cycles, so only the transactions under way are searched."""


def serve(node: MasterNode | ProcessNode | WorkerNode, server: Any | None, leave: Callable[[int], object] = os._exit) -> int:
    """Run until SIGTERM or SIGINT; return the exit code (0 in order, 2 after a fault or for a restart).

    Raises ConfigurationError when the broker is another cluster's, once the node has stopped.
    With queries that cannot be stopped the process ends by ``leave`` at once: the interpreter's own shutdown would destroy state
    that their threads still use.
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
            log.error("the loop has ended", node=node.node_id)  # The loop has logged the reason.
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
    """Call ``act`` for each SIGTERM and SIGINT, in a thread: a handler that interrupts the holder of a lock would deadlock."""
    received, sent = os.pipe()

    def wait() -> None:
        while number := os.read(received, 1):
            act(number[0])

    threading.Thread(target=wait, name="signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: os.write(sent, bytes([number])))


def _collect_rarely() -> None:
    """Exclude the objects of a started node from garbage collection, and collect less often: it took a sixth of a lone write."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)


def _leave(leave: Callable[[int], object], code: int) -> None:
    """End the process without the interpreter's own shutdown, but with all lines of the log."""
    sys.stdout.flush()
    sys.stderr.flush()
    leave(code)
