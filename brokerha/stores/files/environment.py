"""The directory of a worker's store: its lock, its owner, and the LMDB environment in it.

    lock            locked with flock while a process has the store open; holds its process id
    data/           LMDB: tables ``meta``, ``effects``, ``kv``, ``control``, ``queues``, ``places``, ``counts``, ``changes``
    repositories/   one directory for each RDF repository

Opening checks, in this order, before it changes anything: no other process has the store open, the data file is complete, its
format is known, it belongs to this cluster and node. Opening refuses a directory with repositories but without the record of
them, because a store first deletes repositories that are not in its record. Must never wait for another process: two processes
with one directory are a mistake that a person has to see.

LMDB reads its file through the memory map and trusts its own page numbers. A page after the end of a truncated file kills the
process with SIGBUS instead of raising an error. So the file is read with ordinary reads first:

    meta pages 0 and 1  ->  the newer one names the last page ever used and the list of free pages
    file long enough for the last page          complete
    shorter, and every missing page is free     complete too: LMDB does not write pages that it used and freed in one transaction
                                                (frequent after deletes, half of all commits in a trial)
    anything else                               truncated

Layout: LMDB 0.9 on a 64-bit machine in its own byte order. This check must never write, and must check each number before it is used.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import Struct, error
from typing import IO, Any, NamedTuple
from zlib import crc32

import lmdb
import msgpack

from brokerha.model.errors import StoreDamaged, StoreError, StoreFull, StoreStuck
from brokerha.stores.files.durable import fsync_path

_MAGIC = 0xBEEFC0DE
HEADER_BYTES = 16
_META = Struct("=16x I I 8x 8x I H H Q Q Q Q Q 48x Q Q")
"""Page header; magic, version, address, map size; table of free pages (page size, flags, depth, branch pages, leaf pages,
overflow pages, entries, root); table of tables; last page, transaction number."""
PAGE = Struct("=Q H H H H")
NODE = Struct("=H H H H")
_NUMBER = Struct("=Q")
BRANCH, LEAF = 0x01, 0x02
_ON_OVERFLOW_PAGES = 0x01
NO_PAGE = 0xFFFF_FFFF_FFFF_FFFF
_DEPTH_LIMIT = 32
FORMAT = b"4"
CHANGES_SINCE = b"3"
_OLDER_FORMATS = frozenset({b"2", b"3"})
"""Formats that a store upgrades when it opens: format 2 has no queues or last changes, format 3 no digest of each repository."""
TABLES_LIMIT = 16
_TABLES = {
    "effects": b"effects",
    "keys": b"kv",
    "control": b"control",
    "queues": b"queues",
    "places": b"places",
    "counts": b"counts",
    "changes": b"changes",
}
"""Field of `Environment` -> table of LMDB."""
MAP_SIZE_BYTES = 64 * 1024**3
"""Address space for LMDB, and so the largest size of its file; the file grows with its content."""
READERS_LIMIT = 1024

_FORMAT_KEY, _IDENTITY_KEY = b"format", b"identity"
_DAMAGE = (
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)
"""Errors that LMDB raises only for damaged pages, or later in a transaction that met one. (A full disk or a full map raises at
once, and ends the batch.)"""
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

WriteTransaction = Any
"""An open LMDB write transaction; the type parameter of the library has no meaning here."""


class Head(NamedTuple):
    """Content of one of the two heads."""

    page_bytes: int
    free_root: int
    last_page: int
    number: int
    """Number of the transaction that wrote it."""


class Damaged(Exception):
    """The file contradicts itself."""


def check_data_file(path: Path) -> None:
    """Raise StoreDamaged when the LMDB file at ``path`` lacks pages that are in use. A missing file is fine."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        try:
            _check(file.fileno(), size)
        except (Damaged, error, OverflowError) as problem:
            # OverflowError: page numbers that lie beyond any file.
            raise StoreDamaged(
                f"{path.name} ({size} bytes) is damaged or cut off: {problem}; take the content from another worker"
            ) from None


def _check(descriptor: int, size_bytes: int) -> None:
    meta = max(heads(descriptor), key=lambda head: head.number)
    held_pages = size_bytes // meta.page_bytes
    missing = meta.last_page + 1 - held_pages
    if missing > 0:
        free = {page for page in _free_pages(descriptor, meta) if held_pages <= page <= meta.last_page}
        if len(free) != missing:
            raise Damaged(f"{missing - len(free)} pages in use lie after its end")


def heads(descriptor: int) -> list[Head]:
    """Return both heads of a file, or the valid one. Raises Damaged."""
    first = os.pread(descriptor, _META.size, 0)
    metas = []
    page_bytes = _meta(first).page_bytes
    for offset in (0, page_bytes):
        try:
            metas.append(_meta(os.pread(descriptor, _META.size, offset)))
        except (Damaged, error):
            continue
    if not metas:
        raise Damaged("it has no valid head")
    return metas


def _meta(raw: bytes) -> Head:
    magic, version, page_bytes, _, _, _, _, _, _, free_root, last_page, number = _META.unpack(raw)
    if magic != _MAGIC or version != 1 or page_bytes < 512 or page_bytes & (page_bytes - 1):
        raise Damaged("its head is not one of LMDB 0.9")
    return Head(page_bytes, free_root, last_page, number)


def _free_pages(descriptor: int, meta: Head) -> Iterator[int]:
    """Yield the numbers of all free pages: the values of a small B+ tree, each a count and that many page numbers."""
    if meta.free_root == NO_PAGE:
        return
    waiting = [(meta.free_root, 0)]
    while waiting:
        number, depth = waiting.pop()
        page = _read(descriptor, meta, number, 1)
        if depth > _DEPTH_LIMIT:
            raise Damaged("its list of free pages is endless")
        _, _, flags, lower, _ = PAGE.unpack_from(page)
        for place in range(HEADER_BYTES, lower, 2):
            offset = int.from_bytes(page[place : place + 2], sys.byteorder)
            low, high, node_flags, key_bytes = NODE.unpack_from(page, offset)
            if flags & BRANCH:
                waiting.append((low | high << 16 | node_flags << 32, depth + 1))
            elif flags & LEAF:
                yield from _numbers(descriptor, meta, page[offset + NODE.size + key_bytes :], low | high << 16, node_flags)
            else:
                raise Damaged(f"page {number} is not part of its list of free pages")


def _numbers(descriptor: int, meta: Head, data: bytes, data_bytes: int, node_flags: int) -> Iterator[int]:
    if node_flags & _ON_OVERFLOW_PAGES:
        (first,) = _NUMBER.unpack_from(data)
        pages = (HEADER_BYTES - 1 + data_bytes) // meta.page_bytes + 1
        data = _read(descriptor, meta, first, pages)[HEADER_BYTES:]
    count = _NUMBER.unpack_from(data)[0]
    if (count + 1) * _NUMBER.size > data_bytes:
        raise Damaged("its list of free pages is damaged")
    for index in range(1, count + 1):
        yield _NUMBER.unpack_from(data, index * _NUMBER.size)[0]


def _read(descriptor: int, meta: Head, page: int, count: int) -> bytes:
    raw = os.pread(descriptor, count * meta.page_bytes, page * meta.page_bytes)
    if len(raw) != count * meta.page_bytes:
        raise Damaged("its list of free pages lies after its end")
    return raw


@dataclass(frozen=True, slots=True)
class Identity:
    """Owner of the data."""

    cluster: str
    node: str
    journal: str
    """Unique name of a copy, given when its directory is made: another name under the same node id is another copy."""


@dataclass(frozen=True, slots=True)
class Environment:
    """An open directory."""

    lmdb: Any
    meta: Any
    effects: Any
    keys: Any
    control: Any
    queues: Any
    places: Any
    counts: Any
    changes: Any
    identity: Identity
    repositories: Path
    file: Path
    """The data file of LMDB."""
    lock: IO[str]

    def close(self) -> None:
        """Close LMDB, then release the lock."""
        self.lmdb.close()
        self.lock.close()


@contextmanager
def store_errors(doing: str) -> Iterator[None]:
    """Turn errors of LMDB and of the disk into StoreError or StoreDamaged, naming the failed action."""
    try:
        yield
    except lmdb.MapFullError as error:
        message = f"{doing}: the store has reached its largest size; start the worker with a larger map size"
        raise StoreError(message) from error
    except lmdb.PanicError as error:
        # LMDB could not write its root, for example on a full disk, and does nothing more until it is opened again.
        raise StoreStuck(f"{doing}: the last write failed in the middle; the store is opened anew") from error
    except _DAMAGE as error:
        raise StoreDamaged(f"{doing}: the store is damaged: {error}; take the content from another worker") from error
    except (lmdb.Error, OSError) as error:
        code = getattr(error, "code", 0) or getattr(error, "errno", 0) or 0
        if code in _NO_SPACE:
            raise StoreFull(f"{doing}: the disk is full") from error
        if code == errno.EIO:
            # LMDB reports EIO also when a disk took only the beginning of a write.
            raise StoreFull(f"{doing}: the disk is full or faulty") from error
        raise StoreError(f"{doing}: {_said(error, doing)}") from error


def _said(error: Exception, doing: str) -> str:
    """Return the text of an error, with its path unless ``doing`` names it."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else ""
    return error.strerror if doing.endswith(path) else f"{error.strerror} ({path})"


def random_name() -> str:
    """Return a unique name for a copy."""
    return secrets.token_hex(8)


def open_environment(
    directory: Path, cluster: str, node: str, map_size_bytes: int = MAP_SIZE_BYTES, new_name: Callable[[], str] = random_name
) -> Environment:
    """Open or make the directory. Raises StoreDamaged, StoreError: in use, of another format, cluster or node, no space."""
    with store_errors(f"cannot open the store in {directory.name}"):
        directory.mkdir(parents=True, exist_ok=True)
        lock = locked(directory)
        try:
            return _open(directory, cluster, node, map_size_bytes, new_name, lock)
        except BaseException:
            lock.close()
            raise


def locked(directory: Path) -> IO[str]:
    """Lock a directory for this process until the file is closed. Raises OSError, and StoreError with the id of the holder."""
    lock = (directory / "lock").open("a+", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read(20).strip() or "unknown"
        lock.close()
        raise StoreError(f"the store in {directory.name} is open in process {holder}; one process may have it") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def _open(directory: Path, cluster: str, node: str, map_size_bytes: int, new_name: Callable[[], str], lock: IO[str]) -> Environment:
    data, repositories = directory / "data", directory / "repositories"
    file = data / "data.mdb"
    is_empty = not file.exists() or file.stat().st_size == 0
    if is_empty and repositories.exists() and any(repositories.iterdir()):
        raise StoreDamaged(f"{directory.name} has repositories but no record of them: move it away, the node starts from a copy")
    check_data_file(file)
    data.mkdir(exist_ok=True)
    repositories.mkdir(exist_ok=True)
    environment = lmdb.Environment(
        str(data), map_size=map_size_bytes, max_dbs=TABLES_LIMIT, max_readers=READERS_LIMIT, max_spare_txns=4, readahead=False
    )
    try:
        meta = environment.open_db(b"meta")
        identity, is_new = _identity(environment, meta, cluster, node, new_name)
        tables: dict[str, Any] = {name: environment.open_db(key) for name, key in _TABLES.items()}
        if is_new:
            # fsync of LMDB covers the content of the new files, not their names.
            fsync_path(data)
            fsync_path(directory)
    except BaseException:
        environment.close()
        raise
    return Environment(lmdb=environment, meta=meta, identity=identity, repositories=repositories, file=file, lock=lock, **tables)


def _identity(environment: Any, meta: Any, cluster: str, node: str, new_name: Callable[[], str]) -> tuple[Identity, bool]:
    """Read the owner of a store, or write it into a new one. Return it, and whether it is new."""
    with environment.begin(db=meta, write=True) as transaction:
        found = transaction.get(_FORMAT_KEY)
        if found is None:
            if transaction.stat(meta)["entries"]:
                raise StoreDamaged("the store does not say what format it has; take the content from another worker")
            identity = Identity(cluster, node, new_name())
            transaction.put(_FORMAT_KEY, FORMAT)
            transaction.put(_IDENTITY_KEY, _packed(identity))
            return identity, True
        if found != FORMAT and found not in _OLDER_FORMATS:
            raise StoreError(
                f"the store has format {found.decode(errors='replace')}, this program knows {FORMAT.decode()}: use a later brokerha"
            )
        identity = _unpacked(transaction.get(_IDENTITY_KEY, b""))
    if (identity.cluster, identity.node) != (cluster, node):
        raise StoreError(
            f"the store belongs to node {identity.node} of cluster {identity.cluster}, not to {node} of {cluster}: "
            "wrong directory, or a wrong name in the cluster file"
        )
    return identity, False


def adopt(
    directory: Path,
    cluster: str,
    node: str,
    map_size_bytes: int = MAP_SIZE_BYTES,
    from_cluster: str = "",
    new_name: Callable[[], str] = random_name,
) -> None:
    """Make a copy from another node this node's own, with a new journal name. No process has it open.

    ``from_cluster`` is the cluster that it must come from; by default its own one.

    Raises StoreDamaged, and StoreError for another format, another cluster, or no space.
    """
    data = directory / "data"
    with store_errors(f"cannot take over the copy in {directory.name}"):
        check_data_file(data / "data.mdb")
        with lmdb.Environment(str(data), map_size=map_size_bytes, max_dbs=TABLES_LIMIT) as environment:
            meta = environment.open_db(b"meta")
            with environment.begin(db=meta, write=True) as transaction:
                if transaction.get(_FORMAT_KEY) not in {FORMAT, *_OLDER_FORMATS}:
                    raise StoreError("the copy that was loaded has another format than this program knows")
                origin = _unpacked(transaction.get(_IDENTITY_KEY, b""))
                if origin.cluster != (from_cluster or cluster):
                    raise StoreError(
                        f"the copy that was loaded belongs to cluster {origin.cluster}, not to {from_cluster or cluster}"
                    )
                transaction.put(_IDENTITY_KEY, _packed(Identity(cluster, node, new_name())))


def format_of(transaction: Any, meta: Any) -> bytes:
    """Return the format of an open copy."""
    return bytes(transaction.get(_FORMAT_KEY, db=meta))


def write_format(transaction: WriteTransaction, meta: Any) -> None:
    """Write the present format into a copy."""
    transaction.put(_FORMAT_KEY, FORMAT, db=meta)


def _packed(identity: Identity) -> bytes:
    body: bytes = msgpack.packb([identity.cluster, identity.node, identity.journal])
    return crc32(body).to_bytes(4, "big") + body


def _unpacked(row: bytes) -> Identity:
    if len(row) <= 4 or crc32(row[4:]) != int.from_bytes(row[:4], "big"):
        raise StoreDamaged("the store does not say whose it is; take the content from another worker")
    return Identity(*msgpack.unpackb(row[4:]))
