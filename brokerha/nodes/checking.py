"""What a node checks of a request before it takes it in: shape and limits, of a write also SPARQL syntax.

What can only be known by executing it (a repository that does not exist, a failed evaluation) is found by the worker, at
the transaction's LSN, and rejects it there. Whatever can be known at once is refused here, and then nothing happened.
"""

from __future__ import annotations

from collections.abc import Sequence

from brokerha.model.control import KEY, Check
from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import Lsn, is_tx_id
from brokerha.model.levels import LATEST_LSN
from brokerha.model.operations import Operation, pack_operations, unpack_operations
from brokerha.model.requests import APART, LEVELS, WAIT
from brokerha.stores.control_sparql import check_check
from brokerha.stores.rdf_change import check_nquads
from brokerha.stores.sparql_text import check_update

TIMEOUT_LIMIT_MS = 3_600_000


def checked_body(operations: Sequence[Operation] | bytes) -> bytes:
    """Return the body of a transaction whose every operation was checked. Raises InvalidRequest and its kinds."""
    if isinstance(operations, bytes):
        body, listed = operations, unpack_operations(operations)
    else:
        listed = [tuple(operation) for operation in operations]
        body = pack_operations(listed)
    for operation in listed:
        if operation[0] == "update":
            check_update(operation[2])
        elif operation[0] in ("add", "remove"):
            check_nquads(operation[2])
        elif operation[0] == "control-add" and operation[2] != KEY:
            check_check(Check(*operation[1:]))
    return body


def check_terms(txid: str, level: str, copies: int, timeout_ms: int, apart: str = WAIT) -> None:
    """Raise InvalidRequest when the transaction id, a word or a number is not usable."""
    if not is_tx_id(txid):
        message = "an idempotency key has 1 to 128 visible ASCII characters, without spaces"
        raise InvalidRequest(message)
    if level not in LEVELS:
        message = f"unknown acknowledgement level {level!r}: write one of {', '.join(LEVELS)}, or applied=N"
        raise InvalidRequest(message)
    if apart not in APART:
        raise InvalidRequest(f"at a master that is apart a write can {' or '.join(APART)}, not {apart!r}")
    if not 1 <= copies <= 1000 or not 1 <= timeout_ms <= TIMEOUT_LIMIT_MS:
        message = "copies is 1 to 1000, and a time-out 1 ms to one hour"
        raise InvalidRequest(message)


def check_read(min_lsn: Lsn, timeout_ms: int) -> None:
    """Raise InvalidRequest when the numbers of a read are not usable."""
    if min_lsn < LATEST_LSN:
        raise InvalidRequest(f"a least LSN is 0 or more, or {LATEST_LSN} for the latest, not {min_lsn}")
    if not 1 <= timeout_ms <= TIMEOUT_LIMIT_MS:
        raise InvalidRequest("a time-out is 1 ms to one hour")
