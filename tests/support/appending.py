"""Clients that read and append in transactions, for the checker of histories: keys, and resources of a graph, are its registers."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from brokerha.client import Client
from brokerha.client.transactions import Transaction
from brokerha.model.errors import Aborted, BrokerhaError, OutcomeUnknown
from tests.support.histories import Ran, Register, Version

REGISTERS = ("a", "b", "c", "urn:a", "urn:b")
TABLE = "registers"
ROLLED_BACK = 0.1
"""Share of transactions that are rolled back although nothing was wrong."""


def value_of(db: Client | Transaction, register: Register, repository: str) -> Version:
    """What a register holds."""
    if not register.startswith("urn:"):
        return version_of(db.get(TABLE, register))
    found: Any = db.query(repository, f"SELECT ?o {{ <{register}> <urn:holds> ?o }}")
    return version_of(found[0]["o"].value.encode()) if found else ()


def version_of(value: bytes | None) -> Version:
    return tuple(map(int, value.split())) if value else ()


def append(tx: Transaction, register: Register, version: Version, repository: str) -> None:
    """Make this its version."""
    text = " ".join(map(str, version))
    if not register.startswith("urn:"):
        tx.put(TABLE, register, text)
    else:
        tx.update(
            repository,
            f"DELETE {{ <{register}> <urn:holds> ?o }} INSERT {{ <{register}> <urn:holds> '{text}' }} "
            f"WHERE {{ OPTIONAL {{ <{register}> <urn:holds> ?o }} }}",
        )


class Appending:
    """Threads that run transactions at one level, and what they did."""

    def __init__(self, level: str, seed: int, place: str = "", repository: str = "main") -> None:
        """``place`` is the name of registers of its own, so that nothing is read that another history has left; the level without it."""
        self.level = level
        self.repository = repository
        self.registers = [f"{name}:{place or level}" for name in REGISTERS]
        self.history: list[Ran] = []
        self.errors: Counter[str] = Counter()
        self._seed = seed
        self._numbers = itertools.count(1)
        self._unknown: list[Ran] = []
        self._stopped = threading.Event()

    @contextmanager
    def running(self, clients: Sequence[Callable[[], Client]]) -> Iterator[None]:
        """One thread for each client, until the block ends."""
        with ThreadPoolExecutor(len(clients)) as pool:
            works = [pool.submit(self._work, number, make) for number, make in enumerate(clients)]
            try:
                yield
            finally:
                self._stopped.set()
            for work in works:
                work.result()

    def last(self, db: Client) -> dict[Register, Version]:
        """What the registers hold; what nobody was told of took place if it is there."""
        # After everything that was acknowledged, at whichever master, and read from there on.
        db.put(TABLE, "end", b"")
        last = {register: value_of(db, register, self.repository) for register in self.registers}
        for ran in self._unknown:
            ran.committed = any(number in last[register] for register, number in ran.appends)
        return last

    def _work(self, number: int, make: Callable[[], Client]) -> None:
        chance = random.Random(self._seed * 1000 + number)
        with make() as db:
            while not self._stopped.is_set():
                ran = Ran()
                try:
                    with db.transaction(isolation=self.level) as tx:
                        self._steps(tx, ran, chance)
                        if chance.random() < ROLLED_BACK:
                            tx.rollback()
                            ran.committed = False
                except OutcomeUnknown as error:
                    self._unknown.append(ran)
                    self.errors[type(error).__name__] += 1
                except BrokerhaError as error:
                    ran.committed = False
                    self.errors[type(error).__name__] += 1
                    if not isinstance(error, Aborted):
                        self._stopped.wait(0.05)
                self.history.append(ran)

    def _steps(self, tx: Transaction, ran: Ran, chance: random.Random) -> None:
        held: dict[Register, Version] = {}
        # Some look at much and write little, so that a skew can come about.
        for register in chance.sample(self.registers, chance.randint(1, 4)):
            held[register] = value_of(tx, register, self.repository)
            ran.reads.append((register, held[register]))
        for register in chance.sample(list(held), min(len(held), chance.randint(0, 2))):
            for _ in range(chance.randint(1, 2)):
                number = next(self._numbers)
                held[register] += (number,)
                append(tx, register, held[register], self.repository)
                ran.appends.append((register, number))
