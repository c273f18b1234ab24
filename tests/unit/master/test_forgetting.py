"""When a master proposes an entry that forgets ids, and that a known id is a new one after it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.master.config import RetentionConfig
from brokerha.master.retention import LOOK_MS
from brokerha.model.forgetting import forgetting_id, is_forgetting
from brokerha.model.requests import Reply
from tests.unit.master.one_of_three import OneOfThree
from tests.unit.master.test_master_core import Bench


def of_three(monkeypatch: pytest.MonkeyPatch, members: tuple[str, ...] = ("m1", "m2", "m3")) -> OneOfThree:
    """A master whose log begins at LSN 60, and to which two ids are worth an entry."""
    bench = OneOfThree(members)
    bench.core.config = replace(bench.core.config, retention=RetentionConfig(ids_at_once=2))
    monkeypatch.setattr(bench.core.sync, "ids_needed_from", lambda: 60)
    return bench


def proposed(bench: OneOfThree, below: int) -> list[str]:
    """What the master proposes when ids below an LSN are old enough, and has proposed before."""
    bench.core._forget_ids(below, bench.now())
    return sorted(filter(is_forgetting, bench.core.sync.pending))


def test_ids_are_forgotten_below_what_any_master_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = of_three(monkeypatch)
    bench.post("m2", ids_from=70)
    bench.post("m3", ids_from=40)
    assert proposed(bench, 50) == [forgetting_id(40)]
    # Then nothing more until it is worth it again
    bench.post("m3", ids_from=41)
    assert proposed(bench, 50) == [forgetting_id(40)]
    bench.post("m3", ids_from=80)
    assert proposed(bench, 50) == [forgetting_id(40), forgetting_id(50)]
    assert proposed(bench, 90) == [forgetting_id(40), forgetting_id(50), forgetting_id(60)]


def test_none_are_forgotten_while_a_master_was_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = of_three(monkeypatch)
    bench.post("m2", ids_from=70)
    assert proposed(bench, 50) == []
    bench.post("m3", ids_from=70)
    assert proposed(bench, 50) == [forgetting_id(50)]


def test_the_first_master_that_is_heard_proposes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = of_three(monkeypatch, ("m0", "m1"))
    bench.post("m0", ids_from=70)
    assert proposed(bench, 50) == []
    bench.ms += bench.core.config.sync.heard_ms + 1
    assert proposed(bench, 50) == [forgetting_id(50)]


def test_a_write_under_a_forgotten_id_is_a_new_one() -> None:
    retention = RetentionConfig(max_size=2, max_depth_us=500_000, known_ids=0, ids_at_once=2, slack=1)
    bench = Bench(workers=(), retention=retention)

    def look() -> None:
        bench.ms += LOOK_MS
        step = bench.core.forgetting(bench.now())
        assert step is not None
        bench.core.retention.done(more=bench.journal.keep(step.below))
        bench.run()

    for number in range(6):
        bench.submit(f"t{number}", level="synchronised")
        bench.run()
    # When they are old, and trimmed
    look()
    look()
    # Then an entry forgets them, once: it is no reason for another one
    assert bench.core.sync.last()[1] == forgetting_id(7)
    look()
    look()
    assert bench.core.sync.lsn == 7
    bench.submit("t3", b"another body", level="synchronised")
    assert bench.run() == [Reply(7, "t3", "synchronised", 8)]


def test_an_own_write_that_waits_though_another_master_brought_it_needs_its_id() -> None:
    bench = Bench(members=("m1", "m2", "m3"))
    bench.submit("t1", level="accepted")
    bench.run()
    sync = bench.core.sync
    assert sync.ids_needed_from() == 1
    sync.lsn = 6
    sync.append_of_others([(10, "t0", "m2"), (11, "t1", "m2")], sync.round)
    assert sync._needed == [(8, "t1")]
    # When it needs it no more, it is not kept
    sync.pending.clear()
    assert sync.ids_needed_from() == 1
    assert sync._needed == []
