"""The table of masters with short times, and words for what happens between epochs.

table = EpochTable()                   m1 m2 m3 that know each other
table.live(2000, without("m3"))        two seconds in which m3 neither hears nor is heard
assert table.epoch("m1") == ("m1", "m2")
table.prepare("m2", (9, "m3"))         m3 asks m2 to promise
"""

from __future__ import annotations

from brokerha.model.epochs import Configuration, Epoch, EpochId, first_epoch
from brokerha.model.ids import NodeId, TxId
from brokerha.model.records import EpochInstalled, EpochPromised, Record
from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare, EpochRefused, EpochReport
from brokerha.model.wire.messages import Message, Outgoing, Post
from brokerha.sync.splits.choosing import Choice as ModeChoice
from tests.unit.paper.masters import Choice, Table

LAG_MS = 1000
STEP_MS = 20
ABOUT_EPOCHS = (EpochPrepare, EpochReport, EpochRefused, EpochInstall)


def everything(_sender: str, _out: Outgoing) -> bool:
    """All links work."""
    return True


def no_word_of_epochs(_sender: str, out: Outgoing) -> bool:
    """Only posts, bodies and what is asked for get through."""
    return not isinstance(out.message, ABOUT_EPOCHS)


class EpochTable(Table):
    """Masters that know each other, with a lag of one second."""

    def __init__(self, masters: int = 3, **settings: object) -> None:
        times = {"max_peer_lag_ms": LAG_MS, "idle_round_ms": 200, "round_timeout_ms": 100, "retransmit_ms": 50}
        super().__init__(masters, **{**times, **settings})
        self.live(200)

    def live(self, for_ms: int, choice: Choice = everything) -> None:
        """Let time pass, with whatever gets through meanwhile."""
        self.settle(for_ms // STEP_MS, STEP_MS, choice)

    def live_by_deadlines(self, for_ms: int, choice: Choice = everything) -> int:
        """The same, but each master runs only when something came for it or it wanted to be woken; returns how many rounds."""
        end_ms, count = self.now.mono_ms + for_ms, 0
        awake = set(self.cores)
        while True:
            for name in sorted(awake):
                self.round(name)
                count += 1
            self.lose(lambda sender, out: not choice(sender, out))
            due = [at for core in self.cores.values() if (at := core.deadline_ms()) is not None]
            next_ms = self.now.mono_ms + 1 if self.mail else max(self.now.mono_ms + 1, min(due))
            if next_ms > end_ms:
                return count
            self.pass_ms(next_ms - self.now.mono_ms)
            came = {out.to for _, out in self.mail}
            self.deliver()
            woken = {n for n, core in self.cores.items() if (core.deadline_ms() or end_ms) <= next_ms or core.posting.has_more}
            awake = (came & set(self.cores)) | woken

    def tell(self, to: NodeId, message: Message, sender: NodeId) -> None:
        """A message comes; nothing happens before the next round."""
        core, now = self.cores[to], self.instant(to)
        if isinstance(message, Post):
            core.on_post(sender, message, now)
        else:
            core.epochs.on_message(core, sender, message, now)

    def prepare(self, to: NodeId, epoch: EpochId, sender: NodeId = "") -> list[Outgoing]:
        """Its proposer asks for a promise; returns what the other one says about it."""
        self.tell(to, EpochPrepare(epoch), sender or epoch[1])
        return self.said(to)

    def attempt(self, name: NodeId) -> list[Outgoing]:
        """A master begins a change of epoch now, whatever the time is; returns what it asks."""
        core, now = self.cores[name], self.instant(name)
        core.epochs.promise(core, core.epochs.proposing.begin_attempt(core, now.mono_ms), now)
        core.epochs._asked[name] = core.promised
        return self.said(name)

    def said(self, name: NodeId) -> list[Outgoing]:
        """Run a round of one master; returns what it sends about epochs and of its queue."""
        before = len(self.sent)
        self.round(name)
        return [out for _, out in self.sent[before:] if not isinstance(out.message, Post)]

    def install(self, to: NodeId, epoch: Epoch, sender: NodeId = "") -> None:
        """Its proposer tells what was decided, and a round follows."""
        self.tell(to, EpochInstall(epoch), sender or epoch.proposer)
        self.round(to)

    def choose(self, name: NodeId, mode: str) -> ModeChoice:
        """Tell one master what becomes of splits from now on."""
        core = self.cores[name]
        return core.epochs.choosing.choose(core, mode, self.instant(name))

    def members(self, name: NodeId) -> tuple[NodeId, ...]:
        """Of the epoch of one master."""
        return self.cores[name].epoch.members

    def is_frozen(self, name: NodeId) -> bool:
        """Whether a master has promised more than it has installed."""
        core = self.cores[name]
        return core.is_frozen()

    def restart(self, name: NodeId) -> None:
        """Stop a master and start it from its journal."""
        self.crash(name)
        self.start(name)

    def epoch_records(self, name: NodeId) -> list[Record]:
        """What a journal holds about epochs."""
        records = [record for _, record in self.journals[name].records()]
        return [record for record in records if isinstance(record, EpochPromised | EpochInstalled)]

    def make_queue(self, *txids: TxId) -> None:
        """Synchronise transactions of m1 at all masters."""
        self.write("m1", *txids)
        self.live(400)

    def next_epoch(self, number: int, proposer: NodeId, *members: NodeId, **said: object) -> Epoch:
        """An epoch that goes on at the queue of its proposer and behind all streams of its members."""
        cores = [self.cores[node] for node in members]
        base = self.cores[proposer]
        fields = {
            "base_lsn": base.lsn,
            "base_txid": base.last()[1],
            "starts": {o: max(core.counts[o] for core in cores) for o in self.names},
            "above": max(core.clock.last for core in cores),
            "configuration": Configuration(self.names, journals={node: f"journal-of-{node}" for node in members}),
            **said,
        }
        return Epoch(number, proposer, tuple(sorted(members)), **fields)  # type: ignore[arg-type]

    def first(self) -> Epoch:
        """The one in which all begin."""
        return first_epoch(self.names)
