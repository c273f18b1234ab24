"""A scripted world that splits, in a strategy in which every side goes on: what each site holds, and the book of each master.

scene = ModeScene("smart")                m1 m2 m3 with a worker each; a side goes on without the others after LAG_MS
scene.part("m1 m2", "m3")                 nothing passes between the sides, and each of them has gone on for itself
scene.put("m1", "b1", b"key", b"uk")      a client that waits until it is executed there
scene.claim("m3", "b2", b"seat", b"us")   the same, of a key that nobody may have yet
scene.come_together()                     one epoch, one queue with everything in it once, and the contents that the strategy promises
scene.book("m3")                          the rows of its last split, each as (old LSN, id, outcome then, LSN now, outcome now, effect)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgpack

from brokerha.master.site_commands import SiteCommands
from brokerha.master.split_report import facts_of, listed, shown
from brokerha.model.ids import NodeId, TxId
from brokerha.model.operations import Operation
from brokerha.model.requests import APPLIED_LEVEL, REFUSED, UNKNOWN, Reply
from brokerha.nodes.master.runner import MasterRunner
from tests.simulation.scene import QUICK
from tests.simulation.split_scene import LAG_MS, SplitScene
from tests.simulator.clients.workload import Write

UK, US = "m1 m2", "m3"
"""Masters of two sides."""
MODES = ("smart", "simple", "none")

APART_MS = 4 * LAG_MS
"""Enough for sides to keep their copies, and to go on."""

Row = tuple[int, TxId, str | None, int | None, str | None, str]


class ModeScene(SplitScene):
    """See the head of the module."""

    def __init__(
        self, mode: str, masters: int = 3, workers: int = 1, others: dict[str, Any] | None = None, **settings: Any
    ) -> None:
        super().__init__(masters, workers, {**QUICK, **(others or {})}, split_recovery=mode, **settings)
        self.answers: dict[TxId, list[Reply]] = {}
        """What clients were told."""
        self.begun: Counter[tuple[NodeId, type]] = Counter()
        """What workers began to do with their disks."""
        checkers: Any = self.world.checkers
        checkers.on_reply = self._on_reply
        checkers.on_decision = self._on_decision

    def _on_reply(self, _node: NodeId, reply: Reply) -> None:
        ticket = self.world.clients.tickets[reply.ticket]
        self.answers.setdefault(ticket.txid, []).append(reply)

    def _on_decision(self, node: NodeId, decision: object) -> None:
        self.begun[node, type(decision)] += 1

    def runner(self, node: NodeId) -> MasterRunner:
        """What a master is made of."""
        return self.master(node).runner

    # ---- splits

    def part(self, *sides: str) -> None:
        """From now on only masters of one side hear each other; wait until each side has gone on for itself."""
        self.split(*sides)
        self.until(lambda: all(self.are_members(*side.split()) for side in sides), APART_MS)

    def come_together(self, within_ms: int = 30_000) -> None:
        """All links work again; wait until all are of one mind, know what became of everything, and keep nothing any more."""
        self.heal()
        self.until(lambda: not self.world.what_is_missing() and not self._unsettled(), within_ms)
        super().come_together()

    def _unsettled(self) -> list[NodeId]:
        names = [node for node in self.names if self.runner(node).core.site.executed < self.lsn(node)]
        return names + self.kept()

    # ---- clients

    def hand_in(self, node: NodeId, txid: TxId, *operations: Operation, level: str = APPLIED_LEVEL) -> Write:
        """A client hands a write in at one master."""
        write = self.world.clients.new_write(txid, list(operations), level)
        self.world.clients.submit(self.master(node), write)
        return write

    def put(self, node: NodeId, txid: TxId, key: bytes, value: bytes) -> Write:
        """A client changes a key, and waits until that is executed."""
        return self._done(self.hand_in(node, txid, ("put", "table", key, value)))

    def claim(self, node: NodeId, txid: TxId, key: bytes, value: bytes) -> Write:
        """A client takes a key that has to be free, and waits until that is executed."""
        return self._done(self.hand_in(node, txid, ("expect-key", "table", key, ""), ("put", "table", key, value)))

    def put_many(self, node: NodeId, prefix: str, count: int) -> list[Write]:
        """Clients change a key each, and wait until that is executed."""
        return self.all_done(self.write_many(node, prefix, count, APPLIED_LEVEL))

    def all_done(self, writes: Sequence[Write], within_ms: int = APART_MS) -> list[Write]:
        """Wait until all of these have their answers, of the master at which they were handed in."""
        self.until(lambda: all(write.is_done for write in writes), within_ms)
        elsewhere = [reply for write in writes for reply in self.answers[write.txid] if reply.status in {REFUSED, UNKNOWN}]
        assert not elsewhere, elsewhere
        return list(writes)

    def _done(self, write: Write) -> Write:
        return self.all_done([write])[0]

    # ---- operators

    def tell(self, node: NodeId, name: str, **arguments: Any) -> dict[str, Any]:
        """A command to a master. Raises what it refuses with."""
        process, core = self.master(node), self.runner(node).core
        answer = SiteCommands(core, protect_single_worker=True).run(name, arguments, process.clock.now())
        process.wake()
        return dict(answer)

    def splits(self, node: NodeId) -> list[dict[str, Any]]:
        """`splits list` of a master, the newest first."""
        core = self.runner(node).core
        return list(listed(core.history, facts_of(core))["splits"])

    def gave_up(self, node: NodeId) -> list[tuple[int, int]]:
        """(LSN to which it went back, how many lost their place) of each split that a master knows, the oldest first."""
        return [(split["lsn"], split["total"]) for split in reversed(self.splits(node))]

    def effects(self, node: NodeId, place: int = 0) -> dict[str, int]:
        """How many of a split, the last one first, had which effect; those that none had left out."""
        return {effect: count for effect, count in self.splits(node)[place]["effects"].items() if count}

    def book(self, node: NodeId, place: int = 0) -> list[Row]:
        """`splits show` of a split, the last one first."""
        core, number = self.runner(node).core, self.splits(node)[place]["number"]
        entries = shown(core.history, facts_of(core), {"number": number})["entries"]
        return [(e["lsn"], e["txid"], e["outcome"], e["new_lsn"], e["new_outcome"], e["effect"]) for e in entries]

    def outcome(self, node: NodeId, txid: TxId) -> tuple[str, int]:
        """(outcome, LSN) as a master tells whoever asks for the transaction id now."""
        answer = self.runner(node).core.transacting.outcome(txid, self.master(node).clock.now())
        assert answer is not None
        return answer["outcome"], answer["lsn"]

    # ---- what is to be seen

    def content(self, worker: NodeId) -> dict[bytes, bytes]:
        """Keys and values of a copy."""
        return dict(msgpack.unpackb(b"".join(self.worker(worker).copy.read("range", "table", {}).pieces)))

    def values(self, key: bytes) -> list[bytes | None]:
        """What each worker has under a key, in the order of their names."""
        return [self.content(worker.node).get(key) for worker in self.world.workers]

    def kept(self) -> list[NodeId]:
        """Workers that keep a copy, durably."""
        return [worker.node for worker in self.world.workers if worker.copy.kept is not None]

    def who_began(self, kind: type) -> list[NodeId]:
        """Workers that began to do this with their disks, each once."""
        return sorted(node for (node, decision), count in self.begun.items() if decision is kind and count)

    def messages(self, worker: NodeId, queue: str) -> int:
        """How many messages a queue of a copy has."""
        return len(msgpack.unpackb(b"".join(self.worker(worker).copy.read("queue", queue, {}).pieces)))


# ---- the same story again and again: what both sides write, and what is promised of it


def written(mode: str, each: int = 3, workers: int = 1) -> ModeScene:
    """London (m1, m2) and New York (m3) are apart, and both have written the same key, and more."""
    scene = ModeScene(mode, workers=workers)
    scene.put("m1", "before", b"key", b"before")
    scene.agree()
    scene.part(UK, US)
    scene.put_many("m1", "a", each)
    scene.put_many("m3", "c", each)
    scene.put("m3", "us", b"key", b"us")
    scene.put("m1", "uk", b"key", b"uk")
    return scene


def has_all(scene: ModeScene, mode: str, each: int = 3) -> None:
    """What the strategy promises of what `written` wrote, now that everybody is together."""
    uk, us = [*(f"a{n}" for n in range(each)), "uk"], [*(f"c{n}" for n in range(each)), "us"]
    order = scene.order("m1")
    assert order[0] == "before"
    assert [txid for txid in order if txid in us] == us
    if mode != "simple":
        assert order == ["before", *uk, *us]
    sides = [b"us"] * 2 + [b"uk"] if mode == "none" else [order[max(order.index("uk"), order.index("us"))].encode()] * 3
    assert [value for place, value in enumerate(scene.values(b"key")) if place in first_of_site(scene)] == sides
    assert [scene.gave_up(node)[0] for node in scene.names] == [(1, each + 1) if mode == "simple" else (each + 2, 0)] * 2 + [
        (1, each + 1)
    ]


def first_of_site(scene: ModeScene) -> list[int]:
    """Places of the first worker of each site among all workers."""
    return [place for place, worker in enumerate(scene.world.workers) if worker.node.endswith("w1")]


def once(scene: ModeScene, txids: Sequence[TxId]) -> None:
    """These are the queue of every master, in some order."""
    for node in scene.names:
        assert sorted(scene.order(node)) == sorted(txids)
