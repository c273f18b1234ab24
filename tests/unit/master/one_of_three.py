"""One master of three, its journal and its clock, which hears what a test lets the other two say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from brokerha.master.config import MasterConfig
from brokerha.master.core import MasterCore
from brokerha.master.site_commands import SiteCommands
from brokerha.model.epochs import FIRST
from brokerha.model.ids import Instant, NodeId
from brokerha.model.requests import Reply, Submit
from brokerha.model.wire.epoch_messages import Row
from brokerha.model.wire.messages import Envelope, Message, Outgoing, Post
from brokerha.replication.site.config import FeedConfig
from brokerha.sync.config import SyncConfig
from tests.support.logs import memory_log

OTHERS = ("m2", "m3")
ROW = Row("", "", 1, 1, FIRST, FIRST, 0, {}, 0, 0, (), known={"m1": "journal-of-m1"})


class OneOfThree:
    """m1, whose file names all three unless told otherwise."""

    def __init__(self, members: tuple[NodeId, ...] = ("m1", *OTHERS), feed: FeedConfig | None = None, mode: str = "quorum") -> None:
        self.ms, self.number = 100_000, 0
        self.replies: list[Reply] = []
        self.sent: list[Outgoing] = []
        self.journal = memory_log("m1", "journal-of-m1")
        config = MasterConfig(SyncConfig("m1", members, split_recovery=mode), feed or FeedConfig())
        self.core = MasterCore(config, self.journal.state(), self.journal)
        self.run()

    def now(self) -> Instant:
        """The clocks."""
        return Instant(self.ms, self.ms * 1000)

    def run(self) -> None:
        """A turn."""
        self.core.wake(self.now())
        while ready := self.core.take_ready(self.now()):
            if ready.records:
                self.journal.append(ready.records)
            self.replies += ready.replies
            self.sent += ready.messages

    def wait(self, for_ms: int) -> None:
        """Time passes, with turns."""
        for _ in range(for_ms // 500):
            self.ms += 500
            self.run()

    def say(self, sender: NodeId, message: Message) -> None:
        """Another one says something."""
        self.core.step(Envelope("c", sender, 1, message), self.now())
        self.run()

    def post(self, *senders: NodeId, **fields: Any) -> None:
        """These say how they are: as well as `ROW`, unless told otherwise."""
        for sender in senders:
            self.number += 1
            given = {"node": sender, "journal": f"journal-of-{sender}", "number": self.number, **fields}
            self.say(sender, Post(replace(ROW, **given), (), ()))

    def do(self, command: str, /, **arguments: Any) -> dict[str, Any]:
        """An operator gives a command."""
        return SiteCommands(self.core, protect_single_worker=True).run(command, arguments, self.now())

    def write(self, txid: str, level: str = "synchronised", *, body: bytes = b"body", **terms: Any) -> list[Reply]:
        """A client hands a write in; what is answered at once."""
        before = len(self.replies)
        self.core.step(Submit(before + 100, txid, body, level, **terms), self.now())
        self.run()
        return self.replies[before:]

    def state(self) -> tuple[str, str]:
        """State word and reason."""
        return self.core.state(self.now())
