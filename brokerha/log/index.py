"""The place of each record, and the record of each LSN, result or entry of a stream.

    numbers      record number                -> segment, offset
    added        LSN                          -> number of the `Added` record, and the place of the body of each LSN
    outcomes     LSN                          -> number of the `Outcomes` record
    streams      origin, number of an entry   -> number of the `Appended` record

Rows are appended in the order of positions; each is about one record, and covers ``count`` positions from ``start`` on. A rewind
cuts off the end. The rows from the records of one segment are a `Part`: in memory while the segment is written, in its own file
(``<segment>.index``) once it is closed. So a start reads one segment, and memory holds a few parts, however long the log is.

A place locates a body: number of its record << 20 | index among the record's items. 0 means that no body is held.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from brokerha.log.frames import sealed, unsealed
from brokerha.log.limits import INDEXES_HELD
from brokerha.model.ids import NodeId

ITEM_BITS = 20
ITEMS_LIMIT = 1 << ITEM_BITS
ADDED, OUTCOMES = "", "\0"
"""Keys of the two tables by LSN; the keys of streams are node ids."""


_first_of_span = itemgetter(1)


class Row(NamedTuple):
    """A record that covers ``size`` positions from ``start`` on."""

    start: int
    number: int
    size: int


class Part:
    """The rows of one segment in one table."""

    __slots__ = ("counts", "numbers", "place_at", "places", "starts")

    def __init__(self) -> None:
        self.starts = array("Q")
        self.numbers = array("Q")
        self.counts = array("I")
        self.place_at = array("I")
        """Start of the places of each row; empty in tables without places."""
        self.places = array("Q")

    def packed(self) -> list[bytes]:
        """Return its bytes, for a file."""
        return [
            self.starts.tobytes(),
            self.numbers.tobytes(),
            self.counts.tobytes(),
            self.place_at.tobytes(),
            self.places.tobytes(),
        ]

    def read(self, data: list[bytes]) -> Part:
        """Restore the result of `packed`."""
        for column, values in zip((self.starts, self.numbers, self.counts, self.place_at, self.places), data, strict=True):
            column.frombytes(values)
        return self

    def pop(self) -> None:
        """Remove the last row."""
        del self.starts[-1], self.numbers[-1], self.counts[-1]
        if self.place_at:
            del self.places[self.place_at.pop() :]


class SegmentIndex:
    """The index of the records of one segment."""

    __slots__ = ("numbers", "offsets", "parts")

    def __init__(self) -> None:
        self.numbers = array("Q")
        self.offsets = array("I")
        self.parts: dict[str, Part] = {}

    def packed(self) -> bytes:
        """Return the bytes of its file."""
        parts = {key: part.packed() for key, part in self.parts.items()}
        return sealed([self.numbers.tobytes(), self.offsets.tobytes(), parts])


def read_index(data: bytes, place: str) -> SegmentIndex:
    """Restore the result of `SegmentIndex.packed`. Raises JournalDamaged."""
    numbers, offsets, parts = unsealed(data, place)
    index = SegmentIndex()
    index.numbers.frombytes(numbers)
    index.offsets.frombytes(offsets)
    index.parts = {key: Part().read(part) for key, part in parts.items()}
    return index


class Index:
    """The index of a whole log; ``load`` reads that of a closed segment. For one thread at a time."""

    def __init__(self, load: Callable[[int], SegmentIndex]) -> None:
        self._load = load
        self._held: OrderedDict[int, SegmentIndex] = OrderedDict()
        self.segment = 0
        """Number of the active segment."""
        self.active = SegmentIndex()
        self._spans: dict[str, list[list[int]]] = {}
        """For each table: [segment, first position, position after the last] of each part, in order."""

    def packed(self, gone: set[int]) -> Any:
        """Return the part for a checkpoint, without ``gone`` segments. The active segment must be empty."""
        return [(key, [span for span in spans if span[0] not in gone]) for key, spans in self._spans.items()]

    def read(self, packed: Any, segment: int) -> None:
        """Restore the result of `packed`, with an empty active segment."""
        self._spans = {key: [list(span) for span in spans] for key, spans in packed}
        self.segment, self.active = segment, SegmentIndex()

    def roll(self, segment: int) -> None:
        """Continue in another segment; the previous index is read from its file when it is no longer cached."""
        self._hold(self.segment, self.active)
        self.segment, self.active = segment, SegmentIndex()

    def of_segment(self, segment: int) -> SegmentIndex:
        """Return the index of one segment. Raises JournalDamaged."""
        if segment == self.segment:
            return self.active
        found = self._held.get(segment)
        if found is None:
            found = self._load(segment)
            self._hold(segment, found)
        return found

    def _hold(self, segment: int, index: SegmentIndex) -> None:
        self._held[segment] = index
        while len(self._held) > INDEXES_HELD:
            self._held.popitem(last=False)

    def drop(self, segment: int) -> None:
        """Forget a removed segment."""
        self._held.pop(segment, None)
        for key, spans in list(self._spans.items()):
            if spans and any(span[0] == segment for span in spans):
                self._spans[key] = [span for span in spans if span[0] != segment]

    # ------------------------------------------------------------------------ writing

    def put(self, number: int, offset: int) -> None:
        """Note the offset of a record in the active segment."""
        self.active.numbers.append(number)
        self.active.offsets.append(offset)

    def add(self, key: str, start: int, number: int, count: int, places: list[int] | None = None) -> None:
        """Note that a record covers positions after all others of its table."""
        part = self.active.parts.get(key)
        if part is None:
            part = self.active.parts[key] = Part()
        if not part.starts:
            self._spans.setdefault(key, []).append([self.segment, start, start])
        part.starts.append(start)
        part.numbers.append(number)
        part.counts.append(count)
        if places is not None:
            part.place_at.append(len(part.places))
            part.places.extend(places)
        self._spans[key][-1][2] = start + count

    def clear(self, key: str) -> None:
        """Forget all rows of a table."""
        self._spans.pop(key, None)
        self.active.parts.pop(key, None)

    def cut(self, key: str, end: int) -> list[tuple[Row, int, list[int]]]:
        """Cut off all positions from ``end`` on; return rows with their remaining count, and the removed places.

        Empty rows at ``end`` stay; those after it are removed.
        """
        gone: list[tuple[Row, int, list[int]]] = []
        spans = self._spans.get(key, [])
        while spans:
            segment, _, last = spans[-1]
            part = self.of_segment(segment).parts[key]
            at = len(part.starts) - 1
            while at >= 0:
                start, count = part.starts[at], part.counts[at]
                if start > last or (start == last and count):
                    # It was cut off before.
                    at -= 1
                    continue
                row = Row(start, part.numbers[at], min(count, last - start))
                left = max(0, min(row.size, end - start))
                if left == row.size and (row.size or start <= end):
                    break
                places = []
                if part.place_at:
                    begin = part.place_at[at]
                    places = list(part.places[begin + left : begin + row.size])
                gone.append((row, left, places))
                if segment == self.segment:
                    self._shorten(part, at, left)
                if left:
                    break
                at -= 1
            if at >= 0:
                spans[-1][2] = min(last, end)
                break
            spans.pop()
            if segment == self.segment:
                del self.active.parts[key]
        gone.reverse()
        return gone

    @staticmethod
    def _shorten(part: Part, at: int, left: int) -> None:
        while len(part.starts) > at + 1:
            part.pop()
        if not left:
            part.pop()
            return
        part.counts[at] = left
        if part.place_at:
            del part.places[part.place_at[at] + left :]

    # ------------------------------------------------------------------------ reading

    def offset(self, segment: int, number: int) -> int | None:
        """Return the offset of a record in a segment; None when it is not there."""
        index = self.of_segment(segment)
        at = bisect_right(index.numbers, number) - 1
        return index.offsets[at] if at >= 0 and index.numbers[at] == number else None

    def find(self, key: str, position: int) -> Row | None:
        """Return the row that covers a position."""
        found = self._find(key, position)
        return None if found is None else found[0]

    def place(self, lsn: int) -> int:
        """Return the place of the body of an LSN; 0 when none is held."""
        found = self._find(ADDED, lsn)
        if found is None:
            return 0
        row, part, at = found
        place: int = part.places[part.place_at[at] + lsn - row.start]
        return place

    def _find(self, key: str, position: int) -> tuple[Row, Part, int] | None:
        spans = self._spans.get(key)
        if not spans:
            return None
        at = bisect_right(spans, position, key=_first_of_span) - 1 if len(spans) > 1 else 0
        if at < 0:
            return None
        segment, _, end = spans[at]
        if position >= end:
            return None
        part = self.of_segment(segment).parts[key]
        row = bisect_right(part.starts, position) - 1
        if row < 0:
            return None
        start = part.starts[row]
        count = min(part.counts[row], end - start)
        if position >= start + count:
            return None
        return Row(start, part.numbers[row], count), part, row

    def rows(self, key: str, position: int) -> Iterator[Row]:
        """Yield rows from a position on, in order, including empty ones."""
        for segment, _, end in list(self._spans.get(key, [])):
            if end < position:
                continue
            part = self.of_segment(segment).parts[key]
            for at in range(max(0, bisect_left(part.starts, position) - 1), len(part.starts)):
                start, count = part.starts[at], part.counts[at]
                if start > end or (start == end and count):
                    break
                count = min(count, end - start)
                if start >= position or start + count > position:
                    yield Row(start, part.numbers[at], count)

    def last_before(self, key: str, end: int) -> Row | None:
        """Return the last row that ends at or before a position."""
        for segment, first, last in reversed(self._spans.get(key, [])):
            if first >= end:
                continue
            part = self.of_segment(segment).parts[key]
            for at in range(bisect_right(part.starts, end) - 1, -1, -1):
                start, count = part.starts[at], min(part.counts[at], max(0, last - part.starts[at]))
                if count and start + count <= min(end, last):
                    return Row(start, part.numbers[at], count)
        return None

    def keys(self) -> list[NodeId]:
        """Return the origins of streams that have rows."""
        return [key for key in self._spans if key not in {ADDED, OUTCOMES}]
