"""The read of kind ``together``: several reads of one moment, over all stores.

Argument ``reads``: a list of packed msgpack (kind, name, arguments). Answer: msgpack list of (content type, body), in their order. With
``pending`` and ``txid``, all of them show the operations of one open transaction on top. One that fails, fails all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgpack

from brokerha.model.errors import BrokerhaError, InvalidRequest, TooLarge
from brokerha.model.ids import Lsn
from brokerha.ports.store import ReadAnswer
from brokerha.stores.key_range import in_pieces
from brokerha.stores.read_kinds import WALKS

READS_LIMIT = 100
REPOSITORIES_LIMIT = 16
"""Repositories of one such read: the evaluation in each lies within that in the one before it."""
RESULT_LIMIT_BYTES = 64 * 1024 * 1024


class Wanted(NamedTuple):
    """One of the reads."""

    kind: str
    name: str
    arguments: dict[str, object]


def wanted_reads(arguments: dict[str, object]) -> list[Wanted]:
    """The reads that are asked for. Raises InvalidRequest."""
    packed = arguments.get("reads")
    if not isinstance(packed, (tuple, list)) or not 1 <= len(packed) <= READS_LIMIT:
        raise InvalidRequest(f"a read of kind together needs the argument 'reads', a list of 1 to {READS_LIMIT}")
    return [_wanted(number, each) for number, each in enumerate(packed, 1)]


@contextmanager
def read_number(number: int) -> Iterator[None]:
    """Errors say which of the reads they are about."""
    try:
        yield
    except BrokerhaError as error:
        error.args = (f"read {number}: {error}", *error.args[1:])
        raise


def together_answer(lsn: Lsn, answers: Sequence[tuple[str, bytes]]) -> ReadAnswer:
    """All answers as one. Raises TooLarge."""
    size_bytes = sum(len(body) for _, body in answers)
    if size_bytes > RESULT_LIMIT_BYTES:
        raise TooLarge(f"the results have {size_bytes} bytes together, {RESULT_LIMIT_BYTES} is the limit: ask for less")
    return ReadAnswer("application/x-msgpack", lsn, in_pieces(msgpack.packb(answers)))


def _wanted(number: int, packed: Any) -> Wanted:
    try:
        kind, name, arguments = msgpack.unpackb(packed)
    except (ValueError, TypeError, msgpack.UnpackException):
        raise InvalidRequest(f"read {number} is no packed (kind, name, arguments)") from None
    if not (isinstance(kind, str) and isinstance(name, str) and isinstance(arguments, dict)):
        raise InvalidRequest(f"read {number} is no packed (kind, name, arguments)")
    if kind in WALKS:
        raise InvalidRequest(f"read {number}: {kind!r} looks at the whole content, so it is asked for by itself")
    if kind == "together" or "pending" in arguments or "txid" in arguments:
        raise InvalidRequest(f"read {number}: 'together' and 'pending' belong to the read around it")
    return Wanted(kind, name, arguments)
