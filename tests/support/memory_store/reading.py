"""Answering the reads of a memory store: the kinds of reads/reading.py, without SPARQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack

from brokerha.model.errors import InvalidRequest, NotFound, Rejected, UnknownRepository
from brokerha.model.operations import Clear
from brokerha.model.reserved import about, claims, settings
from brokerha.ports.store import ReadAnswer
from brokerha.stores.comparing.digests import Walk, walk_of
from brokerha.stores.comparing.fingerprint import report
from brokerha.stores.execution.prepared import BEGINNING, messages_in
from brokerha.stores.execution.staged import BEGINNING as STAGED
from brokerha.stores.execution.staged import Parts
from brokerha.stores.reads.kinds import (
    WALKS,
    Wanted,
    about_answer,
    about_beginning,
    check_arguments,
    read_number,
    settings_answer,
    text_argument,
    together_answer,
    wanted_reads,
)
from brokerha.stores.reads.observing import is_observing, observed
from brokerha.stores.reads.pending import Pending
from brokerha.stores.reads.tables import QueueRange, piece_of
from brokerha.stores.tables.key_range import OWN_TABLES, KeyRange, in_pieces, row_key_of, wanted_row_key
from brokerha.stores.tables.queue_change import Message
from brokerha.stores.tables.queues import not_there
from brokerha.stores.tables.snapshots import past_rows, past_value
from tests.support.memory_store.image import MemoryImage, MemoryQueue
from tests.support.memory_store.quads import NO_SPARQL, LineChange, lines_of

_TEXT, _JSON, _MSGPACK = "text/plain", "application/json", "application/x-msgpack"


def read_image(image: MemoryImage, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool]) -> ReadAnswer:
    """Answer one read. Raises InvalidRequest and what is below it; TimedOut for a walk that may not go on."""
    check_arguments(kind, name, arguments)
    if kind in WALKS:
        return ReadAnswer(_MSGPACK, image.lsn, in_pieces(_walked(image, walk_of(kind, arguments, may_go_on))))
    pending = Pending.of(arguments)
    if kind == "together" and is_observing(arguments):
        reads = wanted_reads(arguments)
        return observed(arguments, reads, pending, image.lsn, image.before(), lambda: _answers(image, reads, pending))
    if kind != "together":
        content_type, body = _answer(image, kind, name, arguments, pending)
        return ReadAnswer(content_type, image.lsn, in_pieces(body))
    return together_answer(image.lsn, _answers(image, wanted_reads(arguments), pending))


def _answers(image: MemoryImage, reads: Sequence[Wanted], pending: Pending) -> list[tuple[str, bytes]]:
    answers = []
    for number, wanted in enumerate(reads, 1):
        with read_number(number):
            answers.append(_answer(image, *wanted, pending))
    return answers


def _walked(image: MemoryImage, walk: Walk) -> bytes:
    walk.keys(sorted(image.keys.items()))
    for name, queue in image.queues.items():
        walk.messages((name, place, message) for place, message in queue.messages.values())
    walk.checks(image.suite.checks.values())
    for name, lines in image.repositories.items():
        walk.quads(name, lines)
    counts = {name: queue.counts for name, queue in image.queues.items()}
    return walk.body(image.lsn, image.fingerprint, image.items, counts, image.repositories)


def _answer(image: MemoryImage, kind: str, name: str, arguments: dict[str, object], pending: Pending) -> tuple[str, bytes]:
    if kind == "fingerprint":
        counts = {repository: len(lines) for repository, lines in image.repositories.items()}
        return _JSON, report(image.lsn, image.fingerprint, image.items, counts)
    if kind == "repositories":
        return _JSON, json.dumps(sorted(image.repositories)).encode()
    if kind == "about":
        return _JSON, _about(image, name)
    if kind == "control":
        return _JSON, image.suite.report()
    if kind == "settings":
        return _JSON, settings_answer(_rows_of(image, settings.TABLE, b""))
    if kind in {"get", "range", "tables", "snapshots", "staged"}:
        return _answer_of_keys(image, kind, name, arguments, pending)
    if kind in {"queue", "message", "queues"}:
        return _answer_of_queues(image, kind, name, arguments, pending)
    if kind not in {"size", "statements"}:
        raise InvalidRequest(NO_SPARQL)
    lines = _lines(image, name, pending)
    if kind == "size":
        return _TEXT, str(len(lines)).encode()
    return "application/n-quads", "".join(f"{line} .\n" for line in sorted(lines)).encode()


def _answer_of_keys(image: MemoryImage, kind: str, name: str, arguments: dict[str, object], pending: Pending) -> tuple[str, bytes]:
    if kind == "get":
        row_key = wanted_row_key(name, arguments)
        if (snapshot := text_argument(arguments, "snapshot")) is not None:
            numbers = image.snapshots().from_on(snapshot, name)
            value = past_value(numbers, name, row_key[len(row_key_of(name, b"")) :], image.keys.get)
            return "application/octet-stream", value
        return "application/octet-stream", _get(image, row_key, pending)
    if kind == "range":
        wanted = KeyRange(name, arguments)
        if (snapshot := text_argument(arguments, "snapshot")) is not None:
            numbers = image.snapshots().from_on(snapshot, name)
            return _MSGPACK, _packed(list(past_rows(numbers, wanted, lambda place: _rows(image, place))))
        return _MSGPACK, _packed(_range(image, wanted, pending))
    if kind == "snapshots":
        return _JSON, image.snapshots().report()
    if kind == "staged":
        return _JSON, Parts(row for row in image.keys.items() if row[0].startswith(STAGED)).report()
    names = {row_key.partition(b"\0")[0].decode() for row_key in image.keys} - OWN_TABLES
    return _JSON, json.dumps(sorted(names)).encode()


def _answer_of_queues(
    image: MemoryImage, kind: str, name: str, arguments: dict[str, object], pending: Pending
) -> tuple[str, bytes]:
    if kind == "queue":
        return _MSGPACK, _packed(_of_queue(image, QueueRange(name, arguments), pending))
    if kind == "message":
        place = _queue(image, name).messages.get(str(arguments["id"]))
        if place is None:
            raise not_there(name, str(arguments["id"]))
        return _MSGPACK, piece_of(place[1], int(str(arguments.get("number") or 0)), image.keys.get)
    held = {queue: found.counts for queue, found in image.queues.items()}
    counted = pending.counted(held, lambda queue, message_id: message_id in _queue(image, queue).messages)
    return _JSON, json.dumps({queue: counts.report() for queue, counts in counted.items()}).encode()


def _about(image: MemoryImage, name: str) -> bytes:
    beginning = about_beginning(name, image.repositories)
    return about_answer(name, image.repositories, _rows_of(image, about.TABLE, beginning))


def _rows_of(image: MemoryImage, table: str, beginning: bytes) -> list[tuple[bytes, bytes]]:
    """All keys of a table that begin so, in order, with their values."""
    rows, skip = row_key_of(table, beginning), len(row_key_of(table, b""))
    return sorted((row_key[skip:], value) for row_key, value in image.keys.items() if row_key.startswith(rows))


def _get(image: MemoryImage, row_key: bytes, pending: Pending) -> bytes:
    value = pending.keys[row_key] if row_key in pending.keys else image.keys.get(row_key)
    if value is None:
        raise NotFound("there is no such key")
    return value


def _range(image: MemoryImage, wanted: KeyRange, pending: Pending) -> list[tuple[bytes, bytes]]:
    return [(row_key[wanted.skip :], value) for row_key, value in pending.rows(_rows(image, wanted), wanted)]


def _rows(image: MemoryImage, wanted: KeyRange) -> list[tuple[bytes, bytes]]:
    found = (row for row in image.keys.items() if wanted.low <= row[0] < wanted.high)
    return sorted(found, reverse=wanted.is_reverse)


def _of_queue(image: MemoryImage, wanted: QueueRange, pending: Pending) -> Any:
    held = _held(image, wanted.queue)
    if wanted.holder is None:
        return wanted.take(pending, held)
    row = image.keys.get(row_key_of(claims.TABLE, wanted.queue.encode()))
    return wanted.claims(row, held, lambda: _taken(image), _queue(image, wanted.queue).messages.__contains__)


def _held(image: MemoryImage, name: str) -> Any:
    def held(after: str | None) -> Iterator[Message]:
        found = _queue(image, name).messages
        if after is not None and after not in found:
            raise NotFound(f"message {after!r} is not in queue {name!r} any more: begin at its head")
        place = 0 if after is None else found[after][0]
        return (message for at, message in found.values() if at > place)

    return held


def _taken(image: MemoryImage) -> frozenset[tuple[str, str]]:
    """The messages that prepared transactions take."""
    return frozenset().union(*(messages_in(value) for row_key, value in image.keys.items() if row_key.startswith(BEGINNING)))


def _queue(image: MemoryImage, name: str) -> MemoryQueue:
    return image.queues.get(name) or MemoryQueue()


def _lines(image: MemoryImage, name: str, pending: Pending) -> set[str]:
    """The lines of a repository with what is pending on top. Raises UnknownRepository, InvalidRequest."""
    on = pending.on(name)
    found = image.repositories.get(name)
    if on.exists is False or (found is None and not on.exists):
        raise UnknownRepository(f"repository {name!r} does not exist")
    lines = set() if found is None or on.is_emptied else found
    change = LineChange(lines)
    try:
        for _, operation in on.operations:
            if operation[0] == "update":
                raise InvalidRequest(NO_SPARQL)
            if isinstance(operation, Clear):
                change.removed, change.added = set(lines), set()
            else:
                change.change(operation[0], lines_of(operation[2]))
    except Rejected as error:
        raise InvalidRequest(str(error)) from None
    return (lines - change.removed) | change.added


def _packed(value: Any) -> bytes:
    body: bytes = msgpack.packb(value)
    return body
