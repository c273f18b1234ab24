"""Benches for the cores of replication: a worker, or a site over a journal, with a clock and no world around it.

Lines of the log are named after their LSN, and their fingerprints are those of contents that are named after it too:

    content(7)      the fingerprint after LSN 7, as it stands in the log
    text(7)         the same as a worker tells it
    lines(3, 5)     an Apply with three lines
"""

from __future__ import annotations

from typing import Any

from brokerha.model.fingerprints import EMPTY, packed, text_of
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.operations import LoggedRow, ResultRow
from brokerha.model.ready import Ready, StoreAnswer, StoreDone
from brokerha.model.records import Accepted, Added, Appended, Outcomes, Rebased, Started
from brokerha.model.wire.messages import Apply, Coin, Envelope, Execute, Executed, Message, Outgoing, Progress
from brokerha.replication.site.config import FeedConfig, Standing, WorkerFeed
from brokerha.replication.site.feed import Feed
from brokerha.replication.site.site import Site
from brokerha.replication.worker.config import CopyState, WorkerConfig
from brokerha.replication.worker.core import WorkerCore, progress_of
from brokerha.replication.worker.kept_here import NOTHING, KeptState
from tests.support.logs import memory_log


def content(lsn: Lsn) -> bytes:
    """Fingerprint of the content after this LSN."""
    return packed(1_000_000 + lsn) if lsn else EMPTY


def text(lsn: Lsn) -> str:
    """The same as text."""
    return text_of(content(lsn))


def result(lsn: Lsn, effect: bytes = b"e") -> ResultRow:
    """The result of the transaction at this LSN."""
    return ("applied", "", effect, content(lsn))


def results(first: Lsn, last: Lsn) -> tuple[ResultRow, ...]:
    """Results of a range."""
    return tuple(result(lsn) for lsn in range(first, last + 1))


def line(lsn: Lsn) -> LoggedRow:
    """The line of the log at this LSN."""
    return (f"t{lsn}", lsn, *result(lsn))


def lines(first: Lsn, last: Lsn, view: int = 1) -> Apply:
    """Lines of the log of a range."""
    return Apply(first, tuple(line(lsn) for lsn in range(first, last + 1)), view)


def transactions(first: Lsn, last: Lsn, view: int = 1) -> Execute:
    """Transactions of a range."""
    return Execute(first, tuple((f"t{n}", n, b"body") for n in range(first, last + 1)), view)


class WorkerBench:
    """The core of worker w1 of master m1; unless told otherwise it obeys its master already."""

    def __init__(
        self,
        applied: Lsn = 0,
        *,
        is_coined: bool = True,
        pending_load: str = "",
        condemned: str = "",
        lineage: int = 0,
        kept: KeptState = NOTHING,
        **settings: Any,
    ) -> None:
        found = {"pending_load": pending_load, "condemned": condemned}
        copy = CopyState("journal", applied, text(applied), applied, **found, lineage=lineage, kept=kept)
        self.core = WorkerCore(WorkerConfig("w1", "m1", **settings), copy)
        self.ms = 1000
        if is_coined:
            self.take(Coin(1))

    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def take(self, *messages: Message, sender: NodeId = "m1") -> Ready:
        """Take in messages; return the consequences."""
        for message in messages:
            self.core.step(Envelope("c", sender, 1, message), self.now())
        self.core.wake(self.now())
        return self.core.take_ready(self.now())

    def answer(self, *answers: StoreAnswer) -> Ready:
        """Take in answers of the store; return the consequences."""
        for each in answers:
            self.core.step(each, self.now())
        return self.core.take_ready(self.now())

    def done(self, applied: Lsn, first: Lsn, rows: tuple[ResultRow, ...] = ()) -> Ready:
        """The store did what it was asked, up to an LSN."""
        return self.answer(StoreDone(first, applied, rows, text(applied), applied))

    def progress(self) -> Progress:
        """What a heartbeat would say now."""
        return progress_of(self.core)


def told(ready: Ready) -> list[Message]:
    """The messages of a Ready."""
    return [outgoing.message for outgoing in ready.messages]


def ranges(messages: list[Message]) -> list[tuple[str, Lsn, Lsn]]:
    """(class, first LSN, last LSN) of messages of the log."""
    return [
        (type(message).__name__, message.first_lsn, message.first_lsn + len(message.items) - 1)
        for message in messages
        if isinstance(message, Apply | Execute)
    ]


class SiteBench:
    """A site and its feed over a journal with so many synchronised transactions, and a master that has settled."""

    def __init__(self, lsn: Lsn = 0, executed: Lsn = 0, workers: tuple[str, ...] = ("w1", "w2"), **settings: Any) -> None:
        self.config = FeedConfig(workers, **{"linger_ms": 0, **settings})
        self.journal = memory_log("m1", "journal-of-m1")
        self.journal.append([Started(1)])
        self.ms = 1000
        self.lsn = 0
        self.site = Site(self.config, self.journal, tuple((node, True, True) for node in workers))
        self.feed = Feed(self.config, self.journal, self.site, 0, 0)
        self.greetings = self.feed.messages(self.ms)
        self.synchronise(lsn)
        if executed:
            self.log(executed)

    def settle(self) -> None:
        """Let so much time pass that silence means something."""
        self.ms += self.config.dead_after_ms

    def synchronise(self, count: int) -> None:
        """Add transactions to the synchronised queue."""
        fresh = range(self.lsn + 1, self.lsn + count + 1)
        if not fresh:
            return
        self.journal.append(
            [
                Accepted(tuple((f"t{n}", b"body") for n in fresh)),
                Appended("m1", self.lsn, tuple((n, f"t{n}") for n in fresh)),
                Added(self.lsn + 1, tuple((n, f"t{n}", "m1") for n in fresh), {"m1": self.lsn + count}),
            ]
        )
        self.lsn += count
        self.feed.lsn = self.site.lsn = self.lsn

    def log(self, last: Lsn) -> None:
        """Put results up to an LSN into the log, as if a probe had executed them."""
        self.journal.append([Outcomes(self.feed.executed + 1, results(self.feed.executed + 1, last), last)])
        self.feed.executed = self.site.executed = last

    def begin_anew(self, lsn: Lsn) -> None:
        """Let the results begin after an LSN, as if everything before had been trimmed."""
        self.journal.append([Rebased(lsn, content(lsn), lsn, "as if everything before had been trimmed")])
        self.feed.rebase(lsn)
        self.site.executed = lsn

    def worker(self, node: NodeId) -> WorkerFeed:
        return self.site.workers[node]

    def standing(self, node: NodeId) -> Standing:
        return self.site.workers[node].standing

    def heard(self, node: NodeId, applied: Lsn = 0, **said: Any) -> None:
        """A heartbeat of a worker that follows, with the content of the log, unless it says something else."""
        fields: dict[str, Any] = {
            "journal": f"copy-of-{node}", "fingerprint": text(applied), "items": applied, "state": "on",
            "follows": "basic", "view": 1, **said,
        }  # fmt: skip
        self.feed.on_progress(node, Progress(applied_lsn=applied, **fields), self.ms)

    def executed(self, node: NodeId, first: Lsn, last: Lsn) -> Outcomes | None:
        """A worker reports results; they are written at once."""
        report = Executed(first, results(first, last), last, text(last), last, f"copy-of-{node}")
        outcomes = self.feed.on_executed(node, report, self.ms)
        if outcomes is not None:
            self.journal.append([outcomes])
        self.site.executed = self.feed.executed
        return outcomes

    def outgoing(self) -> list[Outgoing]:
        return self.feed.messages(self.ms)

    def sent(self) -> dict[NodeId, list[Message]]:
        """What each worker is sent now."""
        found: dict[NodeId, list[Message]] = {}
        for outgoing in self.outgoing():
            found.setdefault(outgoing.to, []).append(outgoing.message)
        return found

    def orders(self, node: NodeId) -> list[Message]:
        """What a worker is ordered now."""
        return [out.message for out in self.site.take_orders(self.ms) if out.to == node]
