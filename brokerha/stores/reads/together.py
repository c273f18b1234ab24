"""The read of kind ``together``: several reads of one moment, over all stores.

Argument ``reads``: a list of packed msgpack (kind, name, arguments). Answer: msgpack list of (content type, body), in their
order. With ``pending`` and ``txid``, all of them show the operations of one open transaction on top. If one read fails, the whole
read fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgpack

from brokerha.model.errors import BrokerhaError, InvalidRequest, TooLarge
from brokerha.model.ids import Lsn
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.ports.store import ReadAnswer
from brokerha.stores.reads.kinds import WALKS, check_arguments
from brokerha.stores.tables.key_range import in_pieces

REPOSITORIES_LIMIT = 16
"""Limit of repositories in one such read: the evaluation in each runs inside that of the previous one."""
RESULT_LIMIT_BYTES = 64 * 1024 * 1024


class Wanted(NamedTuple):
    """One of the reads."""

    kind: str
    name: str
    arguments: dict[str, object]


def wanted_reads(arguments: Mapping[str, Any]) -> list[Wanted]:
    """Return the requested reads, each checked. Raises InvalidRequest, which names the first wrong read."""
    return [wanted_read(number, _unpacked(packed)) for number, packed in enumerate(arguments["reads"], 1)]


def packed_reads(wanted: Sequence[Any]) -> tuple[bytes, ...]:
    """Return the argument ``reads`` for reads given as lists. Raises InvalidRequest, which names the first wrong read."""
    return tuple(msgpack.packb(wanted_read(number, each)) for number, each in enumerate(wanted, 1))


def wanted_read(number: int, found: Any) -> Wanted:
    """Return one read from a list (kind, name, arguments); ``number`` is its place. Raises InvalidRequest."""
    with read_number(number):
        if not (isinstance(found, (tuple, list)) and tuple(map(type, found)) == (str, str, dict)):
            raise InvalidRequest("not a list (kind, name, arguments)")
        kind, name, arguments = found
        if kind in WALKS:
            raise InvalidRequest(f"{kind!r} looks at the whole content, so it is asked for by itself")
        if kind == "together" or "pending" in arguments or "txid" in arguments:
            raise InvalidRequest("'together' and 'pending' belong to the read around it")
        check_arguments(kind, name, arguments)
        return Wanted(kind, name, arguments)


@contextmanager
def read_number(number: int) -> Iterator[None]:
    """Add the number of the read to errors."""
    try:
        yield
    except BrokerhaError as error:
        error.args = (f"read {number}: {error}", *error.args[1:])
        raise


def together_answer(lsn: Lsn, answers: Sequence[tuple[str, bytes]]) -> ReadAnswer:
    """Return all answers as one. Raises TooLarge."""
    size_bytes = sum(len(body) for _, body in answers)
    if size_bytes > RESULT_LIMIT_BYTES:
        raise TooLarge(f"the results have {size_bytes} bytes together, {RESULT_LIMIT_BYTES} is the limit: ask for less")
    return ReadAnswer("application/x-msgpack", lsn, in_pieces(msgpack.packb(answers)))


def _unpacked(packed: bytes) -> Any:
    try:
        return unpack_foreign(packed)
    except BROKEN:
        return None
