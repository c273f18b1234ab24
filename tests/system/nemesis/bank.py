"""A bank over all kinds of stores: its accounts, the transfers between them, and what a reader sees of it at one moment.

    tables    east, west        a key for each account, its value the balance as text
    graph     bank              <urn:account:N> <urn:balance> balance
    queues    notes, parcels    each message is money: its body is an amount
    table     ledger            one key for each transfer that took place: what it changed

Every transfer leaves the total as it is, and writes its id into the ledger in the same transaction. Two kinds guard what they read
by an expectation and write absolute values, so that a lost update would change the total; one changes the graph by what it finds.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgpack

from brokerha.client import Client
from brokerha.client.transactions import Transaction
from brokerha.model.etags import etag_of

TABLES: Final = ("east", "west")
REPOSITORY: Final = "bank"
"""Of its own: a transfer within the graph is guarded against every change of it."""
QUEUES: Final = ("notes", "parcels")
ACCOUNTS: Final = 8
"""In each table and in the graph."""
OPENING: Final = 1000
NOTES: Final = 20
NOTE: Final = 10
LOOK_MOST: Final = 1000
TOTAL: Final = (len(TABLES) + 1) * ACCOUNTS * OPENING + NOTES * NOTE

Changes = dict[str, int]
"""Place (``east/3``, ``graph/3``, ``notes``) to what was added to it."""

GRAPH_BALANCES: Final = "SELECT ?account ?balance { ?account <urn:balance> ?balance }"
GRAPH_ADD: Final = (
    "DELETE {{ <urn:account:{0}> <urn:balance> ?old }} INSERT {{ <urn:account:{0}> <urn:balance> ?new }} "
    "WHERE {{ <urn:account:{0}> <urn:balance> ?old BIND(?old + {1} AS ?new) }}"
)
GRAPH_SET: Final = (
    "DELETE {{ <urn:account:{0}> <urn:balance> ?old }} INSERT {{ <urn:account:{0}> <urn:balance> {1} }} "
    "WHERE {{ <urn:account:{0}> <urn:balance> ?old }}"
)


class Look(NamedTuple):
    """All money at one moment."""

    lsn: int
    places: dict[str, int]
    """Balance of each account, and the sum of each queue."""

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.places.values())


def open_bank(db: Client) -> None:
    """The first transaction: all accounts and notes. Sent again under its key it does nothing."""
    triples = " . ".join(f"<urn:account:{n}> <urn:balance> {OPENING}" for n in range(ACCOUNTS))
    operations: list[tuple[Any, ...]] = [("create-repository", REPOSITORY), ("update", REPOSITORY, f"INSERT DATA {{ {triples} }}")]
    operations += [("put", table, b"%d" % n, b"%d" % OPENING) for table in TABLES for n in range(ACCOUNTS)]
    operations += [("publish", QUEUES[n % 2], "text/plain", b"%d" % NOTE) for n in range(NOTES)]
    db.write(operations, key="bank-opens", timeout=60)


def opening() -> Look:
    """What the places hold before the first transfer."""
    places = {f"{table}/{n}": OPENING for table in (*TABLES, "graph") for n in range(ACCOUNTS)}
    return Look(0, places | dict.fromkeys(QUEUES, NOTES * NOTE // len(QUEUES)))


def look(db: Client, timeout: float = 10.0) -> Look:
    """All places at one LSN, by one read."""
    wanted: list[tuple[str, str, dict[str, Any]]] = [("range", table, {"limit": LOOK_MOST}) for table in TABLES]
    wanted += [("queue", queue, {"limit": LOOK_MOST}) for queue in QUEUES]
    wanted.append(("query", REPOSITORY, {"query": GRAPH_BALANCES, "accept": "application/sparql-results+json"}))
    answers = db.together(wanted, timeout=timeout)
    places: dict[str, int] = {}
    for table, answer in zip(TABLES, answers, strict=False):
        places |= {f"{table}/{key.decode()}": int(value) for key, value in msgpack.unpackb(answer.body)}
    for queue, answer in zip(QUEUES, answers[len(TABLES) :], strict=False):
        messages = msgpack.unpackb(answer.body)
        assert len(messages) < LOOK_MOST, f"{queue} is longer than a reader looks"
        places[queue] = sum(int(body) for _, _, body in messages)
    for row in json.loads(answers[-1].body)["results"]["bindings"]:
        place = f"graph/{row['account']['value'].rpartition(':')[2]}"
        # An account with two balances is money that was made: both count.
        places[place] = places.get(place, 0) + int(row["balance"]["value"])
    return Look(answers[0].lsn, places)


def ledger(db: Client) -> dict[str, Changes]:
    """All transfers that took place."""
    found: dict[str, Changes] = {}
    start: bytes | None = None
    while True:
        rows = [row for row in db.range("ledger", start=start, limit=1000) if row[0].decode() not in found]
        if not rows:
            return found
        found |= {key.decode(): msgpack.unpackb(value) for key, value in rows}
        start = rows[-1][0]


# ---- transfers: each fills a transaction, and says what it changes


def from_table_to_table(tx: Transaction, draw: random.Random) -> Changes:
    """Between two keys, with the values that were read as expectations."""
    source, target = draw.sample([(table, n) for table in TABLES for n in range(ACCOUNTS)], 2)
    amount = draw.randint(1, 50)
    for (table, number), change in ((source, -amount), (target, amount)):
        add_to_key(tx, table, number, change)
    return {f"{source[0]}/{source[1]}": -amount, f"{target[0]}/{target[1]}": amount}


def from_graph_to_table(tx: Transaction, draw: random.Random) -> Changes:
    """The graph's balance is changed by what the update itself finds, the key's is guarded."""
    number, amount = draw.randrange(ACCOUNTS), draw.randint(-50, 50)
    tx.update(REPOSITORY, GRAPH_ADD.format(number, -amount))
    table, other = draw.choice(TABLES), draw.randrange(ACCOUNTS)
    add_to_key(tx, table, other, amount)
    return {f"graph/{number}": -amount, f"{table}/{other}": amount}


def within_graph(tx: Transaction, draw: random.Random) -> Changes:
    """Both balances are read and written as they were computed here; nobody may have changed the graph meanwhile."""
    source, target = draw.sample(range(ACCOUNTS), 2)
    amount = draw.randint(1, 50)
    query = {"query": GRAPH_BALANCES, "accept": "application/sparql-results+json"}
    answer = tx.read("query", REPOSITORY, query)
    rows = json.loads(answer.body)["results"]["bindings"]
    balances = {row["account"]["value"]: int(row["balance"]["value"]) for row in rows}
    tx.expect_unchanged("graph", REPOSITORY, answer.lsn)
    for number, change in ((source, -amount), (target, amount)):
        tx.update(REPOSITORY, GRAPH_SET.format(number, balances[f"urn:account:{number}"] + change))
    return {f"graph/{source}": -amount, f"graph/{target}": amount}


def from_queue_to_queue(tx: Transaction, draw: random.Random) -> Changes:
    """A message is taken in one place and published in another."""
    source, target = draw.sample(QUEUES, 2)
    message = tx.accept(source)
    if message is None:
        return {}
    tx.publish(target, message.body, message.content_type)
    return {source: -int(message.body), target: int(message.body)}


def from_queue_to_table(tx: Transaction, draw: random.Random) -> Changes:
    """A note is paid in."""
    queue, table, number = draw.choice(QUEUES), draw.choice(TABLES), draw.randrange(ACCOUNTS)
    message = tx.accept(queue)
    if message is None:
        return {}
    add_to_key(tx, table, number, int(message.body))
    return {queue: -int(message.body), f"{table}/{number}": int(message.body)}


def from_table_to_queue(tx: Transaction, draw: random.Random) -> Changes:
    """A note is paid out."""
    queue, table, number = draw.choice(QUEUES), draw.choice(TABLES), draw.randrange(ACCOUNTS)
    add_to_key(tx, table, number, -NOTE)
    tx.publish(queue, b"%d" % NOTE, "text/plain")
    return {queue: NOTE, f"{table}/{number}": -NOTE}


TRANSFERS: Final[tuple[Callable[[Transaction, random.Random], Changes], ...]] = (
    from_table_to_table,
    from_graph_to_table,
    within_graph,
    from_queue_to_queue,
    from_queue_to_table,
    from_table_to_queue,
)


def add_to_key(tx: Transaction, table: str, number: int, change: int) -> None:
    """Change a balance, if it still is what the transaction saw."""
    value = tx.get(table, b"%d" % number)
    assert value is not None, f"{table}/{number} is not there for {tx.txid}"
    tx.expect_key(table, b"%d" % number, etag_of(value))
    tx.put(table, b"%d" % number, b"%d" % (int(value) + change))
