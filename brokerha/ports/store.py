"""The data of one worker: repositories (RDF), key-value tables and queues behind one door.

One thread writes (`execute`, `apply`), any number of threads read. Every write moves the applied LSN in the same commit as its
data. So a restart knows the exact position, and no write is applied twice or left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.operations import Logged, LoggedRow, Result


class Applied(NamedTuple):
    """The position of a store."""

    lsn: Lsn
    fingerprint: str
    """``<algorithm version>:<hex>`` of the whole content; equal content gives equal text, whatever its history."""
    items: int
    """Quads, keys and messages held."""


class ReadAnswer(NamedTuple):
    """The result of a read: pieces of at most 1 MiB, produced while they are taken."""

    content_type: str
    lsn: Lsn
    """The answer has the state of this LSN or a later one."""
    pieces: Iterator[bytes]


class Store(Protocol):
    """All data of one worker."""

    def execute(self, first_lsn: Lsn, items: Sequence[tuple[TxId, Timestamp, bytes]]) -> list[Result]:
        """Execute transactions in order, from ``first_lsn`` = applied + 1 on; durable together when this returns.

        A transaction that fails is REJECTED with a reason and leaves no trace; the others continue. Transactions executed before
        are answered again, not executed again. Raises StoreError (disk full, damage): then a part of the batch, from its beginning,
        may be kept; the same batch can be given again.
        """

    def apply(self, first_lsn: Lsn, items: Sequence[LoggedRow]) -> None:
        """Apply lines of the log in order; those at or below the applied LSN are skipped; a gap is a fault.

        Durable on return. The fingerprint after each line is compared with the one in it, unless that is unknown (empty). Raises
        StoreDiffers at the first different one: nothing from that line on is kept then.
        """

    @property
    def lineage(self) -> int:
        """Return the number of the lineage that it follows, as set last; 0 if never. A part of the copy. Any thread."""

    def begin_lineage(self, lineage: int, lsn: Lsn = -1) -> None:
        """Execute and apply in this lineage from now on; durable on return. Raises StoreError.

        An ``lsn`` below the store's position becomes its position, with all of its content; the store then has no lines.
        """

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[Logged]:
        """Return the kept lines of the log, for sending them again. None where it was trimmed.

        They are fewer where the log ends, and where their effects reach some MiB; one at least.
        """

    def logged_from(self) -> Lsn:
        """Return the lowest LSN that `logged` has; one more than the applied one when it has none."""

    def applied(self) -> Applied:
        """Return the position of the store. Any thread."""

    def read(self, kind: str, name: str, arguments: dict[str, object], may_go_on: Callable[[], bool] = lambda: True) -> ReadAnswer:
        """Answer a read of messages.Read. Raises InvalidRequest, UnknownRepository, NotAcceptable, TimedOut."""

    def recompute(self, paced: Callable[[int], None] = lambda _items: None) -> Applied:
        """Return fingerprint and count computed from the data itself, not from running totals. Any thread; slow.

        ``paced`` is called now and then with the number of items checked so far; it can wait, or raise to end it. Raises
        StoreDamaged when data cannot be read.
        """

    def close(self) -> None:
        """Release files. Idempotent."""
