"""A site of real processes whose first master has backups, and the threads that use it as a bank: tellers and readers."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgpack

import brokerha
from brokerha import errors
from brokerha.client import Client
from tests.support.free_ports import free_ports
from tests.system.bank import TRANSFERS, Changes, look
from tests.system.bank_books import ABORTED, COMMITTED, GIVEN_UP, UNKNOWN, Attempt, BankBooks
from tests.system.processes import ProcessCluster

STEP_S: Final = 5.0
COMMIT_S: Final = (1.0, 8.0)
"""Least and most time for a commit: the short ones end as unknown while a primary is away."""
PAUSE_S: Final = 0.05
LOOK_EVERY_S: Final = 0.15
LOOK_S: Final = 3.0
NOT_NOW = (errors.NotReady, errors.Unreachable, errors.OutcomeUnknown)


class BankSite(ProcessCluster):
    """m1 with two backups and two workers, m2 with one worker."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.backups = {"m1x": "m1", "m1y": "m1"}
        super().__init__(folder, broker, masters=2, workers_each=1, name="bank")
        more = [*self.backups, "m1b"]
        first = free_ports(len(more))
        self.ports |= {node: first + n for n, node in enumerate(more)}
        self.workers.append("m1b")
        self.path.write_text(self._toml(), encoding="utf-8")

    def _toml(self) -> str:
        text = super()._toml()
        for backup, master in self.backups.items():
            if backup in getattr(self, "ports", ()):
                text += f'[[backup]]\nid = "{backup}"\nmaster = "{master}"\nhttp = "127.0.0.1:{self.ports[backup]}"\n'
        return text

    def processes(self, master: str) -> list[str]:
        """The processes of a master, its own first."""
        return [master, *(backup for backup, of in self.backups.items() if of == master)]

    @property
    def nodes(self) -> list[str]:
        return [*self.masters, *self.backups, *self.workers]

    def door(self, master: str) -> str:
        """The address of a master: all of its processes."""
        return ",".join(self.url(node) for node in self.processes(master))

    def primary(self, master: str = "m1", within_s: float = 60.0) -> str:
        """The process that takes writes for a master."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            for node in self.processes(master):
                answer = self.get(node, "/writable")
                if answer is not None and answer.status_code == 200:
                    return node
            time.sleep(PAUSE_S)
        raise AssertionError(f"{master} has no primary\n{self.log_tail()}")

    def freeze(self, node: str) -> Callable[[], None]:
        """Stop a process where it is; returns what wakes it."""
        pid = self.pid(node)
        os.kill(pid, signal.SIGSTOP)
        return partial(os.kill, pid, signal.SIGCONT)


class Worker:
    """A thread that does its work again and again until it is ended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fault: BaseException | None = None
        self.errors: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Begin nothing new."""
        self._stop.set()

    def join(self) -> None:
        """Wait until it is over; raises what ended it before its time."""
        self._thread.join(90)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.fault is not None:
            raise self.fault

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as fault:  # noqa: BLE001  (told by join)
            self.fault = fault

    def work(self) -> None:
        raise NotImplementedError


class Teller(Worker):
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
                while (
                    not self._stop.is_set()
                    and self._attempt(db, transfer, f"{self.name}-{number}-{tries}") != COMMITTED
                ):
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
        except errors.Aborted as error:
            told = ABORTED
            self.errors[f"Aborted: {str(error)[:60]}"] += 1
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


class Reader(Worker):
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


def resolve(books: BankBooks, db: Client, within_s: float = 40.0) -> None:
    """Ask what became of the attempts whose outcome was unknown."""
    deadline = time.monotonic() + within_s
    waiting = books.unknown()
    while waiting and time.monotonic() < deadline:
        for attempt in list(waiting):
            try:
                answer = db.outcome(attempt.txid, timeout=STEP_S)
            except NOT_NOW:
                continue
            if answer is None:
                continue
            if answer["state"] == "aborted" or answer.get("outcome") == "rejected":
                books.resolve(attempt.name, ABORTED)
            elif answer["state"] == "committed" or answer.get("outcome") == "applied":
                books.resolve(attempt.name, COMMITTED)
            else:
                continue
            waiting.remove(attempt)
        time.sleep(PAUSE_S)
