"""Workers whose process has ended: they say so, or the broker does, and another one executes without waiting for `dead-after-ms`."""

from __future__ import annotations

from tests.unit.replication.benches import SiteBench, ranges

DEAD_MS = 5000
GONE_MS, SILENT_MS = 500, 2500


def at_work() -> SiteBench:
    """w1 executes three transactions, w2 waits for their lines."""
    bench = SiteBench(lsn=3, dead_after_ms=DEAD_MS)
    bench.heard("w1")
    bench.heard("w2")
    assert ranges(bench.sent()["w1"]) == [("Execute", 1, 3)]
    return bench


def looks(bench: SiteBench, for_ms: int) -> list[tuple[int, list[str]]]:
    """(milliseconds from now, whom the broker is asked about), each 100 ms."""
    began_ms, found = bench.ms, []
    for _ in range(for_ms // 100):
        bench.ms += 100
        if asked := bench.feed.looks(bench.ms):
            found.append((bench.ms - began_ms, asked))
    return found


def test_the_broker_is_asked_for_one_whose_word_is_waited_for_and_asked_again() -> None:
    assert looks(at_work(), 1_200) == [(500, ["w1"]), (1_000, ["w1"])]


def test_where_nothing_is_waited_for_it_is_asked_after_more_than_a_heartbeat() -> None:
    bench = at_work()
    bench.executed("w1", 1, 3)
    bench.heard("w2", applied=3)
    assert looks(bench, 2_500) == [(2_500, ["w1", "w2"])]


def test_one_that_never_had_anything_to_do_is_asked_for_as_well() -> None:
    bench = SiteBench(dead_after_ms=DEAD_MS)
    bench.heard("w1")
    assert looks(bench, 2_500) == [(2_500, ["w1"])]


def test_nobody_asks_for_one_that_is_heard_was_never_heard_or_is_dead() -> None:
    bench = SiteBench(lsn=3, dead_after_ms=DEAD_MS)
    assert looks(bench, DEAD_MS) == []
    bench.heard("w1")
    for _ in range(20):
        bench.ms += 400
        bench.heard("w1")
        assert bench.feed.looks(bench.ms) == []
    bench.ms += DEAD_MS
    assert bench.feed.looks(bench.ms) == []


def test_it_wakes_up_to_ask() -> None:
    bench = at_work()
    assert bench.feed.deadline_ms(bench.ms) == bench.ms + GONE_MS
    bench.executed("w1", 1, 3)
    bench.heard("w2", applied=3)
    # It looks once more, and then sees that nothing is waited for
    assert looks(bench, GONE_MS) == []
    assert bench.feed.deadline_ms(bench.ms) == bench.ms - GONE_MS + SILENT_MS


def test_one_that_nobody_reads_for_is_dead_and_the_next_one_executes() -> None:
    bench = at_work()
    bench.ms += GONE_MS
    bench.heard("w2")
    bench.feed.on_absence("w1", bench.ms)
    assert bench.feed.alive(bench.ms) == ["w2"]
    assert ranges(bench.sent()["w2"]) == [("Execute", 1, 3)]
    # And it is there again with its first word
    bench.heard("w1")
    assert bench.feed.alive(bench.ms) == ["w1", "w2"]


def test_an_answer_that_is_older_than_its_last_word_is_nothing() -> None:
    bench = at_work()
    bench.ms += GONE_MS
    bench.heard("w1")
    bench.feed.on_absence("w1", bench.ms)
    assert bench.feed.alive(bench.ms) == ["w1", "w2"]


def test_one_that_says_that_it_ends_is_dead_at_once() -> None:
    bench = at_work()
    bench.feed.on_gone("w1", bench.ms)
    assert bench.feed.alive(bench.ms) == ["w2"]
    assert ranges(bench.sent()["w2"]) == [("Execute", 1, 3)]
    assert looks(bench, 400) == []
