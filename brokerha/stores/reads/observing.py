"""Reads of an isolated transaction: its commit demands that each result is still the same.

A read of kind ``together`` with the argument ``seen``: packed expectations (model/operations.py) for the results of earlier reads
of the transaction; empty bytes for its first. They are judged in the present state. If one fails, the state that the transaction
has read is gone: `Conflict`. If all hold, the earlier reads would have the same results now, so all reads of the transaction are
of this one LSN.

Answer, as msgpack: [name of an error or "", its text, (content type, body) of each read, packed expectations for the results].
The absence of a key or repository is a result.

| read | demands | so it conflicts with |
|---|---|---|
| get | expect-key | another value of this key |
| range | expect-range | a change of a key in the range, up to the last key that came back |
| get, range of a snapshot | expect-key of the snapshot (model/reserved/table_snapshots.py) | its drop, or another one of this name |
| range of more than 10,000 keys | expect-since of the table | any change of the table |
| query, statements, size, contexts | expect-since of the graph | any change of the repository |
| queue | expect-since of the queue | any change of the queue |
| about | expect-since of brokerha's own table | any change of namespaces or settings of repositories |
| settings | the same | any change of settings |
| tables, snapshots, queues, repositories, control, fingerprint | expect-fingerprint | any change at all |

The transaction's own writes are not results: a read of a key that it has put demands nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgpack

from brokerha.model.errors import Conflict, NotFound, Rejected, TooLarge, UnknownRepository
from brokerha.model.etags import etag_of
from brokerha.model.fingerprints import text_of
from brokerha.model.ids import Lsn
from brokerha.model.operation_checks import GRAPH, QUEUE, TABLE
from brokerha.model.operations import Operation, unpack_operations
from brokerha.model.reserved import about, settings, table_snapshots
from brokerha.ports.store import ReadAnswer
from brokerha.stores.execution.last_changes import Before, judge_expectations
from brokerha.stores.reads.kinds import MSGPACK, RDF_KINDS, RESULT_LIMIT_BYTES, Wanted, text_argument
from brokerha.stores.reads.pending import Pending
from brokerha.stores.tables.key_range import KeyRange, in_pieces, row_key_of, rows_between, wanted_row_key

RANGE_ROWS: Final = 10_000
"""Limit of keys of a range for an expect-range; a longer range demands the whole table."""

Answers = Sequence[tuple[str, bytes]]


def is_observing(arguments: Mapping[str, object]) -> bool:
    """Tell whether a read of kind ``together`` belongs to an isolated transaction."""
    return "seen" in arguments


def observed(
    arguments: Mapping[str, Any], reads: Sequence[Wanted], pending: Pending, lsn: Lsn, before: Before, answer: Callable[[], Answers]
) -> ReadAnswer:
    """Judge ``seen``, then return results and demands; ``before`` and ``answer`` are of the state at ``lsn``. Raises Conflict."""
    seen = arguments["seen"]
    try:
        judge_expectations(unpack_operations(seen) if seen else (), before)
    except Rejected as error:
        raise Conflict(str(error)) from None
    name = text = ""
    answers: Answers = ()
    try:
        answers = answer()
    except (NotFound, UnknownRepository) as error:
        name, text = type(error).__name__, str(error)
    demands: dict[Operation, None] = {}
    for number, wanted in enumerate(reads):
        for demand in _demands_of(wanted, pending, lsn, before, answers[number][1] if answers else b""):
            demands[demand] = None
    size_bytes = sum(len(body) for _, body in answers)
    if size_bytes > RESULT_LIMIT_BYTES:
        raise TooLarge(f"the result has {size_bytes} bytes, {RESULT_LIMIT_BYTES} is the limit in a transaction: ask for less")
    return ReadAnswer(MSGPACK, lsn, in_pieces(msgpack.packb((name, text, answers, msgpack.packb(list(demands))))))


def _demands_of(wanted: Wanted, pending: Pending, lsn: Lsn, before: Before, body: bytes) -> Sequence[Operation]:
    kind, name, arguments = wanted
    snapshot = text_argument(arguments, "snapshot")
    if snapshot is not None:
        key = table_snapshots.snapshot_key(snapshot)
        value = before.value_of(row_key_of(table_snapshots.TABLE, key))
        return (("expect-key", table_snapshots.TABLE, key, "" if value is None else etag_of(value)),)
    if kind == "get":
        row_key = wanted_row_key(name, arguments)
        if row_key in pending.keys:
            return ()
        value = before.value_of(row_key)
        return (("expect-key", name, row_key[len(name.encode()) + 1 :], "" if value is None else etag_of(value)),)
    if kind == "range":
        return (_demand_of_range(name, KeyRange(name, arguments), lsn, before, body),)
    if kind in RDF_KINDS:
        return (("expect-since", GRAPH, name, lsn),)
    if kind == "message" and pending.takes(name, str(arguments["id"])):
        # The accept operation already demands that the message is there.
        return ()
    if kind in {"queue", "message"}:
        return (("expect-since", QUEUE, name, lsn),)
    if kind == "about":
        return (("expect-since", TABLE, about.TABLE, lsn),)
    if kind == "settings":
        return (("expect-since", TABLE, settings.TABLE, lsn),)
    return (("expect-fingerprint", text_of(before.fingerprint)),)


def _demand_of_range(table: str, wanted: KeyRange, lsn: Lsn, before: Before, body: bytes) -> Operation:
    if wanted.limit > RANGE_ROWS:
        return ("expect-since", TABLE, table, lsn)
    first = wanted.low[wanted.skip :]
    end = wanted.high[wanted.skip :] if wanted.high.startswith(wanted.low[: wanted.skip]) else b""
    rows: Sequence[Any] = msgpack.unpackb(body, use_list=False) if body else ()
    if len(rows) == wanted.limit:
        # The read did not see beyond the last key.
        first, end = (rows[-1][0], end) if wanted.is_reverse else (first, rows[-1][0] + b"\0")
    return ("expect-range", table, first, end, before.range_digest(*rows_between(table, first, end)))
