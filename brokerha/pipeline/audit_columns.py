"""What an audit computes of one piece of the log, column by column, and how the results of pieces become one.

    piece ──counts──> publications and acceptances of each queue ──all pieces before──> number of the first message of each piece
    piece ──block──> last row of each item in it, cut into groups by item
    blocks of a group, of all pieces ──merged──> last row of each item ──without tombstones──> buckets

A piece is a file of the archive, or a table of rows behind it. Pieces are in the order of their LSNs, so that the place of a message is known
as soon as the publications of the pieces before are counted. All is done on whole columns (numpy); only messages are hashed one by one.
Memory is that of one piece, or of one group. Must never depend on who calls: one process, or tasks of Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.model.ids import Lsn
from brokerha.pipeline.archive import Archive, ArchiveFile
from brokerha.pipeline.audit_engine import Found, ItemRow, item_row
from brokerha.pipeline.rows import ACCEPT, CREATE, DROP, PUBLISH
from brokerha.pipeline.state import MAIN, Bucket, Place
from brokerha.stores.fingerprint import message_digest, repository_digest
from brokerha.stores.items import BITS_LIMIT, CONTROL, GRAPH, QUEUE
from brokerha.stores.queue_change import Counts, Message

Piece: TypeAlias = "ArchiveFile | pa.Table"
NO_ITEMS: Final = Bucket(0, 0)
REPOSITORY: Final = "repository"
"""Stands for the store of a repository itself, so that it is not counted among its quads."""
_FIXED: Final = [
    "lsn", "operation", "store", "name", "kind", "tombstone", "item_high", "item_low", "digest_high", "digest_low",
]  # fmt: skip
_OF_MESSAGES: Final = ["lsn", "operation", "kind", "name", "key", "content_type", "value"]
_TERMS: Final = ("subject", "predicate", "object", "graph")
_SHOWN: Final = ["name", "key", *_TERMS, "value"]
_ABOVE: Final = np.uint64(64 - BITS_LIMIT)


class Block(NamedTuple):
    """Last rows of items, as columns of equal length."""

    places: tuple[tuple[str, str], ...]
    """(store, name), which `codes` number."""
    codes: Any
    order: Any
    """Twice the LSN, and one more where something comes: of two rows of an item the greater is the later."""
    is_alive: Any
    high: Any
    """Of the item, unsigned; as `low`."""
    low: Any
    digest_high: Any
    digest_low: Any
    row: Any
    """Number of the row in its piece."""

    def take(self, chosen: Any) -> Block:
        """Some of the rows, by their numbers or by a mask."""
        return Block(self.places, *(column[chosen] for column in self[1:]))


def counts_in(archive: Archive, piece: Piece, lsn: Lsn) -> dict[str, Counts]:
    """How often messages were published to and accepted from each queue in a piece, up to an LSN."""
    table = _read(archive, piece, lsn, ["lsn", "store", "name", "kind"])
    table = table.filter(pc.equal(table["store"], QUEUE))
    counted = table.group_by(["name", "kind"]).aggregate([("lsn", "count")]).to_pylist()
    found: dict[str, Counts] = {}
    for row in counted:
        before = found.get(row["name"], Counts())
        own = {PUBLISH: Counts(row["lsn_count"], 0), ACCEPT: Counts(0, row["lsn_count"])}[row["kind"]]
        found[row["name"]] = Counts(before.published + own.published, before.accepted + own.accepted)
    return found


def added(counts: Iterable[Mapping[str, Counts]]) -> dict[str, Counts]:
    """Counters after several pieces."""
    total: dict[str, Counts] = {}
    for each in counts:
        for queue, (published, accepted) in each.items():
            before = total.get(queue, Counts())
            total[queue] = Counts(before.published + published, before.accepted + accepted)
    return total


def block_of(archive: Archive, piece: Piece, lsn: Lsn, before: Mapping[str, Counts]) -> Block:
    """Rows of a piece up to an LSN, all of them; ``before`` are the counters where it begins."""
    table = _read(archive, piece, lsn, _FIXED)
    lsns, is_gone = table["lsn"].to_numpy(), table["tombstone"].to_numpy(zero_copy_only=False)
    is_change = table["operation"].to_numpy() > 0
    places, codes = _places(table)
    digests = [table[name].to_numpy().view(np.uint64).copy() for name in ("digest_high", "digest_low")]
    published = np.flatnonzero(pc.equal(table["kind"], PUBLISH).fill_null(False).to_numpy(zero_copy_only=False))
    if len(published):
        halves = _message_digests(archive, piece, lsn, before)
        digests[0][published], digests[1][published] = halves[:, 0], halves[:, 1]
    block = Block(
        places, codes, lsns * 2 + ~is_gone, ~is_gone, table["item_high"].to_numpy().view(np.uint64),
        table["item_low"].to_numpy().view(np.uint64), digests[0], digests[1], np.arange(len(lsns)),
    )  # fmt: skip
    return block.take(is_change)


def _places(table: pa.Table) -> tuple[tuple[tuple[str, str], ...], Any]:
    """(store, name) of each row, numbered; rows without a change are numbered too."""
    is_repository = pc.fill_null(pc.is_in(table["kind"], pa.array([CREATE, DROP])), fill_value=False)
    store = pc.fill_null(pc.if_else(is_repository, REPOSITORY, table["store"]), "")
    name = pc.fill_null(pc.if_else(pc.equal(store, CONTROL), "", table["name"]), "")
    together = pc.binary_join_element_wise(store, name, "\0").combine_chunks().dictionary_encode()
    encoded = together.combine_chunks() if isinstance(together, pa.ChunkedArray) else together
    places = tuple(tuple(each.split("\0", 1)) for each in encoded.dictionary.to_pylist())
    return places, encoded.indices.to_numpy()


def _message_digests(archive: Archive, piece: Piece, lsn: Lsn, before: Mapping[str, Counts]) -> Any:
    """Halves of the digests of all messages that a piece publishes, in their order."""
    table = _read(archive, piece, lsn, _OF_MESSAGES, [("kind", "=", PUBLISH)])
    last = {queue: counts.published for queue, counts in before.items()}
    found = bytearray()
    columns = (table[name].to_pylist() for name in ("name", "key", "content_type", "value"))
    for queue, key, content_type, body in zip(*columns, strict=True):
        place = last[queue] = last.get(queue, 0) + 1
        found += message_digest(queue, place, Message(key.decode(), content_type, body)).to_bytes(DIGEST_BYTES, "big")
    return np.frombuffer(bytes(found), dtype=">u8").astype(np.uint64).reshape(-1, 2)


def main_block() -> Block:
    """The repository that exists from the start, as a row of LSN 0."""
    digest = repository_digest(MAIN).to_bytes(DIGEST_BYTES, "big")
    high, low = (np.array([int.from_bytes(half, "big")], np.uint64) for half in (digest[:8], digest[8:]))
    one = np.array([1])
    return Block(((REPOSITORY, MAIN),), np.array([0]), one, one > 0, high, low, high, low, one - 1)


def last_of(block: Block) -> Block:
    """The last row of each item."""
    if not len(block.order):
        return block
    sorted_ = block.take(np.lexsort((block.order, block.low, block.high)))
    is_last = np.empty(len(sorted_.order), bool)
    is_last[-1] = True
    is_last[:-1] = (sorted_.high[1:] != sorted_.high[:-1]) | (sorted_.low[1:] != sorted_.low[:-1])
    return sorted_.take(is_last)


def grouped(block: Block, bits: int) -> list[tuple[int, Block]]:
    """The rows cut into groups by the upper bits of their items; sorted by item they lie side by side."""
    last = last_of(block)
    if not bits:
        return [(0, last)]
    groups = (last.high >> np.uint64(64 - bits)).astype(np.int64)
    ends = np.searchsorted(groups, np.arange((1 << bits) + 1))
    return [
        (group, last.take(slice(ends[group], ends[group + 1])))
        for group in range(1 << bits)
        if ends[group] < ends[group + 1]
    ]


def merged(blocks: Sequence[Block]) -> Block:
    """The last row of each item of several blocks."""
    places: dict[tuple[str, str], int] = {}
    codes = []
    for block in blocks:
        numbers = np.array([places.setdefault(place, len(places)) for place in block.places], np.int64)
        codes.append(numbers[block.codes])
    columns = [np.concatenate(column) for column in list(zip(*blocks, strict=True))[2:]]
    return last_of(Block(tuple(places), np.concatenate(codes), *columns))


def buckets_in(block: Block, bits: int) -> list[tuple[str, str, int, int, int]]:
    """(store, name, bucket, number, XOR) of the items that live; the block has one row of each item."""
    alive = block.take(block.is_alive)
    if not len(alive.order):
        return []
    keys = alive.codes.astype(np.int64) << BITS_LIMIT | (alive.high >> np.uint64(64 - bits)).astype(np.int64)
    in_order = np.argsort(keys, kind="stable")
    found, starts, numbers = np.unique(keys[in_order], return_index=True, return_counts=True)
    high = np.bitwise_xor.reduceat(alive.digest_high[in_order], starts)
    low = np.bitwise_xor.reduceat(alive.digest_low[in_order], starts)
    return [
        (*alive.places[key >> BITS_LIMIT], key & (1 << BITS_LIMIT) - 1, number, one << 64 | other)
        for key, number, one, other in zip(found.tolist(), numbers.tolist(), high.tolist(), low.tolist(), strict=True)
    ]


def buckets_and_repositories(
    rows: Iterable[tuple[str, str, int, int, int]],
) -> tuple[dict[Place, Bucket], tuple[str, ...], int]:
    """What `buckets_in` of all groups say: buckets, names of repositories, XOR of everything."""
    buckets: dict[Place, Bucket] = {}
    repositories: list[str] = []
    total = 0
    for store, name, bucket, number, digest in rows:
        total ^= digest
        if store == REPOSITORY:
            repositories.append(name)
        else:
            # A bucket with few bits lies in several groups.
            before = buckets.get((store, name, bucket), NO_ITEMS)
            buckets[store, name, bucket] = Bucket(before.number + number, before.digest ^ digest)
    return buckets, tuple(sorted(repositories)), total


def items_in(
    archive: Archive, piece: Piece, lsn: Lsn, before: Mapping[str, Counts], bits: int, wanted: Collection[Place]
) -> list[tuple[int, bool, ItemRow]]:
    """(order, whether it lives, item) of the last row of each item of some buckets in a piece."""
    block = block_of(archive, piece, lsn, before)
    numbers = {place: code for code, place in enumerate(block.places)}
    keys = np.array(
        [numbers[store, name] << BITS_LIMIT | bucket for store, name, bucket in wanted if (store, name) in numbers],
        np.int64,
    )
    of_rows = block.codes.astype(np.int64) << BITS_LIMIT | (block.high >> np.uint64(64 - bits)).astype(np.int64)
    last = last_of(block.take(np.isin(of_rows, keys)))
    if not len(last.order):
        return []
    shown = _read(archive, piece, lsn, ["lsn", *_SHOWN]).take(pa.array(last.row)).to_pylist()
    found = []
    for number, row in enumerate(shown):
        store, name = last.places[last.codes[number]]
        item, digest = (
            (int(high[number]) << 64 | int(low[number])).to_bytes(DIGEST_BYTES, "big")
            for high, low in ((last.high, last.low), (last.digest_high, last.digest_low))
        )
        is_alive = bool(last.is_alive[number])
        place = store, name, int(item[0] << 8 | item[1]) >> (BITS_LIMIT - bits)
        shown_item = item_row(place, item, digest, _text(store, row), row["value"] or b"", row["lsn"])
        found.append((int(last.order[number]), is_alive, shown_item))
    return found


def _text(store: str, row: Mapping[str, Any]) -> bytes:
    if store == GRAPH:
        return " ".join(row[name] for name in _TERMS if row[name] is not None).encode()
    text: bytes = row["name"].encode() if store == CONTROL else row["key"]
    return text


def living(rows: Iterable[tuple[int, bool, ItemRow]]) -> list[ItemRow]:
    """Items that live, sorted, of what `items_in` found in all pieces."""
    last: dict[bytes, tuple[int, bool, ItemRow]] = {}
    for each in rows:
        before = last.get(each[2].item)
        if before is None or before[0] < each[0]:
            last[each[2].item] = each
    return sorted(item for _, is_alive, item in last.values() if is_alive)


def transactions_in(archive: Archive, piece: Piece, wanted: Any) -> list[Found]:
    """Where some ids (an array of texts) are in a piece."""
    table = _read(archive, piece, None, ["lsn", "operation", "part", "txid", "outcome"])
    is_first = pc.and_(pc.less_equal(table["operation"], 1), pc.equal(table["part"], 0))
    found = table.filter(pc.and_(is_first, pc.is_in(table["txid"], wanted)))
    columns = (found[name].to_pylist() for name in ("txid", "lsn", "outcome"))
    return [Found(txid, lsn, outcome == "applied") for txid, lsn, outcome in zip(*columns, strict=True)]


def _read(archive: Archive, piece: Piece, lsn: Lsn | None, columns: Sequence[str], filters: Any = None) -> pa.Table:
    """Rows of a piece up to an LSN. Raises StoreDamaged."""
    if isinstance(piece, pa.Table):
        table = piece.select(columns)
        for name, _, value in filters or ():
            table = table.filter(pc.equal(table[name], value))
    else:
        table = archive.table(piece, columns, filters)
        if piece.last_lsn <= (lsn or piece.last_lsn):
            return table
    return table if lsn is None else table.filter(pc.less_equal(table["lsn"], lsn))
