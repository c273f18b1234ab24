"""What is done on a cluster that suffers, all at once, in laps: each with names of its own, judged when it is over.

They are:

    keys         one writer for each door that insists on an answer, one over a pipeline: keys, and counters in a graph    (writers.py)
    queues       keys with messages beside them, sent once or until they are answered; messages are taken
    bank         transfers between tables, a graph and queues by transactions; all nodes are read at one LSN               (bank.py)
    isolation    registers that are read and appended to, for the checker of histories                                     (appending.py)
    two-phase    transactions of coordinators that may die
    sessions     what a client has written it reads, at every node
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import brokerha
from brokerha.client import Session
from brokerha.model.outside.isolation import SERIALIZABLE, SNAPSHOT
from tests.support.appending import Appending
from tests.support.histories import FORBIDDEN, anomalies
from tests.system.copies import check_books
from tests.system.nemesis.bank import ledger, look, open_bank, opening
from tests.system.nemesis.bank_books import COMMITTED, BankBooks
from tests.system.nemesis.bank_books import UNKNOWN as BANK_UNKNOWN
from tests.system.nemesis.bank_clients import Reader, Teller, resolve
from tests.system.nemesis.clients import (
    OK,
    READ,
    REFUSED,
    UNKNOWN,
    Coordinator,
    Counting,
    Publisher,
    Taker,
    Telling,
    judge_queue,
    judge_two_phase,
)
from tests.system.nemesis.site import NemesisSite
from tests.system.writers import doors, told

Made = TypeVar("Made", bound=Telling)
PACE_S: Final = 0.05
JOIN_S: Final = 120.0


class Workload:
    """One of them, for one lap."""

    name = ""

    def __init__(self, site: NemesisSite, lap: int, draw: random.Random) -> None:
        self.site = site
        self.lap = lap
        self.draw = draw

    def start(self) -> None:
        """Begin."""
        raise NotImplementedError

    def finish(self) -> None:
        """Begin nothing new, and wait until everything under way is answered. Raises what went wrong."""
        raise NotImplementedError

    def done(self) -> dict[str, int]:
        """Of each client that writes, how often it was told that something took place."""
        raise NotImplementedError

    def told(self) -> Counter[str]:
        """All answers so far, by what they say."""
        raise NotImplementedError

    def errors(self) -> dict[str, Counter[str]]:
        """Of each client that counts them, the errors that it got."""
        return {}

    def judge(self, db: Session) -> list[str]:
        """What is not as it was told; all nodes are back and all copies are equal."""
        raise NotImplementedError

    def connect(self, door: str, timeout: float = 10.0) -> Session:
        """A client of a door."""
        return brokerha.connect(door, timeout=timeout)


class Keys(Workload):
    """See the head of the module."""

    name = "keys"

    def start(self) -> None:
        self.writers = doors(self.site.broker, self.site.doors, table=f"books-{self.lap}", pause_s=PACE_S)
        for writer in self.writers:
            writer.name = f"{writer.name}-{self.lap}"
            writer.start()

    def finish(self) -> None:
        for writer in self.writers:
            writer.finish(JOIN_S)

    def done(self) -> dict[str, int]:
        return {writer.name: told([writer]) for writer in self.writers}

    def told(self) -> Counter[str]:
        return Counter({OK: sum(self.done().values()), UNKNOWN: sum(writer.resent for writer in self.writers)})

    def judge(self, _db: Session) -> list[str]:
        try:
            check_books(self.site, self.writers)
        except AssertionError as wrong:
            return [str(wrong)[:500]]
        return []


class OfClients(Workload):
    """A workload of clients that count what they were told."""

    def clients(self) -> Sequence[Telling]:
        """All of them, at doors of all kinds by turns."""
        raise NotImplementedError

    def made(self, place: int, make: Callable[..., Made], *more: object, **options: object) -> Made:
        """A client at the door of this place."""
        kinds = [*self.site.doors, self.site.broker]
        name = f"{self.name}{place}-{self.lap}"
        return make(name, partial(self.connect, kinds[place % len(kinds)]), self.draw.getrandbits(32), *more, **options)

    def start(self) -> None:
        self.all = self.clients()
        for client in self.all:
            client.start()

    def finish(self) -> None:
        for client in self.all:
            client.end()
        for client in self.all:
            client.join(JOIN_S)

    def done(self) -> dict[str, int]:
        return {client.name: client.done for client in self.all}

    def told(self) -> Counter[str]:
        return sum((client.told for client in self.all), Counter())

    def errors(self) -> dict[str, Counter[str]]:
        return {client.name: client.errors for client in self.all}

    def judge(self, db: Session) -> list[str]:
        return [wrong for client in self.all for wrong in client.wrong] + self.judge_rest(db)

    def judge_rest(self, _db: Session) -> list[str]:
        """What the clients do not see by themselves."""
        return []


class Queues(OfClients):
    """See the head of the module."""

    name = "queues"

    def clients(self) -> Sequence[Telling]:
        self.place = f"queue-{self.lap}"
        self.publishers = [self.made(n, Publisher, self.place) for n in range(4)]
        self.takers = [self.made(3 * n, Taker, self.place, is_consuming=bool(n)) for n in range(2)]
        return [*self.publishers, *self.takers]

    def done(self) -> dict[str, int]:
        # Takers wait for messages: their pauses say nothing.
        return {client.name: client.done for client in self.publishers}

    def judge_rest(self, db: Session) -> list[str]:
        return judge_queue(db, self.place, self.publishers, self.takers)


class TwoPhase(OfClients):
    """See the head of the module."""

    name = "two-phase"

    def clients(self) -> Sequence[Telling]:
        self.coordinators = [self.made(n, Coordinator, f"xa-{self.lap}") for n in range(2)]
        return self.coordinators

    def judge_rest(self, db: Session) -> list[str]:
        return judge_two_phase(db, f"xa-{self.lap}", self.coordinators)


class Sessions(OfClients):
    """See the head of the module."""

    name = "sessions"

    def clients(self) -> Sequence[Telling]:
        workers = [self.site.url(worker) for worker in self.site.workers]
        return [self.made(2 * n, Counting, f"counters-{self.lap}", workers) for n in range(2)]


class Bank(Workload):
    """See the head of the module; its books are those of all laps."""

    name = "bank"
    books = BankBooks()

    def start(self) -> None:
        if self.lap == 1:
            type(self).books = BankBooks()
            with self.connect(self.site.doors[0], 60.0) as db:
                open_bank(db)
                self.site.await_everywhere(db)
        kinds = [*self.site.doors[:2], self.site.broker]
        self.tellers = [
            Teller(f"teller{n}-{self.lap}", partial(self.connect, kinds[n % 3], 5.0), self.books, self.draw.getrandbits(32))
            for n in range(3)
        ]
        self.readers = [Reader(node, self.site.url(node), self.books) for node in self.site.nodes]
        for thread in (*self.tellers, *self.readers):
            thread.start()

    def finish(self) -> None:
        for thread in (*self.tellers, *self.readers):
            thread.end()
        for thread in (*self.tellers, *self.readers):
            thread.join(JOIN_S)

    def done(self) -> dict[str, int]:
        # One of them alone may lose against the others for long: each guards what it read.
        return {f"tellers-{self.lap}": sum(teller.done for teller in self.tellers)}

    def told(self) -> Counter[str]:
        told = Counter(attempt.told for attempt in list(self.books.attempts.values()))
        unknown, ok = told.pop(BANK_UNKNOWN, 0), told.pop(COMMITTED, 0)
        return Counter({OK: ok, UNKNOWN: unknown, REFUSED: told.total(), READ: sum(self.books.looks.values())})

    def errors(self) -> dict[str, Counter[str]]:
        return {f"tellers-{self.lap}": sum((teller.errors for teller in self.tellers), Counter())}

    def judge(self, db: Session) -> list[str]:
        resolve(self.books, db)
        return self.books.judge(ledger(db), look(db), opening())


class Isolation(Workload):
    """See the head of the module."""

    name = "isolation"

    def start(self) -> None:
        self.level = (SERIALIZABLE, SNAPSHOT)[self.lap % 2]
        self.appending = Appending(self.level, self.draw.getrandbits(32), f"{self.level}-{self.lap}", "registers")
        if self.lap == 1:
            with self.connect(self.site.doors[0], 60.0) as db:
                db.create_repository("registers")
                self.site.await_everywhere(db)
        kinds = [self.site.doors[0], self.site.broker, *self.site.doors[1:2] * 2]
        self.running = self.appending.running([partial(self.connect, door) for door in kinds])
        self.running.__enter__()

    def finish(self) -> None:
        self.running.__exit__(None, None, None)

    def done(self) -> dict[str, int]:
        return {}

    def told(self) -> Counter[str]:
        errors = Counter(self.appending.errors)
        unknown = errors.pop("OutcomeUnknown", 0)
        ok = sum(ran.committed for ran in list(self.appending.history)) - unknown
        return Counter({OK: ok, UNKNOWN: unknown, REFUSED: errors.total()})

    def judge(self, db: Session) -> list[str]:
        found = anomalies(self.appending.history, self.appending.last(db)) & FORBIDDEN[self.level]
        return [f"{self.level} forbids {', '.join(sorted(found))}"] if found else []


WORKLOADS: Final[tuple[type[Workload], ...]] = (Keys, Queues, Bank, Isolation, TwoPhase, Sessions)
