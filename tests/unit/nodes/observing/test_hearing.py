"""When a node leaves a way over which it is not heard, or hears nobody: a master by what the rows of the others say, a worker when it is greeted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.model.wire.messages import Post
from brokerha.nodes.observing.hearing import (
    ASK_MS,
    GREETED_MS,
    IN,
    MOST_MS,
    OUT,
    PATIENCE_MS,
    BackupHearing,
    MasterHearing,
    WorkerHearing,
)
from tests.unit.master.one_of_three import ROW, OneOfThree

EVERY_MS = 500


@pytest.mark.parametrize("is_known", [True, False])
def test_a_worker_that_its_master_has_never_greeted_says_so_once(is_known: bool) -> None:
    hearing = WorkerHearing(1000)
    hearing.is_known = is_known
    told = [at for at in range(1000, 100_000, EVERY_MS) if hearing.is_to_tell(at)]
    assert told == ([] if is_known else [1000 + GREETED_MS])


class Bench(OneOfThree):
    """m1, which looks every half second at what the others say."""

    def __init__(self, members: tuple[str, ...] = ("m1", "m2", "m3")) -> None:
        super().__init__(members)
        self.hearing = MasterHearing()
        self.is_judged = True

    def look(self, for_ms: int, **heard: tuple[str, ...]) -> list[tuple[int, tuple[str, ...]]]:
        """Time passes while these say whom they hear; (ms since the beginning of it, directions given up)."""
        began_ms, given_up = self.ms, []
        while self.ms < began_ms + for_ms:
            self.ms += EVERY_MS
            for sender, names in heard.items():
                self.post(sender, heard=names)
            self.run()
            if directions := self.hearing.look(self.core.sync, self.now(), is_judged=self.is_judged):
                given_up.append((self.ms - began_ms, directions))
        return given_up


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    assert made.look(10_000, m2=("m1", "m3"), m3=("m1", "m2")) == []
    return made


def test_a_way_out_over_which_one_is_not_heard_is_given_up_after_a_while_and_then_less_and_less_often(bench: Bench) -> None:
    given_up = bench.look(200_000, m2=("m3",), m3=("m2",))
    first = EVERY_MS
    assert given_up == [(at + first, (OUT,)) for at in (5_000, 15_000, 35_000, 75_000, 135_000, 195_000)]
    assert bench.hearing.reason == "m2, m3: heard of, and m1 is not heard by them through its broker node"


def test_one_who_does_not_hear_is_enough_if_it_hears_others(bench: Bench) -> None:
    assert bench.look(8_000, m2=("m1", "m3"), m3=("m2",)) == [(PATIENCE_MS + EVERY_MS, (OUT,))]
    assert bench.hearing.reason == "m3: heard of, and m1 is not heard by it through its broker node"


def test_of_one_who_hears_nobody_the_fault_is_its_own(bench: Bench) -> None:
    assert bench.look(30_000, m2=("m1",), m3=()) == []
    assert bench.hearing.reason == ""


def test_who_hears_nobody_gives_up_both_ways(bench: Bench) -> None:
    ((after_ms, directions),) = bench.look(9_000)
    assert directions == (OUT, IN)
    assert after_ms > PATIENCE_MS
    assert bench.hearing.reason == "m1 hears no other master through its broker node"


def test_a_master_that_is_left_out_is_heard_as_long_as_a_member_names_it(bench: Bench) -> None:
    bench.look(3_000, m2=("m1", "m3"))
    assert bench.look(60_000, m2=("m1",)) == []


def test_nothing_is_given_up_while_there_is_no_connection(bench: Bench) -> None:
    bench.is_judged = False
    assert bench.look(60_000) == []
    bench.is_judged = True
    assert bench.look(PATIENCE_MS) == []
    assert len(bench.look(2 * EVERY_MS)) == 1


def test_patience_begins_anew_once_all_was_well_for_long(bench: Bench) -> None:
    well = {"m2": ("m1", "m3"), "m3": ("m1", "m2")}
    assert len(bench.look(20_000)) == 2
    assert bench.look(MOST_MS // 2, **well) == []
    assert bench.hearing.reason == ""
    # Not yet: the third time is waited for as long as if it had not been well in between.
    assert bench.look(19_000) == []
    assert len(bench.look(4_000)) == 1
    assert bench.look(MOST_MS + 2 * EVERY_MS, **well) == []
    assert len(bench.look(PATIENCE_MS + 4_000)) == 1


def test_two_masters_of_which_one_does_not_hear_the_other() -> None:
    bench = Bench(("m1", "m2"))
    assert bench.look(5_000, m2=("m1",)) == []
    assert [directions for _, directions in bench.look(7_000, m2=())] == [(OUT,)]


def asked(times_ms: list[int], lines_ms: tuple[int, ...] = ()) -> list[int]:
    """When a worker leaves its way out that was greeted then, and was sent lines then."""
    hearing, left = WorkerHearing(0), []
    for at_ms, is_greeting in sorted([(at, True) for at in times_ms] + [(at, False) for at in lines_ms]):
        if directions := hearing.on_lines(100_000 + at_ms, is_greeting=is_greeting):
            assert directions == (OUT,)
            left.append(at_ms)
    return left


def test_a_worker_that_its_master_greets_again_and_again_is_not_heard() -> None:
    assert asked([0, *range(5_000, 60_000, 5_000)]) == [10_000, 20_000, 40_000]
    assert asked([0, *range(1_000, 10_000, 1_000)]) == [6_000]


def test_a_worker_that_is_greeted_after_a_start_of_its_master_is_heard() -> None:
    assert asked([0]) == asked([0, GREETED_MS + 1, 2 * GREETED_MS + 2]) == []
    # Lines are sent only to who is heard.
    assert asked([0, 4_000, 8_000], lines_ms=(4_500, 8_500)) == []
    assert asked([0, 4_000, 8_000, 12_000, 16_000], lines_ms=(8_500,)) == []


def test_who_is_heard_of_through_others_only_may_say_so_too(bench: Bench) -> None:
    # m2 and m3 do not hear each other's messages to m1 any more: m2 alone comes through, and passes on what m3 says.
    for _ in range(10):
        bench.ms += EVERY_MS
        bench.number += 1
        of_m3 = replace(ROW, node="m3", journal="journal-of-m3", number=bench.number, heard=("m2",))
        bench.number += 1
        of_m2 = replace(ROW, node="m2", journal="journal-of-m2", number=bench.number, heard=("m1", "m3"))
        bench.say("m2", Post(of_m2, (of_m3,), ()))
        assert bench.hearing.look(bench.core.sync, bench.now(), is_judged=True) == ()
    bench.ms += EVERY_MS
    assert bench.hearing.look(bench.core.sync, bench.now(), is_judged=True) == (OUT,)
    assert bench.hearing.reason == "m3: heard of, and m1 is not heard by it through its broker node"


def test_a_backup_that_waits_for_a_primary_leaves_both_ways() -> None:
    hearing, left = BackupHearing(), []
    for at_ms in range(0, 40_000, 100):
        if directions := hearing.look(lambda at_ms=at_ms: 1_000 <= at_ms < 25_000, 50_000 + at_ms):  # type: ignore[misc]
            assert directions == (OUT, IN)
            left.append(at_ms)
    assert left == [6_000, 16_000]


def test_a_worker_asks_a_silent_master_something_and_leaves_both_ways_when_nothing_comes() -> None:
    hearing, asked, left = WorkerHearing(0), [], []
    for at_ms in range(0, 60_000, 1_000):
        if at_ms < 20_000 and at_ms % 4_000 == 1_000:
            # It has something to say, or answers.
            hearing.heard_ms = at_ms
        if hearing.is_to_ask(at_ms):
            asked.append(at_ms)
        if directions := hearing.look(at_ms):
            assert directions == (OUT, IN)
            left.append(at_ms)
    assert asked[:6] == [4_000, 8_000, 12_000, 16_000, 20_000, 23_000]
    silent_from_ms = 17_000 + 2 * ASK_MS
    assert left == [silent_from_ms + after_ms for after_ms in (5_000, 15_000, 35_000)]
