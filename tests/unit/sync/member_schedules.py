"""Small schedules of changes of the masters with every kind of bad luck, and what has to hold after each step.

schedule = MemberSchedule(7)       what a seed draws: how many masters, who is added, who goes, what is lost on the way
schedule.run()                     bad luck for a while, then none; raises AssertionError with what is broken

Held after each step: any two queues are prefixes of one (S1), no id twice (S2). At the end: all masters of the last configuration are
in one epoch with one queue, and everything is in it that was accepted at one of them, or at one that was there when it was taken out.
"""

from __future__ import annotations

from random import Random

from brokerha.model.epochs import ADD
from brokerha.model.errors import BrokerhaError
from brokerha.model.ids import NodeId, TxId
from brokerha.model.wire.messages import Outgoing
from brokerha.sync import identity
from brokerha.sync.core import SyncCore
from brokerha.sync.membership import PATIENCE_MS, UNDER_WAY
from tests.support.logs import memory_log
from tests.unit.sync.epoch_table import LAG_MS, STEP_MS
from tests.unit.sync.member_table import MemberTable

MOST_MASTERS = 6
QUIET_MS = 3 * PATIENCE_MS
"""Virtual time in which a healed cluster has to come together: wishes that cannot come true have failed by then."""


class MemberSchedule(MemberTable):
    """One schedule; see the head of the module."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.canon: list[TxId] = []
        self.accepted: dict[TxId, tuple[NodeId, str]] = {}
        """By id: the master, and the name of its journal."""
        self.excused: set[tuple[NodeId, str]] = set()
        """(node, journal) whose writes may be lost: emptied, or away when they were taken out."""
        self.emptied: set[NodeId] = set()
        self.down: dict[NodeId, int] = {}
        """When each dead one comes back."""
        self.cuts: dict[tuple[NodeId, NodeId], int] = {}
        self.count = 0
        self.loss, self.doubling, self.delay = rng.choice((0.0, 0.05, 0.2)), rng.choice((0.0, 0.1)), rng.choice((0.0, 0.3))
        self.crashes, self.splits = rng.choice((0.0, 0.003, 0.01)), rng.choice((0.0, 0.01))
        super().__init__(
            rng.choice((1, 2, 3, 3, 3, 4, 5)),
            acknowledge=rng.choice(("all", "majority", "present")),
            queue_window=rng.choice((1, 3, 20_000)),
            post_window=rng.choice((1, 4_000)),
        )

    # ---- the table

    def round(self, *names: NodeId) -> None:
        """As ever, but that a master may die before it wrote, after it, and between two messages."""
        for name in names or tuple(self.cores):
            result = self.cores[name].collect(self.instant(name))
            luck = self.rng.random()
            if luck < self.crashes / 3:
                self.die(name)
                continue
            if result.records:
                self.journals[name].append(result.records)
                self.check(name)
            letters = [(name, out) for out in result.messages]
            if luck < self.crashes:
                letters = letters[: self.rng.randint(0, len(letters))]
                self.die(name)
            self.mail.extend(letters)

    def die(self, name: NodeId) -> None:
        """A process ends, and comes back later."""
        self.crash(name)
        self.away(name)
        self.down[name] = self.now.mono_ms + self.rng.choice((100, 1_500, 5_000))

    def away(self, name: NodeId) -> None:
        """It is not there: what it holds need not be in the queue if it is taken out now."""
        self.excused.add((name, self.journals[name].state().journal))

    def check(self, name: NodeId) -> None:
        """S1 and S2 of one queue."""
        queue = self.queue(name)
        assert len(set(queue)) == len(queue), f"{name} has one twice: {queue}"
        if len(queue) > len(self.canon):
            self.canon, queue = queue, self.canon
        assert self.canon[: len(queue)] == queue, f"{name}: {queue} is no prefix of {self.canon}"

    # ---- one step

    def step(self) -> None:
        """Let a little time pass."""
        now_ms = self.now.mono_ms
        for name in [name for name, at_ms in self.down.items() if at_ms <= now_ms]:
            del self.down[name]
            self.start(name)
        self.cuts = {pair: at_ms for pair, at_ms in self.cuts.items() if at_ms > now_ms}
        self.round()
        self._deliver_some()
        self.pass_ms(STEP_MS)

    def _deliver_some(self) -> None:
        rng, kept = self.rng, []
        letters, self.mail = self.mail, []
        for sender, out in letters:
            if (sender, out.to) in self.cuts or out.to not in self.cores or rng.random() < self.loss:
                continue
            if rng.random() < self.delay:
                kept.append((sender, out))
                continue
            if rng.random() < self.doubling:
                kept.append((sender, out))
            self._hand_over(sender, out)
        rng.shuffle(kept)
        self.mail += kept

    def _hand_over(self, sender: NodeId, out: Outgoing) -> None:
        rest, self.mail = self.mail, [(sender, out)]
        self.deliver()
        self.mail += rest

    # ---- what happens

    def anything(self) -> None:
        """Something happens to somebody."""
        rng = self.rng
        luck = rng.random()
        if luck < 0.5:
            self.write_somewhere()
        elif luck < 0.65:
            self.wish_to_add()
        elif luck < 0.82:
            self.wish_to_remove()
        elif luck < 0.86 and self.crashes:
            self.lose_disk()
        elif luck < 0.90 and self.crashes and self.cores:
            self.die(rng.choice(sorted(self.cores)))
        elif luck < 0.92 and self.crashes:
            for name in list(self.cores):
                self.die(name)
        elif self.splits:
            self.cut_somebody()

    def write_somewhere(self) -> None:
        """A client writes at somebody who takes writes."""
        names = [n for n, core in sorted(self.cores.items()) if self.takes_writes(core)]
        if names:
            name = self.rng.choice(names)
            for _ in range(self.rng.choice((1, 1, 5))):
                self.count += 1
                self.write(name, f"t{self.count}")
                self.accepted[f"t{self.count}"] = name, self.cores[name].journal

    @staticmethod
    def takes_writes(core: SyncCore) -> bool:
        """As a master asks before it takes one in."""
        return not (core.lost or core.retired or core.epochs.membership.is_leaving)

    def wish_to_add(self) -> None:
        """Somebody is told to add a fresh node, or one that is there and no master."""
        configuration = self.last_configuration()
        others = [n for n in self.journals if n not in configuration]
        if len(self.journals) < MOST_MASTERS and self.rng.random() < 0.7:
            node = f"m{len(self.journals) + 1}"
            self.skew_us[node] = 0
            self.files[node] = tuple(sorted({*configuration, node}))
            self.journals[node] = memory_log(node, f"journal-of-{node}")
            self.start(node)
            others = [node]
        if others:
            node = self.rng.choice(others)
            if node in self.cores and self.cores[node].retired and self.rng.random() < 0.8:
                self.new_disk(node)
            self._tell("add", node)

    def wish_to_remove(self) -> None:
        """Somebody is told to take another one out."""
        configuration = self.last_configuration()
        if len(configuration) > 1:
            self._tell("remove", self.rng.choice(configuration))

    def _tell(self, kind: str, node: NodeId) -> None:
        names = [name for name in sorted(self.cores) if name != node]
        if not names:
            return
        at = self.rng.choice(names)
        try:
            getattr(self, kind)(at, node)
        except BrokerhaError:
            return

    def lose_disk(self) -> None:
        """One of several masters loses its disk; it is to be replaced by hand."""
        configuration = self.last_configuration()
        names = [name for name in configuration if name in self.cores]
        # One at a time: more than that no majority survives.
        if len(configuration) >= 3 and names and not self.emptied.intersection(configuration):
            name = self.rng.choice(names)
            # One that is lost before all know each other leaves a cluster that was never there.
            if not all(self.is_known_for_good(node) for node in configuration):
                return
            # Until the last change is established those before it count as well: two lost disks may be too many for them.
            if len({self.journals[node].state().promised_epoch for node in configuration}) > 1:
                return
            if len({state.installed and state.installed.id for state in (self.journals[n].state() for n in configuration)}) > 1:
                return
            self.emptied.add(name)
            self.crash(name)
            self.new_disk(name)

    def is_known_for_good(self, node: NodeId) -> bool:
        """Whether its journal says that it is known."""
        state = self.journals[node].state()
        count = state.streams[node].start + len(state.streams[node].entries) if node in state.streams else 0
        return bool(count or state.installed or node in state.peer_journals)

    def new_disk(self, name: NodeId) -> None:
        """Start with an empty journal."""
        self.away(name)
        self.cores.pop(name, None)
        self.down.pop(name, None)
        # Its file names the masters that there are: one that named itself alone would found a cluster of its own.
        self.files[name] = tuple(sorted({*self.last_configuration(), name}))
        self.journals[name] = memory_log(name, f"journal-{self.now.mono_ms}-of-{name}")
        self.start(name)

    def cut_somebody(self) -> None:
        """Links break for a while: of one master, of one pair, or one way."""
        names = sorted(self.journals)
        one = self.rng.choice(names)
        until_ms = self.now.mono_ms + self.rng.choice((500, 2 * LAG_MS, 5 * LAG_MS))
        others = self.rng.sample(names, self.rng.randint(1, len(names)))
        for other in others:
            self.cuts[one, other] = until_ms
            if self.rng.random() < 0.8:
                self.cuts[other, one] = until_ms
        self.away(one)
        for other in others:
            self.away(other)

    # ---- the run

    def last_configuration(self) -> tuple[NodeId, ...]:
        """Masters by the highest epoch that any journal has."""
        epochs = [state.installed for state in (j.state() for j in self.journals.values()) if state.installed]
        if not epochs:
            return tuple(n for n in self.names if len(self.files[n]) == len(self.names))
        return max(epochs, key=lambda epoch: epoch.id).configuration.masters

    def run(self, steps: int = 1_200) -> None:
        """Bad luck, then none."""
        for _ in range(steps):
            if self.rng.random() < 0.04:
                self.anything()
            self.step()
        self.heal()
        end_ms = self.now.mono_ms + QUIET_MS
        while missing := self.what_is_missing():
            assert self.now.mono_ms < end_ms, missing
            for _ in range(25):
                self.step()
            self._replace_lost()
        self.look_at_the_end()

    def heal(self) -> None:
        """No more bad luck."""
        self.loss = self.doubling = self.delay = self.crashes = 0.0
        self.cuts = {}
        self.down = dict.fromkeys(self.down, self.now.mono_ms)

    def _replace_lost(self) -> None:
        """An operator replaces whoever lost its disk, and takes out whom nobody can find."""
        configuration = self.last_configuration()
        for name in configuration:
            core = self.cores.get(name)
            at = next((n for n in configuration if n != name and n in self.cores and identity.is_known(self.cores[n])), None)
            if core is not None and at is not None and (core.lost or not identity.is_known(core)):
                wish = self.cores[at].epochs.membership.wish
                # Of the masters before the last change too many are gone for good: an operator may say so.
                is_forced = wish is not None and wish.state == UNDER_WAY and "not established" in wish.stage
                self._try_remove(at, name, is_forced=is_forced)

    def _try_remove(self, at: NodeId, name: NodeId, *, is_forced: bool) -> None:
        try:
            self.remove(at, name, is_forced=is_forced)
        except BrokerhaError:
            return

    def what_is_missing(self) -> str:
        """What keeps the masters apart."""
        configuration = self.last_configuration()
        epochs = set()
        for name in configuration:
            core = self.cores.get(name)
            if core is None:
                return f"{name} is dead"
            if core.lost or core.retired:
                return f"{name}: {core.lost or core.retired}"
            wish = core.epochs.membership.wish
            if wish is not None and wish.state == UNDER_WAY and wish.kind != ADD:
                return f"{name}: {wish.kind} {wish.node}: {wish.stage}"
            if core.is_busy() or core.is_standing_still():
                return f"{name} is busy, in {core.epoch.id} with {core.promised} promised"
            epochs.add(core.epoch.id)
            if core.epoch.members != configuration:
                return f"{name} is in {core.epoch.id} of {core.epoch.members}, the masters are {configuration}"
        return "" if len(epochs) == 1 else f"epochs {epochs} of {configuration}"

    def look_at_the_end(self) -> None:
        """One queue, with everything."""
        configuration = self.last_configuration()
        queues = {tuple(self.queue(name)) for name in configuration}
        assert queues == {tuple(self.canon)}, f"queues of {configuration}: {queues}"
        lost = {
            txid: place
            for txid, place in self.accepted.items()
            if txid not in self.canon
            and (place in self.retired() - self.excused or (place[0] in configuration and self._is_its(place)))
            and self._is_journalled(place, txid)
        }
        assert not lost, f"lost: {lost}; masters {configuration}, {self.canon}"

    def retired(self) -> set[tuple[NodeId, str]]:
        """(node, journal) of masters that were taken out."""
        return {place for core in self.cores.values() for place in core.epoch.configuration.retired}

    def _is_its(self, place: tuple[NodeId, str]) -> bool:
        return self.journals[place[0]].state().journal == place[1]

    def _is_journalled(self, place: tuple[NodeId, str], txid: TxId) -> bool:
        """Whether it was taken in durably, as far as the journal is there."""
        node, _ = place
        return not self._is_its(place) or self.journals[node].body(node, txid) is not None
