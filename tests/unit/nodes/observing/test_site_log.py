"""What a master writes into its log about its site: each change once, and nothing while nothing changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from brokerha.master.core import MasterCore
from brokerha.master.pins import SPLIT
from brokerha.master.retention import Owner
from brokerha.nodes.observing.watching import SiteLog
from brokerha.replication.site.config import Standing, WorkerFeed

Line = dict[str, Any]
W1, W2 = Owner("worker", "w1"), Owner("worker", "w2")


class FakeSite:
    """A site as its master sees it."""

    def __init__(self) -> None:
        self.workers = {name: WorkerFeed(name) for name in ("w1", "w2")}
        self.config = SimpleNamespace(workers=("w1", "w2"))
        self.dead: set[str] = set()
        self.read_only = ""
        self.needs = ""

    def is_alive(self, worker: WorkerFeed, _mono_ms: int) -> bool:
        return worker.node not in self.dead

    def read_only_reason(self, _mono_ms: int) -> str:
        return self.read_only

    def attention(self, _mono_ms: int) -> str:
        return self.needs


class Bench:
    """A core that is what a test says, and what is told of it."""

    def __init__(self) -> None:
        self.site = FakeSite()
        self.feed = SimpleNamespace(probe=None, executed=7)
        self.sites = SimpleNamespace(differing={})
        self.dropped_pins: tuple[Owner, ...] = ()
        self.log = SiteLog("m1")

    def told(self) -> list[Line]:
        core = SimpleNamespace(site=self.site, feed=self.feed, sites=self.sites, dropped_pins=self.dropped_pins)
        with capture_logs() as lines:
            self.log.note(cast("MasterCore", core), 1000)
            self.log.note(cast("MasterCore", core), 1001)
        return [dict(line) for line in lines]

    def stands(self, worker: str, standing: Standing, reason: str = "") -> None:
        self.site.workers[worker].standing = standing
        self.site.workers[worker].reason = reason


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    assert made.told() == []
    for name in made.site.workers:
        made.stands(name, Standing.ON)
    made.feed.probe = "w1"
    made.told()
    return made


def test_each_change_of_a_worker_is_one_line_with_its_reason(bench: Bench) -> None:
    bench.stands("w2", Standing.OUT_OF_SYNC, "scrub: the data differs")
    (line,) = bench.told()
    assert (line["event"], line["log_level"], line["worker"]) == ("worker changes", "warning", "w2")
    assert (line["before"], line["now"], line["reason"]) == ("on", "out-of-sync", "scrub: the data differs")

    bench.stands("w2", Standing.LOADING, "loading from w1: 3 %")
    bench.told()
    bench.site.workers["w2"].reason = "loading from w1: 4 %"
    assert bench.told() == []
    bench.stands("w2", Standing.ON)
    (line,) = bench.told()
    assert (line["log_level"], line["before"], line["now"]) == ("info", "replication-client", "on")
    assert bench.log.counts["worker_loads_total", "w2"] == 1
    assert bench.log.counts["worker_out_of_sync_total", "w2"] == 1


def test_workers_of_the_file_that_the_master_does_not_have_are_named_once() -> None:
    made = Bench()
    made.site.config = SimpleNamespace(workers=("w1", "w2", "w9"))
    (line,) = made.told()
    assert (line["event"], line["log_level"], line["no_workers"]) == ("cluster file differs", "warning", ["w9"])
    assert "brokerha worker add w9" in line["what_counts"]
    assert made.told() == []


def test_workers_that_come_and_go_are_told(bench: Bench) -> None:
    bench.site.workers["w9"] = WorkerFeed("w9", standing=Standing.UNINITIALISED)
    assert [line["now"] for line in bench.told()] == ["uninitialised"]
    del bench.site.workers["w9"]
    assert [(line["event"], line["worker"]) for line in bench.told()] == [("worker removed", "w9")]


def test_a_probe_whose_turn_ends_is_counted_and_one_that_is_gone_is_told(bench: Bench) -> None:
    bench.feed.probe = "w2"
    assert bench.told() == []
    bench.site.dead.add("w2")
    bench.feed.probe = "w1"
    (line,) = bench.told()
    assert (line["event"], line["probe"], line["next"]) == ("probe lost", "w2", "w1")
    assert (bench.log.counts["probe_turns_total"], bench.log.counts["probe_losses_total"]) == (3, 1)


def test_read_only_begins_and_ends_once(bench: Bench) -> None:
    bench.site.read_only = "1 of 2 workers in sync"
    assert [line["event"] for line in bench.told()] == ["read-only begins"]
    bench.site.read_only = "0 of 2 workers in sync"
    assert bench.told() == []
    bench.site.needs = "no copy is known to be good: w1, w2"
    assert [(line["event"], line["log_level"]) for line in bench.told()] == [("needs attention", "error")]
    bench.site.read_only = bench.site.needs = ""
    assert [line["event"] for line in bench.told()] == ["read-only ends", "needs no attention any more"]
    assert bench.log.counts["read_only_total"] == 1


def test_a_site_that_differs_is_told_with_both_contents_and_when_it_agrees_again(bench: Bench) -> None:
    bench.sites.differing = {"m2": (5, "1:a", "1:b")}
    (line,) = bench.told()
    assert (line["event"], line["peer"], line["lsn"], line["ours"], line["theirs"]) == ("site differs", "m2", 5, "1:a", "1:b")
    bench.sites.differing = {"m2": (6, "1:c", "1:d")}
    assert bench.told() == []
    bench.sites.differing = {}
    assert [line["event"] for line in bench.told()] == ["site agrees again"]


def test_a_worker_for_which_the_log_is_not_kept_any_more_is_told_once_and_when_that_ends(bench: Bench) -> None:
    bench.site.workers["w2"].applied = 3
    bench.dropped_pins = (W2,)
    (line,) = bench.told()
    assert (line["event"], line["log_level"], line["worker"], line["lsn"]) == ("log not kept", "warning", "w2", 3)
    bench.dropped_pins = (W1, W2)
    assert [(line["event"], line["worker"]) for line in bench.told()] == [("log not kept", "w1")]
    bench.dropped_pins = ()
    assert [(line["event"], line["worker"]) for line in bench.told()] == [("log kept again", "w1"), ("log kept again", "w2")]
    assert bench.log.counts["pins_dropped_total"] == 2


def test_a_pin_that_holds_too_much_is_told_by_its_name(bench: Bench) -> None:
    bench.dropped_pins = (Owner("pin", "archive"),)
    (line,) = bench.told()
    assert (line["event"], line["pin"], line["lsn"]) == ("log not kept", "archive", None)
    assert line["reason"].endswith("its owner has to begin anew")
    bench.dropped_pins = ()
    assert [(line["event"], line["pin"]) for line in bench.told()] == [("log kept again", "archive")]


def test_a_master_that_is_away_for_too_long_is_told_as_a_master(bench: Bench) -> None:
    bench.dropped_pins = (Owner("peer", "m3"),)
    (line,) = bench.told()
    assert (line["event"], line["peer"]) == ("log not kept", "m3")
    assert line["reason"].endswith("takes over the state of another master")


def test_a_backup_that_is_away_for_too_long_is_told_as_a_backup(bench: Bench) -> None:
    bench.dropped_pins = (Owner("backup", "b1"),)
    (line,) = bench.told()
    assert (line["event"], line["backup"], line["lsn"]) == ("log not kept", "b1", None)
    assert line["reason"].endswith("takes a snapshot")
    bench.dropped_pins = ()
    assert [(line["event"], line["backup"]) for line in bench.told()] == [("log kept again", "b1")]


def test_a_split_that_is_held_open_for_too_long_is_told_by_what_follows(bench: Bench) -> None:
    bench.dropped_pins = (SPLIT,)
    (line,) = bench.told()
    assert (line["event"], line["pin"]) == ("log not kept", "a split")
    assert "cannot go back any more" in line["reason"]
