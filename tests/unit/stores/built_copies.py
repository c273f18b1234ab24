"""Histories of everything that a store can hold, and the copy that is built from the state after them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brokerha.model.fingerprints import EMPTY
from brokerha.model.operations import Logged, Operation, pack_operations
from brokerha.ports.store import Applied
from brokerha.stores.backup.building import CopyBuilder
from brokerha.stores.backup.building_places import Plan
from brokerha.stores.execution.worker_store import StoreOptions, WorkerStore
from tests.support.memory_store.image import MemoryImage
from tests.support.memory_store.store import MemoryStore

OPTIONS = StoreOptions(map_size_bytes=256 * 1024 * 1024)
TERMS = ('"plain"', '"with \\"quotes\\""', '"tag"@en', '"1"^^<http://www.w3.org/2001/XMLSchema#integer>', "_:b1", "<urn:o>")


def history(seed: int, count: int) -> list[Logged]:
    """Lines of a log, some of them rejected or without a change."""
    chance = random.Random(seed)
    model = MemoryStore()
    for number in range(1, count + 1):
        operations = [_operation(chance, number) for _ in range(chance.choice([1, 1, 2, 4]))]
        model.execute(number, [(f"t{number}", 1000 * number, pack_operations(operations))])
    return model.logged(1, count)


def _operation(chance: random.Random, number: int) -> Operation:
    kinds = ["put", "delete", "add", "remove", "publish", "accept", "create", "drop", "check", "uncheck"]
    kind = chance.choices(kinds, [8, 3, 8, 4, 4, 3, 0.8, 0.5, 0.8, 0.5])[0]
    match kind:
        case "put":
            value = chance.randbytes(chance.choice([0, 10, 5000]))
            return "put", chance.choice(["t", "t2", "tä"]), b"%d\0\xff" % chance.randrange(40), value
        case "delete":
            return "delete", chance.choice(["t", "t2", "tä"]), b"%d\0\xff" % chance.randrange(40)
        case "add" | "remove":
            return kind, chance.choice(["main", "main", "r", "s"]), "".join(_quad(chance) for _ in range(3))
        case "publish":
            return ("publish", chance.choice(["p", "p-2", "ö"]), "text/plain", chance.randbytes(chance.choice([0, 10, 5000])))
        case "accept":
            return ("accept", chance.choice(["p", "p-2", "ö"]), f"t{chance.randrange(1, number + 1)}.{chance.randrange(1, 3)}")
        case "check":
            return ("control-add", f"c{chance.randrange(4)}", "key", "t", "never", chance.choice(["absent", "!= x", "!= y"]))
        case "uncheck":
            return "control-remove", f"c{chance.randrange(4)}"
    return "create-repository" if kind == "create" else "remove-repository", chance.choice(["r", "s", "r2", "main"])


def _quad(chance: random.Random) -> str:
    graph = chance.choice(["", " <urn:g1>", " <urn:g2>", " _:g3"])
    return f"<urn:s{chance.randrange(30)}> <urn:p> {chance.choice(TERMS)}{graph} .\n"


def image_after(lines: list[Logged]) -> MemoryImage:
    """All content after these lines, the first of which is LSN 1."""
    model = MemoryStore()
    model.apply(1, lines)
    return model._image


def filler(
    lines: list[Logged], tail: int = 3, spoil: Callable[[MemoryImage], None] = lambda _image: None
) -> Callable[[CopyBuilder], None]:
    """Gives a builder the state after these lines, of which it gets the last ones; ``spoil`` may change what is given."""

    def fill(builder: CopyBuilder) -> None:
        image = image_after(lines)
        spoil(image)
        for name, quads in image.repositories.items():
            builder.repository(name, sorted(quads))
        builder.keys(sorted(image.keys.items()))
        messages = [(name, *placed) for name, queue in image.queues.items() for placed in queue.messages.values()]
        builder.messages(sorted(messages, key=lambda each: (each[0].encode(), each[1])))
        builder.counts({name: queue.counts for name, queue in image.queues.items()})
        builder.checks(image.suite.checks.values())
        builder.last_changes(image.changed)
        builder.lines([tuple(line) for line in lines[-tail:]])  # type: ignore[misc]

    return fill


def plan_of(lines: list[Logged], **spoiling: Any) -> Plan:
    """The plan of the state after these lines."""
    last = lines[-1]
    fill = filler(lines, **spoiling)
    size_bytes = OPTIONS.map_size_bytes
    return Plan("orders", len(lines), last.txid, last.timestamp, last.fingerprint, fill, map_size_bytes=size_bytes)


def build(directory: Path, lines: list[Logged], **spoiling: Any) -> Applied:
    """Build a copy of the state after these lines."""
    size_bytes = OPTIONS.map_size_bytes
    builder = CopyBuilder(directory, cluster="orders", node="w1", lsn=len(lines), map_size_bytes=size_bytes)
    try:
        filler(lines, **spoiling)(builder)
        return builder.finish(lines[-1].fingerprint if lines else EMPTY)
    finally:
        builder.close()


def opened(directory: Path) -> WorkerStore:
    return WorkerStore(directory, cluster="orders", node="w1", options=OPTIONS)


def everything(store: WorkerStore) -> dict[str, Any]:
    """All that a store holds, row by row, but for the log and its own name."""
    environment = store._environment
    content: dict[str, Any] = {}
    with environment.lmdb.begin() as transaction:
        for table in ("keys", "control", "queues", "places", "counts", "changes"):
            with transaction.cursor(getattr(environment, table)) as cursor:
                content[table] = list(cursor)
    listed = store._repositories.listed
    content["repositories"] = {name: sorted(one.engine.lines()) for name, one in sorted(listed.items())}
    content["contexts"] = {name: one.engine.contexts() for name, one in sorted(listed.items())}
    content["numbers"] = {name: one.items for name, one in sorted(listed.items())}
    content["suite"] = store._view.suite.checks
    return content
