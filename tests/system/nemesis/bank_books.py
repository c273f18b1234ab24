"""What tellers were told and what readers saw of a bank, and the judgement of it: no money made or lost, no promise broken.

    books.told(attempt)                    a transfer ended, and this is what its client was told
    books.seen(node, look)                 a reader read all places at one LSN
    books.judge(ledger, final, opening)    every fault, in words; none when all is well

A client is told one of: committed (then it took place, once), aborted or given up before the commit (then it did not), unknown (then
`resolve` says later which of the two, and that is true).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.system.nemesis.bank import TOTAL, Changes, Look

COMMITTED, ABORTED, UNKNOWN, GIVEN_UP = "committed", "aborted", "unknown", "given up"
FAULTS_LIMIT: Final = 20


class Attempt(NamedTuple):
    """One try of one transfer."""

    name: str
    """Its key in the ledger, which no other attempt has."""
    txid: str
    told: str
    changes: Changes


class BankBooks:
    """Callable from all threads."""

    def __init__(self, total: int = TOTAL) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.looks: Counter[str] = Counter()
        """Reads of each node."""
        self.faults: list[str] = []
        """What a look alone shows to be wrong; the first ones of it."""
        self.resolved: dict[str, str] = {}
        """Unknown outcomes, as they were told later."""
        self._total = total
        self._at: dict[int, tuple[str, dict[str, int]]] = {}
        self._lock = threading.Lock()

    def told(self, attempt: Attempt) -> None:
        """Remember how an attempt ended."""
        with self._lock:
            assert attempt.name not in self.attempts, attempt
            self.attempts[attempt.name] = attempt

    def resolve(self, name: str, told: str) -> None:
        """What became of an unknown one: `COMMITTED` or `ABORTED`."""
        self.resolved[name] = told

    def seen(self, node: str, look: Look) -> None:
        """Judge one read."""
        with self._lock:
            self.looks[node] += 1
            if look.total != self._total:
                self._fault(f"{node} read a total of {look.total} at LSN {look.lsn}, not {self._total}: {look.places}")
            other, places = self._at.setdefault(look.lsn, (node, look.places))
            if places != look.places:
                where = {p: (places.get(p), look.places.get(p)) for p in places.keys() | look.places.keys()}
                differs = {place: both for place, both in where.items() if both[0] != both[1]}
                self._fault(f"at LSN {look.lsn} {other} and {node} read different balances: {differs}")

    def count(self, told: str) -> int:
        """Attempts that ended like this."""
        return sum(1 for attempt in list(self.attempts.values()) if attempt.told == told)

    def unknown(self) -> list[Attempt]:
        """Attempts whose clients were told that the outcome is unknown."""
        return [attempt for attempt in self.attempts.values() if attempt.told == UNKNOWN]

    def judge(self, ledger: Mapping[str, Changes], final: Look, opening: Look) -> list[str]:
        """Compare what was told with what took place. Returns every fault."""
        faults = list(self.faults)
        for attempt in self.attempts.values():
            told = self.resolved.get(attempt.name, attempt.told)
            is_there = attempt.name in ledger
            if told == UNKNOWN:
                faults.append(f"nobody said what became of {attempt.name} ({attempt.txid})")
            elif told == COMMITTED and not is_there:
                faults.append(f"{attempt.name} ({attempt.txid}) was told committed and is lost")
            elif told != COMMITTED and is_there:
                faults.append(f"{attempt.name} ({attempt.txid}) was told {told} and took place")
            elif is_there and ledger[attempt.name] != attempt.changes:
                faults.append(f"{attempt.name} changed {ledger[attempt.name]}, and was to change {attempt.changes}")
        faults += [f"{name} is in the ledger and nobody sent it" for name in ledger if name not in self.attempts]
        expected = Counter(opening.places)
        for changes in ledger.values():
            expected.update(changes)
        for place in expected.keys() | final.places.keys():
            if expected[place] != final.places.get(place, 0):
                faults.append(
                    f"{place} holds {final.places.get(place, 0)}; its transfers add up to {expected[place]}: "
                    "one took place twice, or in part"
                )
        return faults

    def _fault(self, text: str) -> None:
        if len(self.faults) < FAULTS_LIMIT:
            self.faults.append(text)
