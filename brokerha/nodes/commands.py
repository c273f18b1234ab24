"""Operators' commands on their way through a master's loop: run between two turns, answered once what they changed is durable."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from brokerha.master.site_commands import SiteCommands
from brokerha.model.errors import BrokerhaError, NotReady
from brokerha.nodes.loop import NodeLoop
from brokerha.nodes.runner import MasterRunner
from brokerha.ports.clock import Clock

Answer = dict[str, Any]


class Commands:
    """Commands under way at one master; `run` from any thread, `settle` by the loop."""

    def __init__(self, clock: Clock, *, protect_single_worker: bool) -> None:
        self._clock = clock
        self._protects = protect_single_worker
        self._open: list[tuple[Future[Answer], Answer, object]] = []

    def run(self, loop: NodeLoop, runner: MasterRunner, name: str, arguments: dict[str, Any]) -> Future[Answer]:
        """Hand a command in. The future raises InvalidRequest, NotFound, NotReady."""
        future: Future[Answer] = Future()

        def carry_out() -> None:
            if runner.failure:
                future.set_exception(NotReady(runner.failure))
                return
            commands = SiteCommands(runner.core, protect_single_worker=self._protects)
            try:
                answer = commands.run(name, arguments, self._clock.now())
            except BrokerhaError as error:
                future.set_exception(error)
                return
            self._open.append((future, answer, runner.core))

        called = loop.call(carry_out)
        called.add_done_callback(
            lambda done: future.set_exception(error) if (error := done.exception()) and not future.done() else None
        )
        return future

    def settle(self, runner: MasterRunner) -> None:
        """Answer what is durable now; what a failed journal lost is refused."""
        waiting, self._open = self._open, []
        for future, answer, core in waiting:
            if runner.failure or core is not runner.core:
                future.set_exception(NotReady(f"nothing was changed: {runner.failure or 'the journal failed'}"))
            elif runner.core.to_write:
                self._open.append((future, answer, core))
            else:
                future.set_result(answer)
