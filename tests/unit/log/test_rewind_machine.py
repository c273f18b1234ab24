"""Random logs whose queue goes back now and then, written twice at once, and followed: all must say the same.

`JournalMachine` makes all other records. What was given up may come again, in any order, with an LSN of its own, or never.
"""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, precondition, rule

from brokerha.model.ids import Ordered
from brokerha.model.records import Accepted, BodiesHeld, Record
from tests.unit.log.test_machine import COUNTS, ENDS, NODES, PLACES, JournalMachine
from tests.unit.log.turns import agreed, body_of


class RewindMachine(JournalMachine):
    """`rewind` begins with an empty turn, as it asks the journals where they may go back to."""

    given: list[Ordered]

    @precondition(lambda self: not self.turn)
    @rule(back=st.integers(min_value=0, max_value=12), ends=ENDS)
    def rewind(self, back: int, ends: bool) -> None:
        lsn = max(self.author.lsn - back, self.in_memory.first_lsn() - 1)
        removed = self.in_memory.ordered(lsn + 1, back)
        # Whoever stood there under another name is a duplicate no more: own ones wait again.
        own = {txid for _, txid, _ in removed if self._waits_again(txid)}
        self.given = [*getattr(self, "given", []), *removed]
        self.epochs.recovered = []
        self.epochs._open.update(dict.fromkeys(own))
        parked = own | set(self.unstamped["m1"])
        self.unstamped["m1"] = [txid for txid in self._accepted() if txid in parked]
        self.epochs._open = {txid: None for txid in self._accepted() if txid in self.epochs._open}
        self._take(ends, self.author.go_back(lsn))

    def _accepted(self) -> list[str]:
        """Own transactions whose bodies are held, in the order in which they were accepted."""
        held = dict.fromkeys(
            txid for _, record in self.in_memory.records() if isinstance(record, Accepted) for txid, _ in record.items
        )
        return [txid for txid in held if self.in_memory.body("m1", txid) is not None]

    def _waits_again(self, txid: str) -> bool:
        content = self.in_memory._content
        return txid not in content.places["m1"] and self.in_memory.body("m1", txid) is not None

    @precondition(lambda self: not self.turn and bool(getattr(self, "given", None)))
    @rule(count=COUNTS, seed=PLACES, ends=ENDS)
    def bring_again(self, count: int, seed: int, ends: bool) -> None:
        """A tail has some of what was given up; bodies that are gone come with it."""
        Random(seed).shuffle(self.given)
        once = {entry[1]: entry for entry in self.given if not self.author.knows(entry[1])}
        entries = list(once.values())[:count]
        lacking = [(o, t, body_of(t, o)) for _, t, o in entries if o != "m1" and self.in_memory.body(o, t) is None]
        entries = [e for e in entries if e[2] != "m1" or self.in_memory.body("m1", e[1]) is not None]
        records: list[Record] = [BodiesHeld(tuple(lacking))] if lacking else []
        added = self.author.bring(entries)
        self.epochs._finish(added)
        for _, txid, origin in entries:
            if origin == "m1" and txid in self.unstamped["m1"]:
                self.unstamped["m1"].remove(txid)
        self._take(ends, *records, added)

    @precondition(lambda self: not self.turn)
    @rule()
    def follow_to_the_end(self) -> None:
        self._follow(1 << 30)
        follower = agreed(self.follower, self.on_disk, self.txids, NODES)
        source = agreed(self.on_disk, self.follower, self.txids, NODES)
        for name in ("last", "lsns", "ordered", "results", "rejections", "fingerprints"):
            assert follower[name] == source[name], name
        assert self.follower.state().parked == self.on_disk.state().parked
        assert self.follower.splits() == self.on_disk.splits()

    @invariant()
    def both_books_say_the_same(self) -> None:
        if hasattr(self, "on_disk") and not self.turn:
            splits = self.in_memory.splits()
            assert self.on_disk.splits() == splits
            for split in splits:
                assert self.on_disk.given_up(split.number, 0, 99) == self.in_memory.given_up(split.number, 0, 99)


TestRewindMachine = RewindMachine.TestCase
TestRewindMachine.settings = settings(
    max_examples=30,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
