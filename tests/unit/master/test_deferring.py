"""Which turns of a master wait for the next flush (rule R18)."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.master.config import DeferConfig
from brokerha.master.deferring import Deferring
from brokerha.model.ids import Instant
from brokerha.model.records import Accepted, Added, Appended, BodiesHeld, ClockReserved, EpochPromised, Outcomes, Record
from brokerha.sync.config import SyncConfig
from brokerha.sync.core import SyncCore
from tests.support.logs import memory_log

ENTRY = (10, "t1", "m1")
PLACE = Added(1, (ENTRY,), {"m1": 1})
RESULT = Outcomes(1, (("applied", "", b"effect", b"fingerprint"),), 1)
WAITS, WRITTEN, SETTLES = (True, False), (False, False), (False, True)


def deferring(mode: str = "quorum", **limits: Any) -> Deferring:
    journal = memory_log("m1", "journal-of-m1")
    config = SyncConfig("m1", ("m1", "m2", "m3"), split_recovery=mode)
    return Deferring(DeferConfig(**limits), SyncCore(config, journal.state(), journal))


def at(ms: int) -> Instant:
    return Instant(ms, ms * 1_000)


@pytest.mark.parametrize("records", [[PLACE], [RESULT], [PLACE, RESULT]])
def test_what_follows_from_streams_promises_and_workers_waits(records: list[Record]) -> None:
    assert deferring().decide(records, at(0)) == WAITS


@pytest.mark.parametrize(
    "record",
    [
        Accepted((("t2", b"body"),)),
        BodiesHeld((("m2", "t2", b"body"),)),
        Appended("m1", 1, ((20, "t2"),)),
        ClockReserved(20),
        EpochPromised((2, "m1")),
        Added(2, ((20, "t2", "m2"),), {}),
    ],
)
def test_everything_else_is_written_with_what_waits(record: Record) -> None:
    one = deferring()
    assert one.decide([PLACE], at(0)) == WAITS
    assert one.decide([RESULT, record], at(0)) == WRITTEN
    assert one.deadline_ms() is None


def test_a_turn_without_records_writes_nothing() -> None:
    assert deferring().decide([], at(0)) == WRITTEN


def test_what_waits_is_written_after_a_while_when_nothing_else_is() -> None:
    one = deferring(age_ms=100)
    one.decide([PLACE], at(5))
    assert one.deadline_ms() == 105
    assert one.decide([], at(104)) == WRITTEN
    assert one.deadline_ms() == 105
    assert one.decide([], at(105)) == SETTLES
    assert one.deadline_ms() is None


def test_a_steady_flow_of_results_does_not_wait_for_ever() -> None:
    one = deferring(age_ms=100)
    assert [one.decide([RESULT], at(ms)) for ms in (0, 99, 100, 101)] == [WAITS, WAITS, WRITTEN, WAITS]


@pytest.mark.parametrize("limits", [{"lsns": 2}, {"size_bytes": 250}])
def test_what_waits_has_a_bound(limits: dict[str, Any]) -> None:
    one = deferring(**limits)
    assert [one.decide([RESULT], at(0)) for _ in range(4)] == [WAITS, WAITS, WRITTEN, WAITS]


@pytest.mark.parametrize("mode", ["none", "simple", "smart"])
def test_nothing_waits_where_no_majority_is_needed(mode: str) -> None:
    assert deferring(mode).decide([PLACE], at(0)) == WRITTEN


def test_the_row_of_a_master_tells_only_of_what_is_written() -> None:
    # Given a master whose queue has grown by a place that waits
    one = deferring()
    sync = one._sync
    one.begin()
    sync.lsn += 1
    one.decide([PLACE], at(0))
    one.begin()
    # Then others hear of the place when it is written
    sync.round.records[:] = []
    assert sync.own_row(at(1)).lsn == 0
    one.decide([ClockReserved(20)], at(1))
    one.begin()
    assert sync.own_row(at(2)).lsn == 1
