"""An endless known sequence of transactions, and a program that executes it until it is killed.

The sequence depends on nothing but its seed, so that whoever finds a store at LSN n knows what must be in it: what the
model has after the first n transactions.

    python -m tests.unit.stores.known_history DIRECTORY SEED [PLACE HITS]

prints the LSN that it starts from and goes on until it is killed; given a place, it kills itself when the store comes by
there for the HITS-th time.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from brokerha.model.operations import Operation, pack_operations
from brokerha.model.reserved import about
from brokerha.stores.execution.worker_store import StoreOptions, WorkerStore
from tests.support.memory_store.store import MemoryStore

BATCHES_LIMIT = 100_000
OPTIONS = StoreOptions(
    map_size_bytes=256 * 1024 * 1024, keep_results=50, flush_after_lsns=60, flush_after_s=3600, clear_above_quads=5
)

IN_PARTS = {"put": 8, "delete": 3, "add": 8, "remove": 4, "publish": 3}
KINDS = {**IN_PARTS, "accept": 2, "namespace": 1, "create-repository": 0.3, "remove-repository": 0.3}
"""How often each comes."""

Transaction = tuple[str, int, bytes]


def batches(seed: int) -> Iterator[list[Transaction]]:
    """Batches of 1 to 12 transactions."""
    chance = random.Random(seed)
    for number in range(BATCHES_LIMIT):
        some = [transaction(chance, f"{number}-{place}") for place in range(chance.randint(1, 12))]
        yield [*some, *large(chance, number)]


def large(chance: random.Random, number: int) -> list[Transaction]:
    """A part of a large transaction, which takes place with every fourth batch."""
    name, part = f"large{number // 4}", number % 4 + 1
    operations = [("stage", name, part), *(operation(chance, IN_PARTS) for _ in range(3))]
    staged = [(f"{name}.{part}", 1_000_000, pack_operations(operations))]
    return [*staged, (name, 1_000_000, pack_operations([("commit-staged", name, 4)]))] if part == 4 else staged


def transaction(chance: random.Random, txid: str) -> Transaction:
    """One transaction of up to four operations, some of which fail."""
    return txid, 1_000_000, pack_operations([operation(chance) for _ in range(chance.choice([1, 1, 1, 2, 4]))])


def operation(chance: random.Random, kinds: Mapping[str, float] = KINDS) -> Operation:
    repository = chance.choice(["main", "main", "main", "r", "s"]) if kinds is KINDS else "main"
    lines = "".join(f"<urn:s{chance.randrange(30)}> <urn:p> <urn:o{chance.randrange(3)}> .\n" for _ in range(3))
    kind = chance.choices(list(kinds), list(kinds.values()))[0]
    if kind == "publish":
        return kind, chance.choice("pq"), "text/plain", chance.randbytes(chance.choice([0, 10, 5000]))
    if kind == "accept":
        return kind, chance.choice("pq"), f"{chance.randrange(20)}-{chance.randrange(3)}.1"
    if kind in {"add", "remove"}:
        return kind, repository, lines
    if kind == "namespace":
        key = about.namespace_key(repository, chance.choice(["", "a", "b"]))
        return chance.choice([("put", about.TABLE, key, b"urn:%d:" % chance.randrange(9)), ("delete", about.TABLE, key)])
    if kind == "put":
        return kind, chance.choice("tu"), b"%d" % chance.randrange(40), chance.randbytes(chance.choice([0, 10, 5000]))
    if kind == "delete":
        return kind, chance.choice("tu"), b"%d" % chance.randrange(40)
    # `main` stays, so that most transactions find what they name.
    return kind, chance.choice("rs")


def rest(seed: int, lsn: int) -> Iterator[tuple[int, list[Transaction]]]:
    """(first LSN, batch) of everything after an LSN, which may lie within a batch."""
    first = 1
    for batch in batches(seed):
        behind = batch[max(lsn + 1 - first, 0) :]
        if behind:
            yield max(first, lsn + 1), behind
        first += len(batch)


def model_at(seed: int, lsn: int) -> MemoryStore:
    """The model after the first ``lsn`` transactions."""
    model = MemoryStore(OPTIONS.clear_above_quads)
    everything = itertools.chain.from_iterable(batches(seed))
    model.execute(1, list(itertools.islice(everything, lsn)))
    return model


def killer(place: str, hits: int) -> Callable[[str], None]:
    """A crash point that kills this process at the n-th visit to a place."""
    left = hits

    def visit(where: str) -> None:
        nonlocal left
        if where == place:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return visit


def main(directory: str, seed: str, place: str = "", hits: str = "0") -> None:
    store = WorkerStore(Path(directory), cluster="orders", node="w1", options=OPTIONS, crash_point=killer(place, int(hits)))
    print(store.applied().lsn, flush=True)
    for first_lsn, batch in rest(int(seed), store.applied().lsn):
        store.execute(first_lsn, batch)
        # Whatever was printed was returned from, so it must survive.
        print(store.applied().lsn, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
