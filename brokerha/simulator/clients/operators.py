"""Commands of operators to masters, and the answers."""

from __future__ import annotations

from brokerha.master.site_commands import SiteCommands
from brokerha.model.errors import BrokerhaError
from brokerha.nodes.master.runner import MasterRunner
from brokerha.simulator.processes import Process


def command(process: Process, runner: MasterRunner, name: str, arguments: dict[str, object]) -> dict[str, object] | None:
    """Run an operator's command at a master; None when it is refused or cannot be taken now."""
    if runner.failure:
        return None
    commands = SiteCommands(runner.core, protect_single_worker=True)
    process.world.trace.note(process.world.now_us, process.node, "is told", f"{name} {arguments}")
    try:
        answer = commands.run(name, arguments, process.clock.now())
    except BrokerhaError as error:
        process.world.trace.note(process.world.now_us, process.node, "refuses", str(error))
        return None
    process.wake()
    return answer
