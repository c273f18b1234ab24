"""Named scenarios of masters that are away for so long that nobody holds what they lack, as given / when / then on the shipped code.

They take over the state of another master (R16), their workers load a copy from another site, and nothing is lost or done twice.
"""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.master.config import RetentionConfig
from brokerha.master.retention import Owner, Retention
from brokerha.model import states
from brokerha.model.records import IdsTaken, StateTaken
from brokerha.sync import transferring
from tests.simulation.scene import NO_SCRUB, loaded
from tests.simulation.split_scene import SplitScene
from tests.simulator.processes import Aim

KEPT = RetentionConfig(max_size=20, slack=1, hard_limit=40)


def forgetful(workers: int = 1, **others: Any) -> SplitScene:
    """Masters that keep little of the log, the first one too, which keeps all of it in other worlds."""
    scene = SplitScene(workers=workers, others={**NO_SCRUB, "retention": KEPT, **others})
    scene.master("m1").runner.core.retention = Retention(KEPT)
    return scene


def away(workers: int = 1) -> SplitScene:
    """m3 was away while the others wrote so much that their logs begin after what it has."""
    scene = forgetful(workers)
    scene.write_many("m3", "old", 10)
    scene.agree()
    go_on_without_m3(scene)
    return scene


def go_on_without_m3(scene: SplitScene) -> None:
    """The others leave it out, and write more than they keep."""
    scene.split("m1 m2", "m3")
    scene.until_members("m1", "m2")
    for part in range(8):
        last = scene.write_many("m1", f"new{part}-", 10, level="applied")[-1]
        scene.until(lambda last=last: last.is_done)  # type: ignore[misc]
    scene.until(lambda: all(scene.master(node).journal.first_lsn() > 30 for node in ("m1", "m2")))


def come_back(scene: SplitScene) -> None:
    """The links work again, until all are of one mind; the checks of the simulator hold in full."""
    scene.heal()
    scene.agree(60_000)
    assert scene.are_members("m1", "m2", "m3")
    scene.world.checkers.in_full()


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transferring, "PAGE_IDS", 16)


class TestLongAbsence:
    """Scenario 22: the log is trimmed, and a master has been away for longer than it reaches back."""

    @pytest.mark.parametrize("workers", [1, 2])
    def test_it_comes_back_by_state_and_its_workers_by_copies_of_another_site(self, workers: int) -> None:
        # Given m3 that lacks what nobody holds
        scene = away(workers)
        before = loaded(scene)
        assert scene.master("m1").runner.core.dropped_pins == (Owner("peer", "m3"),)
        # When it is back
        come_back(scene)
        # Then it took over a state, and each of its workers a copy
        assert scene.world.faults_seen["state taken"] == 1
        assert loaded(scene) - before >= workers
        assert scene.state("m3")[0] == states.OK
        # And writes at it are executed by its own workers
        write = scene.write("m3", "after")
        assert scene.until(lambda: write.is_done) < 1_000
        scene.agree()

    def test_what_it_accepted_before_is_synchronised_then_once(self) -> None:
        scene = forgetful()
        scene.split("m1 m2", "m3")
        waiting = scene.write_many("m3", "own", 3, level="synchronised")
        scene.until_members("m1", "m2")
        # Given a client that did not wait, and handed one of its transactions to m1
        scene.again("m1", waiting[1])
        for part in range(10):
            last = scene.write_many("m1", f"new{part}-", 10, level="applied")[-1]
            scene.until(lambda last=last: last.is_done)  # type: ignore[misc]
        scene.until(lambda: scene.master("m1").journal.first_lsn() > 30)
        lsn = scene.truth.lsn_of["own1"]
        # When m3 is back, then each is there once, and whoever waits is told
        come_back(scene)
        assert scene.master("m3").journal.lsn_of("own1") == lsn == scene.truth.lsn_of["own1"]
        assert all(write.is_done for write in waiting)
        assert {"own0", "own2"} <= set(scene.order("m3"))
        assert scene.world.faults_seen["state taken"] == 1

    def test_the_state_word_says_what_it_reads_and_from_whom(self) -> None:
        scene = away()
        scene.heal()
        scene.until(lambda: scene.master("m3").runner.core.sync.epochs.transfer.ids > 0, 20_000)
        word, reason = scene.state("m3")
        assert word == states.CATCHING_UP
        assert "transactions are known" in reason
        assert "the state of m" in reason
        come_back(scene)

    @pytest.mark.parametrize("kind", [IdsTaken, StateTaken])
    @pytest.mark.parametrize("point", ["append absent", "append there"])
    def test_killed_while_it_takes_over_a_state(self, kind: type, point: str) -> None:
        scene = away()
        scene["m3"].aim = Aim(point, kind, 1)
        scene.heal()
        scene.until(lambda: not scene["m3"].is_up, 20_000)
        scene.start("m3")
        come_back(scene)
        assert scene.state("m3")[0] == states.OK

    def test_its_site_is_killed_with_it(self) -> None:
        scene = away()
        scene["m3"].aim = Aim("append there", StateTaken, 1)
        scene.heal()
        scene.until(lambda: not scene["m3"].is_up, 20_000)
        scene.kill("m3w1")
        scene.start("m3", "m3w1")
        come_back(scene)


class TestBackups:
    """A master with a backup takes over a state, and so does its backup."""

    @pytest.mark.parametrize("kind", [None, IdsTaken, StateTaken], ids=["alive", "killed at a page", "killed at the end"])
    def test_a_backup_follows_and_goes_on_when_its_primary_dies_with_a_state(self, kind: type | None) -> None:
        # Given m3 with one backup that has to confirm everything
        group: dict[str, Any] = {"backups": (0, 0, 1), "sync_n": (0, 0, 1), "fail_over_ms": 600, "sync_timeout_ms": 2_000}
        scene = forgetful(**group, liveness_us=60_000_000)
        (m3,) = scene.world.groups
        scene.until(lambda: not scene.world.checkers.journals.what_is_missing(), 20_000)
        go_on_without_m3(scene)
        # When the primary of m3 dies with a page, or with the last record, and the backup goes on
        primary = m3.acting[0]
        primary.aim = None if kind is None else Aim("append there", kind, 1)
        scene.heal()
        if kind is not None:
            scene.until(lambda: not primary.is_up, 30_000)
            scene.until(lambda: m3.is_up, 10_000)
            scene.run(2_000)
            primary.start()
        # Then both journals are equal, and behind the state
        come_back(scene)
        assert scene.world.faults_seen["state taken"] >= 1
        assert all(process.journal.first_lsn() > 30 for process in m3.processes)


class TestDuplicates:
    """Scenario 17: the same transaction is handed in before and after the log was trimmed."""

    def test_an_old_transaction_is_answered_with_its_old_lsn_by_a_master_that_never_held_it(self) -> None:
        # Given a transaction that was synchronised, executed and trimmed while m3 was away
        scene = forgetful()
        scene.split("m1 m2", "m3")
        scene.until_members("m1", "m2")
        write = scene.write("m1", "old")
        scene.until(lambda: write.is_done)
        for part in range(10):
            last = scene.write_many("m1", f"new{part}-", 10, level="applied")[-1]
            scene.until(lambda last=last: last.is_done)  # type: ignore[misc]
        scene.until(lambda: scene.master("m1").journal.first_lsn() > 30)
        come_back(scene)
        lsn = scene.truth.lsn_of["old"]
        # When its client hands it to m3
        scene.again("m3", write)
        scene.agree()
        # Then nothing is added
        assert scene.truth.lsn_of["old"] == lsn == scene.master("m3").journal.lsn_of("old")
        assert "old" not in scene.order("m3")
