"""Splits of all shapes, restarts and lost messages, drawn from a seed: in each mode all agree in the end, and nothing is lost or doubled."""

from __future__ import annotations

import random

import pytest

from brokerha.model.ids import NodeId
from brokerha.model.wire.epoch_messages import Tail
from brokerha.sync import catching_up
from brokerha.sync.epochs import epochs
from tests.unit.paper.masters import Choice
from tests.unit.sync.member_table import MemberTable

SEEDS = 60


def links(drawn: random.Random, names: tuple[NodeId, ...]) -> Choice:
    """Which messages get through for a while."""
    kind = drawn.choice(["all", "parts", "mute", "deaf", "one link", "lossy", "slow reading"])
    if kind == "slow reading":
        return lambda _sender, out: not isinstance(out.message, Tail) or drawn.random() < 0.03
    if kind == "parts":
        side = {name: drawn.randrange(3) for name in names}
        return lambda sender, out: side[sender] == side[out.to]
    if kind in ("mute", "deaf"):
        one = drawn.choice(names)
        return lambda sender, out: one != (sender if kind == "mute" else out.to)
    if kind == "one link":
        ends = set(drawn.sample(names, 2))
        return lambda sender, out: {sender, out.to} != ends
    if kind == "lossy":
        lost = drawn.choice([0.1, 0.3, 0.6])
        return lambda _sender, _out: drawn.random() > lost
    return lambda _sender, _out: True


class Run:
    """Masters that write, stop and start while links come and go."""

    def __init__(self, seed: int) -> None:
        self._drawn = random.Random(seed)
        self.mode = self._drawn.choice(["none", "simple", "smart"])
        self.table = MemberTable(self._drawn.choice([2, 3, 3, 4, 5]), split_recovery=self.mode)
        self.names = self.table.names
        self.written: set[str] = set()
        self._down: set[NodeId] = set()

    def disturb(self) -> None:
        """A while of trouble."""
        for _ in range(self._drawn.randrange(3, 12)):
            choice = links(self._drawn, self.names)
            for _ in range(self._drawn.randrange(4)):
                self._write(self._drawn.choice(self.names))
            self.table.live(self._drawn.choice([40, 200, 600, 1500, 3000]), choice)
            if self._drawn.random() < 0.3:
                self._stop(self._drawn.choice(self.names))
            for name in sorted(self._down):
                if self._drawn.random() < 0.5:
                    self._start(name)
        for name in sorted(self._down):
            self._start(name)

    def _write(self, name: NodeId) -> None:
        if name in self._down:
            return
        txid = f"t{len(self.written) + 1}"
        self.written.add(txid)
        self.table.write(name, txid)
        self.table.round(name)
        other = self._drawn.choice(self.names)
        if self._drawn.random() < 0.1 and other not in {name, *self._down}:
            # The client did not get its answer, and sends it to another one as well.
            self.table.write(other, txid)
            self.table.round(other)

    def _stop(self, name: NodeId) -> None:
        if name not in self._down:
            self.table.crash(name)
            self._down.add(name)

    def _start(self, name: NodeId) -> None:
        self.table.start(name)
        self._down.discard(name)

    def queues(self) -> set[tuple[str, ...]]:
        """The different synchronised queues that there are."""
        return {tuple(self.table.queue(name)) for name in self.names}

    def is_over(self) -> bool:
        """Whether all have one queue with everything."""
        queues = self.queues()
        return len(queues) == 1 and all(len(queue) == len(self.written) for queue in queues)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_all_agree_in_the_end_and_nothing_is_lost_or_doubled(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of every other one each entry of a tail is a message of its own, so that attempts find masters that have read a part.
    for module in (catching_up, epochs)[: 2 * (seed % 2)]:
        monkeypatch.setattr(module, "TAIL_LIMIT", 1)
    run = Run(seed)
    run.disturb()
    run.table.live_until(run.is_over, most_ms=40_000)
    (queue,) = run.queues()
    assert sorted(queue) == sorted(run.written)
    run.table.live_until(lambda: len({run.table.cores[name].epoch.id for name in run.names}) == 1, most_ms=10_000)
