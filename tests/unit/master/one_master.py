"""One master that has settled, its journal, its clock, and workers that say what the test lets them say."""

from __future__ import annotations

from typing import Any

from brokerha.master.config import MasterConfig
from brokerha.master.core import MasterCore
from brokerha.master.site_commands import SiteCommands
from brokerha.model.ids import Instant
from brokerha.model.records import WorkersChanged
from brokerha.model.requests import Submit
from brokerha.model.wire.messages import Envelope, Executed, Message, Progress
from brokerha.replication.site.config import FeedConfig, Standing
from brokerha.sync.config import SyncConfig
from tests.support.logs import memory_log
from tests.unit.replication.benches import results, text


class OneMaster:
    """A master that has settled, with workers in sync at LSN 5, and its commands."""

    def __init__(self, workers: tuple[str, ...] = ("w1", "w2"), *, protect: bool = True, split_recovery: str = "quorum") -> None:
        feed = FeedConfig(workers, others=("w8", "w9"), unreadable=tuple(w for w in workers if w == "w3"))
        self.config = MasterConfig(SyncConfig("m1", ("m1",), split_recovery=split_recovery), feed)
        self.journal = memory_log("m1", "journal-of-m1")
        self.ms = 1000
        self.core = MasterCore(self.config, self.journal.state(), self.journal)
        self.commands = SiteCommands(self.core, protect_single_worker=protect)
        for number in range(1, 6):
            self.core.step(Submit(0, f"t{number}", b"body"), self.now())
        self.run()
        self.hear("w1")
        self.step("w1", Executed(1, results(1, 5), 5, text(5), 5, "copy-of-w1"))
        self.ms += feed.dead_after_ms
        for node in workers:
            self.hear(node, 5)
        self.run()

    def now(self) -> Instant:
        """The clocks."""
        return Instant(self.ms, self.ms * 1000)

    def run(self) -> dict[str, list[Message]]:
        """Carry everything out; return what was sent to each worker."""
        self.core.wake(self.now())
        sent: dict[str, list[Message]] = {}
        while ready := self.core.take_ready(self.now()):
            if ready.records:
                self.journal.append(ready.records)
            for out in ready.messages:
                sent.setdefault(out.to, []).append(out.message)
        return sent

    def restart(self) -> MasterCore:
        """The core that a restart builds from the journal."""
        self.run()
        return MasterCore(self.config, self.journal.state(), self.journal)

    def step(self, sender: str, message: Message) -> None:
        """A message comes."""
        self.core.step(Envelope("c", sender, 1, message), self.now())

    def hear(self, node: str, applied: int = 0, **said: Any) -> None:
        """A heartbeat of a worker that follows, with the content of the log, unless it says something else."""
        fields: dict[str, Any] = {
            "journal": f"copy-of-{node}", "fingerprint": text(applied), "items": applied, "state": "on",
            "follows": "basic", "view": 1, **said,
        }  # fmt: skip
        self.step(node, Progress(applied_lsn=applied, **fields))

    def do(self, command: str, /, **arguments: Any) -> dict[str, Any]:
        """An operator gives a command."""
        return self.commands.run(command, arguments, self.now())

    def standing(self, node: str) -> Standing:
        """What the master thinks of a worker."""
        return self.core.site.workers[node].standing

    def records(self) -> list[WorkersChanged]:
        """Changes of the workers that the journal holds."""
        return [record for _, record in self.journal.records() if isinstance(record, WorkersChanged)]
