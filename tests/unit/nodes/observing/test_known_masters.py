"""Who the masters are, as the parts of a node are told that the core knows nothing of; and what stands in the log about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import structlog

from brokerha.master.config import MasterConfig
from brokerha.master.core import MasterCore
from brokerha.model.epochs import Configuration, Epoch
from brokerha.model.ids import Instant
from brokerha.model.wire.epoch_messages import EpochInstall, Notice
from brokerha.model.wire.messages import Envelope
from brokerha.nodes.master.address_book import AddressBook, AddressedTransport
from brokerha.nodes.observing.watching import EpochLog, KnownMasters
from brokerha.sync.config import SyncConfig
from tests.support.logs import memory_log

FILE = ("m1", "m2", "m3")
NOW = Instant(1000, 1_000_000)


def core_of(*masters: str) -> MasterCore:
    journal = memory_log("m1", "journal-of-m1")
    return MasterCore(MasterConfig(SyncConfig("m1", masters)), journal.state(), journal)


def go_on(core: MasterCore, number: int, *masters: str, retired: tuple[tuple[str, str], ...] = ()) -> None:
    """Put it into a later epoch of these masters."""
    configuration = Configuration(masters, retired=retired)
    core.sync.epoch = replace(core.sync.epoch, number=number, proposer="m2", members=masters, configuration=configuration)


class Bench:
    """What one master hands on."""

    def __init__(self) -> None:
        self.book = AddressBook(FILE)
        wire: Any = None
        self.told: list[tuple[str, ...]] = []
        self.known = KnownMasters(FILE, AddressedTransport(wire, self.book), self.told.append)


def test_other_masters_are_told_when_they_change_and_only_then() -> None:
    bench, core = Bench(), core_of(*FILE)
    bench.known.note(core)
    bench.known.note(core)
    assert bench.told == [("m2", "m3")]
    more = [bench.known.are_more]
    core.sync.peers.listen_to("m4")
    bench.known.note(core)
    assert [*bench.told[-1]] == ["m2", "m3", "m4"]
    assert [*more, bench.known.are_more] == [False, True]
    go_on(core, 2, "m1", "m2")
    core.sync.peers.let_go("m4")
    bench.known.note(core)
    assert [*bench.told[-1]] == ["m2"]


def test_the_address_book_learns_of_masters_and_of_their_journals() -> None:
    bench, core = Bench(), core_of(*FILE)
    core.sync.peers.journals["m3"] = "old"
    bench.known.note(core)
    assert bench.book.note("m3", 57, "m3b", "old")
    # When m3 is another one
    core.sync.peers.journals["m3"] = "new"
    go_on(core, 3, "m1", "m2", "m3", "m4", retired=(("m3", "old"),))
    bench.known.note(core)
    # Then what was noted is forgotten, and a master that the file does not name has a place
    assert bench.book.process_of("m3") == "m3"
    assert bench.book.note("m4", 5, "m4b")
    assert bench.book.process_of("m4") == "m4b"


def test_a_file_that_says_something_else_is_named_once() -> None:
    bench, core = Bench(), core_of(*FILE)
    go_on(core, 3, "m1", "m2", "m4")
    with structlog.testing.capture_logs() as lines:
        bench.known.note(core)
        go_on(core, 4, "m1", "m2")
        bench.known.note(core)
    (line,) = lines
    assert (line["event"], line["not_in_file"], line["no_masters"]) == ("cluster file differs", ["m4"], ["m3"])
    assert "the masters are m1, m2, m4" in line["what_counts"]


def test_a_file_that_is_right_is_not_spoken_of() -> None:
    bench, core = Bench(), core_of(*FILE)
    go_on(core, 3, *FILE)
    with structlog.testing.capture_logs() as lines:
        bench.known.note(core)
    assert lines == []


def test_added_and_taken_out_masters_stand_in_the_log() -> None:
    log, core = EpochLog("m1"), core_of(*FILE)
    log.note(core, 1000)
    with structlog.testing.capture_logs() as lines:
        go_on(core, 2, "m1", "m2", "m4")
        log.note(core, 2000)
        go_on(core, 3, "m1", "m2", "m4")
        log.note(core, 3000)
    changes = [line for line in lines if line["event"] == "masters change"]
    assert [(line["epoch"], line["added"], line["taken_out"], line["masters"]) for line in changes] == [
        (2, ["m4"], ["m3"], ["m1", "m2", "m4"])
    ]


def test_a_master_that_was_taken_out_says_so_in_its_log() -> None:
    log, core = EpochLog("m1"), core_of(*FILE)
    log.note(core, 1000)
    core.step(Envelope("c", "m2", 1, Notice((2, "m2"), "journal-of-m1")), NOW)
    with structlog.testing.capture_logs() as lines:
        for ms in (2000, 60_000):
            log.note(core, ms)
    assert [line["event"] for line in lines if line["log_level"] == "error"] == ["is taken out"]


def test_a_master_that_has_lost_its_state_says_so_in_its_log_and_not_that_it_agrees_again() -> None:
    log, core = EpochLog("m1"), core_of(*FILE)
    with structlog.testing.capture_logs() as lines:
        for ms in (1000, 30_000, 60_000):
            log.note(core, ms)
        core.sync.lost = "master m2 knows 7 transactions of m1, the journal here holds 0"
        for ms in (61_000, 90_000):
            log.note(core, ms)
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("hears no majority", "warning"),
        ("has lost its state", "error"),
    ]
    assert lines[-1]["reason"] == core.sync.lost


def test_a_joiner_says_that_it_waits() -> None:
    log, core = EpochLog("m1"), core_of(*FILE)
    others = ("m2", "m3")
    install = EpochInstall(Epoch(2, "m2", others, configuration=Configuration(others)))
    core.step(Envelope("c", "m2", 1, install), NOW)
    with structlog.testing.capture_logs() as lines:
        for ms in (2000, 60_000):
            log.note(core, ms)
    assert "waits to be added" in [line["event"] for line in lines]
