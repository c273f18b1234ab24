"""A large transaction: far more than one message holds, and all of it at one LSN, or nothing.

    with db.large_transaction() as tx:
        tx.add("main", nquads)                    # any length; also remove, put, delete, publish; clear at its beginning
        db.load("main", "people.nt.gz", inside=tx)
    tx.committed                                  # Written(txid, lsn, level)

It is handed over in parts, each a write of its own that nobody sees the effect of (model/reserved/staging.py), one after the other: so
memory here and at the nodes is bounded, and writes of others come in between. Leaving the block commits; an exception drops it. No
more than 512 MiB and 10 million quads, keys and messages; it reads nothing and shows nothing before its commit.

With ``key`` the same program may run again after it was interrupted, within an hour: parts that are staged are not staged twice, and what
was committed is not committed twice, as long as the parts are the same. So an exception leaves what is staged; `drop` does not, and after it
the key is of no more use.
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
from brokerha.model.errors import BrokerhaError, InvalidRequest, OutcomeUnknown, WrongState
from brokerha.model.ids import Lsn, TxId
from brokerha.model.operations import Operation, check_operations
from brokerha.model.outside.levels import parse_ack
from brokerha.model.requests import APPLIED_LEVEL
from brokerha.model.reserved.pieces import PIECE, PIECE_BYTES, PUBLISH
from brokerha.model.reserved.staging import CLEAR, COMMIT, DROP, PART_BYTES, STAGE, pause_s

PART_OPERATIONS: Final = 1_000
"""A part ends with so many, or at `PART_BYTES`; a larger operation is a part of its own."""
WHOLE_BYTES: Final = 1024 * 1024
"""A message of so many, or more, is handed over in pieces."""
COMMIT_S: Final = 600.0
"""How long a commit may take if nobody says; workers make what is left to be made."""


class Readable(Protocol):
    """A binary file, or what reads like one."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; empty at the end."""


def _filled(content: Readable, size: int) -> bytes:
    """So many bytes, and fewer only at the end: a pipe or a socket gives what it has, long before its end."""
    found = bytearray()
    while len(found) < size and (data := content.read(size - len(found))):
        found += data
    return bytes(found)


@checked
class LargeTransaction:
    """One of them; for one thread."""

    def __init__(self, writer: Calls, key: TxId = "", ack: str | None = None, timeout: float | None = None) -> None:
        """``timeout`` is that of each part, and of the commit."""
        self._is_kept = bool(key)
        """Whether another one may go on with what is staged."""
        self.name: TxId = key or f"large-{secrets.token_hex(16)}"
        """The id of the transaction."""
        self.committed: Written | None = None
        """Set by the commit."""
        self.parts = 0
        """Those that were handed over."""
        self._writer = writer
        # Whether it takes place is known when a worker has judged it.
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
        """Let all that a repository holds go first, in all graphs. Raises InvalidRequest after anything else."""
        if self.parts or (self._waiting and self._waiting[-1][0] != CLEAR):
            raise InvalidRequest("clear comes first in a large transaction")
        self.write([(CLEAR, repository)])

    def put(self, table: str, key_name: str | bytes, value: str | bytes) -> None:
        """Put a value; text is taken as UTF-8."""
        self.write([("put", table, as_bytes(key_name), as_bytes(value))])

    def delete(self, table: str, key_name: str | bytes) -> None:
        """Delete a key; one that is not there is no error."""
        self.write([("delete", table, as_bytes(key_name))])

    def publish(self, queue: str, body: str | bytes | Readable, content_type: str = "application/octet-stream") -> None:
        """Append a message to a queue; of any length, also what is read from a binary file. A long one is handed over in pieces."""
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
        """Add operations: clear, add, remove, put, delete, publish (model/operations.py). Raises InvalidRequest, and what an earlier part came to."""
        for operation in operations:
            size_bytes = sum(len(item) for item in operation if isinstance(item, (str, bytes)))
            is_full = self._waiting_bytes + size_bytes > PART_BYTES or len(self._waiting) >= PART_OPERATIONS
            if self._waiting and is_full:
                self._flush()
            self._waiting.append(operation)
            self._waiting_bytes += size_bytes

    def stage(self, operations: Sequence[Operation]) -> None:
        """Hand over one part. Raises InvalidRequest, Rejected (over a limit), and what writes raise."""
        self._expect_open()
        if self._waiting:
            self._flush()
        begun_s = time.monotonic()
        rows = [(STAGE, self.name, self.parts + 1), *operations]
        # Answered when a worker has it: so nobody hands over faster than workers take in.
        self._writer.write(rows, ack=APPLIED_LEVEL, timeout=self._timeout, key=f"{self.name}.{self.parts + 1}")
        self.parts += 1
        time.sleep(pause_s(time.monotonic() - begun_s))

    # ---- the end

    def commit(self, *expectations: Operation) -> Written:
        """Have it take place; with expectations (model/operations.py) only if they hold then.

        Raises Rejected (nothing took place, and it was dropped), OutcomeUnknown (it may take place yet: ``outcome`` of ``name`` tells).
        """
        self._expect_open()
        try:
            if self._waiting:
                self._flush()
            if not self.parts:
                raise InvalidRequest("a large transaction needs at least one operation")
            self.committed = self._commit([*expectations, (COMMIT, self.name, self.parts)])
        except BrokerhaError:
            self.drop()
            raise
        self._is_over = True
        return self.committed

    def _commit(self, rows: Sequence[Operation]) -> Written:
        seconds = COMMIT_S if self._timeout is None else self._timeout
        try:
            return self._writer.write(rows, ack=self._ack, timeout=seconds, key=self.name)
        except OutcomeUnknown:
            # It may take place yet, so that nothing is dropped.
            self._is_over = True
            raise

    def drop(self) -> None:
        """End it without a trace. What nobody can be told now goes after an hour. Never raises."""
        if self._is_over:
            return
        self._is_over = True
        # One that was committed after all has no parts any more.
        with contextlib.suppress(BrokerhaError):
            self._writer.write([(DROP, self.name)], ack="synchronised", timeout=self._timeout)

    @property
    def written(self) -> Written:
        """Where it took place. Raises WrongState before."""
        if self.committed is None:
            raise WrongState(f"large transaction {self.name} did not take place yet")
        return self.committed

    @property
    def lsn(self) -> Lsn:
        """Where it took place; 0 before."""
        return self.committed.lsn if self.committed else 0

    # ---- inside

    def _by_lines(self, kind: str, repository: str, nquads: str) -> None:
        lines: list[str] = []
        size_bytes = 0
        # Not splitlines, which also cuts at characters that a literal may hold as they are.
        for line in StringIO(nquads, newline=""):
            if lines and size_bytes + len(line) > PART_BYTES:
                self.write([(kind, repository, "".join(lines))])
                lines, size_bytes = [], 0
            lines.append(line)
            size_bytes += len(line)
        if lines:
            self.write([(kind, repository, "".join(lines))])

    def _flush(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self.stage(waiting)

    def _expect_open(self) -> None:
        if self._is_over:
            raise WrongState(f"large transaction {self.name} is over: begin another one")
