"""Entries of random transactions, executed on a store in memory: all kinds of changes, rejected ones among them.

Repositories are dropped and made again, `main` too, with their quads named or not; messages are accepted in any order; checks come, change and go.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from brokerha.model.operations import Operation, pack_operations
from brokerha.model.outside.authors import signed
from brokerha.pipeline.entries import LogEntry
from tests.support.memory_store.store import MemoryStore

KINDS = {
    "put": 10.0,
    "delete": 3.0,
    "add": 8.0,
    "remove": 4.0,
    "publish": 4.0,
    "accept": 3.0,
    "create-repository": 1.5,
    "remove-repository": 1.0,
    "control-add": 0.7,
    "control-remove": 0.4,
}
CLEAR_ABOVE = 4
"""Repositories that hold more quads are emptied in one step."""
BEGIN_US = 1_700_000_000_000_000


def random_store(seed: int, transactions: int, keys: int = 20) -> tuple[MemoryStore, list[LogEntry]]:
    """The store after some transactions, and the entries that it left."""
    chance, users = random.Random(seed), random.Random(seed)
    store = MemoryStore(CLEAR_ABOVE)
    entries = []
    for lsn in range(1, transactions + 1):
        txid, origin = f"t{lsn}", chance.choice(["m1", "m2"])
        timestamp = BEGIN_US + lsn * 1_000
        written, user = list(operations(chance, store, lsn, keys)), users.choice(["", "anna", "orders.shop"])
        if large := of_large(lsn, keys):
            txid, written, user = *large, ""
        body = signed(pack_operations(written), user)
        (result,) = store.execute(lsn, [(txid, timestamp, body)])
        entries.append(LogEntry(lsn, txid, origin, timestamp, 1, *result))
    return store, entries


def random_entries(seed: int, transactions: int, keys: int = 20) -> list[LogEntry]:
    """Entries alone."""
    return random_store(seed, transactions, keys)[1]


def of_large(lsn: int, keys: int) -> tuple[str, list[Operation]] | None:
    """At some LSNs a part of a large transaction, or its commit: id and operations."""
    name, chance = f"large{lsn // 27}", random.Random(lsn)
    if lsn % 27 == 26:
        return name, [("commit-staged", name, 3)]
    if lsn % 9 != 4:
        return None
    some = [operation(chance, lsn, keys) for _ in range(40)]
    written = [
        each for each in some if each[0] in {"put", "delete", "publish"} or (each[0] in {"add", "remove"} and each[1] == "main")
    ]
    part = lsn % 27 // 9 + 1
    if part == 1 and lsn // 27 % 3 == 2:
        written = [("clear", "main"), *written]
    if lsn // 27 % 2:
        # Every second one has a message in a piece, too.
        message = ("publish-pieces", "p", "text/plain", 1, 1, lsn // 27)
        written = [("piece", b"x" * (lsn // 27))] if part == 1 else [message, *written] if part == 2 else written
    return f"{name}.{lsn % 27}", [("stage", name, part), *written]


def operations(chance: random.Random, store: MemoryStore, lsn: int, keys: int) -> Iterator[Operation]:
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        yield operation(chance, lsn, keys)


def operation(chance: random.Random, lsn: int, keys: int) -> Operation:
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    if kind in {"add", "remove"}:
        graphs = ["", "", " <urn:g>"]
        lines = (f'<urn:s{chance.randrange(keys)}> <urn:p> "o {chance.randrange(3)}"{chance.choice(graphs)} .\n' for _ in range(3))
        return kind, chance.choice(["main", "main", "r", "s"]), "".join(sorted(set(lines)))
    if kind == "publish":
        return (kind, chance.choice("pq"), chance.choice(["text/plain", ""]), chance.randbytes(chance.choice([0, 10, 300])))
    if kind == "accept" and lsn % 3 == 0:
        # Of the last large transaction; the first one is that in a piece.
        return kind, "p", f"large{max(0, lsn // 27 - 1)}.{chance.choice([1, 1, 2])}"
    if kind == "accept":
        return kind, chance.choice("pq"), f"t{max(1, lsn - chance.randrange(1, 12))}.{chance.choice([1, 1, 1, 2])}"
    if kind == "put":
        return kind, chance.choice("tu"), b"%d" % chance.randrange(keys), chance.randbytes(chance.choice([0, 10, 300]))
    if kind == "delete":
        return kind, chance.choice("tu"), b"%d" % chance.randrange(keys)
    if kind == "control-add":
        # A condition that holds whatever happens, so that the other transactions go through.
        return kind, chance.choice("ab"), "key", "never", "k", chance.choice(["absent", "!= 1", "!= 2"])
    if kind == "control-remove":
        return kind, chance.choice("ab")
    return kind, chance.choice(["main", "r", "s"])
