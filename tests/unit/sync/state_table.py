"""The table of masters that execute and trim, so that what a master lacks may be gone everywhere.

table = StateTable()
table.leave_behind("m3", 30)       m3 is away while the others synchronise 30 transactions; they keep the last few
table.come_back("m3")              it takes over their state, and is a member again
"""

from __future__ import annotations

from brokerha.log.log import Log
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.records import Outcomes
from brokerha.model.wire.epoch_messages import State, StateWanted
from brokerha.model.wire.messages import Outgoing
from brokerha.sync.core import SyncCore
from tests.unit.log.turns import result_of
from tests.unit.paper.masters import Choice
from tests.unit.sync.epoch_table import STEP_MS
from tests.unit.sync.member_table import MemberTable, without

KEPT = 9
"""So many entries the others keep, when they trim."""


def executed(journal: Log) -> Lsn:
    """Up to where a journal has results."""
    return journal.state().executed_lsn


class StateTable(MemberTable):
    """Masters whose sites execute what is synchronised."""

    def start(self, name: NodeId) -> SyncCore:
        """Start a master whose content is what its journal says."""
        core = super().start(name)
        core.content = lambda: (executed(self.journals[name]), "")
        return core

    def execute(self, *names: NodeId) -> None:
        """All that is synchronised at these masters is executed."""
        for name in names:
            journal = self.journals[name]
            first, last = executed(journal) + 1, self.cores[name].lsn
            if first <= last:
                journal.append([Outcomes(first, tuple(result_of(lsn) for lsn in range(first, last + 1)), last)])

    def trim(self, *names: NodeId, kept: int = KEPT) -> None:
        """These masters keep the last entries only."""
        for name in names:
            while self.journals[name].trim(self.cores[name].lsn - kept + 1):
                pass

    def write_on(self, count: int, *names: NodeId) -> list[TxId]:
        """The masters that hear each other synchronise transactions of the first one of them, and execute them."""
        first = self.cores[names[0]].lsn
        others = [name for name in self.names if name not in names]
        txids = [f"t{first + n}" for n in range(1, count + 1)]
        for txid in txids:
            self.write(names[0], txid)
            self.live(3 * STEP_MS, without(*others))
        self.live(400, without(*others))
        assert all(None not in self.lsns(name, *txids) for name in names)
        self.execute(*names)
        return txids

    def leave_behind(self, name: NodeId, count: int = 30) -> list[TxId]:
        """A master misses transactions of which the others then keep the last few only; returns them."""
        others = tuple(other for other in self.names if other != name)
        self.live_until(lambda: self.members(others[0]) == others, without(name))
        txids = self.write_on(count, *others)
        self.trim(*others)
        return txids

    def come_back(self, name: NodeId, choice: Choice = lambda _s, _o: True) -> None:
        """Let it hear the others until all are in one epoch again, with queues of one length."""

        def is_back() -> bool:
            cores = self.cores.values()
            return name in self.members(name) and len({(core.epoch.id, core.lsn) for core in cores}) == 1

        self.live_until(is_back, choice)

    def pages(self, to: NodeId) -> list[State]:
        """All pages that were ever sent to a master."""
        return self.messages(State, to=to)

    def lsns(self, name: NodeId, *txids: TxId) -> list[Lsn | None]:
        """What one master says of these transactions."""
        return [self.journals[name].lsn_of(txid) for txid in txids]


def about_states(out: Outgoing) -> bool:
    """Whether it is a question for a state, or an answer."""
    return isinstance(out.message, StateWanted | State)
