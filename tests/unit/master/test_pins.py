"""Pins that commands set: they hold the log, survive a restart, end by themselves, and refuse what cannot be held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brokerha.master.config import RetentionConfig
from brokerha.master.core import MasterCore
from brokerha.master.pins import LONGEST_S, PINS_LIMIT, SPLIT, DurablePins, lowest_back, pins_of
from brokerha.master.retention import Facts, Owner, Retention
from brokerha.model.epochs import Configuration
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.ids import Instant
from brokerha.model.records import PinsChanged, Rewound
from brokerha.model.requests import Submit
from brokerha.model.wire.messages import Executed
from brokerha.sync.round import RoundResult
from tests.unit.master.one_master import OneMaster
from tests.unit.replication.benches import results, text

HOUR_S = 3600


def held(bench: OneMaster, core: MasterCore | None = None) -> dict[str, int]:
    """What is held for whom, workers left out."""
    found, _ = pins_of(core or bench.core, bench.now())
    return {owner.name: lsn for owner, lsn in found.items() if owner.kind == "pin"}


def records(bench: OneMaster) -> list[PinsChanged]:
    return [record for _, record in bench.journal.records() if isinstance(record, PinsChanged)]


def test_a_pin_is_held_from_its_command_on_and_after_a_restart() -> None:
    bench = OneMaster()
    until_us = bench.now().wall_us + HOUR_S * 1_000_000
    answer = bench.do("pin", name="archive", lsn=3, for_s=HOUR_S)
    assert answer == {"name": "archive", "lsn": 3, "until": until_us, "left_s": HOUR_S, "entries": 3, "dropped": False}
    assert held(bench) == {"archive": 3}
    core = bench.restart()
    assert records(bench) == [PinsChanged((("archive", 3, until_us),))]
    assert held(bench, core) == {"archive": 3}


def test_setting_a_pin_again_moves_it_and_others_stay() -> None:
    bench = OneMaster()
    bench.do("pin", name="b", lsn=2, for_s=HOUR_S)
    bench.do("pin", name="a", lsn=3, for_s=HOUR_S)
    bench.do("pin", name="a", lsn=6, for_s=2 * HOUR_S)
    assert held(bench, bench.restart()) == {"a": 6, "b": 2}
    rows = bench.do("pins")["pins"]
    assert [(row["name"], row["lsn"], row["entries"], row["left_s"]) for row in rows] == [
        ("a", 6, 0, 2 * HOUR_S),
        ("b", 2, 4, HOUR_S),
    ]


def test_a_pin_ends_with_its_time_and_goes_with_the_next_change() -> None:
    bench = OneMaster()
    bench.do("pin", name="short", lsn=1, for_s=10)
    bench.do("pin", name="long", lsn=2, for_s=HOUR_S)
    bench.ms += 9_999
    assert held(bench) == {"short": 1, "long": 2}
    bench.ms += 1
    assert held(bench) == {"long": 2}
    assert [row["name"] for row in bench.do("pins")["pins"]] == ["long"]
    assert bench.do("unpin", name="short") == {"name": "short", "changed": False}
    bench.do("pin", name="other", lsn=5, for_s=HOUR_S)
    bench.run()
    assert [pin[0] for pin in records(bench)[-1].pins] == ["long", "other"]


def test_a_pin_that_is_taken_back_is_gone_after_a_restart() -> None:
    bench = OneMaster()
    bench.do("pin", name="archive", lsn=3, for_s=HOUR_S)
    assert bench.do("unpin", name="archive") == {"name": "archive", "changed": True}
    assert bench.do("unpin", name="archive") == {"name": "archive", "changed": False}
    assert held(bench) == held(bench, bench.restart()) == {}
    assert records(bench)[-1] == PinsChanged(())


def test_the_list_says_whose_log_it_is_and_what_it_holds() -> None:
    bench = OneMaster()
    assert bench.do("pins") == {
        "master": "m1", "first_lsn": 1, "last_lsn": 5, "hard_limit": 400_000, "split": None, "pins": [],
    }  # fmt: skip
    bench.do("pin", name="archive", lsn=3, for_s=HOUR_S)
    bench.core.dropped_pins = (Owner("pin", "archive"),)
    assert [row["dropped"] for row in bench.do("pins")["pins"]] == [True]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"lsn": 1, "for_s": 1}, "needs the argument 'name', 1 to 64"),
        ({"name": "", "lsn": 1, "for_s": 1}, "name is 1 to 64"),
        ({"name": "a b", "lsn": 1, "for_s": 1}, "name is 1 to 64"),
        ({"name": "x" * 65, "lsn": 1, "for_s": 1}, "name is 1 to 64"),
        ({"name": "a\n", "lsn": 1, "for_s": 1}, "name is 1 to 64"),
        ({"name": "a", "for_s": 1}, "needs the argument 'lsn'"),
        ({"name": "a", "lsn": 0, "for_s": 1}, "lsn is a whole number from 1"),
        ({"name": "a", "lsn": True, "for_s": 1}, "lsn is a whole number from 1"),
        ({"name": "a", "lsn": 1}, "needs the argument 'for_s'"),
        ({"name": "a", "lsn": 1, "for_s": 0}, "for_s is a whole number from 1"),
        ({"name": "a", "lsn": 1, "for_s": LONGEST_S + 1}, "for_s is a whole number from 1"),
        ({"name": "a", "lsn": 1, "for_s": 1.5}, "for_s is a whole number from 1"),
    ],
)
def test_what_cannot_be_a_pin_is_refused(arguments: dict[str, Any], reason: str) -> None:
    bench = OneMaster()
    with pytest.raises(InvalidRequest, match=reason):
        bench.do("pin", **arguments)
    assert held(bench) == {}


def test_what_is_not_held_any_more_is_refused_with_where_the_log_begins() -> None:
    bench = OneMaster()
    bench.journal.trim(6)
    first = bench.journal.first_lsn()
    assert first > 1
    with pytest.raises(InvalidRequest, match=f"LSN 1 is not held any more: the log of m1 begins at {first}"):
        bench.do("pin", name="archive", lsn=1, for_s=1)
    assert bench.do("pin", name="archive", lsn=first, for_s=1)["lsn"] == first


def test_more_pins_than_the_limit_are_refused_but_one_can_be_moved() -> None:
    bench = OneMaster()
    for number in range(PINS_LIMIT):
        bench.do("pin", name=f"p{number}", lsn=1, for_s=HOUR_S if number else 10)
    with pytest.raises(NotReady, match=f"{PINS_LIMIT} pins are set already .*p31"):
        bench.do("pin", name="more", lsn=1, for_s=HOUR_S)
    assert bench.do("pin", name="p1", lsn=2, for_s=HOUR_S)["lsn"] == 2
    bench.ms += 10_000
    assert bench.do("pin", name="more", lsn=1, for_s=HOUR_S)["name"] == "more"


def test_the_log_is_held_for_a_pin_up_to_the_hard_limit() -> None:
    bench = OneMaster()
    bench.do("pin", name="archive", lsn=3, for_s=HOUR_S)
    bench.run()
    bench.core.retention = Retention(RetentionConfig(max_size=2, slack=1, hard_limit=10))

    def below(lsn: int) -> tuple[int, tuple[Owner, ...]]:
        first = bench.core.sync.lsn + 1
        for number in range(first, lsn + 1):
            bench.core.step(Submit(0, f"t{number}", b"body"), bench.now())
        bench.run()
        assert bench.core.sync.lsn == lsn
        bench.step("w1", Executed(first, results(first, lsn), lsn, text(lsn), lsn, "copy-of-w1"))
        bench.hear("w1", lsn)
        bench.hear("w2", lsn)
        bench.ms += 2000
        bench.run()
        step = bench.core.forgetting(bench.now())
        assert step is not None
        bench.core.retention.done(more=False)
        return step.below, step.dropped

    assert below(10) == (3, ())
    # Ten are held with it, eleven would be too many.
    assert below(12) == (3, ())
    assert below(13) == (12, (Owner("pin", "archive"),))
    assert bench.core.dropped_pins == (Owner("pin", "archive"),)


def test_retention_takes_a_pin_for_what_it_says() -> None:
    bench = OneMaster()
    bench.do("pin", name="archive", lsn=2, for_s=HOUR_S)
    pins, peers = pins_of(bench.core, bench.now())
    assert pins == {Owner("pin", "archive"): 2, Owner("worker", "w1"): 6, Owner("worker", "w2"): 6}
    retention = Retention(RetentionConfig(max_size=1, slack=1, hard_limit=100))
    step = retention.step(bench.journal, Instant(bench.ms, 0), Facts(5, 5, pins, peers))
    assert step is not None
    assert step.below == 2


def test_the_log_is_held_for_backups_and_all_of_it_for_one_whose_place_is_not_known() -> None:
    bench = OneMaster()
    bench.core.needs_of_backups = {"b1": 4, "b2": 0}
    pins, _ = pins_of(bench.core, bench.now())
    assert (pins[Owner("backup", "b1")], pins[Owner("backup", "b2")]) == (4, bench.journal.first_lsn())


def apart(
    split_recovery: str = "smart", path: tuple[tuple[tuple[int, str], int], ...] = (((1, ""), 3), ((2, "m1"), 4))
) -> OneMaster:
    """A master that goes on alone since LSN 3, in its second epoch since then."""
    bench = OneMaster(split_recovery=split_recovery)
    sync = bench.core.sync
    sync.epoch = replace(sync.epoch, number=3, base_lsn=4, path=path, configuration=Configuration(("m1", "m2")))
    return bench


def test_while_a_master_is_missing_the_log_is_held_from_where_their_ways_may_have_parted() -> None:
    bench = apart()
    assert lowest_back(bench.core) == 3
    assert pins_of(bench.core, bench.now())[0][SPLIT] == 3
    assert bench.do("pins")["split"] == {
        "lsn": 3, "entries": 3, "dropped": False, "reason": "a split may lead back to LSN 3",
    }  # fmt: skip
    bench.core.dropped_pins = (SPLIT,)
    assert bench.do("pins")["split"]["dropped"]


def test_an_epoch_without_a_way_is_held_from_its_beginning() -> None:
    assert lowest_back(apart(path=()).core) == 4


def test_where_only_a_majority_goes_on_and_where_all_are_together_nothing_is_held_for_a_split() -> None:
    together = OneMaster(split_recovery="smart")
    for bench in (apart("quorum"), together):
        assert lowest_back(bench.core) is None
        assert SPLIT not in pins_of(bench.core, bench.now())[0]


def test_the_pin_for_a_split_gives_way_at_the_hard_limit_and_is_named() -> None:
    bench = apart()
    retention = Retention(RetentionConfig(max_size=1, max_depth_us=1, hard_limit=2, slack=1, known_ids=0))
    step = retention.step(bench.journal, bench.now(), Facts(5, 5, pins_of(bench.core, bench.now())[0]))
    assert step is not None
    assert (step.below, step.dropped) == (6, (SPLIT,))
    held_by = Retention(RetentionConfig(max_size=1, max_depth_us=1, hard_limit=3, slack=1, known_ids=0))
    step = held_by.step(bench.journal, bench.now(), Facts(5, 5, pins_of(bench.core, bench.now())[0]))
    assert step is not None
    assert (step.below, step.dropped) == (3, ())


def test_what_a_worker_keeps_is_held_also_while_it_is_silent() -> None:
    bench = OneMaster(split_recovery="smart")
    bench.hear("w2", 5, kept_lsn=2, kept_number=1 << 60)
    bench.ms += bench.config.feed.dead_after_ms + 1
    found, _ = pins_of(bench.core, bench.now())
    assert found == {Owner("worker", "w2"): 3}


def test_the_log_is_held_from_the_snapshot_on_that_a_worker_says_it_loads() -> None:
    bench = OneMaster()
    bench.hear("w2", 5, follows="load", load_lsn=3)
    assert pins_of(bench.core, bench.now())[0][Owner("worker", "w2")] == 4


def test_a_pin_behind_the_place_to_which_the_log_went_back_is_lowered() -> None:
    pins = DurablePins((("a", 3, 10), ("b", 6, 20)))
    assert pins.go_back(3) == PinsChanged((("a", 3, 10), ("b", 4, 20)))
    assert pins.go_back(3) is None
    assert pins.live(0) == [("a", 3, 10), ("b", 4, 20)]


def test_a_going_back_writes_the_lowered_pins() -> None:
    bench = OneMaster(split_recovery="smart")
    until_us = bench.do("pin", name="archive", lsn=6, for_s=HOUR_S)["until"]
    bench.run()
    written = bench.core.parting.on_round(RoundResult(rewound=Rewound(3, 1, 2)), bench.now())
    assert written == [PinsChanged((("archive", 4, until_us),))]
