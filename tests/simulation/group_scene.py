"""A scripted world of one master with backups: who acts, who dies, and transactions step by step.

scene = GroupScene(backups=2)
tx = scene.begin()                         a transaction at whichever process acts
tx.operations(("put", "left", b"k", b"v"))
reply = tx.step("commit")                  the reply, or None when its primary dies
scene.agree()                              one primary, all backups ready, everything equal, nothing left behind
"""

from __future__ import annotations

from typing import Any

from brokerha.model.ids import NodeId
from brokerha.model.operations import Operation
from brokerha.model.requests import TxReply
from tests.simulation.scene import Scene
from tests.simulator.backups import SimGroup, SimProcess
from tests.simulator.clients.transactions import COMMIT, Run, Step
from tests.simulator.processes import Aim

FAIL_OVER_MS = 600


class GroupScene(Scene):
    """One master m1 with backups m1-b, m1-c … and one worker."""

    def __init__(self, backups: int = 2, sync_n: int = 1, **others: Any) -> None:
        settings = {
            "backups": (backups,),
            "sync_n": (sync_n,),
            "fail_over_ms": FAIL_OVER_MS,
            "sync_timeout_ms": 2_000,
            "tx_config": {"prepare_ms": 3_000, "retry_ms": 100},
            "liveness_us": 60_000_000,
        }
        super().__init__((1,), others={**settings, **others})
        self.replies: dict[int, TxReply] = {}
        told = self.world.checkers.on_tx_reply

        def on_tx_reply(node: NodeId, step: Step | None, reply: TxReply) -> None:
            self.replies[reply.ticket] = reply
            told(node, step, reply)

        self.world.checkers.on_tx_reply = on_tx_reply  # type: ignore[attr-defined]

    @property
    def group(self) -> SimGroup:
        """The master."""
        return self.world.groups[0]

    @property
    def primary(self) -> SimProcess:
        """Whichever process acts."""
        return self.group.acting[0]

    def process(self, node: NodeId) -> SimProcess:
        """One process."""
        return next(process for process in self.group.processes if process.node == node)

    def ready(self) -> None:
        """Wait until all backups are ready."""
        self.until(lambda: not self.world.checkers.journals.what_is_missing(), 20_000)

    def fail_over(self, until_ms: int = 10_000) -> None:
        """The primary dies; wait until another process acts."""
        self.primary.die()
        self.until(lambda: self.group.is_up, until_ms)

    def aim(self, process: SimProcess, point: str, kind: type | None) -> None:
        """Let a process die at a point."""
        process.aim = Aim(point, kind, 1)

    def begin(self, *, xid: str = "") -> Tx:
        """A transaction that is begun."""
        return Tx(self, xid)

    def write_many_to_group(self, count: int) -> None:
        """So many plain writes, acknowledged."""
        clients = self.world.clients
        writes = [clients.new_write(f"w{number}", [("put", "t", b"%d" % number, b"v")]) for number in range(count)]
        for write in writes:
            clients.submit(self.group, write)
        self.until(lambda: all(write.is_done for write in writes), 20_000)

    def queue(self, name: str) -> list[bytes]:
        """Bodies of the messages of a queue, as the model has them: copies are compared with it."""
        return [message.body for _, message in self.truth.model.queues.get(name, {}).values()]


class Tx:
    """One transaction under the hand of a test."""

    def __init__(self, scene: GroupScene, xid: str) -> None:
        self.scene = scene
        clients = scene.world.tx_clients
        number = len(clients.runs) + 1
        core = scene.group.runner.core
        # The clients of the simulator leave it alone: it counts as one whose client asks.
        self.run = Run(number, "m1", [], COMMIT, xid=xid, is_two_phase=bool(xid), is_asking=True, is_done=True)
        journal = scene.primary.journal.state().journal[:8]
        self.run.txid = f"m1.{journal}.{core.sync.incarnation:x}.{number:x}.t"
        clients.runs.append(self.run)
        clients.by_txid[self.run.txid] = self.run
        reply = self.step("begin", xid=xid, timeout_ms=60_000, session="", user=self.run.user)
        assert reply is not None
        assert not reply.error, reply

    def send(self, action: str, **arguments: Any) -> int:
        """Send a step to whoever acts; returns its ticket."""
        clients, run = self.scene.world.tx_clients, self.run
        if action == "commit":
            run.asked_commit = True
            arguments = {"one_phase": not run.xid, "level": "applied", "copies": 1, "session": "", **arguments}
        run.asked_rollback = run.asked_rollback or action == "rollback"
        clients._send(run, self.scene.primary, action, arguments)
        return clients._ticket

    def step(self, action: str, **arguments: Any) -> TxReply | None:
        """Send a step and wait for its answer; None when it never comes."""
        ticket = self.send(action, **arguments)
        scene = self.scene
        scene.until(lambda: ticket in scene.replies or ticket not in scene.world.tx_clients.steps, 20_000)
        return scene.replies.get(ticket)

    def operations(self, *operations: Operation) -> TxReply | None:
        """Add operations."""
        first = len(self.run.operations)
        self.run.chunks.append(list(operations))
        return self.step("operations", first=first, operations=list(operations))

    @property
    def outcome(self) -> str:
        """What the process that acts says of it."""
        scene, runner = self.scene, self.scene.group.runner
        told: list[dict[str, Any] | None] = []
        answer = runner.core.transacting.outcome(self.run.txid, scene.primary.clock.now())
        runner.when_safe(lambda: told.append(answer))
        scene.until(lambda: bool(told), 10_000)
        scene.world.checkers.on_outcome("m1", self.run.txid, told[0])
        if told[0] is None:
            return "unknown"
        return str(told[0]["outcome"] or told[0]["state"])
