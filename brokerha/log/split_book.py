"""The split book: transactions given up when the synchronised queue went back (`Rewound`).

It is for people, and for a site that kept its content (strategy none): transactions in that content must not be executed again.

    splits()                     [Split(number=412, epoch=3, lineage=5, keeps_content=False, lsn=100, total=2, stamped=…, held=2)]      oldest first
    given_up(412, 101, 1_000)    [GivenUp(101, "x", "m3", "applied"), GivenUp(102, "y", "m3", "rejected")]

Each `Rewound` is one split, named by the number of its record, even without given up transactions. It has the old LSNs with their
transactions and known outcomes here. The last `SPLITS_KEPT` splits stay, with `ENTRIES_KEPT` entries in total: the oldest splits
lose theirs first and keep their head line; a split with more keeps the first ones. Entries that can still be executed a second
time stay beyond these bounds: the log, which holds their bodies, bounds them. The book outlives trimming and forgotten ids, and
is a part of each copy of the log.

Head lines are in memory and in checkpoints, entries in a separate file (``split-<number>``), in sealed pages of `PAGE_ENTRIES`.
Entries since the last checkpoint are in memory, because the log has them too.

Invariant: the same records give the same book within its bounds, whatever a log has trimmed. Must never lose a split with an
entry that the content holds and that can be executed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from brokerha.log.frames import sealed, unsealed
from brokerha.model.given_up import GivenUp, Split
from brokerha.model.ids import Lsn
from brokerha.ports.disk import Disk

SPLITS_KEPT = 32
ENTRIES_KEPT = 1_000_000
PAGE_ENTRIES = 1_000
"""Number of entries read at once."""


def losers(heads: Sequence[Split], is_needed: Callable[[Split], bool]) -> tuple[list[Split], list[Split]]:
    """Return, of splits in order: those to drop, and those that stay without their entries."""
    gone = [split for split in heads[:-SPLITS_KEPT] if not is_needed(split)]
    entries, emptied = 0, list[Split]()
    for split in reversed(heads[-SPLITS_KEPT:]):
        entries += split.held
        if entries > ENTRIES_KEPT and split.held and not is_needed(split):
            emptied.append(split)
    return gone, emptied


class SplitBook:
    """The book of one log, with files in ``folder``. Raises OSError, JournalDamaged."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self.splits: dict[int, Split] = {}
        self._pages: dict[int, list[tuple[Lsn, int, int]]] = {}
        """For each split: (last LSN, offset, size in bytes) of each page."""
        self._fresh: dict[int, bytes] = {}
        """Pages of splits that no checkpoint names yet."""

    def add(self, split: Split, entries: Sequence[GivenUp], is_open: Callable[[GivenUp], bool]) -> None:
        """Add all transactions that a `Rewound` gave up, and keep the book within its bounds.

        ``is_open`` tells whether a given up transaction that was applied here can come again.
        """
        held = entries if split.keeps_content else entries[:ENTRIES_KEPT]
        self.splits[split.number], self._pages[split.number] = split._replace(held=len(held)), []
        if held:
            data = bytearray()
            for start in range(0, len(held), PAGE_ENTRIES):
                page = held[start : start + PAGE_ENTRIES]
                packed = sealed(page)
                self._pages[split.number].append((page[-1].lsn, len(data), len(packed)))
                data += packed
            self._fresh[split.number] = bytes(data)

        def is_needed(one: Split) -> bool:
            return one.keeps_content and any(map(is_open, self._entries(one.number)))

        gone, emptied = losers(list(self.splits.values()), is_needed)
        for old in emptied:
            self.splits[old.number], self._pages[old.number] = old._replace(held=0), []
        for old in gone:
            del self.splits[old.number], self._pages[old.number]

    def given_up(self, number: int, first_lsn: Lsn, limit: int) -> list[GivenUp]:
        """Return up to ``limit`` entries of a split, from an old LSN on; none when they are no longer listed."""
        found: list[GivenUp] = []
        for last, offset, size in self._pages.get(number, ()):
            if last >= first_lsn:
                found += [entry for entry in self._page(number, offset, size) if entry.lsn >= first_lsn]
                if len(found) >= limit:
                    break
        return found[:limit]

    def _entries(self, number: int) -> Iterator[GivenUp]:
        for _, offset, size in self._pages[number]:
            yield from self._page(number, offset, size)

    def _page(self, number: int, offset: int, size: int) -> list[GivenUp]:
        name, fresh = self._name(number), self._fresh.get(number)
        data = self._disk.read(name, offset, size) if fresh is None else fresh[offset : offset + size]
        entries = unsealed(data, f"{self._disk.place}/{name}")
        return [GivenUp(*entry) for entry in entries]

    def _name(self, number: int) -> str:
        return f"{self._folder}/split-{number}"

    def write(self) -> list[str]:
        """Write pages that no checkpoint names yet; return their files, which must be synced before one does."""
        names = [self._name(number) for number in self._fresh if self._pages.get(number)]
        for number, data in self._fresh.items():
            if self._pages.get(number):
                self._disk.create(self._name(number))
                self._disk.write(self._name(number), 0, data)
        return names

    def written(self) -> None:
        """Note that the pages of `write` are durable."""
        self._fresh = {}

    def files(self) -> list[str]:
        """Return the needed files."""
        return [self._name(number) for number, pages in self._pages.items() if pages]

    def problems(self) -> Iterator[str]:
        """Yield every damaged page as a sentence."""
        for number, pages in self._pages.items():
            for _, offset, size in pages:
                try:
                    self._page(number, offset, size)
                except Exception as error:  # noqa: BLE001
                    yield str(error)

    def packed(self) -> Any:
        """Return the part for a checkpoint."""
        return [[list(split), self._pages[number]] for number, split in self.splits.items()]

    def read(self, packed: Any) -> None:
        """Restore the result of `packed`."""
        self.splits, self._pages, self._fresh = {}, {}, {}
        for head, pages in packed:
            split = Split(*head)
            self.splits[split.number], self._pages[split.number] = split, [tuple(page) for page in pages]
