"""Random logs, written twice at once: both must give the same answers after every step.

One never starts again, holds every record in memory and never closes a segment; the other one has bounds so small that segments are
closed and dropped, ids are written and merged, and records are read back all the time, and starts again and again. A third one follows
them in batches of any size, trims by itself, and is replaced by a snapshot when the records that it needs are gone. A failing run prints
the shortest story.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from brokerha.log.copies import LogCopy
from brokerha.log.disks import MemoryDisk
from brokerha.log.log import Log
from brokerha.model.forgetting import forgetting_id
from brokerha.model.records import (
    ClockReserved,
    ContentTaken,
    EpochPromised,
    IdsTaken,
    MasterState,
    PeerJournal,
    PinsChanged,
    Record,
    Started,
    TxDecided,
    TxForgotten,
    TxPrepared,
    ViewStarted,
    WorkersChanged,
)
from brokerha.model.wire.codec import decode_record
from brokerha.ports.journal import Journal
from tests.contracts.journal_copy_contract import carry
from tests.support.logs import memory_log
from tests.unit.log.epochs import EpochModel
from tests.unit.log.turns import Author, agreed, everything

NODES = ("m1", "m2", "m3")
ENDS = st.booleans()
COUNTS = st.integers(min_value=1, max_value=6)
PLACES = st.integers(min_value=0, max_value=20)


class JournalMachine(RuleBasedStateMachine):
    """Each rule adds records to the turn at hand; `commit` appends it to both."""

    @initialize(cache_bytes=st.sampled_from([1, 400, 10_000]), bound=st.sampled_from([1, 5, 50]))
    def open(self, cache_bytes: int, bound: int) -> None:
        self.bounds: dict[str, Any] = {"cache_bytes": cache_bytes, "ids_held": bound, "segment_bytes": 40 * bound + cache_bytes}
        self.on_disk = Log(MemoryDisk(), "orders", "m1", name="j", **self.bounds)
        self.follower = Log(MemoryDisk(), "orders", "m1", name="j", **self.bounds)
        self.in_memory = memory_log("m1", "j")
        self.author = Author(*NODES)
        self.epochs = EpochModel(self.author)
        self.turn: list[Record] = []
        self.unstamped: dict[str, list[str]] = {node: [] for node in NODES}
        self.txids: list[str] = []
        self.incarnation = 0
        self.view = 0
        self.prepared: list[str] = []
        self.count = 0
        self.defers = False

    def _opened(self, log: Log) -> Log:
        return Log(log.disk, "orders", "m1", **self.bounds)

    def teardown(self) -> None:
        if hasattr(self, "on_disk"):
            assert [*self.on_disk.verify(), *self.follower.verify()] == []

    def _ids(self, count: int, again: int, node: str) -> list[str]:
        """New ids, and one that another node has already, when it is not held for this node yet."""
        ids = [f"t{len(self.txids) + n}" for n in range(count)]
        if again and self.txids:
            twice = self.txids[again % len(self.txids)]
            held_here = {txid for _, txid in self.author.streams[node]} | set(self.unstamped[node])
            if node == "m1":
                held_here |= self.epochs.accepted
            # A transaction that has an LSN already is attached to it by the core, unless it came with a peer's stream.
            if twice not in held_here and (node != "m1" or not self.author.knows(twice)):
                ids.append(twice)
        self.txids += ids
        self.unstamped[node] += ids
        return ids

    @rule(count=COUNTS, again=st.integers(min_value=0, max_value=20), ends=ENDS)
    def accept(self, count: int, again: int, ends: bool) -> None:
        ids = self._ids(count, again, "m1")
        self.epochs.accept(ids)
        self._take(ends, self.author.accept(*ids))

    @rule(count=COUNTS, again=st.integers(min_value=0, max_value=20), ends=ENDS)
    def hold(self, count: int, again: int, ends: bool) -> None:
        mine = self.author.hold("m2", *self._ids(count, again, "m2"))
        others = self.author.hold("m3", *self._ids(count // 2, 0, "m3"))
        self._take(ends, type(mine)(mine.items + others.items))

    @rule(count=COUNTS, ends=ENDS)
    def hold_again(self, count: int, ends: bool) -> None:
        """A body comes a second time while it has no LSN."""
        if waiting := self.unstamped["m2"][:count]:
            self._take(ends, self.author.hold("m2", *waiting))

    @rule(count=COUNTS, node=st.sampled_from(NODES), skip=st.integers(min_value=0, max_value=2), ends=ENDS)
    def append(self, count: int, node: str, skip: int, ends: bool) -> None:
        ids = self.unstamped[node][skip : skip + count]
        if ids:
            del self.unstamped[node][skip : skip + count]
            self._take(ends, self.author.append(node, *ids))

    @rule(count=st.integers(min_value=1, max_value=12), ends=ENDS)
    def add(self, count: int, ends: bool) -> None:
        """What streams bring comes after all that was recovered, in one record with the rest of it."""
        self._take(ends, self.epochs.add(count))

    @rule(count=COUNTS, ends=ENDS)
    def add_recovered(self, count: int, ends: bool) -> None:
        self._take(ends, self.epochs.add_recovered(count))

    @rule(count=COUNTS, seed=PLACES, ends=ENDS)
    def add_tail(self, count: int, seed: int, ends: bool) -> None:
        """What others have synchronised already, whether it stands in a stream here or is parked."""
        self._take(ends, self.epochs.add_tail(count, seed, self.unstamped["m1"]))

    @rule(rises=st.integers(min_value=1, max_value=3), ends=ENDS)
    def promise_epoch(self, rises: int, ends: bool) -> None:
        self.epochs.promised += rises
        self._take(ends, EpochPromised((self.epochs.promised, "m2")))

    @rule(
        count=st.integers(min_value=0, max_value=12),
        seed=PLACES,
        gaps=st.lists(st.integers(min_value=0, max_value=3), min_size=3, max_size=3),
        ends=ENDS,
    )
    def install_epoch(self, count: int, seed: int, gaps: list[int], ends: bool) -> None:
        record = self.epochs.install(count, seed, dict(zip(NODES, gaps, strict=True)), self.unstamped["m1"])
        self.unstamped["m1"] = self.epochs.parked()
        self._take(ends, record)

    @rule(count=COUNTS, seed=PLACES, pages_end=ENDS, ends=ENDS)
    def take_state(self, count: int, seed: int, pages_end: bool, ends: bool) -> None:
        """The state of another master comes in two pages, in one turn or in several."""
        page, record = self.epochs.take_state(count, seed, self.unstamped["m1"])
        self.txids += [txid for txid, _ in page.ids]
        middle = len(page.ids) // 2
        self.turn.append(IdsTaken(page.ids[:middle], ()))
        if pages_end:
            self.on_disk.append(self.turn)
            self.in_memory.append(self.turn)
            self.turn = []
        self._take(ends, IdsTaken(page.ids[middle:], page.rejections), record)

    @rule(count=st.integers(min_value=0, max_value=12), ends=ENDS)
    def execute(self, count: int, ends: bool) -> None:
        self._take(ends, self.author.execute(count))

    @rule(lsn=st.integers(min_value=0, max_value=60), ends=ENDS)
    def rebase(self, lsn: int, ends: bool) -> None:
        self._take(ends, self.author.rebase(min(lsn, self.author.lsn)))

    @rule(switched_on=st.booleans(), ends=ENDS)
    def change_workers(self, switched_on: bool, ends: bool) -> None:
        self._take(ends, WorkersChanged((("w1", True, switched_on),)))

    @rule(lsns=st.lists(COUNTS, max_size=2), ends=ENDS)
    def change_pins(self, lsns: list[int], ends: bool) -> None:
        self._take(ends, PinsChanged(tuple((f"p{place}", lsn, 10) for place, lsn in enumerate(lsns))))

    @rule(splits=COUNTS, ends=ENDS)
    def take_content(self, splits: int, ends: bool) -> None:
        self._take(ends, ContentTaken(splits))

    @rule(peer=st.sampled_from(NODES), high_water=COUNTS, ends=ENDS)
    def small_records(self, peer: str, high_water: int, ends: bool) -> None:
        self.incarnation += 1
        self._take(
            ends,
            Started(self.incarnation),
            ClockReserved(10_000 * self.incarnation + high_water),
            PeerJournal(peer, f"journal-{self.incarnation}"),
        )

    @rule(size=st.sampled_from([0, 5_000]), ends=ENDS)
    def prepare(self, size: int, ends: bool) -> None:
        self.count += 1
        self.prepared.append(f"p{self.count}")
        self._take(ends, TxPrepared(self.prepared[-1], "", b"p" * size, ("m1-b",), self.count))

    @precondition(lambda self: self.prepared)
    @rule(place=PLACES, is_commit=st.booleans(), is_heuristic=st.booleans(), ends=ENDS)
    def decide(self, place: int, is_commit: bool, is_heuristic: bool, ends: bool) -> None:
        txid = self.prepared.pop(place % len(self.prepared))
        self._take(ends, TxDecided(txid, is_commit, f"because of {place}", is_heuristic))

    @rule(place=PLACES, ends=ENDS)
    def forget_decision(self, place: int, ends: bool) -> None:
        self._take(ends, TxForgotten(f"p{place}"))

    @rule(ends=ENDS)
    def start_view(self, ends: bool) -> None:
        self.view += 1
        self._take(ends, ViewStarted(self.view, "m1-b"))

    def _take(self, ends: bool, *records: Record) -> None:
        self.turn += records
        if ends:
            self.commit()

    @rule(defers=st.booleans())
    def choose(self, defers: bool) -> None:
        """From now on turns wait in memory for the next write, or not: nobody who reads can tell."""
        self.defers = defers

    @rule()
    def settle(self) -> None:
        self.on_disk.settle()

    @rule()
    def commit(self) -> None:
        if self.defers:
            self.on_disk.defer(self.turn)
        else:
            self.on_disk.append(self.turn)
        self.in_memory.append(self.turn)
        self.turn = []

    @precondition(lambda self: not self.turn)
    @rule(below=st.integers(min_value=0, max_value=60))
    def trim(self, below: int) -> None:
        assert self.on_disk.trim(below) == self.in_memory.trim(below)

    @precondition(lambda self: not self.turn)
    @rule(back=st.integers(min_value=0, max_value=9))
    def forget_ids(self, back: int) -> None:
        """A master proposes it below what it holds; the entry gets its place like others."""
        txid = forgetting_id(max(1, self.in_memory.first_lsn() - back))
        if txid not in self.txids:
            self.txids.append(txid)
            self.unstamped["m2"].append(txid)
            self.turn = [self.author.hold("m2", txid)]
            self.commit()

    @precondition(lambda self: not self.turn)
    @rule()
    def restart(self) -> None:
        self.on_disk.close()
        self.on_disk = self._opened(self.on_disk)

    @precondition(lambda self: not self.turn)
    @rule()
    def merge_ids(self) -> None:
        while self.on_disk.keep(0):
            pass

    @precondition(lambda self: not self.turn)
    @rule(limit_bytes=st.sampled_from([1, 200, 2_000, 1 << 30]), steps=st.integers(min_value=1, max_value=4))
    def follow(self, limit_bytes: int, steps: int) -> None:
        for _ in range(steps):
            self._follow(limit_bytes)

    def _follow(self, limit_bytes: int) -> None:
        first, last = self.follower.last_number + 1, self.on_disk.last_number
        found = self.on_disk.numbered(first, last, limit_bytes)
        assert found == self.in_memory.numbered(first, last, limit_bytes)
        if found is None:
            self._load_follower()
        else:
            self.follower.follow([(number, decode_record(data)) for number, data in found])

    def _load_follower(self) -> None:
        self.on_disk.settle()
        source = LogCopy(self.on_disk.disk, "orders", "m1", chunk_bytes=500, **self.bounds)
        follower = LogCopy(self.follower.disk, "orders", "m1", **self.bounds)
        self.on_disk = source.journal
        carry(source, follower)
        follower.open_load()
        self.follower = follower.journal
        source.clear_snapshots()

    @rule(below=st.integers(min_value=0, max_value=60))
    def trim_follower(self, below: int) -> None:
        self.follower.trim(below)

    @rule()
    def restart_follower(self) -> None:
        self.follower.close()
        self.follower = self._opened(self.follower)

    @precondition(lambda self: not self.turn)
    @rule()
    def follow_to_the_end(self) -> None:
        self._follow(1 << 30)
        found = agreed(self.follower, self.on_disk, self.txids, NODES)
        assert found == agreed(self.on_disk, self.follower, self.txids, NODES)

    @precondition(lambda self: not self.turn)
    @rule(limit=COUNTS, up_to=st.integers(min_value=0, max_value=60))
    def both_remember_the_same(self, limit: int, up_to: int) -> None:
        assert self._remembered(self.on_disk, limit, up_to) == self._remembered(self.in_memory, limit, up_to)

    @staticmethod
    def _remembered(journal: Journal, limit: int, up_to: int) -> tuple[list[tuple[str, int]], list[tuple[int, str]]]:
        pages = [journal.remembered(b"", up_to, limit)]
        while pages[-1].next_cursor:
            pages.append(journal.remembered(pages[-1].next_cursor, up_to, limit))
        ids = [row for page in pages for row in page.ids]
        return sorted(ids), sorted(row for page in pages for row in page.rejections)

    @precondition(lambda self: not self.turn)
    @rule()
    def verify(self) -> None:
        assert list(self.on_disk.verify()) == []

    @invariant()
    def both_say_the_same(self) -> None:
        if hasattr(self, "on_disk") and not self.turn:
            assert everything(self.on_disk, self.txids, NODES) == everything(self.in_memory, self.txids, NODES)

    @invariant()
    def the_state_is_what_the_author_wrote(self) -> None:
        if hasattr(self, "on_disk") and not self.turn:
            state: MasterState = self.on_disk.state()
            assert state.lsn == self.author.lsn
            assert state.parked == self.unstamped["m1"]
            assert state.installed == self.epochs.installed
            assert state.promised_epoch[0] == self.epochs.promised
            for node, entries in self.author.streams.items():
                if entries:
                    used = self.author.used[node]
                    assert state.streams[node] == (used, entries[used:])


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
