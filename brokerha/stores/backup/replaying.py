"""Lines of the log, applied to a store in batches, each compared with its fingerprint.

    lines of any source ──> in order, without a gap? ──> batches ──> store.apply ──> fingerprint as the line says

The store skips lines that it has. The last skipped line is compared too, so that another history is found before any line is
applied. Lines applied before an error stay, and the same call continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from brokerha.model.errors import InvalidRequest, StoreDiffers
from brokerha.model.fingerprints import EMPTY, differs, from_text, text_of
from brokerha.model.ids import Lsn
from brokerha.model.operations import LoggedRow
from brokerha.ports.store import Store
from brokerha.stores.backup.log_pages import LinesMissing

BATCH_LINES = 512
BATCH_BYTES = 1024 * 1024
"""A batch ends with the line that reaches either limit."""


def replay(
    store: Store,
    lines: Iterable[tuple[Lsn, LoggedRow]],
    first_lsn: Lsn,
    last_lsn: Lsn,
    note: Callable[[int], None] = lambda _lines: None,
) -> int:
    """Apply the lines of a range, both ends included; return how many of them were new.

    ``note`` is called with the number of lines of each batch. Raises InvalidRequest (the store lacks lines before the first one),
    LinesMissing (a gap, or an end before the last line), StoreDiffers, StoreError.
    """
    applied = store.applied()
    if applied.lsn + 1 < first_lsn:
        raise InvalidRequest(f"the data is at LSN {applied.lsn}, so lines from {applied.lsn + 1} on come next, not {first_lsn}")
    batch: list[LoggedRow] = []
    size_bytes = 0
    following = first_lsn
    for lsn, row in lines:
        if lsn > last_lsn:
            break
        if lsn != following:
            raise LinesMissing(f"LSN {following} is missing: the next line that there is has LSN {lsn}")
        following += 1
        if lsn <= applied.lsn:
            _check_same(lsn, row, applied.lsn, applied.fingerprint)
            continue
        batch.append(row)
        size_bytes += len(row[4])
        if len(batch) >= BATCH_LINES or size_bytes >= BATCH_BYTES:
            store.apply(following - len(batch), batch)
            note(len(batch))
            batch, size_bytes = [], 0
    if batch:
        store.apply(following - len(batch), batch)
        note(len(batch))
    if following <= last_lsn:
        raise LinesMissing(f"the lines end with LSN {following - 1}, before {last_lsn}")
    return max(0, last_lsn - applied.lsn)


def check_end(store: Store, lsn: Lsn, fingerprint: bytes) -> None:
    """Raise StoreDiffers unless the store is at this LSN with this fingerprint; an unknown one (empty) matches any."""
    applied = store.applied()
    wanted = fingerprint if lsn else EMPTY
    if applied.lsn != lsn or differs(from_text(applied.fingerprint), wanted):
        raise StoreDiffers(
            f"the data is at LSN {applied.lsn} with {applied.fingerprint}, and should be at {lsn} with {text_of(wanted)}", lsn
        )


def _check_same(lsn: Lsn, row: LoggedRow, applied_lsn: Lsn, fingerprint: str) -> None:
    if lsn == applied_lsn and differs(row[5], from_text(fingerprint)):
        raise StoreDiffers(
            f"at LSN {lsn} the data has {fingerprint}, and these lines {text_of(row[5])}: they are not of one history", lsn
        )
