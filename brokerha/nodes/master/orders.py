"""Operators' orders to single processes of one master: promote, pause, coin, continue. Every process of the master takes them.

    this process     carried out between two turns, durable before the answer
    another one      NodeOrder ->  <- NodeAnswer; the caller has its own timeout, and above a limit the oldest order is given up

A promotion is answered at once, when it has only begun, by the process that got the order (`ProcessRunner.promote`).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from brokerha.master.command_arguments import check_command
from brokerha.model.errors import BrokerhaError, InvalidRequest, OutcomeUnknown, error_named
from brokerha.model.ids import NodeId
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.model.wire.process_messages import NodeAnswer, NodeOrder
from brokerha.nodes.loop import NodeLoop, complete
from brokerha.nodes.master.process_runner import ProcessRunner
from brokerha.replication.role.resting import COIN, CONTINUE, PAUSE

Answer = dict[str, Any]
PROMOTE: Final = "promote"
COMMANDS: Final = {"node-pause": PAUSE, "node-coin": COIN, "node-continue": CONTINUE}
WAITING_LIMIT: Final = 100
"""Limit of orders to other processes that wait for answers; beyond it, the oldest is given up."""


class Orders:
    """Orders under way at one process; any thread can call `give`, only the loop calls the rest."""

    def __init__(self, runner: ProcessRunner, loop: NodeLoop, wake: Callable[[], None]) -> None:
        self._runner = runner
        self._loop = loop
        self._wake = wake
        self._role = runner.config.role
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[NodeId, Future[Answer]]] = {}

    def are(self, name: str, arguments: Answer) -> bool:
        """Tell whether a command is about a process of this master. Raises InvalidRequest when its arguments are wrong."""
        if name not in COMMANDS and name != PROMOTE:
            return False
        check_command(name, arguments)
        return name == PROMOTE or arguments["node"] in self._role.processes

    def give(self, name: str, arguments: Answer) -> Future[Answer]:
        """Carry out a command, or pass it on. The future raises WrongState, NotReady, OutcomeUnknown; the call InvalidRequest."""
        node, is_forced = arguments["node"], bool(arguments.get("force"))
        if node not in self._role.processes:
            raise InvalidRequest(f"{node!r} is no process of {self._role.master}: {', '.join(self._role.processes)}")
        if name == PROMOTE:
            return self._loop.call(partial(self.promote, node, is_forced=is_forced))
        if node == self._role.process:
            return self._loop.call(partial(self._runner.order, COMMANDS[name], is_forced=is_forced))
        return self._pass_on(node, COMMANDS[name], is_forced=is_forced)

    def promote(self, node: NodeId, *, is_forced: bool) -> Answer:
        """Start to make another process primary; called by the loop. Raises NotReady with the obstacle."""
        answer = self._runner.promote(node, is_forced=is_forced)
        # The next turn does the rest, and must not wait for a message first.
        self._wake()
        return answer

    def _pass_on(self, node: NodeId, command: str, *, is_forced: bool) -> Future[Answer]:
        request = f"{self._role.process}.{next(self._numbers)}"
        future: Future[Answer] = Future()
        with self._lock:
            self._waiting[request] = (node, future)
            oldest = next(iter(self._waiting)) if len(self._waiting) > WAITING_LIMIT else ""
            given_up = self._waiting.pop(oldest, None)
        if given_up is not None:
            text = "did not answer: whether it was carried out is unknown: look with `brokerha status` before you give it again"
            complete(given_up[1], OutcomeUnknown("", f"{given_up[0]} {text}"))
        message = Outgoing(node, NodeOrder(request, command, is_forced))
        self._loop.call_for(future, lambda: self._runner.transport.send([message]))
        return future

    def on_node(self, envelope: Envelope) -> bool:
        """Take an order of another process, or its answer to an order; return False for any other message."""
        message = envelope.message
        if not isinstance(message, NodeOrder | NodeAnswer):
            return False
        sender = envelope.process or envelope.sender
        if sender not in self._role.others:
            return True
        if isinstance(message, NodeOrder):
            # Between two turns, as with any other order.
            self._loop.call(partial(self._answer, sender, message))
        else:
            self._on_answer(sender, message)
        return True

    def _answer(self, sender: NodeId, order: NodeOrder) -> None:
        try:
            if order.command not in COMMANDS.values():
                raise InvalidRequest(f"unknown order {order.command!r}")
            done = self._runner.order(order.command, is_forced=order.is_forced)
            answer = NodeAnswer(order.request, done["changed"], done["state"], done["reason"], "", "")
        except BrokerhaError as error:
            answer = NodeAnswer(order.request, False, "", "", type(error).__name__, str(error))
        self._runner.transport.send([Outgoing(sender, answer)])

    def _on_answer(self, sender: NodeId, answer: NodeAnswer) -> None:
        with self._lock:
            node, future = self._waiting.get(answer.request, ("", None))
            if future is None or node != sender:
                return
            del self._waiting[answer.request]
        if answer.error:
            complete(future, error_named(answer.error, answer.refusal))
        else:
            complete(future, {"node": node, "changed": answer.is_changed, "state": answer.state, "reason": answer.reason})
