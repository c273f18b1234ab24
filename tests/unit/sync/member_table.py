"""The table of masters, some of which come later and some of which go.

table = MemberTable()              m1 m2 m3
table.newcomer("m4")               starts with an empty journal, and the names of all in its file
table.add("m1", "m4")              m1 is told to take it in
"""

from __future__ import annotations

from collections.abc import Callable

from brokerha.log.log import Log
from brokerha.model.ids import NodeId
from brokerha.model.records import Started
from brokerha.sync.config import SyncConfig
from brokerha.sync.core import SyncCore
from brokerha.sync.membership import Wish
from tests.support.logs import memory_log
from tests.unit.paper.masters import Choice
from tests.unit.sync.epoch_table import STEP_MS, EpochTable


def without(*nodes: NodeId) -> Choice:
    """These neither hear nor are heard."""
    return lambda sender, out: sender not in nodes and out.to not in nodes


def between(*nodes: NodeId) -> Choice:
    """Only these hear each other."""
    return lambda sender, out: sender in nodes and out.to in nodes


class MemberTable(EpochTable):
    """Masters that are added and taken out."""

    def __init__(self, masters: int = 3, **settings: object) -> None:
        self._old: dict[NodeId, Log] = {}
        self.files: dict[NodeId, tuple[NodeId, ...]] = {}
        """Masters that the file of each node names, from its first start on."""
        super().__init__(masters, **settings)

    def start(self, name: NodeId) -> SyncCore:
        """Start a master from its journal, with the file that it has."""
        state = self.journals[name].state()
        state.incarnation = state.next_incarnation
        self.journals[name].append([Started(state.incarnation)])
        members = self.files.setdefault(name, self.names)
        config = SyncConfig(node=name, members=members, **self.settings)  # type: ignore[arg-type]
        self.cores[name] = SyncCore(config, state, self.journals[name])
        return self.cores[name]

    def newcomer(self, node: NodeId) -> SyncCore:
        """Start a master that nobody knows; its own file names it and all others."""
        self.names = tuple(sorted({*self.names, node}))
        self.skew_us[node] = 0
        self.journals[node] = memory_log(node, f"journal-of-{node}")
        return self.start(node)

    def empty_disk(self, node: NodeId) -> None:
        """Its data directory is lost, and it starts again."""
        self._old[node] = self.journals[node]
        self.crash(node)
        self.journals[node] = memory_log(node, f"second-journal-of-{node}")
        self.start(node)

    def old_disk(self, node: NodeId) -> None:
        """The old data directory is found, and put back."""
        self.crash(node)
        self.journals[node] = self._old[node]
        self.start(node)

    def add(self, at: NodeId, node: NodeId) -> Wish:
        """Tell one master to add another."""
        core = self.cores[at]
        return core.epochs.membership.add(core, node, self.instant(at))

    def remove(self, at: NodeId, node: NodeId, *, is_forced: bool = False) -> Wish:
        """Tell one master to take another out."""
        core = self.cores[at]
        return core.epochs.membership.remove(core, node, self.instant(at), is_forced=is_forced)

    def wish_again(self, at: NodeId, node: NodeId) -> Wish:
        """The same as `add`, whatever became of the wish before."""
        self.cores[at].epochs.membership.wish = None
        return self.add(at, node)

    def masters(self, at: NodeId) -> tuple[NodeId, ...]:
        """The configuration as one master knows it."""
        return self.cores[at].epoch.configuration.masters

    def live_until(self, is_over: Callable[[], bool], choice: Choice = lambda _s, _o: True, most_ms: int = 20_000) -> None:
        """Let time pass until something is so."""
        for _ in range(most_ms // STEP_MS):
            if is_over():
                return
            self.live(STEP_MS, choice)
        raise AssertionError("it did not come to pass")
