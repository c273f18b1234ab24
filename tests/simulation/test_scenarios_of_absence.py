"""Named scenarios of a master whose process ends while others wait for it: it says so, or the broker knows, so nobody waits for `max-peer-lag`."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.model import states
from brokerha.model.wire.epoch_messages import Leave
from brokerha.sync.config import SyncConfig
from tests.simulation.scene import Scene

LAG: dict[str, Any] = {"max_peer_lag_ms": 60_000, "suspect_after_ms": 60_000}
GONE_MS = SyncConfig("m1", ("m1",)).gone_ms


def at_work() -> Scene:
    """Three masters that have agreed on a write, and wait long for one that is silent."""
    scene = Scene(**LAG)
    scene.write("m1", "first")
    scene.agree()
    return scene


def test_a_master_that_died_holds_writes_up_for_two_round_timeouts() -> None:
    # Given three masters that are at work
    scene = at_work()
    # When one dies and a write comes
    scene.kill("m3")
    write = scene.write("m1", "held up")
    waited_ms = scene.until(lambda: write.is_done)
    # Then the others go on without it as soon as it was silent for long enough
    assert GONE_MS - 200 <= waited_ms <= GONE_MS + 500
    assert scene.master("m1").runner.core.sync.epoch.members == ("m1", "m2")
    # And it is taken back when it is there again
    scene.start("m3")
    scene.agree()
    assert scene.master("m1").runner.core.sync.epoch.members == ("m1", "m2", "m3")


def test_a_master_that_is_only_slow_is_waited_for() -> None:
    # Given three masters, one of which stands still for longer than that
    scene = at_work()
    scene["m3"].freeze(5 * GONE_MS * 1000)
    # When a write comes
    write = scene.write("m1", "waits")
    scene.run(4 * GONE_MS)
    # Then nobody is left out, and it goes on with all of them
    assert not write.is_done
    scene.until(lambda: write.is_done)
    assert scene.master("m1").runner.core.sync.epoch.number == 1


def test_a_master_that_is_back_in_time_is_not_left_out() -> None:
    scene = at_work()
    scene.kill("m3")
    write = scene.write("m1", "waits")
    scene.run(GONE_MS // 2)
    scene.start("m3")
    scene.until(lambda: write.is_done)
    assert scene.master("m1").runner.core.sync.epoch.number == 1


def test_the_last_two_do_not_go_on_without_each_other() -> None:
    # Given three masters of which two die
    scene = at_work()
    scene.kill("m2", "m3")
    # When a write comes at the one that is left
    write = scene.write("m1", "held up")
    scene.run(10 * GONE_MS)
    # Then a minority goes on with nothing, whatever the broker says, and says whom it waits for
    assert not write.is_done
    assert scene.state("m1")[0] == states.NO_MAJORITY
    assert "m3 (its process has ended, or has lost the broker)" in scene.state("m1")[1]
    scene.start("m2")
    scene.until(lambda: write.is_done)
    assert scene.master("m1").runner.core.sync.epoch.members == ("m1", "m2")


def test_a_master_that_is_stopped_in_order_holds_nobody_up() -> None:
    # Given three masters, one of which has writes of its own under way
    scene = at_work()
    own = scene.write_many("m3", "own", 3)
    scene.run(2)
    # When it is stopped and a write comes
    scene.stop("m3")
    write = scene.write("m1", "goes on")
    waited_ms = scene.until(lambda: write.is_done)
    # Then the others go on without it at once, and take it back when it is there again, with all that it had taken in
    assert waited_ms <= 50
    assert scene.master("m1").runner.core.sync.epoch.members == ("m1", "m2")
    scene.start("m3")
    scene.agree()
    assert scene.master("m1").runner.core.sync.epoch.members == ("m1", "m2", "m3")
    assert all(scene.master("m2").runner.core.history.lsn_of(each.txid) for each in own)


def test_the_first_in_the_alphabet_is_stopped_and_the_next_one_begins() -> None:
    scene = at_work()
    scene.stop("m1")
    write = scene.write("m2", "goes on")
    assert scene.until(lambda: write.is_done) <= 50
    assert scene.master("m3").runner.core.sync.epoch.members == ("m2", "m3")


@pytest.mark.parametrize("mode", ["none", "simple", "smart"])
def test_where_any_side_goes_on_it_is_not_waited_for_either(mode: str) -> None:
    scene = Scene(**LAG, split_recovery=mode)
    scene.stop("m3")
    write = scene.write("m1", "goes on")
    # Workers keep a copy first, with some of them
    assert scene.until(lambda: write.is_done) <= 2000
    scene.start("m3")
    scene.agree()
    assert scene.master("m1").runner.core.sync.epoch.members == ("m1", "m2", "m3")


def test_one_that_was_stopped_and_is_back_at_once_is_a_member() -> None:
    scene = at_work()
    scene.stop("m3")
    scene.start("m3")
    write = scene.write("m1", "with all")
    scene.until(lambda: write.is_done)
    scene.agree()
    assert scene.master("m1").runner.core.sync.epoch.members == ("m1", "m2", "m3")


def test_the_last_one_says_who_was_stopped() -> None:
    scene = at_work()
    scene.stop("m2", "m3")
    write = scene.write("m1", "held up")
    scene.run(2000)
    assert not write.is_done
    assert scene.state("m1")[0] == states.NO_MAJORITY
    assert "m3 (it was stopped)" in scene.state("m1")[1]
    scene.start("m2")
    scene.until(lambda: write.is_done)


def test_what_an_earlier_process_said_last_is_not_held_against_the_next_one() -> None:
    # Given a master that was started again, and that message of its last process
    scene = at_work()
    before = scene.master("m3").runner.core.sync.incarnation
    scene.kill("m3")
    scene.start("m3")
    scene.agree()
    number = scene.master("m1").runner.core.sync.epoch.number
    # When that comes late
    scene.inject("m1", "m3", Leave(), before)
    scene.run(500)
    # Then nobody is left out
    assert scene.master("m1").runner.core.sync.epoch.number == number
    assert scene.master("m1").runner.core.sync.peers.ignored["left_before"] == 1


def of_three_workers() -> Scene:
    """A site of three workers at work, which waits long for one that is silent."""
    scene = Scene((3,), others={"feed": {"dead_after_ms": 10_000}})
    scene.write("m1", "first")
    scene.agree()
    return scene


def executing(scene: Scene) -> str:
    probe = scene.master("m1").runner.core.feed.probe
    assert probe is not None
    return probe


def test_a_worker_that_is_stopped_has_another_one_execute_at_once() -> None:
    scene = of_three_workers()
    worker = executing(scene)
    scene.stop(worker)
    write = scene.write("m1", "goes on")
    assert scene.until(lambda: write.is_done) <= 20
    assert executing(scene) != worker
    scene.start(worker)
    scene.agree()


def test_a_worker_that_died_holds_up_nobody_for_longer_than_the_broker_is_asked_after() -> None:
    scene = of_three_workers()
    worker = executing(scene)
    scene.kill(worker)
    write = scene.write("m1", "held up")
    # A tenth of `dead-after-ms`
    assert 900 <= scene.until(lambda: write.is_done) <= 1_100
    scene.start(worker)
    scene.agree()


def test_a_worker_that_only_stands_still_is_waited_for() -> None:
    scene = of_three_workers()
    worker = executing(scene)
    scene[worker].freeze(5_000_000)
    write = scene.write("m1", "waits")
    assert scene.until(lambda: write.is_done, 7_000) > 4_900
    assert executing(scene) == worker
