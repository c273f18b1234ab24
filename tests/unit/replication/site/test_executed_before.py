"""What was applied before a split in which the site kept its content is not executed again."""

from __future__ import annotations

from typing import cast

from brokerha.model.given_up import UNKNOWN_OUTCOME, GivenUp, Split
from brokerha.model.operations import NO_OPERATIONS
from brokerha.model.records import Added, BodiesHeld, History
from brokerha.model.wire.messages import Execute
from brokerha.replication.site.lineages import executed_before
from tests.unit.replication.benches import SiteBench


class Book:
    """The part of a history that is read."""

    def __init__(self, lsns: dict[str, int], forgotten_below: int = 0) -> None:
        self.lsns = lsns
        self.forgotten_below = forgotten_below
        self.entries: dict[Split, list[GivenUp]] = {}

    def add(self, number: int, lsn: int, *outcomes: tuple[str, str], keeps_content: bool = True) -> None:
        """Give up these transactions, which stood after this LSN."""
        split = Split(number, 1, 2, keeps_content, lsn, len(outcomes), 0, len(outcomes))
        self.entries[split] = [GivenUp(lsn + 1 + n, txid, "m2", outcome) for n, (txid, outcome) in enumerate(outcomes)]

    def known_at(self, txid: str, end: int) -> int | None:
        """As `History`."""
        lsn = self.lsns.get(txid, end + 1)
        return lsn if lsn <= end else None

    def ids_from(self, _end: int) -> int:
        """As `History`."""
        return self.forgotten_below

    def splits(self) -> list[Split]:
        """As `History`."""
        return list(self.entries)

    def given_up(self, number: int, first_lsn: int, limit: int) -> list[GivenUp]:
        """As `History`."""
        return [e for split, given in self.entries.items() if split.number == number for e in given if e.lsn >= first_lsn][:limit]


def found(book: Book, executed: int) -> set[str]:
    return executed_before(cast("History", book), executed)


def test_only_what_was_applied_counts() -> None:
    book = Book({})
    book.add(7, 10, ("a", "applied"), ("r", "rejected"), ("u", UNKNOWN_OUTCOME))
    assert found(book, 10) == {"a"}


def test_what_has_a_result_in_the_queue_of_now_does_not_count_any_more() -> None:
    book = Book({"done": 11, "waits": 12})
    book.add(7, 10, ("done", "applied"), ("waits", "applied"), ("absent", "applied"))
    assert found(book, 11) == {"waits", "absent"}


def test_right_after_going_back_nothing_is_looked_up() -> None:
    book = Book({})
    book.add(7, 10, ("a", "applied"))
    book.known_at = None  # type: ignore[assignment, method-assign]
    assert found(book, 10) == {"a"}


def test_what_a_site_executed_before_it_took_the_content_of_another_one_does_not_count() -> None:
    book = Book({})
    book.add(7, 10, ("a", "applied"))
    book.add(9, 20, ("b", "applied"))
    assert executed_before(cast("History", book), 10, since=7) == {"b"}


def test_a_split_whose_content_was_taken_back_does_not_count() -> None:
    book = Book({})
    book.add(7, 10, ("a", "applied"), keeps_content=False)
    book.add(9, 20, ("b", "applied"))
    assert found(book, 10) == {"b"}


def test_a_long_split_is_read_to_its_end() -> None:
    book = Book({})
    book.add(7, 10, *((f"t{n}", "applied") for n in range(2_500)))
    assert len(found(book, 10)) == 2_500


def test_a_place_that_the_queue_had_before_it_went_back_is_no_new_one() -> None:
    # Given an id that was forgotten, and came again on the side that was given up
    book = Book({"a": 3})
    book.add(7, 10, ("a", "applied"))
    assert found(book, 12) == {"a"}
    # When the place that it gets is not reached, because the queue goes back further
    book.add(8, 5)
    book.lsns = {"a": 8}
    assert found(book, 12) == set()


def test_once_ids_after_a_split_are_forgotten_all_that_it_gave_up_had_a_place_again() -> None:
    book = Book({})
    book.add(7, 10, ("a", "applied"))
    book.add(8, 50, ("b", "applied"))
    book.forgotten_below = 11
    assert found(book, 99) == {"a", "b"}
    book.forgotten_below = 12
    assert found(book, 99) == {"b"}
    # After a later one that went back further there are none
    book.add(9, 10)
    assert found(book, 99) == set()


def test_what_has_a_result_is_sent_with_its_operations_when_its_id_comes_again() -> None:
    bench = SiteBench(lsn=3)
    bench.feed.executed_before = {"t2", "t9"}
    bench.heard("w1")
    assert bench.executed("w1", 1, 3) is not None
    # When another transaction under that id has a place, because it was forgotten
    bench.journal.append([BodiesHeld((("m2", "t2", b"other"),)), Added(4, ((4, "t2", "m2"),), {}, 1)])
    bench.feed.lsn = bench.site.lsn = 4
    bench.heard("w1", 3)
    (message,) = [message for message in bench.sent()["w1"] if isinstance(message, Execute)]
    assert message == Execute(4, (("t2", 4, b"other"),), message.view)
    assert bench.feed.executed_before == {"t9"}


def test_what_was_executed_before_is_sent_without_its_operations() -> None:
    bench = SiteBench(lsn=3)
    bench.feed.executed_before = {"t2"}
    bench.heard("w1")
    message = bench.sent()["w1"][0]
    assert isinstance(message, Execute)
    assert [body == NO_OPERATIONS for _, _, body in message.items] == [False, True, False]
