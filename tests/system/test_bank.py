"""A bank over tables, a graph and queues, in which money is moved while its primaries are killed, frozen and replaced.

Given m1 with two backups and two workers, and m2 with one worker, over a RabbitMQ of the test's own; tellers at all masters that move
money by transactions, and readers at every node that read the total at one LSN; when the primary is killed and frozen, the
broker is restarted, primaries are changed by hand; then no read at any node ever shows another total, no transfer is lost or takes
place twice, what each client was told is true, and all copies are equal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import brokerha
from tests.support.private_broker import PrivateBroker
from tests.system.bank import ledger, look, open_bank, opening
from tests.system.bank_books import ABORTED, COMMITTED, GIVEN_UP, BankBooks
from tests.system.bank_site import BankSite, Reader, Teller, resolve
from tests.system.copies import copies
from tests.system.test_faults import kill_broker_and_restart

PROGRESS_S = 60.0
EQUAL_S = 45.0
FROZEN_S = 2.5

Fault = tuple[str, Callable[[], object]]


class Bank(NamedTuple):
    """One run."""

    site: BankSite
    books: BankBooks
    tellers: list[Teller]
    readers: list[Reader]


def kill_primary(site: BankSite) -> None:
    site.kill(site.primary())


def freeze_primary(site: BankSite) -> None:
    wake = site.freeze(site.primary())
    try:
        time.sleep(FROZEN_S)
    finally:
        wake()


def promote_another(site: BankSite) -> None:
    """Hand over to the next process of m1 that is ready, as an operator would."""
    now = site.primary()
    others = [node for node in site.processes("m1") if node != now]
    site.await_ready(others)
    with brokerha.connect(site.door("m1")) as db:
        db.command("promote", {"node": others[0], "force": False})
    deadline = time.monotonic() + PROGRESS_S
    while site.primary() != others[0]:
        assert time.monotonic() < deadline, f"{others[0]} was promoted and is not primary\n{site.log_tail()}"
        time.sleep(0.1)


def kill_backup(site: BankSite) -> None:
    now = site.primary()
    site.kill(next(node for node in site.processes("m1") if node != now))


def short_faults(site: BankSite) -> list[Fault]:
    return [
        ("kill -9 of the primary", partial(kill_primary, site)),
        ("the primary frozen and woken", partial(freeze_primary, site)),
        ("promotion by hand", partial(promote_another, site)),
    ]


def all_faults(site: BankSite, broker: PrivateBroker) -> list[Fault]:
    return [
        *short_faults(site),
        ("kill -9 of a worker", partial(site.kill, "m1a")),
        ("kill -9 and restart of the broker", partial(kill_broker_and_restart, broker)),
        ("kill -9 of a backup", partial(kill_backup, site)),
        ("kill -9 of the master without backups", partial(site.kill, "m2")),
        *short_faults(site),
        ("all connections closed", broker.close_all_connections),
        ("kill -9 of the primary again", partial(kill_primary, site)),
    ]


def opened(site: BankSite, amqp: str) -> Bank:
    """The bank, with everybody at work."""
    books = BankBooks()
    with brokerha.connect(site.door("m1")) as db:
        open_bank(db)
    doors: list[tuple[str, str]] = [("m1", site.door("m1")), ("m2", site.door("m2")), ("amqp", amqp)]
    tellers = [Teller(f"{name}{n}", partial(_connect, door), books, n) for n, (name, door) in enumerate(doors * 2)]
    readers = [Reader(node, site.url(node), books) for node in site.nodes]
    for thread in (*tellers, *readers):
        thread.start()
    return Bank(site, books, tellers, readers)


def _connect(address: str) -> Any:
    return brokerha.connect(address, timeout=5)


def await_transfers(bank: Bank, count: int, after: str) -> float:
    """Wait until each teller made so many more transfers; returns the seconds."""
    goals = [teller.done + count for teller in bank.tellers]
    started = time.monotonic()
    while True:
        for thread in (*bank.tellers, *bank.readers):
            if thread.fault is not None:
                raise thread.fault
        slow = [f"{t.name} {dict(t.errors)}" for t, goal in zip(bank.tellers, goals, strict=True) if t.done < goal]
        if not slow:
            return time.monotonic() - started
        assert time.monotonic() - started < PROGRESS_S, (
            f"after {after!r} no transfers at {slow}\n{bank.site.log_tail()}"
        )
        time.sleep(0.1)


def harm(bank: Bank, faults: list[Fault]) -> list[str]:
    """One fault after the other; a line of each."""
    await_transfers(bank, 2, "the start")
    lines = []
    for name, inject in faults:
        before, began = bank.books.count(COMMITTED), time.monotonic()
        inject()
        await_transfers(bank, 1, name)
        more = bank.books.count(COMMITTED) - before
        lines.append(f"  {name}: {more} transfers in {time.monotonic() - began:.1f} s")
        assert not bank.books.faults, bank.books.faults
    return lines


def closed(bank: Bank) -> list[str]:
    """Everybody goes home; returns all faults."""
    site, books = bank.site, bank.books
    for thread in bank.tellers:
        thread.end()
    for thread in bank.tellers:
        thread.join()
    site.await_ready(site.nodes)
    with brokerha.connect(",".join(site.url(node) for node in [*site.processes("m1"), "m2"])) as db:
        resolve(books, db)
        deadline = time.monotonic() + EQUAL_S
        while len(found := copies(site)) > 1:
            assert time.monotonic() < deadline, f"copies differ: {found}\n{site.log_tail()}"
            time.sleep(0.2)
        for reader in bank.readers:
            reader.end()
            reader.join()
        with brokerha.connect(site.url("m1a")) as at_worker:
            return books.judge(ledger(at_worker), look(at_worker), opening())


def run(site: BankSite, amqp: str, faults: list[Fault], covered: Callable[[str], None]) -> None:
    bank = opened(site, amqp)
    began = time.monotonic()
    try:
        lines = harm(bank, faults)
        seconds = time.monotonic() - began
        found = closed(bank)
    finally:
        for thread in (*bank.tellers, *bank.readers):
            thread.end()
    books = bank.books
    assert not found, "\n".join([*found[:20], f"{len(found)} faults", site.log_tail()])
    assert all(books.looks[node] > 0 for node in (*site.workers, "m2")), books.looks
    assert any(books.looks[node] > 0 for node in site.processes("m1")), books.looks
    covered(
        f"bank over RabbitMQ, {seconds:.0f} s, {len(lines)} faults: {books.count(COMMITTED)} transfers committed, "
        f"{books.count(ABORTED)} aborted and {books.count(GIVEN_UP)} given up (run again), {len(books.unknown())} unknown and resolved; "
        f"{sum(books.looks.values())} totals read at {len(books.looks)} nodes, all the same; 0 lost, 0 twice\n"
        + "\n".join(lines)
    )


def test_money_is_neither_made_nor_lost_while_primaries_change(
    private_broker: PrivateBroker, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    url = private_broker.create_vhost("bank-short")
    with BankSite(tmp_path, url) as site:
        run(site, url, short_faults(site), covered)


@pytest.mark.campaign
def test_money_is_neither_made_nor_lost_whatever_fails(
    private_broker: PrivateBroker, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    url = private_broker.create_vhost("bank")
    with BankSite(tmp_path, url) as site:
        run(site, url, all_faults(site, private_broker), covered)
