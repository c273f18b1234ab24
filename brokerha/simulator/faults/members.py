"""What operators do to the masters of a world while everything else goes on: add, take out, replace one whose machine was lost, choose a strategy."""

from __future__ import annotations

from collections.abc import Callable

from brokerha.model.epochs import ADD, REMOVE
from brokerha.model.errors import JournalDamaged
from brokerha.model.ids import NodeId
from brokerha.model.wire.epoch_messages import EpochInstall
from brokerha.model.wire.messages import Outgoing
from brokerha.simulator.faults.luck import Luck
from brokerha.simulator.nodes import SimMaster

LEAST_MASTERS = 3
"""With fewer, one that lost its disk leaves no majority."""


CHOSEN_IN_TROUBLE = 0.7
"""Part of the times when an operator chooses a strategy in which something happens right afterwards."""
CHOOSING_US, WATCH_US = 2_000_000, 1_000
"""Within this time of it, looked at so often."""
AFTER_CHOOSING = ("isolate", "partition", "cut one way", "crash master", "crash all")


class MemberFaults:
    """Each is one of the kinds of `Faults`."""

    def __init__(self, faults: Luck) -> None:
        self._faults = faults
        self.kinds: dict[str, Callable[[], None]] = {
            "add master": self._add,
            "remove master": self._remove,
            "replace master": self._replace,
            "add again": self._add_again,
            "rot": self._rot,
            "choose mode": self._choose_mode,
        }

    def _add(self) -> None:
        world = self._faults.world
        members = self._faults.members
        if members.spares:
            node = world.rng.choice(members.spares)
            members.begin_node(node)
            self._faults.note("master added", node)
            members.want(ADD, node)

    def _remove(self) -> None:
        world = self._faults.world
        members = self._faults.members
        # The site of the anchor stays: its copy is what everything is measured by.
        free = [n for n in members.masters if world.anchor is None or world.anchor.config.master != n]
        # Who is not known yet would never be, without the one that goes.
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
        """The disks of a site are gone; an operator takes the master out and adds it again, empty."""
        members = self._faults.members
        self._faults.note(why, master.node)
        members.empty_site(master.node)
        members.want(ADD, master.node)
        members.say(REMOVE, master.node)

    def _expendable(self) -> SimMaster | None:
        """A master without which the others are a majority and know each other."""
        world = self._faults.world
        members = self._faults.members
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
        """While a master is down a bit flips of what its start reads: it does not start then, and its machine is replaced."""
        master = self._expendable()
        if master is None:
            return
        if master.is_up:
            master.die()
        master.journal.rot(self._faults.world.rng)
        try:
            master.journal = master.journal.found_again()
        except JournalDamaged:
            self._lose(master, "disk rotted")
        else:
            # What nobody reads, such as the zeros between two frames.
            self._faults.world.plan_restart(master)

    def _choose_mode(self) -> None:
        """An operator wishes for a strategy of split recovery; during a split it is refused."""
        world = self._faults.world
        mode = world.rng.choice(world.options.modes)
        master = world.rng.choice([master for master in world.masters if isinstance(master, SimMaster)])
        answer = master.command("split-recovery", mode=mode)
        if answer is not None and answer["changed"]:
            self._faults.note("mode chosen", f"{mode} at {master.node}")
            if world.rng.random() < CHOSEN_IN_TROUBLE:
                self._tell_some(world.now_us + CHOOSING_US)

    def _tell_some(self, until_us: int) -> None:
        """Of the epochs that follow one reaches only some of the masters, and then masters part or end."""
        world = self._faults.world
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
        """Numbers of the epochs of the masters that live."""
        masters = [master for master in self._faults.world.masters if isinstance(master, SimMaster) and master.is_up]
        return [0, *(master.runner.core.sync.epoch.number for master in masters)]

    def _watch(self, number: int, until_us: int) -> None:
        world = self._faults.world
        if max(self._epochs()) >= number:
            self._faults.strike(world.rng.choice(AFTER_CHOOSING))
        elif world.now_us < until_us:
            world.at(world.now_us + WATCH_US, self._watch, number, until_us)

    def _going(self) -> int:
        """How many masters are to be taken out."""
        members = self._faults.members
        return sum(kind == REMOVE for node, kind in members.wanted.items() if members.is_current(node))

    def _are_enough(self, left: int, lost: int) -> bool:
        """Whether ``left`` masters are a majority also when the nodes that are being added come with a journal that is ``lost`` already."""
        return left >= (len(self._faults.members.singles) + lost) // 2 + 1

    def _is_known(self, node: NodeId) -> bool:
        """Whether its journal says that all have known it."""
        truth = self._faults.checkers.truth
        mirror = truth.mirrors[node]
        return bool(mirror.epoch is not None or mirror.counts.get(node) or node in mirror.journals)

    def _is_settled(self) -> bool:
        """Whether all masters are in one epoch: until then a majority of those before a change counts as well, of whom one may be gone (R15)."""
        return len({self._faults.checkers.truth.mirrors[node].epoch_id for node in self._faults.members.masters}) == 1

    def _add_again(self) -> None:
        """A master that was taken out is emptied and comes back as a new one; with its old journal it would be refused."""
        world = self._faults.world
        members = self._faults.members
        left = sum(not master.is_wiped for master in members.singles)
        gone = [
            master.node
            for master in world.masters
            if master.node not in world.waiting
            and not members.is_current(master.node)
            and self._is_out(master.node)
            # The journal of one that is being added is lost: it may be added with it nevertheless.
            and (members.is_out(master.node) or self._are_enough(left, members.begun_twice(master.node)))
            # The others may need what it had reported, where one of them is lost.
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
