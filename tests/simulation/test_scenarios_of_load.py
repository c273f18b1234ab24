"""Named scenarios of the sync protocol about what waits, what is poisonous, and who waits for an answer.

Like test_scenarios_of_the_protocol.py: given / when / then on the shipped code in a scripted world.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.model.wire.messages import Bodies, Fetch, Post
from tests.simulation.scene import Scene

MASTERS = ("m1", "m2", "m3")


class TestWindowsAndBacklogs:
    """What waits is bounded, and cost does not follow it."""

    def test_windows_of_one(self) -> None:
        # Given the smallest windows that there are
        scene = Scene(post_window=1, queue_window=1)
        # When every master takes writes
        for node in MASTERS:
            scene.write_many(node, node, 10)
        # Then all of them are agreed on, in one order
        scene.agree()
        assert len(scene.order("m1")) == 30

    @pytest.mark.slow
    def test_a_large_backlog_at_heal(self) -> None:
        # Given a master that took 29,000 writes while it was alone, and others that took 1,000
        scene = Scene(suspect_after_ms=10_000)
        scene.isolate("m3")
        scene.write_many("m3", "alone", 29_000)
        scene.write_many("m1", "others", 1_000)
        scene.run(5_000)
        assert scene.order("m1") == scene.order("m3") == []
        # When it is heard again
        scene.heal()
        # Then everything is agreed on, without a step for each of them
        steps = scene.world.steps
        scene.agree(within_ms=60_000)
        assert len(scene.order("m2")) == 30_000
        assert scene.world.steps - steps < 6_000


class TestPoison:
    """What no member would say changes nothing and is counted."""

    def test_posts_that_must_not_count(self) -> None:
        scene = Scene()
        scene.write("m1", "t1")
        scene.agree()
        sync = scene.master("m1").runner.core.sync
        genuine = sync.peers.peers["m2"].row
        assert genuine is not None
        liar = replace(genuine, number=genuine.number + 10**6, promise=2**61, have={"m1": 0, "m2": 99, "m3": 0})
        # When posts come from an unknown node, under another's name, of another epoch, journal and incarnation
        scene.inject("m1", "m9", Post(replace(liar, node="m9"), (), ()))
        scene.inject("m1", "m3", Post(liar, (), ()))
        scene.inject("m1", "m2", Post(replace(liar, epoch=(7, "m2")), (), ()))
        scene.inject("m1", "m2", Post(replace(liar, journal="forged"), (), ()))
        scene.inject("m1", "m2", Post(replace(liar, incarnation=0), (), ()))
        scene.inject("m1", "m9", Bodies((("m2", "t9", b"x"),)))
        scene.inject("m1", "m9", Fetch((("m1", "t1"),)))
        scene.inject("m1", "m2", Bodies((("m9", "t9", b"x"),)))
        scene.run(1)
        # Then each is counted, and nothing is believed
        ignored = sync.peers.ignored
        assert ignored["unknown_peer"] == 4
        assert ignored["other_epoch"] == 1
        assert ignored["foreign_journal"] == 1
        assert ignored["old_incarnation"] == 1
        assert ignored["unknown_origin"] == 1
        assert sync.peers.peers["m2"].promise < 2**61
        # And the cluster goes on
        scene.write("m2", "t2")
        scene.agree()
        assert scene.order("m3") == ["t1", "t2"]


class TestWaitingClients:
    """A client never has to guess."""

    def test_a_client_whose_time_was_over_asks_again_by_the_transaction_id(self) -> None:
        # Given a client that was told "unknown" during the split, before anybody went on without its master
        scene = Scene(max_peer_lag_ms=60_000, suspect_after_ms=60_000)
        scene.isolate("m1")
        write = scene.write("m1", "t1")
        scene.run(31_000)
        assert scene.world.clients.refused["OutcomeUnknown"] >= 1
        assert not write.is_done
        # When the split is over and it asks again, wherever it likes
        scene.heal()
        scene.again("m3", write)
        # Then it gets the one outcome that there is
        scene.until(lambda: write.is_done)
        scene.agree()
        assert scene.order("m2") == ["t1"]
