"""A table with the site of one master and its workers, whose log can go back: real cores, copies in memory, one queue for each way.

Messages from one to another keep their order within a channel, as in a broker; they may wait, and be lost, but never overtake.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count

from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.log_lineages import Rewinds
from brokerha.model.operations import pack_operations
from brokerha.model.ready import Ready, StoreDecision
from brokerha.model.records import Accepted, Added, Appended, Outcomes, Rebased, Rewound, Started
from brokerha.model.wire.messages import Apply, Coin, Envelope, Executed, Message, Outgoing, Progress, RangeMissing, Request
from brokerha.nodes.worker.runner import carry_out, carry_out_copy, state_of
from brokerha.ports.store import Applied
from brokerha.replication.site.config import FeedConfig, Standing, WorkerFeed
from brokerha.replication.site.feed import Feed
from brokerha.replication.site.lineages import executed_before
from brokerha.replication.site.site import Site
from brokerha.replication.worker.config import WorkerConfig
from brokerha.replication.worker.core import WorkerCore
from tests.support.logs import memory_log
from tests.support.memory_store.worker_copy import MemoryCopy

Way = tuple[NodeId, NodeId, str]
"""(from, to, channel)"""


class RewindTable:
    """Master m1 with its site, and whoever else has a copy."""

    def __init__(self, *workers: NodeId, **settings: object) -> None:
        self.ms = 10_000
        self.config = FeedConfig(workers, **{"linger_ms": 0, **settings})  # type: ignore[arg-type]
        self.journal = memory_log("m1", "journal-of-m1")
        self.journal.append([Started(1)])
        self._names = count(1)
        self._stamps = count(1)
        self._streamed = 0
        self.bodies: list[tuple[str, int, bytes]] = []
        """The log as it is now: (transaction id, timestamp, body)."""
        self.copies: dict[NodeId, MemoryCopy] = {}
        self.workers: dict[NodeId, WorkerCore] = {}
        self.mail: dict[Way, deque[Message]] = {}
        self.sent: list[tuple[NodeId, Outgoing]] = []
        self.is_held: Callable[[Way], bool] = lambda _way: False
        """Which ways are held up now."""
        self.start_master()
        for node in workers:
            self.start(node)

    # ---- processes

    def start_master(self, rewinds: Rewinds = ()) -> None:
        """A master that knows its journal, and which rewinds there were."""
        named = tuple((node, True, True) for node in self.config.workers)
        self.lsn = len(self.bodies)
        executed = self.journal.state().executed_lsn
        self.site = Site(self.config, self.journal, named, 1, rewinds)
        self.feed = Feed(self.config, self.journal, self.site, self.lsn, executed)
        self.site.lsn, self.site.executed = self.lsn, executed

    def start(self, node: NodeId, master: NodeId = "m1") -> WorkerCore:
        """A worker with the copy that it has, or with an empty one."""
        copy = self.copies.setdefault(node, MemoryCopy(self.name))
        self.workers[node] = WorkerCore(WorkerConfig(node, master, heartbeat_ms=200), state_of(copy))
        return self.workers[node]

    def crash(self, node: NodeId) -> None:
        """Stop a worker at once; its copy keeps what is durable."""
        del self.workers[node]
        self.copies[node] = self.copies[node].restarted()

    def name(self) -> str:
        return f"copy-{next(self._names)}"

    def foreign(self, node: NodeId, lineage: int) -> None:
        """A worker of another site that holds the log of now, and gives its copy."""
        core = self.start(node, "m2")
        copy = self.copies[node]
        copy.execute(1, self.bodies)
        copy.begin_lineage(lineage)
        core = self.start(node, "m2")
        core.step(Envelope("c", "m2", 1, Coin(1)), self.now())

    # ---- the log

    def write(self, *values: str) -> None:
        """Transactions that are synchronised; what each comes to depends on those before it."""
        fresh = [(f"t-{value}", next(self._stamps), self._body(value)) for value in values]
        entries = tuple((stamp, txid) for txid, stamp, _ in fresh)
        self.journal.append(
            [
                Accepted(tuple((txid, body) for txid, _, body in fresh)),
                Appended("m1", self._streamed, entries),
                Added(self.lsn + 1, tuple((*entry, "m1") for entry in entries), {"m1": self._streamed + len(fresh)}),
            ]
        )
        self._streamed += len(fresh)
        self.bodies += fresh
        self.lsn = self.feed.lsn = self.site.lsn = len(self.bodies)

    def _body(self, value: str) -> bytes:
        # Whoever comes last under a key wins, so that another order is another content.
        return pack_operations([("put", "t", b"k%d" % (sum(value.encode()) % 3), value.encode())])

    def again(self, *values: str) -> None:
        """Transactions that were given up are synchronised again, in this order."""
        fresh = [(f"t-{value}", next(self._stamps), self._body(value)) for value in values]
        entries = tuple((stamp, txid) for txid, stamp, _ in fresh)
        used = {"m1": self._streamed + len(fresh)}
        ordered = tuple((*entry, "m1") for entry in entries)
        self.journal.append([Appended("m1", self._streamed, entries), Added(self.lsn + 1, ordered, used)])
        self._streamed += len(fresh)
        self.bodies += fresh
        self.lsn = self.feed.lsn = self.site.lsn = len(self.bodies)

    def go_back_and_keep_content(self, lsn: Lsn, lineage: int) -> None:
        """The same, at a site that keeps what it has: all is executed, and the log says that it is the content there."""
        state = self.journal.state()
        rebased = Rebased(lsn, state.fingerprint, state.items, "it stays")
        self.journal.append([Rewound(lsn, lineage - 1, lineage, keeps_content=True), rebased])
        del self.bodies[lsn:]
        self.lsn = lsn
        self.feed.rewind(lsn, lineage, self.ms, text_of(state.fingerprint))
        self.feed.executed_before = executed_before(self.journal, self.feed.executed)

    def go_back(self, lsn: Lsn, lineage: int) -> None:
        """What was synchronised after an LSN is void."""
        self.journal.append([Rewound(lsn, lineage - 1, lineage)])
        del self.bodies[lsn:]
        self.lsn = lsn
        self.feed.rewind(lsn, lineage, self.ms)

    def truth(self) -> Applied:
        """What whoever executes the log of now comes to."""
        copy = MemoryCopy(self.name)
        copy.execute(1, self.bodies)
        return copy.applied()

    # ---- time

    def now(self) -> Instant:
        return Instant(self.ms, self.ms * 1000)

    def turn(self, step_ms: int = 20) -> None:
        """Everybody takes in what came, and says what follows."""
        for way in list(self.mail):
            while self.mail[way] and not self.is_held(way):
                self.deliver(way[0], way[1], self.mail[way].popleft())
        self.post("m1", self.feed.messages(self.ms))
        self.site.executed = self.feed.executed
        for node, core in list(self.workers.items()):
            self._turn_of(node, core)
        self.ms += step_ms

    def deliver(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """Hand a message over now."""
        if to == "m1":
            self._to_master(sender, message)
        elif to in self.workers:
            self.workers[to].step(Envelope("c", sender, 1, message), self.now())

    def _to_master(self, sender: NodeId, message: Message) -> None:
        outcomes: Outcomes | None = None
        match message:
            case Progress():
                self.feed.on_progress(sender, message, self.ms)
            case Executed():
                outcomes = self.feed.on_executed(sender, message, self.ms)
            case Apply():
                outcomes = self.feed.on_lines(sender, message, self.ms)
            case Request():
                self.feed.on_request(sender, message)
            case RangeMissing():
                self.feed.on_lines_missing(sender, message)
            case _:
                pass
        if outcomes is not None:
            self.journal.append([outcomes])
            self.site.executed = self.feed.executed

    def _turn_of(self, node: NodeId, core: WorkerCore) -> None:
        core.wake(self.now())
        while ready := core.take_ready(self.now()):
            self._carry_out(node, core, ready)

    def _carry_out(self, node: NodeId, core: WorkerCore, ready: Ready) -> None:
        self.post(node, list(ready.messages))
        for decision in ready.decisions:
            if isinstance(decision, StoreDecision):
                core.step(carry_out(self.copies[node], decision), self.now())
            elif (answer := carry_out_copy(self.copies[node], decision, lambda early: core.step(early, self.now()))) is not None:
                core.step(answer, self.now())

    def post(self, sender: NodeId, messages: list[Outgoing]) -> None:
        """Send."""
        for out in messages:
            self.sent.append((sender, out))
            self.mail.setdefault((sender, out.to, out.message.CHANNEL), deque()).append(out.message)

    def settle(self, turns: int = 40, step_ms: int = 20) -> None:
        """So many turns."""
        for _ in range(turns):
            self.turn(step_ms)

    def until(self, condition: Callable[[], bool], turns: int = 600) -> None:
        """Turns until something is so."""
        for _ in range(turns):
            if condition():
                return
            self.turn()
        raise AssertionError(self.story())

    # ---- questions

    def feed_of(self, node: NodeId) -> WorkerFeed:
        return self.site.workers[node]

    def are_in_sync(self, *nodes: NodeId) -> bool:
        """Whether these are in sync, everything is executed, and they hold what the log says."""
        truth = self.truth()
        return all(self.feed_of(node).standing is Standing.ON and self.copies[node].recompute() == truth for node in nodes)

    def are_followed(self, *nodes: NodeId) -> bool:
        """Whether these are in sync, everything is executed, and they hold the content that the results say."""
        end = len(self.bodies)
        wanted = text_of(self.journal.fingerprint_at(end))
        return all(
            self.feed_of(node).standing is Standing.ON
            and (found := self.copies[node].recompute()).lsn == end
            and found.fingerprint == wanted
            for node in nodes
        )

    def sent_to(self, node: NodeId, kind: type) -> int:
        """How many messages of a class were sent to somebody."""
        return sum(1 for _, out in self.sent if out.to == node and isinstance(out.message, kind))

    def story(self) -> str:
        """How everybody is, for failures."""
        rows = [f"log of {len(self.bodies)}, executed {self.feed.executed}, lineages {self.site.lineages.rewinds}"]
        for node, each in self.site.workers.items():
            copy = self.copies[node]
            rows.append(
                f"{node}: {each.standing} {each.reason!r} condemned {each.condemned!r} applied {copy.applied().lsn} "
                f"lineage {copy.lineage} kept {copy.kept} order {each.order}"
                + (f" core {self.workers[node].state}" if node in self.workers else " dead")
            )
        return "\n".join(rows)
