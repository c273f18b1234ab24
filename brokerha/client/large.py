"""A large transaction: far more than fits into one message, all at one LSN, or nothing.

    with db.large_transaction() as tx:
    tx.add("main", nquads)                    # any length; also remove, put, delete, publish; clear only as the first operation
        db.load("main", "people.nt.gz", inside=tx)
    tx.committed                                  # Written(txid, lsn, level)

The client hands the parts over one after the other, each as a write without a visible effect (model/reserved/staging.py). So memory
at client and nodes is bounded, and other writes come in between. Leaving the block commits; an exception drops the transaction.
Limits are 512 MiB and 10 million quads, keys and messages. It cannot read, and shows nothing before its commit.

With ``key`` an interrupted program can run again within an hour: staged parts are not staged twice, and a committed transaction is
not committed twice, if the parts are the same. So an exception keeps the staged parts. `drop` drops them, and then the key cannot
be used again.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterable, Sequence
from io import BytesIO, StringIO
from itertools import chain
from types import TracebackType
from typing import Final, Protocol, Self

from brokerha.client.arguments import checked
from brokerha.client.calls import Calls
from brokerha.client.outcomes import Written
from brokerha.client.reads import as_bytes
from brokerha.model.errors import BrokerhaError, InvalidRequest, OutcomeUnknown, Rejected, WrongState
from brokerha.model.ids import Lsn, TxId
from brokerha.model.operations import Operation, check_operations
from brokerha.model.outside.levels import parse_ack
from brokerha.model.requests import APPLIED_LEVEL
from brokerha.model.reserved.pieces import PIECE, PIECE_BYTES, PUBLISH
from brokerha.model.reserved.staging import CLEAR, COMMIT, DROP, PART_BYTES, STAGE, pause_s

PART_OPERATIONS: Final = 1_000
"""Most operations of a part, which also ends at `PART_BYTES`; a larger operation is a part of its own."""
WHOLE_BYTES: Final = 1024 * 1024
"""A message of at least this size is handed over in pieces."""
COMMIT_S: Final = 600.0
"""Default timeout of a commit, in which workers finish the staged work."""


class Readable(Protocol):
    """A binary file, or an object with its `read`."""

    def read(self, size: int, /) -> bytes:
        """Return at most ``size`` bytes; empty at the end."""


def _filled(content: Readable, size: int) -> bytes:
    """Read ``size`` bytes, fewer only at the end: a pipe or a socket returns less long before its end."""
    found = bytearray()
    while len(found) < size and (data := content.read(size - len(found))):
        found += data
    return bytes(found)


@checked
class LargeTransaction:
    """A large transaction; for one thread."""

    def __init__(self, writer: Calls, key: TxId = "", ack: str | None = None, timeout: float | None = None) -> None:
        """``timeout`` is for each part, and for the commit."""
        self._is_kept = bool(key)
        """Whether another run can continue with the staged parts."""
        self.name: TxId = key or f"large-{secrets.token_hex(16)}"
        """The id of the transaction."""
        self.committed: Written | None = None
        """Set by the commit."""
        self.parts = 0
        """Number of parts handed over."""
        self._writer = writer
        # The result is known only after a worker has judged it.
        self._ack = ack if ack is not None and parse_ack(ack)[0] == APPLIED_LEVEL else APPLIED_LEVEL
        self._timeout = timeout
        self._waiting: list[Operation] = []
        self._waiting_bytes = 0
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._is_over:
            if error is not None and self._is_kept:
                self._is_over = True
            elif error is not None:
                self.drop()
            else:
                self.commit()

    # ---- operations

    def add(self, repository: str, nquads: str) -> None:
        """Add quads, as N-Quads of any length; labels of blank nodes are kept."""
        self._by_lines("add", repository, nquads)

    def remove(self, repository: str, nquads: str) -> None:
        """Remove quads, as N-Quads of any length."""
        self._by_lines("remove", repository, nquads)

    def clear(self, repository: str) -> None:
        """Remove the whole content of a repository first, in all graphs. Raises InvalidRequest after another operation."""
        if self.parts or (self._waiting and self._waiting[-1][0] != CLEAR):
            raise InvalidRequest("clear comes first in a large transaction")
        self.write([(CLEAR, repository)])

    def put(self, table: str, key_name: str | bytes, value: str | bytes) -> None:
        """Put a value; text is encoded as UTF-8."""
        self.write([("put", table, as_bytes(key_name), as_bytes(value))])

    def delete(self, table: str, key_name: str | bytes) -> None:
        """Delete a key; a missing key is no error."""
        self.write([("delete", table, as_bytes(key_name))])

    def publish(self, queue: str, body: str | bytes | Readable, content_type: str = "application/octet-stream") -> None:
        """Append a message of any length to a queue, also from a binary file. A long one is handed over in pieces."""
        content = BytesIO(as_bytes(body)) if isinstance(body, (str, bytes)) else body
        head = _filled(content, WHOLE_BYTES)
        if len(head) < WHOLE_BYTES:
            self.write([("publish", queue, content_type, head)])
            return
        check_operations([("publish", queue, content_type, b"")])
        if self._waiting:
            self._flush()
        first, size_bytes = self.parts + 1, 0
        parts = (head[start : start + PIECE_BYTES] for start in range(0, len(head), PIECE_BYTES))
        for data in chain(parts, iter(lambda: _filled(content, PIECE_BYTES), b"")):
            self.stage([(PIECE, data)])
            size_bytes += len(data)
        self.write([(PUBLISH, queue, content_type, first, self.parts, size_bytes)])

    def write(self, operations: Iterable[Operation]) -> None:
        """Add clear, add, remove, put, delete, publish (model/operations.py). Raises InvalidRequest, and earlier parts' errors."""
        self._expect_open()
        for operation in operations:
            size_bytes = sum(len(item) for item in operation if isinstance(item, (str, bytes)))
            is_full = self._waiting_bytes + size_bytes > PART_BYTES or len(self._waiting) >= PART_OPERATIONS
            if self._waiting and is_full:
                self._flush()
            self._waiting.append(operation)
            self._waiting_bytes += size_bytes

    def stage(self, operations: Sequence[Operation]) -> None:
        """Hand over one part. Raises InvalidRequest, Rejected (over a limit), and the errors of writes."""
        self._expect_open()
        if self._waiting:
            self._flush()
        begun_s = time.monotonic()
        rows = [(STAGE, self.name, self.parts + 1), *operations]
        # Wait until a worker has the part, so that the client is not faster than workers.
        self._writer.write(rows, ack=APPLIED_LEVEL, timeout=self._timeout, key=f"{self.name}.{self.parts + 1}")
        self.parts += 1
        time.sleep(pause_s(time.monotonic() - begun_s))

    # ---- the end

    def commit(self, *expectations: Operation) -> Written:
        """Commit; with expectations (model/operations.py) only if they hold then.

        Raises Rejected (nothing took place, and it was dropped), OutcomeUnknown (ask for `outcome` of ``name``).
        """
        self._expect_open()
        try:
            if self._waiting:
                self._flush()
            if not self.parts:
                raise InvalidRequest("a large transaction needs at least one operation")
            self.committed = self._commit([*expectations, (COMMIT, self.name, self.parts)])
        except BrokerhaError as error:
            # With a key another run goes on, unless the transaction itself is at fault.
            if not self._is_kept or isinstance(error, (InvalidRequest, Rejected)):
                self.drop()
            raise
        self._is_over = True
        return self.committed

    def _commit(self, rows: Sequence[Operation]) -> Written:
        seconds = COMMIT_S if self._timeout is None else self._timeout
        try:
            return self._writer.write(rows, ack=self._ack, timeout=seconds, key=self.name)
        except OutcomeUnknown:
            # The commit can still take place, so the parts must stay.
            self._is_over = True
            raise

    def drop(self) -> None:
        """End the transaction without an effect. Parts that cannot be dropped now expire after an hour. Never raises."""
        if self._is_over:
            return
        self._is_over = True
        # A committed transaction has no parts any more.
        with contextlib.suppress(BrokerhaError):
            self._writer.write([(DROP, self.name)], ack="synchronised", timeout=self._timeout)

    @property
    def written(self) -> Written:
        """The result of the commit. Raises WrongState before it."""
        if self.committed is None:
            raise WrongState(f"large transaction {self.name} did not take place yet")
        return self.committed

    @property
    def lsn(self) -> Lsn:
        """LSN of the commit; 0 before."""
        return self.committed.lsn if self.committed else 0

    # ---- inside

    def _by_lines(self, kind: str, repository: str, nquads: str) -> None:
        lines: list[str] = []
        size_bytes = 0
        # Not splitlines, which also cuts at characters that are allowed inside a literal.
        for line in StringIO(nquads, newline=""):
            if lines and size_bytes + len(line) > PART_BYTES:
                self.write([(kind, repository, "".join(lines))])
                lines, size_bytes = [], 0
            lines.append(line)
            size_bytes += len(line)
        if lines:
            self.write([(kind, repository, "".join(lines))])

    def _flush(self) -> None:
        waiting, size_bytes = self._waiting, self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        try:
            self.stage(waiting)
        except BaseException:
            # The caller can go on after an error that passes: the same part is handed over again, under the same key.
            self._waiting, self._waiting_bytes = waiting, size_bytes
            raise

    def _expect_open(self) -> None:
        if self._is_over:
            raise WrongState(f"large transaction {self.name} is over: begin another one")
