"""Named scenarios of places in the order that are told before they are written (rule R18), and of crashes that take them.

Given / when / then on the shipped code in a scripted world, in which one way takes 1 ms and writing 0.1 ms.
"""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.replication.site.config import Standing
from tests.simulation.mistakes.catalogue import planted
from tests.simulation.scene import Scene, loaded, site
from tests.simulator.checks.truth import Violation

MASTERS = ("m1", "m2", "m3")
LAG: dict[str, Any] = {"max_peer_lag_ms": 2_000}
REST_MS = 200
"""After so long a master of these worlds has written what waited."""


def commits(scene: Scene) -> int:
    """How often the masters have flushed their journals."""
    return sum(int(scene.master(node).runner.writes.numbers("writes")["writes_count"]) for node in MASTERS)


def waiting(scene: Scene) -> dict[str, int]:
    """Places in the order that masters have told and not written."""
    return {node: lost for node in MASTERS if (lost := scene.truth.mirrors[node].waiting_lsns)}


def told_and_not_written(scene: Scene) -> None:
    """A write is applied at m1, and no master has written its place."""
    scene.write("m1", "first")
    scene.agree()
    scene.run(REST_MS)
    write = scene.write("m1", "told")
    scene.until(lambda: write.is_done)
    assert waiting(scene) == dict.fromkeys(MASTERS, 1)


def test_a_lone_write_costs_each_master_one_flush_before_it_is_applied() -> None:
    # Given three masters that are at rest
    scene = Scene()
    scene.write("m1", "first")
    scene.agree()
    scene.run(REST_MS)
    before = commits(scene)
    # When one write is applied
    write = scene.write("m1", "t1")
    scene.until(lambda: write.is_done)
    # Then each has flushed what it accepted or holds, and nothing else
    assert commits(scene) - before == 3
    # And one more each, a while later, writes the places and the results
    scene.run(REST_MS)
    assert commits(scene) - before == 6
    assert waiting(scene) == {}


@pytest.mark.parametrize("also", [(), ("m1w1", "m2w1", "m3w1")])
def test_all_masters_lose_power_and_find_the_same_place_again(also: tuple[str, ...]) -> None:
    # Given a write that a client was told of, and whose place no disk has
    scene = Scene()
    told_and_not_written(scene)
    # When the power goes everywhere
    scene.kill(*MASTERS, *also)
    assert [scene.master(node).journal.state().lsn for node in MASTERS] == [1, 1, 1]
    scene.start(*MASTERS, *also)
    # Then it has that place again, before what comes later
    scene.write("m2", "later")
    scene.agree()
    assert scene.order("m1") == scene.order("m3") == ["first", "told", "later"]
    assert loaded(scene) == 0


def test_an_epoch_without_the_only_master_that_told_a_place_gives_it_again() -> None:
    # Given a place that only m1 has worked out: the others hold the entry, and do not hear of each other's promises
    scene = Scene(**LAG)
    scene.write("m1", "first")
    scene.agree()
    scene.run(REST_MS)
    scene.cut("m2", "m3")
    write = scene.write("m1", "told")
    scene.until(lambda: all(scene.truth.mirrors[node].counts.get("m1") == 2 for node in MASTERS))
    scene.cut_one_way("m1", "m2")
    scene.cut_one_way("m1", "m3")
    scene.until(lambda: write.is_done)
    assert waiting(scene) == {"m1": 1}
    # When it dies before it has written it, and the others go on without it
    scene.kill("m1")
    assert scene.truth.lsn == 2
    assert {scene.truth.mirrors[node].lsn for node in MASTERS} == {1}
    scene.heal()
    scene.write("m2", "next")
    scene.until(lambda: scene.truth.mirrors["m2"].lsn >= 3, within_ms=10_000)
    # Then the place is what it was, and m1 reads it when it is back
    assert scene.order("m2") == ["first", "told", "next"]
    assert scene.truth.mirrors["m2"].epoch_id > (1, "")
    scene.start("m1")
    scene.agree(within_ms=40_000)
    assert scene.order("m1") == ["first", "told", "next"]
    assert loaded(scene) == 0


def worker_ahead() -> Scene:
    """A worker has executed what its master has forgotten; the master is back, and hears no other one."""
    scene = Scene()
    told_and_not_written(scene)
    scene.kill("m1")
    scene.isolate("m1")
    scene.start("m1")
    scene.run(3_000)
    return scene


def test_a_worker_that_is_ahead_of_its_master_waits_for_it() -> None:
    scene = worker_ahead()
    # Then the copy is neither condemned nor read
    worker = site(scene, "m1w1")
    assert (worker.standing, worker.reason) == (Standing.OUT_OF_SYNC, "waits until the log has LSN 2 again")
    # And is in sync as soon as the order has come there
    scene.heal()
    scene.until(lambda: site(scene, "m1w1").standing is Standing.ON)
    scene.agree()
    assert loaded(scene) == 0


def test_a_worker_that_is_condemned_for_being_ahead_is_noticed() -> None:
    with planted("a copy ahead of the log is condemned"):
        scene = worker_ahead()
        scene.heal()
        # Its copy was good, and is replaced by that of another site
        with pytest.raises(Violation, match=r"^F12:"):
            scene.run(20_000)


def test_who_promises_an_epoch_writes_what_waits_with_the_promise() -> None:
    # Given places that wait at all masters
    scene = Scene(**LAG)
    told_and_not_written(scene)
    # When m3 is missed and a change begins
    scene.isolate("m3")
    scene.until(lambda: scene.truth.mirrors["m2"].promised_epoch > (1, ""), within_ms=10_000)
    # Then who has promised has written them
    assert scene.truth.mirrors["m2"].lsn == 2
    scene.heal()
    scene.agree(within_ms=40_000)


def test_where_no_majority_is_needed_every_place_is_written_before_it_is_told() -> None:
    scene = Scene(split_recovery="simple")
    write = scene.write("m1", "t1")
    scene.until(lambda: write.is_done)
    assert [bool(scene.master(node).journal.waiting) for node in MASTERS] == [False] * 3
    assert scene.master("m1").journal.state().lsn == 1
