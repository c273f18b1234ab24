"""Changes of the masters by operators during a run: add, remove, replace one with a lost machine, choose a strategy.

The settings are those of the parts of the masters, changed in place between two turns. All masters get the same values, each at its own
time within a second, as they learn them from a copy (nodes/settings.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from brokerha.model.epochs import ADD, REMOVE
from brokerha.model.errors import JournalDamaged
from brokerha.model.ids import NodeId
from brokerha.model.wire.epoch_messages import EpochInstall
from brokerha.model.wire.messages import Outgoing
from brokerha.nodes.settings import put_in_force
from tests.simulator.backups import SimGroup
from tests.simulator.faults.luck import Luck
from tests.simulator.nodes import SimMaster
from tests.simulator.options import SECOND_US

LEAST_MASTERS = 3
"""With fewer masters, one that lost its disk leaves no majority."""


CHOSEN_IN_TROUBLE = 0.7
"""Share of the choices of a strategy that a fault follows at once."""
CHOOSING_US, WATCH_US = 2_000_000, 1_000
"""Time within which the fault follows, and interval of the checks."""
AFTER_CHOOSING = ("isolate", "partition", "cut one way", "crash master", "crash all")
TURNED: Final[tuple[tuple[str, str, tuple[Any, ...]], ...]] = (
    ("sync", "round_timeout_ms", (100, 500)),
    ("sync", "idle_round_ms", (300, 1_000)),
    ("sync", "post_gap_ms", (0, 5, 30)),
    ("sync", "retransmit_ms", (50, 250)),
    ("sync", "fetch_after_ms", (5, 50, 100)),
    ("sync", "queue_window", (100, 20_000)),
    ("feed", "dead_after_ms", (2_500, 5_000, 10_000)),
    ("feed", "probe_turn", (1, 10, 10_000)),
    ("feed", "replay_factor", (1.0, 1.3, 100.0)),
    ("tx", "timeout_ms", (500, 2_000, 60_000)),
    ("tx", "lost_backup", ("continue", "abort")),
    ("tx", "open_limit", (2, 2_000)),
)
"""Part of `MasterConfig`, field, values: live settings of model/reserved/settings.py, by their names in the cores. Each is
compatible with all values that a world draws, as the door ensures (nodes/settings.py)."""
LEARNT_US: Final = SECOND_US
"""Time in which all masters learn a setting."""


class MemberFaults:
    """Each method is one of the kinds of `Faults`."""

    def __init__(self, faults: Luck) -> None:
        self._faults = faults
        self._world = faults.world
        self._members = faults.members
        self.kinds: dict[str, Callable[[], None]] = {
            "add master": self._add,
            "remove master": self._remove,
            "replace master": self._replace,
            "add again": self._add_again,
            "rot": self._rot,
            "choose mode": self._choose_mode,
        }

    def _add(self) -> None:
        world, members = self._world, self._members
        if members.spares:
            node = world.rng.choice(members.spares)
            members.begin_node(node)
            self._faults.note("master added", node)
            members.want(ADD, node)

    def _remove(self) -> None:
        world, members = self._world, self._members
        # The site of the anchor stays, because all others are compared with its copy.
        free = [n for n in members.masters if world.anchor is None or world.anchor.config.master != n]
        # A master that is not known yet would never be, without the one that goes.
        are_known = all(self._is_known(node) for node in members.masters)
        if len(members.masters) - self._going() > 1 and free and are_known:
            node = world.rng.choice(free)
            self._faults.note("master taken out", node)
            members.want(REMOVE, node)

    def _replace(self) -> None:
        master = self._expendable()
        if master is not None:
            self._lose(master, "machine lost")

    def _lose(self, master: SimMaster, why: str) -> None:
        """Lose the disks of a site; an operator removes the master and adds it again, empty."""
        members = self._members
        self._faults.note(why, master.node)
        members.empty_site(master.node)
        members.want(ADD, master.node)
        members.say(REMOVE, master.node)

    def _expendable(self) -> SimMaster | None:
        """Return a master without which the others are a majority and know each other."""
        world, members = self._world, self._members
        masters = members.singles
        if len(masters) - self._going() < LEAST_MASTERS or any(master.is_wiped for master in masters):
            return None
        if not all(self._is_known(node) for node in members.masters) or not self._is_settled():
            return None
        if not self._are_enough(len(masters) - 1, members.begun_twice()):
            return None
        free = [m for m in masters if world.anchor is None or world.anchor.config.master != m.node]
        return world.rng.choice(free) if free else None

    def _rot(self) -> None:
        """Flip a bit that the start of a stopped master reads: the start fails, and its machine is replaced."""
        master = self._expendable()
        if master is None:
            return
        if master.is_up:
            master.die()
        master.journal.rot(self._world.rng)
        try:
            master.journal = master.journal.found_again()
        except JournalDamaged:
            self._lose(master, "disk rotted")
        else:
            # The bit is never read, for example in the zeros between two frames.
            self._world.plan_restart(master)

    def _choose_mode(self) -> None:
        """Let an operator ask for a strategy of split recovery; during a split it is refused."""
        world = self._world
        mode = world.rng.choice(world.options.modes)
        master = world.rng.choice([master for master in world.masters if isinstance(master, SimMaster)])
        answer = master.command("split-recovery", mode=mode)
        if answer is not None and answer["changed"]:
            self._faults.note("mode chosen", f"{mode} at {master.node}")
            if world.rng.random() < CHOSEN_IN_TROUBLE:
                self._tell_some(world.now_us + CHOOSING_US)

    def _tell_some(self, until_us: int) -> None:
        """Send one of the following epochs only to some masters, and then separate or end masters."""
        world = self._world
        names = [master.node for master in world.masters]
        untold = set(world.rng.sample(names, world.rng.randint(1, len(names) - 1)))
        number = max(self._epochs()) + world.rng.choice((1, 2))

        def is_lost(_sender: NodeId, outgoing: Outgoing) -> bool:
            message = outgoing.message
            is_it = isinstance(message, EpochInstall) and message.epoch.number == number and outgoing.to in untold
            return is_it and not world.is_calm and world.now_us < until_us

        world.network.sieve = is_lost
        self._watch(number, until_us)

    def _epochs(self) -> list[int]:
        """Return the epoch numbers of living masters."""
        masters = [master for master in self._world.masters if isinstance(master, SimMaster) and master.is_up]
        return [0, *(master.runner.core.sync.epoch.number for master in masters)]

    def _watch(self, number: int, until_us: int) -> None:
        world = self._world
        if max(self._epochs()) >= number:
            self._faults.strike(world.rng.choice(AFTER_CHOOSING))
        elif world.now_us < until_us:
            world.at(world.now_us + WATCH_US, self._watch, number, until_us)

    def _going(self) -> int:
        """Return how many masters are to be removed."""
        members = self._members
        return sum(kind == REMOVE for node, kind in members.wanted.items() if members.is_current(node))

    def _are_enough(self, left: int, lost: int) -> bool:
        """Tell whether ``left`` masters are a majority even if the nodes being added come with an already ``lost`` journal."""
        return left >= (len(self._members.singles) + lost) // 2 + 1

    def _is_known(self, node: NodeId) -> bool:
        """Tell whether the journal of a node shows that all have known it."""
        truth = self._faults.checkers.truth
        mirror = truth.mirrors[node]
        return bool(mirror.epoch is not None or mirror.counts.get(node) or node in mirror.journals)

    def _is_settled(self) -> bool:
        """Tell whether all masters are in one epoch; until then the majority before a change also counts, and can be gone (R15)."""
        return len({self._faults.checkers.truth.mirrors[node].epoch_id for node in self._members.masters}) == 1

    def _add_again(self) -> None:
        """Empty a removed master and add it as a new one; with its old journal it would be refused."""
        world, members = self._world, self._members
        left = sum(not master.is_wiped for master in members.singles)
        gone = [
            master.node
            for master in world.masters
            if master.node not in world.waiting
            and not members.is_current(master.node)
            and self._is_out(master.node)
            # The lost journal of a node that is being added can still become a member.
            and (members.is_out(master.node) or self._are_enough(left, members.begun_twice(master.node)))
            # If one of the others is lost, they can need its reports.
            and (left == len(members.singles) or self._is_settled())
        ]
        if gone:
            node = world.rng.choice(gone)
            if world.rng.random() < 0.8:
                members.empty_site(node)
                members.want(ADD, node)
                self._faults.note("master comes back", node)
            else:
                members.say(ADD, node)

    def _is_out(self, node: NodeId) -> bool:
        truth = self._faults.checkers.truth
        latest = truth.latest
        return latest is not None and any(retired == node for retired, _ in latest.configuration.retired)


class SettingFaults:
    """Each method is one of the kinds of `Faults`."""

    def __init__(self, faults: Luck) -> None:
        self._faults = faults
        self._set: dict[tuple[str, str], Any] = {}
        """Last values, by part and field."""
        self.kinds: dict[str, Callable[[], None]] = {"change setting": self._change}

    def _change(self) -> None:
        world = self._faults.world
        part, name, values = world.rng.choice(TURNED)
        self._set[part, name] = value = world.rng.choice(values)
        self._faults.note("setting changed", f"{name} = {value}")
        for master in world.masters:
            world.at(world.now_us + world.rng.randint(0, LEARNT_US), self._learn, master, part, name)

    def _learn(self, master: SimMaster | SimGroup, part: str, name: str) -> None:
        held = getattr(master.config, part)
        put_in_force(held, replace(held, **{name: self._set[part, name]}))
