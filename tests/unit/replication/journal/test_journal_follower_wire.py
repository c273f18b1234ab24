"""Both halves of following a journal over a wire that loses, repeats and reorders, with restarts, trims, loads and new primaries.

Each seed is a history of some hundred steps; then the wire is mended, and all journals have to be the primary's, byte by byte.
On the way: what a backup confirmed it has, and what one backup had confirmed is in the journal of every later primary.
"""

from __future__ import annotations

from random import Random

import pytest

from brokerha.following.loading import LoadConfig
from brokerha.model.ids import NodeId, TxId
from brokerha.model.records import Accepted, Outcomes, Rebased, Record, TxDecided, TxPrepared
from brokerha.model.wire.codec import decode_record
from brokerha.replication.journal.follower import JournalFollower
from brokerha.replication.journal.log import AnswerLimits
from tests.unit.replication.journal_table import JournalTable
from tests.unit.replication.plain_log import filler

SMALL_FEED = {"window_bytes": 2000, "window_records": 40, "message_bytes": 500, "memory_bytes": 1500, "resend_ms": 300}
SMALL_FOLLOWER = {
    "batch_bytes": 700,
    "line_bytes": 3000,
    "coin_again_ms": 200,
    "fill_wait_ms": 50,
    "answer": AnswerLimits(400, 1500),
    "load": LoadConfig(ask_ms=50, chunk_wait_ms=60, patience_ms=500),
}


class Chaos:
    """One history."""

    def __init__(self, seed: int, *, has_elections: bool) -> None:
        self.random = Random(seed)
        self.has_elections = has_elections
        self.table = JournalTable("p0", "p1", "p2", same_name=seed % 3 > 0, feed=SMALL_FEED, follower=SMALL_FOLLOWER)
        self.down: dict[NodeId, int] = {}
        self.view = 10
        self.written = 0
        self.acknowledged: dict[int, bytes] = {}
        self.mail_lost = self.random.choice([0.0, 0.05, 0.3])

    def step(self) -> None:
        """Something happens."""
        table, random = self.table, self.random
        for _ in range(random.randrange(4) if table.processes[table.primary].feed is not None else 0):
            table.write(*self.turn_of_primary())
        random.choice([self.nothing, self.nothing, self.nothing, self.crash, self.trim, self.elect])()
        for name in [name for name, until in self.down.items() if table.ms >= until]:
            self.up(name)
        self.harm()
        table.round(lambda _sender, _out: random.random() >= self.mail_lost, random.choice([1, 10, 40]))
        self.check()

    def turn_of_primary(self) -> list[Record]:
        """Records of one turn: plain ones, results that become void, transactions."""
        random, process = self.random, self.table.processes[self.table.primary]
        self.written += 1
        txid = f"t{self.written}"
        choice = random.randrange(10)
        if choice == 0:
            return [Outcomes(1, (("applied", "", b"e" * random.randrange(90), b"f"),), 0)]
        if choice == 1 and random.random() < 0.3:
            return [Rebased(0, b"", 0, "because")]
        if choice in (2, 3, 4) and len(process.log.prepared) < 5:
            participants = tuple(name for name in self.table.feed.ready() if random.random() < 0.8)
            body = txid.encode() * random.randrange(1, 40)
            for name in participants:
                self.tell_body(name, txid, body)
            return [TxPrepared(txid, "", body, participants, 0)]
        if choice in (5, 6, 7) and process.log.prepared:
            prepared = random.choice(list(process.log.prepared.values()))
            if choice == 7:
                return [TxDecided(prepared.txid, is_commit=False, reason="no")]
            accepted = Accepted(((txid, b"plain"), (prepared.txid, prepared.body)))
            return [TxDecided(prepared.txid, is_commit=True, reason=""), accepted]
        return [filler(self.written, random.randrange(60)) for _ in range(random.randrange(1, 5))]

    def tell_body(self, name: NodeId, txid: TxId, body: bytes) -> None:
        """The queue of the transaction brings its body to a participant, or is lost with it."""
        follower = self.table.processes[name].follower
        if follower is not None and self.random.random() < 0.7:
            follower.on_prepared_body(txid, body)

    def nothing(self) -> None:
        """Nothing happens."""

    def crash(self) -> None:
        """A process dies for a while; its disk stays."""
        name = self.random.choice(self.table.names)
        if self.random.random() < 0.3 and not self.down and (self.has_elections or name != self.table.primary):
            self.table.crash(name)
            self.down[name] = self.table.ms + self.random.randrange(3000)

    def up(self, name: NodeId) -> None:
        """It is back, as a backup, or as the primary of a new view when nobody else is."""
        del self.down[name]
        if self.table.processes[name].feed is None and self.table.processes[name].follower is None:
            self.table.start(name)
        if name == self.table.primary and self.table.processes[name].feed is None:
            self.elect(is_forced=True)

    def trim(self) -> None:
        """A journal forgets its beginning."""
        log = self.table.processes[self.random.choice(self.table.names)].log
        if self.random.random() < 0.2:
            log.trim(log.last_number - self.random.randrange(60))

    def elect(self, *, is_forced: bool = False) -> None:
        """Whoever is ahead of at least one other becomes primary; these two promise not to follow an older view."""
        if not self.has_elections or (self.random.random() < 0.7 and not is_forced):
            return
        alive = [name for name in self.table.names if name not in self.down]
        if len(alive) < 2:
            return
        voters = self.random.sample(alive, 2)
        logs = {name: self.table.processes[name].log for name in voters}
        winner = max(voters, key=lambda name: logs[name].history.position(logs[name].last_number))
        voter = next(name for name in voters if name != winner)
        if self.is_loading(winner):
            return
        self.view = self.view // 10 * 10 + 10 + self.table.names.index(winner)
        for name in voters:
            logs[name].promised = self.view
        if self.table.processes[voter].feed is not None:
            self.table.start(voter)
        self.table.follower(voter).refuse_below(self.view)
        if self.table.processes[winner].feed is not None:
            self.table.start(winner)
        self.table.lead(winner, self.view)
        mine = self.table.processes[winner].log
        lost = [n for n, data in self.acknowledged.items() if n >= mine.kept_from and mine.items.get(n, data) != data]
        assert not lost
        assert not [n for n in self.acknowledged if n > mine.last_number]

    def is_loading(self, name: NodeId) -> bool:
        """Whether the journal of a process is about to be replaced: then it does not stand for primary."""
        follower: JournalFollower | None = self.table.processes[name].follower
        return follower is not None and follower.state == "load"

    def harm(self) -> None:
        """What is under way is repeated and comes in another order."""
        random, mail = self.random, self.table.mail
        mail += [letter for letter in mail if random.random() < 0.1]
        if random.random() < 0.3:
            random.shuffle(mail)
        late = [letter for letter in mail if random.random() < 0.1]
        self.table.mail = [letter for letter in mail if letter not in late] + late[: random.randrange(len(late) + 1)]

    def check(self) -> None:
        """What was confirmed is there, and counts as acknowledged as soon as one backup has it.

        No journal ever ends between the decision to commit a transaction and the record that accepts it.
        """
        for each_process in self.table.processes.values():
            end = each_process.log.items.get(each_process.log.last_number)
            assert end is None or not is_commit(decode_record(end))
        process = self.table.processes[self.table.primary]
        if process.feed is None:
            return
        for name, number in process.feed.confirmations().items():
            log = self.table.processes[name].log
            assert number <= process.feed.last_number
            for each in range(max(log.kept_from, process.log.kept_from, number - 30), number + 1):
                right = process.log.items.get(each)
                assert right is None or log.items.get(each) in (right, None), (name, each)
        confirmed = max(process.feed.confirmations().values(), default=0)
        for each in range(max(1, confirmed - 40), confirmed + 1):
            if each in process.log.items:
                self.acknowledged[each] = process.log.items[each]

    def mend(self) -> None:
        """The wire is whole again, and everybody runs."""
        for name in list(self.down):
            self.up(name)
        self.mail_lost = 0.0
        for _ in range(400):
            self.table.round(step_ms=50)
            if self.table.processes[self.table.primary].feed is None:
                self.elect(is_forced=True)
            elif self.table.are_equal() and len(self.table.feed.ready()) == 2:
                return


def is_commit(record: Record) -> bool:
    return isinstance(record, TxDecided) and record.is_commit


def run(seed: int, steps: int, *, has_elections: bool) -> Chaos:
    chaos = Chaos(seed, has_elections=has_elections)
    for _ in range(steps):
        chaos.step()
    chaos.mend()
    return chaos


@pytest.mark.parametrize("seed", [*range(30), 3024, 5041])
def test_backups_end_with_exactly_the_records_of_a_primary_that_stays(seed: int) -> None:
    chaos = run(seed, 150, has_elections=False)
    assert chaos.table.differences() == []
    assert chaos.table.feed.ready() == ("p1", "p2")


@pytest.mark.parametrize("seed", range(40))
def test_backups_end_with_exactly_the_records_of_the_last_primary(seed: int) -> None:
    chaos = run(1000 + seed, 150, has_elections=True)
    assert chaos.table.differences() == []
    assert len(chaos.table.feed.ready()) == 2
