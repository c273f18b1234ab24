"""A bank over two clusters of brokerha, and in the long form a PostgreSQL, whose coordinator is killed at each of its calls.

Given accounts in all of them and a coordinator (`producers/coordinator.py`) that moves money between them in two phases, some transfers more than there is;
when it is killed before or after each call that it makes to a database or its log, and runs again with the same lines; then the sum never changes,
each transfer took place in all the databases that it names or in none, once, as its log says, and nothing stays prepared.

How often it is killed at each call is BROKERHA_COORDINATOR_KILLS; a hundred times take more than `faulthandler_timeout` allows: `-o faulthandler_timeout=7200`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.broker_source import BrokerSource
from tests.support.postgresql import postgresql
from tests.system.tx_site import TxSite, tx_site

KILLS = int(os.environ.get("BROKERHA_COORDINATOR_KILLS", "20"))
PROCESSES = ("m1", "m1b")
ACCOUNTS = 3
AT_FIRST = 100
KILLED = -9
LOGS = FIRST, SECOND = "first.db", "second.db"
MOVE = "DELETE { <urn:a%d> <urn:has> ?n } INSERT { <urn:a%d> <urn:has> ?m } WHERE { <urn:a%d> <urn:has> ?n BIND (?n + %d AS ?m) }"
NONE_OWES = "ASK { FILTER NOT EXISTS { ?a <urn:has> ?n FILTER (?n < 0) } }"


class Bank:
    """The accounts of all databases, and the coordinator's process."""

    def __init__(self, folder: Path, sites: dict[str, TxSite], books: str) -> None:
        self.sites = sites
        self.books = books
        self.urls = {name: ",".join(map(site.url, PROCESSES)) for name, site in sites.items()} | ({"books": books} if books else {})
        self.folder = folder
        self.named: dict[str, set[str]] = {}
        """Of each transfer, which databases it names."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.killed_coordinator"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def open_accounts(self) -> None:
        for site in self.sites.values():
            with site.client(*PROCESSES) as db:
                rows = " . ".join(f"<urn:a{n}> <urn:has> {AT_FIRST}" for n in range(ACCOUNTS))
                db.update("main", f"INSERT DATA {{ {rows} }}")
                db.control_add("none-owes", "ask", "main", NONE_OWES, "true")
        if self.books:
            with psycopg.connect(self.books) as db:
                db.execute("CREATE TABLE account (id int PRIMARY KEY, has int CHECK (has >= 0))")
                db.execute("CREATE TABLE done (id text PRIMARY KEY, amount int)")
                db.execute("INSERT INTO account SELECT n, %s FROM generate_series(0, %s) n", [AT_FIRST, ACCOUNTS - 1])

    def run(self, log: str, *lines: str, call: int = 0, before: bool = True, codes: Sequence[int] = (0, KILLED)) -> dict[str, Any]:
        """Run the coordinator of a log, and kill it at one of its calls."""
        assert self._process.stdin
        assert self._process.stdout
        databases = (word for name, url in self.urls.items() for word in ("--at", f"{name}={url}"))
        asked = {"words": ["--log", str(self.folder / log), *databases], "lines": lines, "call": call, "before": before}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        done: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert done["code"] in codes, done
        return done

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def transfer(self, ident: str, names: list[str], draw: random.Random) -> str:
        """A line that moves money between two or three databases; now and then more than there can be."""
        chosen = draw.sample(names, draw.randint(2, len(names)))
        self.named[ident] = set(chosen)
        most = 10 * AT_FIRST if draw.random() < 0.1 else 5
        amounts = [draw.randint(-most, most) for _ in chosen[1:]]
        work: dict[str, Any] = {"id": ident}
        for name, amount in zip(chosen, [-sum(amounts), *amounts], strict=True):
            account = draw.randrange(ACCOUNTS)
            if name == "books":
                work[name] = [
                    f"UPDATE account SET has = has + {amount} WHERE id = {account}",
                    f"INSERT INTO done VALUES ('{ident}', {amount})",
                ]
            else:
                work[name] = [["update", "main", MOVE % (account, account, account, amount)], ["put", "done", ident, str(amount)]]
        return json.dumps(work)

    # ---- what is in the databases

    def decided(self) -> list[str]:
        """The transfers that are to be committed, by the logs."""
        rows: list[str] = []
        for log in LOGS:
            with contextlib.closing(sqlite3.connect(self.folder / log)) as file:
                rows += (str(row[0]) for row in file.execute("SELECT id FROM committed"))
        return rows

    def rows_done(self, name: str) -> dict[str, int]:
        """What each transfer changed here, by its own word."""
        if name == "books":
            with psycopg.connect(self.books) as db:
                return {str(row[0]): int(row[1]) for row in db.execute("SELECT id, amount FROM done")}
        with self.sites[name].client(*PROCESSES) as db:
            return {key.decode(): int(value) for key, value in db.range("done", limit=100_000, min_lsn="latest")}

    def money(self, name: str) -> int:
        if name == "books":
            with psycopg.connect(self.books) as db:
                return int(next(iter(db.execute("SELECT sum(has) FROM account")))[0])
        with self.sites[name].client(*PROCESSES) as db:
            rows: Any = db.select("main", "SELECT (SUM(?n) AS ?sum) { ?a <urn:has> ?n }", min_lsn="latest")
            return int(rows[0]["sum"].value)

    def prepared(self, name: str) -> list[Any]:
        session: Any = psycopg.connect(self.books) if name == "books" else self.sites[name].client(*PROCESSES)
        with session:
            return list(session.tpc_recover())


@pytest.fixture
def bank_of(broker: BrokerSource, tmp_path: Path) -> Iterator[Callable[..., Bank]]:
    with contextlib.ExitStack() as stack:

        def start(*, with_books: bool) -> Bank:
            sites = {}
            for name in ("east", "west"):
                folder = tmp_path / name
                folder.mkdir()
                sites[name] = stack.enter_context(tx_site(broker, folder, f"coordinator-{name}", backups=1))
            books = stack.enter_context(postgresql()) if with_books else ""
            bank = Bank(tmp_path, sites, books)
            stack.callback(bank.close)
            bank.open_accounts()
            return bank

        yield start


def killed_at_each_call(bank: Bank, kills: int) -> Counter[str]:
    """Kill it at each call so often, and have another one come in between; returns how often at which kind of call."""
    draw = random.Random(7)
    struck: Counter[str] = Counter()
    for kill in range(kills):
        call = 0
        while True:
            call += 1
            line = bank.transfer(f"t{kill}-{call}", list(bank.urls), draw)
            done = bank.run(FIRST, line, call=call, before=(kill + call) % 2 == 0)
            if done["code"] != KILLED:
                # It has fewer calls than that.
                break
            struck[done["call"].partition(" ")[2]] += 1
            other = bank.run(SECOND, bank.transfer(f"u{kill}-{call}", list(bank.sites), draw))
            assert states(other), "another one goes on whatever the first has left"
            again = bank.run(FIRST, line)
            assert states(again), again
            assert "committed" not in states(done) or states(again) == ["committed"], "what it has told as committed stays"
    return struck


def states(done: dict[str, Any]) -> list[str]:
    """What the coordinator told of each line."""
    return [json.loads(line)["state"] for line in done["out"].splitlines()]


def check(bank: Bank) -> int:
    """What must hold in the end; returns how many transfers took place."""
    for log in LOGS:
        assert bank.run(log)["code"] == 0
    assert not [(name, prepared) for name in bank.urls if (prepared := bank.prepared(name))]
    done = {name: bank.rows_done(name) for name in bank.urls}
    for name in bank.urls:
        assert bank.money(name) == ACCOUNTS * AT_FIRST + sum(done[name].values()), f"{name} did one twice, or only a part of it"
    assert sum(map(bank.money, bank.urls)) == len(bank.urls) * ACCOUNTS * AT_FIRST
    decided = set(bank.decided())
    for ident, names in bank.named.items():
        assert {name for name in bank.urls if ident in done[name]} == (names if ident in decided else set()), ident
    return len(decided)


def shown(bank: Bank, struck: Counter[str], covered: Callable[[str], None]) -> None:
    kinds = ", ".join(f"{name} {number}" for name, number in sorted(struck.items()))
    covered(
        f"coordinator of {', '.join(bank.urls)}: {struck.total()} kills ({kinds}), {check(bank)} transfers took place, nothing is in doubt"
    )


@pytest.mark.broker
def test_a_coordinator_that_is_killed_at_each_call(bank_of: Callable[..., Bank], covered: Callable[[str], None]):
    bank = bank_of(with_books=False)
    struck = killed_at_each_call(bank, 1)
    assert {"tpc_recover", "tpc_begin", "update", "put", "tpc_prepare", "add", "tpc_commit"} <= set(struck)
    shown(bank, struck, covered)


@pytest.mark.broker
@pytest.mark.campaign
def test_it_is_killed_at_each_call_again_and_again_and_there_is_a_postgresql(
    bank_of: Callable[..., Bank], covered: Callable[[str], None]
):
    bank = bank_of(with_books=True)
    shown(bank, killed_at_each_call(bank, KILLS), covered)


@pytest.mark.broker
def test_what_is_wrong_is_said_before_anything_is_done(bank_of: Callable[..., Bank]):
    bank = bank_of(with_books=False)
    for line, said in (
        ("no json", "no json"),
        ('{"east": []}', "'id'"),
        ('{"id": "1", "north": []}', "'north'"),
        ('{"id": "1", "east": [["drop", "t"]]}', "put, delete, update, publish"),
        ('{"id": "1", "east": ["SELECT 1"]}', "put, delete, update, publish"),
    ):
        done = bank.run(FIRST, line, codes=(2,))
        assert said in done["errors"], done
    # What only the call itself refuses is rolled back everywhere, and said
    for line in (
        '{"id": "1", "east": [["put", "t", "k", "v"]], "west": [["put", "t"]]}',
        '{"id": "' + "x" * 65 + '", "east": [["put", "t", "k", "v"]]}',
    ):
        [told] = bank.run(FIRST, line)["out"].splitlines()
        assert json.loads(told)["state"] == "rolled back"
        assert json.loads(told)["reason"]
    assert check(bank) == 0
