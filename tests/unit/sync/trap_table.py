"""The table of masters that come and go, of which some die at a chosen step of a change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from brokerha.model.epochs import ADD
from brokerha.model.errors import BrokerhaError
from brokerha.model.ids import NodeId
from brokerha.sync.membership import Wish
from tests.unit.sync.member_table import MemberTable

UNWRITTEN, UNSENT = "before it is written", "before anything is sent"


@dataclass
class Trap:
    """Where somebody dies."""

    nodes: tuple[NodeId, ...]
    point: str
    kind: type


class TrapTable(MemberTable):
    """Masters of which some die at a point, once; they are started again after a while."""

    def __init__(self, masters: int = 3, **settings: object) -> None:
        self.trap: Trap | None = None
        self.died: list[NodeId] = []
        super().__init__(masters, **settings)

    def round(self, *names: NodeId) -> None:
        for name in names or tuple(self.cores):
            if name not in self.cores:
                continue
            result = self.cores[name].collect(self.instant(name))
            at_hand = [*result.records, *(out.message for out in result.messages)]
            trap = self.trap
            is_caught = trap is not None and name in trap.nodes and any(isinstance(x, trap.kind) for x in at_hand)
            point = trap.point if trap is not None and is_caught else ""
            if result.records and point != UNWRITTEN:
                self.journals[name].append(result.records)
            if not point:
                letters = [(name, out) for out in result.messages if out.to in self.cores]
                self.mail.extend(letters)
                self.sent.extend(letters)
            elif trap is not None:
                self.trap = replace(trap, nodes=tuple(n for n in trap.nodes if n != name))
                self.died.append(name)
                self.crash(name)

    def say_again(self, kind: str, node: NodeId, at: NodeId) -> Wish | None:
        """An operator says it again, until it is done."""
        try:
            return self.add(at, node) if kind == ADD else self.remove(at, node)
        except BrokerhaError:
            return None

    def are_of_one_mind(self, *names: NodeId) -> None:
        """These are the masters, in one epoch with one queue."""
        assert {self.masters(name) for name in names} == {tuple(sorted(names))}
        assert len({self.cores[name].epoch.id for name in names}) == 1
        assert {self.members(name) for name in names} == {tuple(sorted(names))}
        queues = {tuple(self.queue(name)) for name in names}
        assert len(queues) == 1
        queue = queues.pop()
        assert len(set(queue)) == len(queue)
