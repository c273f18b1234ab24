"""What was applied before a split in which the site kept its content is not executed again."""

from __future__ import annotations

from typing import cast

from brokerha.model.given_up import UNKNOWN_OUTCOME, GivenUp, Split
from brokerha.model.operations import NO_OPERATIONS
from brokerha.model.records import History
from brokerha.model.wire.messages import Execute
from brokerha.replication.site.lineages import executed_before
from tests.unit.replication.benches import SiteBench


class Book:
    """The part of a history that is read."""

    def __init__(self, lsns: dict[str, int]) -> None:
        self.lsns = lsns
        self.entries: dict[Split, list[GivenUp]] = {}

    def add(self, number: int, lsn: int, *outcomes: tuple[str, str], keeps_content: bool = True) -> None:
        """Give up these transactions, which stood after this LSN."""
        split = Split(number, 1, 2, keeps_content, lsn, len(outcomes), 0, len(outcomes))
        self.entries[split] = [GivenUp(lsn + 1 + n, txid, "m2", outcome) for n, (txid, outcome) in enumerate(outcomes)]

    def lsn_of(self, txid: str) -> int | None:
        """As `History`."""
        return self.lsns.get(txid)

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
    book.lsn_of = None  # type: ignore[assignment, method-assign]
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


def test_what_was_executed_before_is_sent_without_its_operations() -> None:
    bench = SiteBench(lsn=3)
    bench.feed.executed_before = {"t2"}
    bench.heard("w1")
    message = bench.sent()["w1"][0]
    assert isinstance(message, Execute)
    assert [body == NO_OPERATIONS for _, _, body in message.items] == [False, True, False]
