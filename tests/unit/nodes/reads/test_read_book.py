"""The book of a worker's reads, by hand: no threads, no clock."""

from __future__ import annotations

import pytest

from brokerha.model.errors import NotReady, TimedOut
from brokerha.nodes.reads.book import Job, ReadBook, ReadLimits

LIMITS = ReadLimits(threads=2, queue=5, stuck=2, grace_s=0.5, slow_s=1.0)


def job(deadline_s: float = 30.0, min_lsn: int = 0) -> Job:
    return Job("get", "t", {}, min_lsn, deadline_s)


@pytest.fixture
def book() -> ReadBook:
    return ReadBook(LIMITS)


def begun(book: ReadBook, read: Job, now_s: float = 0.0) -> Job:
    assert book.admit(read, applied=100) is None
    assert book.begin(now_s, 7) is read
    return read


@pytest.mark.parametrize(
    ("ready", "idle", "alive", "started"), [(0, 0, 0, 0), (1, 0, 0, 1), (1, 1, 1, 0), (3, 0, 0, 2), (3, 1, 1, 1), (5, 0, 2, 0)]
)
def test_as_many_threads_are_started_as_there_is_work_for(book: ReadBook, ready: int, idle: int, alive: int, started: int) -> None:
    for _ in range(ready):
        assert book.admit(job(), applied=100) is None
    assert book.threads_wanted(idle, alive) == started


def test_reads_beyond_the_queue_are_refused_until_one_is_over(book: ReadBook) -> None:
    running = begun(book, job())
    for _ in range(4):
        assert book.admit(job(), applied=100) is None
    refusal = book.admit(job(), applied=100)
    assert isinstance(refusal, NotReady)
    assert "5 reads are under way" in str(refusal)
    assert book.settle(running)
    book.end(running)
    assert book.admit(job(), applied=100) is None


def test_a_read_waits_for_its_lsn_or_for_its_deadline(book: ReadBook) -> None:
    waits, late = job(min_lsn=120), job(2.0, min_lsn=110)
    assert book.admit(waits, applied=100) is None
    assert book.admit(late, applied=100) is None
    assert book.begin(0.0, 7) is None
    assert book.on_applied(109) == 0
    failed = book.due(2.0, applied=109).failed
    assert [(each, str(error)) for each, error in failed] == [(late, "LSN 110 was not applied in time; this copy is at 109")]
    assert book.on_applied(130) == 1
    assert book.begin(2.0, 7) is waits


def test_a_read_that_found_no_thread_is_told_so_at_its_deadline(book: ReadBook) -> None:
    begun(book, job())
    waits = job(2.0)
    assert book.admit(waits, applied=100) is None
    (failed,) = book.due(2.0, applied=100).failed
    assert failed[0] is waits
    assert "no thread was free" in str(failed[1])
    assert book.begin(3.0, 7) is None


def test_a_running_read_becomes_slow_then_late_then_stuck(book: ReadBook) -> None:
    read = begun(book, job(5.0))
    assert book.next_s() == 1.0
    assert book.due(1.0, 100).slow == [read]
    assert book.next_s() == 5.0
    due = book.due(5.0, 100)
    assert [(each, type(error)) for each, error in due.failed] == [(read, TimedOut)]
    assert (due.stuck, book.stuck, book.open_jobs, book.running) == ([], 0, 0, 1)
    assert book.next_s() == 5.5
    assert book.due(5.5, 100).stuck == [read]
    assert (book.stuck, book.next_s()) == (1, None)
    # Its caller was told; the thread that comes back at last has nothing to say, and is not used again.
    assert not book.settle(read)
    assert not book.end(read)
    assert (book.stuck, book.running) == (0, 0)


def test_a_stuck_thread_is_replaced_up_to_the_bound_and_then_reads_are_refused(book: ReadBook) -> None:
    first, second = begun(book, job(1.0)), begun(book, job(1.0))
    waits = job()
    assert book.admit(waits, applied=100) is None
    assert book.threads_wanted(idle=0, alive=2) == 0
    book.due(1.0, 100)
    book.due(1.5, 100)
    assert book.stuck == 2
    assert "started again" in book.overrun
    assert waits.is_settled
    refusal = book.admit(job(), applied=100)
    assert str(refusal) == str(NotReady(book.overrun))
    book.end(first)
    assert book.overrun == ""
    assert book.admit(job(), applied=100) is None
    assert book.threads_wanted(idle=0, alive=1) == 1
    book.end(second)
    assert book.threads_wanted(idle=0, alive=0) == 1


def test_a_thread_that_had_a_quick_read_is_used_again(book: ReadBook) -> None:
    read = begun(book, job())
    assert book.settle(read)
    assert book.end(read)
    assert book.next_s() is None


def test_closing_the_door_fails_what_is_under_way_and_refuses_the_rest(book: ReadBook) -> None:
    running, waiting, ready = job(), job(min_lsn=500), job()
    begun(book, running)
    for each in (waiting, ready):
        assert book.admit(each, applied=100) is None
    before = book.opening
    assert book.close_door("this copy is being replaced") == [running, waiting, ready]
    assert book.opening != before
    # The rows of the running one come to nothing.
    assert not book.settle(running)
    assert book.end(running)
    assert book.begin(0.0, 7) is None
    assert str(book.admit(job(), applied=100)) == "this copy is being replaced"
    opening = book.opening
    assert book.close_door("this copy is being replaced") == []
    assert book.opening == opening
    book.open_door()
    assert book.admit(job(), applied=100) is None


def test_what_is_over_leaves_nothing_behind(book: ReadBook) -> None:
    for round_number in range(50):
        assert book.admit(job(1.0, min_lsn=10**6), applied=100) is None
        read = begun(book, job(1.0))
        book.settle(read)
        book.end(read)
        assert len(book.due(1.0, 100).failed) == 1, round_number
    assert (book.open_jobs, book.running, book.next_s(), book.on_applied(10**7)) == (0, 0, None, 0)


def test_reads_that_go_on_from_before_a_closing_are_told_from_later_ones(book: ReadBook) -> None:
    before = begun(book, job())
    book.close_door("w1 is out of sync")
    closed = book.opening
    assert (book.running_before(closed - 1), book.running_before(closed)) == (0, 1)
    book.open_door()
    begun(book, job())
    assert (book.running, book.running_before(closed)) == (2, 1)
    book.end(before)
    assert (book.running, book.running_before(closed)) == (1, 0)
