"""What a journal must know about epochs, in the words of a test: the model beside `Author` for random logs.

model = EpochModel(author)
model.accept(["a"])                     own transactions, in their order
model.install(3, 5, {"m1": 2}, [])      EpochInstalled: recovers up to three of what waits, chosen by the seed 5
model.add_recovered(2)                  Added: the next two of them
model.add(4)                            Added: all that is left of them, then four entries of the streams
model.take_state(2, 5, [])              IdsTaken, StateTaken: others have synchronised two of what waits, and more
model.parked()                          what must be parked after an install
"""

from __future__ import annotations

from random import Random

from brokerha.model.epochs import Epoch
from brokerha.model.ids import Ordered
from brokerha.model.records import Added, EpochInstalled, IdsTaken, StateTaken
from tests.unit.log.turns import Author


class EpochModel:
    """Follows which own transactions are finished, and what was recovered and not added."""

    def __init__(self, author: Author) -> None:
        self.author = author
        self.installed: Epoch | None = None
        self.promised = 1
        self.recovered: list[Ordered] = []
        """What the last epoch recovered and is not added yet."""
        self.accepted: set[str] = set()
        """Own transactions."""
        self._open: dict[str, None] = {}
        """Own transactions that have no LSN and were not used up as duplicates, in the order of their acceptance."""

    def accept(self, txids: list[str]) -> None:
        self.accepted.update(txids)
        self._open.update(dict.fromkeys(txids))

    def parked(self) -> list[str]:
        """All own transactions that are open and not recovered: the streams are empty."""
        assert self.installed is not None
        recovered = {txid for _, txid, origin in self.installed.recovered if origin == self.author.own}
        return [txid for txid in self._open if txid not in recovered]

    def add(self, count: int) -> Added:
        own = self.author.own
        before = self.author.used[own]
        record = self.author.add(count, before=self._next_recovered(len(self.recovered)))
        self._finish(record)
        for _, txid in self.author.streams[own][before : self.author.used[own]]:
            self._open.pop(txid, None)
        return record

    def add_recovered(self, count: int) -> Added:
        record = self.author.bring(self._next_recovered(count))
        self._finish(record)
        return record

    def add_tail(self, count: int, seed: int, parked: list[str]) -> Added:
        record = self.author.bring(self._drawn(count, seed, parked))
        self._finish(record)
        for _, txid, origin in record.entries:
            if origin == self.author.own and txid in parked:
                parked.remove(txid)
        return record

    def take_state(self, count: int, seed: int, parked: list[str]) -> tuple[IdsTaken, StateTaken]:
        """Others have synchronised some of what waits, and more; the queue goes on after it."""
        author, lsn = self.author, self.author.lsn
        names = [txid for _, txid, _ in self._drawn(count, seed, parked)]
        names += [f"s{lsn + len(names) + n}" for n in range(1, 2 + seed % 5)]
        ids = [(txid, at) for at, txid in enumerate(names, lsn + 1)]
        for each in ids:
            author.note(*each)
        # What is parked here and had its LSN through another stream is done as well.
        for txid in [txid for txid in self._open if author.knows(txid)]:
            del self._open[txid]
        parked[:] = [txid for txid in parked if not author.knows(txid)]
        rejections = tuple((at, f"no place for {at}") for _, at in ids if at % 5 == 0)
        return IdsTaken(tuple(ids), rejections), author.take_state(lsn + len(ids))

    def install(self, count: int, seed: int, gaps: dict[str, int], parked: list[str]) -> EpochInstalled:
        self.promised += 1
        record = self.author.install(self.promised, self._drawn(count, seed, parked), gaps)
        self.installed = record.epoch
        self.recovered = list(record.epoch.recovered)
        return record

    def _next_recovered(self, count: int) -> list[Ordered]:
        taken, self.recovered = self.recovered[:count], self.recovered[count:]
        return [entry for entry in taken if not self.author.knows(entry[1])]

    def _drawn(self, count: int, seed: int, parked: list[str]) -> list[Ordered]:
        """Some of all that waits, each transaction once, in any order."""
        author = self.author
        waiting = [
            (timestamp, txid, origin)
            for origin, entries in author.streams.items()
            for timestamp, txid in entries[author.used[origin] :]
        ]
        waiting += [(author.clock + n, txid, author.own) for n, txid in enumerate(parked)]
        waiting += self.recovered
        Random(seed).shuffle(waiting)
        once = {entry[1]: entry for entry in waiting if not author.knows(entry[1])}
        return list(once.values())[:count]

    def _finish(self, record: Added) -> None:
        for _, txid, origin in record.entries:
            if origin == self.author.own:
                self._open.pop(txid, None)
