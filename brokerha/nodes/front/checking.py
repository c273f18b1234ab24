"""Checks of a request before it is taken: shape and limits, and the SPARQL syntax of a write.

An error that only the execution shows (a missing repository, a failed evaluation) is found by the worker, at the transaction's LSN,
and rejects it there. All other errors are refused here, and then nothing has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from brokerha.ingress.limits import is_plain_data, is_plain_request
from brokerha.ingress.parsers import shared_parsers
from brokerha.model.control import KEY
from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import Lsn, is_tx_id, maker_of
from brokerha.model.operations import (
    ON_KEYS,
    Add,
    By,
    Checked,
    ControlAdd,
    Operation,
    Remove,
    Update,
    pack_operations,
    typed_operations,
    unpack_operations,
)
from brokerha.model.outside.authors import signed
from brokerha.model.outside.shapes import LEAST_LSN, TIMEOUT, TIMEOUT_LIMIT_MS, TXID, Shapes, check_shapes, needed, shown
from brokerha.model.requests import APART, LEVELS, READS_INSIDE, WAIT
from brokerha.model.reserved import claims, settings
from brokerha.model.reserved.branches import branch_id
from brokerha.stores.control.sparql import check_fields
from brokerha.stores.rdf.change import check_nquads
from brokerha.stores.reads.kinds import check_arguments, wanted_reads
from brokerha.stores.sparql.protocol import check_update


def is_plain(operations: Any) -> bool:
    """Tell whether `check_texts` needs no parser process for these (a list, or packed), so that a loop's thread can call it."""
    if isinstance(operations, bytes):
        return is_plain_request(operations.decode("latin-1"))
    return not isinstance(operations, (list, tuple)) or all(map(_is_plain, operations))


def _is_plain(operation: Any) -> bool:
    if not isinstance(operation, (list, tuple)) or not operation or not isinstance(operation[0], str):
        return True
    if operation[0] not in _PARSED:
        return True
    texts = [text for text in operation[1:] if isinstance(text, str)]
    return all(map(is_plain_data if operation[0] in _DATA else is_plain_request, texts))


_DATA: Final = frozenset({"add", "remove"})
_PARSED: Final = _DATA | {"update", "control-add"}


def checked_body(operations: Sequence[Operation] | bytes, user: str = "") -> bytes:
    """Return the body of a transaction after a check of every operation, with its author. Raises InvalidRequest and its kinds,
    NotReady.

    A parser process parses the operations that are not plain; this call waits for it.
    """
    if isinstance(operations, bytes):
        body, listed = operations, unpack_operations(operations)
    else:
        body = pack_operations(operations)
        listed = typed_operations(operations)
    check_texts(listed)
    return signed(body, user)


def check_texts(operations: Iterable[Checked]) -> None:
    """Check the texts that need parsing, and the operations that only nodes can write. Raises InvalidRequest, NotReady."""
    for operation in operations:
        if isinstance(operation, ON_KEYS) and operation.table == settings.TABLE:
            raise InvalidRequest(
                f"table {settings.TABLE} is brokerha's own: settings are changed by brokerha settings, and PUT /cluster/settings/NAME"
            )
        if isinstance(operation, ON_KEYS) and operation.table == claims.TABLE:
            raise InvalidRequest(f"table {claims.TABLE} is brokerha's own: take messages with accept, in a transaction")
        if isinstance(operation, By):
            raise InvalidRequest("who writes is said by the door that a transaction comes through: leave the operation by out")
        if isinstance(operation, Update):
            _judge(is_plain_request(operation.text), check_update, operation.text)
        elif isinstance(operation, (Add, Remove)):
            _judge(is_plain_data(operation.text), check_nquads, operation.text)
        elif isinstance(operation, ControlAdd) and operation.of != KEY:
            _judge(_is_plain(operation), check_fields, *operation[1:])


def _judge(is_plain_text: bool, check: Callable[..., None], *texts: str) -> None:
    if is_plain_text:
        check(*texts)
    else:
        shared_parsers().run(check, *texts)


def check_terms(txid: str, level: str, copies: int, timeout_ms: int, apart: str = WAIT) -> None:
    """Raise InvalidRequest for an unusable transaction id, word or number."""
    if not is_tx_id(txid):
        message = "an idempotency key has 1 to 128 visible ASCII characters, without spaces"
        raise InvalidRequest(message)
    if branch_id(txid) != txid and maker_of(branch_id(txid)):
        raise InvalidRequest(f"{txid} belongs to transaction {branch_id(txid)}: use another idempotency key")
    if level not in LEVELS:
        message = f"unknown acknowledgement level {level!r}: write one of {', '.join(LEVELS)}, or applied=N"
        raise InvalidRequest(message)
    if apart not in APART:
        raise InvalidRequest(f"at a master that is apart a write can {' or '.join(APART)}, not {apart!r}")
    if not 1 <= copies <= 1000 or not 1 <= timeout_ms <= TIMEOUT_LIMIT_MS:
        message = "copies is 1 to 1000, and a time-out 1 ms to one hour"
        raise InvalidRequest(message)


_NUMBERS: Final[Shapes] = {"min_lsn": LEAST_LSN, "timeout_ms": TIMEOUT}


def check_read(kind: str, name: str, arguments: Mapping[str, Any], min_lsn: Lsn, timeout_ms: int) -> None:
    """Raise InvalidRequest for every error of a read that shows without a store."""
    check_shapes("a read", _NUMBERS, {"min_lsn": min_lsn, "timeout_ms": timeout_ms})
    rest = {argument: value for argument, value in arguments.items() if argument != "tx"}
    if len(rest) < len(arguments):
        check_shapes("a read inside of a transaction", {"tx": needed(TXID)}, {"tx": arguments["tx"]})
        if kind not in READS_INSIDE:
            raise InvalidRequest(f"{shown(kind)} shows no transaction; inside of one there are {', '.join(sorted(READS_INSIDE))}")
    check_arguments(kind, name, rest)
    if kind == "together":
        wanted_reads(rest)
