"""What tasks do for a rebuild, file by file of the archive and column by column: the content at an LSN, written into a staging folder.

    file ──stores_in──> of each store: last change, publications, acceptances
    file ──items_in──> item and number of each row, cut into groups by item
    blocks of a group, of all files ──living──> numbers of the rows that live, by file          the last row of an item, if it adds
    file, numbers ──stage_rows──> graph/name=main/<n>.parquet   keys/<n>.parquet   messages/<n>.parquet   and what is small

Only items and numbers of rows go from task to task, 24 and 4 bytes each; terms and values are read once, by the task that writes them, and of those
rows alone that live. Rows of an archive are in the order in which they happened, so the number of a row says which of two is the later.

Memory is that of one file's living rows, or of one group. Must never depend on who calls: Spark's tasks (spark/rebuild.py), or one process that
does it all, one piece after the other (`stage_here`).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from brokerha.model.control import Check
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.model.ids import Lsn
from brokerha.pipeline.archive import Archive, ArchiveFile, ArchiveState, reading
from brokerha.pipeline.rebuilding_content import (
    BODY,
    CONTENT_TYPE,
    GRAPH_FOLDER,
    KEYS_FOLDER,
    LINE,
    MESSAGE_ID,
    MESSAGES_FOLDER,
    PLACE,
    QUEUE_NAME,
    ROW_KEY,
    VALUE,
    Small,
    check_of,
)
from brokerha.pipeline.rows import ACCEPT, PUBLISH
from brokerha.pipeline.state import MAIN
from brokerha.stores.environment import store_errors
from brokerha.stores.fingerprint import repository_digest
from brokerha.stores.items import CONTROL, GRAPH, QUEUE, TABLE
from brokerha.stores.queue_change import Counts

FROM_THE_START: Final = -1
"""Number of the file that no entry wrote: its one row makes the repository `main`."""
_OF_KEYS: Final = ["name", "key", "value"]
_TERMS: Final = ["subject", "predicate", "object", "graph"]
_STAGED: Final = ["store", "name", "kind", "key", *_TERMS, "value", "content_type"]

Block = tuple[int, bytes]
"""Number of the file; for each row upper and lower half of its item, and twice its number, one more where it adds something: int64."""
Begun = tuple[ArchiveFile, dict[str, int]]
"""A file, and how many messages were published to each queue before it."""
Places = dict[tuple[str, str], "Store"]


class Store(NamedTuple):
    """What became of a store up to an LSN."""

    changed_lsn: Lsn = 0
    counts: Counts = Counts()
    """Of a queue."""


class Few(NamedTuple):
    """What of a file's living rows is small."""

    repositories: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


def stage_here(archive: Archive, state: ArchiveState, lsn: Lsn, staging: Path, groups: int = 1) -> Small:
    """Write the content at an LSN into a folder, in this process. Raises StoreDamaged, StoreError."""
    files = state.files_of(1, lsn)
    begun, stores = begun_with(files, [stores_in(archive, file, lsn) for file in files])
    blocks: dict[int, list[Block]] = {}
    for number, file in enumerate(files):
        for group, block in items_in(archive, number, file, lsn, groups):
            blocks.setdefault(group, []).append(block)
    group, block = main_item(groups)
    blocks.setdefault(group, []).append(block)
    rows: dict[int, list[bytes]] = {}
    while blocks:
        for number, numbers in living(blocks.popitem()[1]):
            rows.setdefault(number, []).append(numbers)
    few = [stage_rows(archive, number, *begun[number], rows[number], staging) for number in sorted(rows) if number >= 0]
    if FROM_THE_START in rows:
        few.append(Few(repositories=(MAIN,)))
    return small_of(few, stores)


def begun_with(files: Sequence[ArchiveFile], looked: Sequence[Places]) -> tuple[list[Begun], Places]:
    """Each file with what was published before it, and what became of all stores; ``looked`` is `stores_in` of each."""
    begun: list[Begun] = []
    stores: Places = {}
    for file, more in zip(files, looked, strict=True):
        begun.append(
            (file, {name: found.counts.published for (store, name), found in stores.items() if store == QUEUE})
        )
        stores = stores | {place: _together(stores.get(place, Store()), each) for place, each in more.items()}
    return begun, stores


def small_of(few: Sequence[Few], stores: Places) -> Small:
    """What is small, of all files."""
    return Small(
        repositories=tuple(sorted(name for each in few for name in each.repositories)),
        counts={name: found.counts for (store, name), found in stores.items() if store == QUEUE},
        checks=tuple(check for each in few for check in each.checks),
        changes={place: found.changed_lsn for place, found in stores.items()},
    )


def stores_in(archive: Archive, file: ArchiveFile, lsn: Lsn) -> Places:
    """All stores that a file changes up to an LSN; the control suite is none. Raises StoreDamaged."""
    table = _upto(archive.table(file, ["lsn", "store", "name", "kind"]), file, lsn)
    table = table.filter(pc.is_in(table["store"], pa.array([GRAPH, TABLE, QUEUE])))
    found: Places = {}
    for row in table.group_by(["store", "name", "kind"]).aggregate([("lsn", "max"), ("lsn", "count")]).to_pylist():
        number, kind = row["lsn_count"], row["kind"]
        counts = Counts(number if kind == PUBLISH else 0, number if kind == ACCEPT else 0)
        place = row["store"], row["name"]
        found[place] = _together(found.get(place, Store()), Store(row["lsn_max"], counts))
    return found


def _together(one: Store, other: Store) -> Store:
    published, accepted = (sum(pair) for pair in zip(one.counts, other.counts, strict=True))
    return Store(max(one.changed_lsn, other.changed_lsn), Counts(published, accepted))


def items_in(archive: Archive, number: int, file: ArchiveFile, lsn: Lsn, groups: int) -> Iterator[tuple[int, Block]]:
    """The rows of a file up to an LSN that change an item, by group. ``groups`` is a power of two. Raises StoreDamaged."""
    table = _upto(archive.table(file, ["lsn", "operation", "tombstone", "item_high", "item_low"]), file, lsn)
    low = table["item_low"].to_numpy()
    rows = np.empty((len(low), 3), np.int64)
    rows[:, 0], rows[:, 1] = table["item_high"].to_numpy(), low
    rows[:, 2] = np.arange(len(low)) * 2 + ~table["tombstone"].to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(table["operation"].to_numpy() > 0)
    # Items are digests, so any of their bits divide them evenly.
    of_rows = low[chosen] & (groups - 1)
    for group in range(groups):
        some = rows[chosen[of_rows == group]]
        if len(some):
            yield group, (number, some.tobytes())


def main_item(groups: int) -> tuple[int, Block]:
    """The row of `main`, with its group."""
    digest = repository_digest(MAIN).to_bytes(DIGEST_BYTES, "big")
    high, low = (int.from_bytes(half, "big", signed=True) for half in (digest[:8], digest[8:]))
    return low & (groups - 1), (FROM_THE_START, np.array([[high, low, 1]], np.int64).tobytes())


def living(blocks: Iterable[Block]) -> Iterator[tuple[int, bytes]]:
    """Number of the file, and numbers of its rows that live (uint32, ascending), of all blocks of one group."""
    in_order = sorted(blocks)
    parts = [np.frombuffer(data, np.int64).reshape(-1, 3) for _, data in in_order]
    if not parts:
        return
    files = np.repeat([number for number, _ in in_order], [len(part) for part in parts])
    rows = np.concatenate(parts)
    # Stable, so that rows of one item stay as they happened.
    places = np.lexsort((rows[:, 1], rows[:, 0]))
    high, low = rows[places, 0], rows[places, 1]
    is_last = np.append((high[1:] != high[:-1]) | (low[1:] != low[:-1]), True)
    last = places[is_last]
    alive = np.sort(last[rows[last, 2] & 1 == 1])
    of_files, starts = np.unique(files[alive], return_index=True)
    numbers = (rows[alive, 2] >> 1).astype(np.uint32)
    for number, some in zip(of_files.tolist(), np.split(numbers, starts[1:]), strict=True):
        yield number, some.tobytes()


def stage_rows(
    archive: Archive, number: int, file: ArchiveFile, before: Mapping[str, int], rows: Sequence[bytes], staging: Path
) -> Few:
    """Write the living rows of a file; ``before`` says how many messages were published to each queue before it.

    Raises StoreDamaged, StoreError.
    """
    wanted = np.sort(np.concatenate([np.frombuffer(some, np.uint32) for some in rows])).astype(np.int64)
    published = dict(before)
    found: list[pa.Table] = []
    start = 0
    with reading(archive.path(file)), pq.ParquetFile(archive.path(file)) as parquet:
        for group in range(parquet.num_row_groups):
            table = parquet.read_row_group(group, columns=_STAGED)
            end = start + table.num_rows
            here = wanted[np.searchsorted(wanted, start) : np.searchsorted(wanted, end)] - start
            places = _places(table, published)
            found.append(table.append_column(PLACE, pa.array(places)).take(pa.array(here)))
            start = end
    return _written(pa.concat_tables(found), number, staging)


def _places(table: pa.Table, published: dict[str, int]) -> Any:
    """The place of each message that a row publishes, 0 for other rows; ``published`` goes on."""
    places = np.zeros(table.num_rows, np.int64)
    is_published = pc.equal(table["kind"], PUBLISH).fill_null(False)
    numbers = np.flatnonzero(is_published.to_numpy(zero_copy_only=False))
    names = table["name"].take(pa.array(numbers))
    for queue in pc.unique(names).to_pylist():
        of_queue = numbers[pc.equal(names, queue).to_numpy(zero_copy_only=False)]
        begin = published.get(queue, 0)
        places[of_queue] = begin + 1 + np.arange(len(of_queue))
        published[queue] = begin + len(of_queue)
    return places


def _written(rows: pa.Table, number: int, staging: Path) -> Few:
    keys = rows.filter(pc.equal(rows["store"], TABLE)).select(_OF_KEYS)
    row_key = pc.binary_join_element_wise(keys["name"].cast(pa.binary()), keys["key"], b"\0")
    by_key = pa.table({ROW_KEY: row_key, VALUE: keys["value"]}).sort_by(ROW_KEY)
    _write(by_key, staging / KEYS_FOLDER, number)
    messages = rows.filter(pc.equal(rows["store"], QUEUE))
    fields = {
        QUEUE_NAME: messages["name"].cast(pa.binary()), PLACE: messages[PLACE], MESSAGE_ID: messages["key"],
        CONTENT_TYPE: messages["content_type"], BODY: messages["value"],
    }  # fmt: skip
    by_place = pa.table(fields).sort_by([(QUEUE_NAME, "ascending"), (PLACE, "ascending")])
    _write(by_place, staging / MESSAGES_FOLDER, number)
    of_graph = rows.filter(pc.equal(rows["store"], GRAPH))
    is_quad = of_graph["subject"].is_valid()
    quads = of_graph.filter(is_quad)
    for name in pc.unique(quads["name"]).to_pylist():
        own = quads.filter(pc.equal(quads["name"], name))
        lines = pc.binary_join_element_wise(*(own[term] for term in _TERMS), " ", null_handling="skip")
        _write(pa.table({LINE: lines}), staging / GRAPH_FOLDER / f"name={name}", number)
    checks = rows.filter(pc.equal(rows["store"], CONTROL))
    return Few(
        tuple(of_graph.filter(pc.invert(is_quad))["name"].to_pylist()),
        tuple(
            check_of(name, value)
            for name, value in zip(checks["name"].to_pylist(), checks["value"].to_pylist(), strict=True)
        ),
    )


def _write(table: pa.Table, folder: Path, number: int) -> None:
    if not table.num_rows:
        return
    with store_errors(f"cannot write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        # A task may run twice, even at once: whoever is the last puts the same in the same place.
        partial = folder / f"{number:08d}.{secrets.token_hex(6)}"
        pq.write_table(table, partial, compression="snappy", use_dictionary=False)
        partial.rename(folder / f"{number:08d}.parquet")


def _upto(table: pa.Table, file: ArchiveFile, lsn: Lsn) -> pa.Table:
    return table if file.last_lsn <= lsn else table.filter(pc.less_equal(table["lsn"], lsn))
