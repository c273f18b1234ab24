"""Who uses the bank: tellers, which move money, and readers, which see all of it at one LSN."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack

import brokerha
from brokerha import errors
from brokerha.client import Client
from tests.system.nemesis.bank import TRANSFERS, Changes, look
from tests.system.nemesis.bank_books import ABORTED, COMMITTED, GIVEN_UP, UNKNOWN, Attempt, BankBooks
from tests.system.nemesis.endless import Endless

STEP_S: Final = 5.0
COMMIT_S: Final = (1.0, 8.0)
"""Least and most time for a commit: the short ones end as unknown while a primary is away."""
PAUSE_S: Final = 0.05
LOOK_EVERY_S: Final = 0.15
LOOK_S: Final = 3.0
NOT_NOW = (errors.NotReady, errors.Unreachable, errors.OutcomeUnknown)


class Teller(Endless):
    """One client that makes transfers, one after the other."""

    def __init__(self, name: str, connect: Callable[[], Client], books: BankBooks, seed: int) -> None:
        super().__init__(name)
        self.done = 0
        """Transfers that took place, as far as it was told."""
        self._connect = connect
        self._books = books
        self._draw = random.Random(seed)

    def work(self) -> None:
        with self._connect() as db:
            number = 0
            while not self._stop.is_set():
                number += 1
                transfer = self._draw.choice(TRANSFERS)
                tries = 0
                # An aborted one is run again from its reads on, as a user would.
                while not self._stop.is_set() and self._attempt(db, transfer, f"{self.name}-{number}-{tries}") != COMMITTED:
                    tries += 1
                    self._stop.wait(PAUSE_S * self._draw.random() * min(tries, 10))

    def _attempt(self, db: Client, transfer: Callable[..., Changes], name: str) -> str:
        tx = db.transaction(timeout=20)
        changes: Changes = {}
        told = GIVEN_UP
        try:
            tx.begin()
            changes = transfer(tx, self._draw)
            if not changes:
                tx.rollback()
                return COMMITTED
            tx.put("ledger", name, msgpack.packb(changes))
            tx.flush()
            told = UNKNOWN
            tx.commit(timeout=self._draw.uniform(*COMMIT_S))
            told = COMMITTED
            self.done += 1
        except (errors.Aborted, errors.Rejected) as error:
            told = ABORTED
            self.errors[f"{type(error).__name__}: {str(error)[:60]}"] += 1
        except errors.OutcomeUnknown:
            # Only the commit can leave it open whether a transfer took place.
            self.errors["OutcomeUnknown"] += 1
        except (errors.NotReady, errors.Unreachable, errors.InvalidRequest) as error:
            # By the contract of a commit these say that it was not taken in.
            told = GIVEN_UP
            self.errors[f"{type(error).__name__}: {str(error)[:60]}"] += 1
        finally:
            tx.abandon()
            if changes:
                self._books.told(Attempt(name, tx.txid, told, changes))
        return told


class Reader(Endless):
    """Reads the total at one node, all the time."""

    def __init__(self, node: str, url: str, books: BankBooks) -> None:
        super().__init__(f"reader of {node}")
        self.node = node
        self._url = url
        self._books = books

    def work(self) -> None:
        with brokerha.connect(self._url, timeout=LOOK_S) as db:
            while not self._stop.wait(LOOK_EVERY_S):
                try:
                    found = look(db, LOOK_S)
                except (errors.NotReady, errors.Unreachable) as error:
                    self.errors[type(error).__name__] += 1
                else:
                    self._books.seen(self.node, found)


def decided(outcome: Mapping[str, Any] | None) -> str:
    """Whether a transaction was committed or aborted, by the answer about its id; empty when that does not say."""
    if outcome is None:
        return ""
    if outcome["state"] == "aborted" or outcome.get("outcome") == "rejected":
        return ABORTED
    return COMMITTED if outcome["state"] == "committed" or outcome.get("outcome") == "applied" else ""


def resolve(books: BankBooks, db: Client, within_s: float = 20.0) -> None:
    """Ask what became of the attempts whose outcome was unknown, once all masters are back and agree.

    Of what was never committed a master that was killed meanwhile knows nothing; whether that is true the ledger says.
    """
    deadline = time.monotonic() + within_s
    waiting = [attempt for attempt in books.unknown() if attempt.name not in books.resolved]
    while waiting and time.monotonic() < deadline:
        for attempt in list(waiting):
            with contextlib.suppress(*NOT_NOW):
                outcome = db.outcome(attempt.txid, timeout=STEP_S)
                if told := ABORTED if outcome is None else decided(outcome):
                    books.resolve(attempt.name, told)
                    waiting.remove(attempt)
        time.sleep(PAUSE_S)
