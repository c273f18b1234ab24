"""Named scenarios of a master whose process ends while others wait for it: the broker knows, so nobody waits for `max-peer-lag`."""

from __future__ import annotations

from typing import Any

from brokerha.model import states
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
