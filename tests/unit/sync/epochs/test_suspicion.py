"""Who is missing, and since when: silence, a head of the queue that does not move, one that wants to come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.model.epochs import first_epoch
from brokerha.model.ids import NodeId
from brokerha.sync.config import SyncConfig
from brokerha.sync.epochs.suspicion import HELD_LAGS, KEPT_LAGS, MOST_LAGS, MOST_PATIENCE, Head, Suspicion
from brokerha.sync.peers import PeerTable
from tests.unit.sync.reports import row

MEMBERS = ("m1", "m2", "m3")
CONFIG = SyncConfig(
    "m1", MEMBERS, max_peer_lag_ms=2000, suspect_after_ms=1, idle_round_ms=200, round_timeout_ms=100, retransmit_ms=100
)
STEP_MS = 100
LAG_MS = CONFIG.lag_ms
SUSPECT_MS = CONFIG.suspect_ms
ANY_SIDE = replace(CONFIG, split_recovery="simple")
HASTY = replace(CONFIG, split_recovery="none", none_silent_ms=200)
HEAD: Head = (4, 0, "t")


class Watch:
    """One master that looks every 100 ms, and hears whom the test says."""

    def __init__(self, config: SyncConfig = CONFIG) -> None:
        self.peers = PeerTable(config, {}, first_epoch(MEMBERS))
        self.suspicion = Suspicion(config)
        self.ms = 10_000
        self.holding: tuple[NodeId, ...] = ("m2", "m3")
        """Whose word is missing for the head."""

    def look(self, for_ms: int, *heard: NodeId, head: Head | None = None) -> None:
        """Look for so long, hearing something new of these before each look."""
        for _ in range(for_ms // STEP_MS):
            self.ms += STEP_MS
            for node in heard:
                self.peers.peers[node].known_ms = self.ms
            self.suspicion.look(self.peers, head, self.ms, lambda: self.holding)

    def heard_after(self, silent_ms: int) -> None:
        """m3 speaks after it was silent for so long."""
        peer = self.peers.peers["m3"]
        peer.heard_ms = self.ms - silent_ms
        self.suspicion.on_silence_over(peer, self.ms)

    def missing(self, *culprits: NodeId, beyond: tuple[NodeId, ...] = ()) -> list[NodeId]:
        return self.suspicion.missing(self.peers, list(culprits), beyond, self.ms)

    def since(self) -> int | None:
        return self.suspicion.missing_ms


def test_a_master_is_missed_at_the_lag_or_two_heartbeats_and_a_round_when_that_is_longer() -> None:
    assert CONFIG.lag_ms == 2000
    assert SyncConfig("m1", MEMBERS, max_peer_lag_ms=1).lag_ms == 2500


def test_one_of_whom_nothing_new_was_heard_for_the_lag_is_missing() -> None:
    watch = Watch()
    watch.look(500, "m2", "m3")
    watch.look(LAG_MS - STEP_MS, "m2")
    assert watch.missing() == []
    assert watch.since() is None
    watch.look(STEP_MS, "m2")
    assert watch.missing() == ["m3"]
    assert watch.since() == watch.ms
    # And since then, as long as somebody is
    since = watch.ms
    watch.look(300, "m2")
    watch.missing()
    assert watch.since() == since


def test_one_that_is_heard_again_is_not_missing_any_more() -> None:
    watch = Watch()
    watch.look(LAG_MS + 200, "m2")
    assert watch.missing() == ["m3"]
    watch.look(STEP_MS, "m2", "m3")
    assert watch.missing() == []
    assert watch.since() is None


def test_nobody_is_missing_before_anybody_looked_for_so_long() -> None:
    # Given a master that has just begun, and has never heard anybody
    watch = Watch()
    assert watch.missing() == []
    watch.look(LAG_MS)
    assert watch.missing() == []
    watch.look(STEP_MS)
    assert watch.missing() == ["m2", "m3"]


def test_what_was_not_listened_to_proves_nothing() -> None:
    # Given a process that was stopped for a minute
    watch = Watch()
    watch.look(400, "m2", "m3")
    watch.look(STEP_MS, "m2", "m3", head=(4, 0, "t"))
    watch.ms += 60_000
    watch.look(SUSPECT_MS - STEP_MS, head=(4, 0, "t"))
    # Then nobody is missing, by silence or by the queue
    assert watch.missing("m2") == []
    watch.look(2 * STEP_MS, head=(4, 0, "t"))
    assert watch.missing("m2") == ["m2", "m3"]


def test_culprits_count_when_the_head_has_not_moved_for_the_lag() -> None:
    watch = Watch()
    watch.look(STEP_MS, "m2", "m3", head=(4, 0, "t"))
    watch.look(LAG_MS - STEP_MS, "m2", "m3", head=(4, 0, "t"))
    assert watch.missing("m3") == []
    watch.look(STEP_MS, "m2", "m3", head=(4, 0, "t"))
    assert watch.missing("m3") == ["m3"]
    # And not any more when it moves
    watch.look(STEP_MS, "m2", "m3", head=(5, 0, "u"))
    assert watch.missing("m3") == []


def test_an_empty_queue_has_no_culprits() -> None:
    watch = Watch()
    watch.look(2 * LAG_MS, "m2", "m3")
    assert watch.missing("m3") == []


def test_one_that_is_silent_and_a_culprit_is_named_once() -> None:
    watch = Watch()
    watch.look(LAG_MS + 300, "m2", head=(4, 0, "t"))
    assert watch.missing("m3", "m2") == ["m3", "m2"]


class TestWhileSomethingWaits:
    """A member that is there posts again and again then, so that a short silence says much."""

    def test_one_is_missed_long_before_the_lag(self) -> None:
        watch = Watch()
        watch.look(STEP_MS, "m2", "m3")
        watch.look(SUSPECT_MS - STEP_MS, "m2", head=HEAD)
        assert watch.missing() == []
        watch.look(STEP_MS, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_one_that_was_silent_before_has_a_moment_to_speak(self) -> None:
        watch = Watch()
        watch.look(STEP_MS, "m2", "m3")
        watch.look(SUSPECT_MS + STEP_MS, "m2")
        watch.look(STEP_MS, "m2", head=HEAD)
        assert watch.missing() == []
        watch.look(CONFIG.round_timeout_ms, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_where_any_side_may_go_on_the_lag_counts(self) -> None:
        watch = Watch(ANY_SIDE)
        watch.look(STEP_MS, "m2", "m3")
        watch.look(LAG_MS - STEP_MS, "m2", head=HEAD)
        assert watch.missing() == []

    def test_one_that_stood_still_and_came_back_is_given_twice_that_time(self) -> None:
        watch = Watch()
        watch.look(STEP_MS, "m2", "m3")
        watch.heard_after(400)
        # A shorter one later takes nothing from it
        watch.heard_after(300)
        watch.look(800 - STEP_MS, "m2", head=HEAD)
        assert watch.missing() == []
        watch.look(STEP_MS, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_but_no_more_than_twice_what_others_are_given(self) -> None:
        watch = Watch()
        watch.look(STEP_MS, "m2", "m3")
        watch.heard_after(MOST_PATIENCE * SUSPECT_MS - 1)
        watch.look(MOST_PATIENCE * SUSPECT_MS - STEP_MS, "m2", head=HEAD)
        assert watch.missing() == []
        watch.look(STEP_MS, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_that_is_forgotten_after_a_while(self) -> None:
        watch = Watch()
        watch.look(STEP_MS, "m2", "m3")
        watch.heard_after(400)
        watch.look(KEPT_LAGS * LAG_MS + STEP_MS, "m2", "m3")
        watch.look(SUSPECT_MS, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_one_that_was_away_for_longer_was_missed_rightly(self) -> None:
        watch = Watch()
        watch.look(STEP_MS, "m2", "m3")
        watch.heard_after(MOST_PATIENCE * SUSPECT_MS)
        watch.look(SUSPECT_MS, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_who_did_not_listen_itself_learns_nothing_of_the_others(self) -> None:
        watch = Watch()
        watch.look(STEP_MS, "m2", "m3")
        watch.ms += 700
        watch.heard_after(700)
        watch.look(2 * STEP_MS, "m2", "m3", head=HEAD)
        watch.look(SUSPECT_MS, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_an_own_pause_is_nobody_elses_silence(self) -> None:
        watch = Watch()
        watch.look(2 * STEP_MS, "m2", "m3", head=HEAD)
        watch.ms += SUSPECT_MS - 2 * STEP_MS
        watch.look(SUSPECT_MS - STEP_MS, head=HEAD)
        assert watch.missing() == []


def test_one_that_wants_to_come_back_is_taken_after_a_short_while_with_others_that_do() -> None:
    watch = Watch()
    watch.look(STEP_MS, "m2")
    watch.suspicion.on_join("m3", watch.ms)
    assert watch.suspicion.joining(watch.ms) == []
    watch.look(STEP_MS, "m2")
    watch.suspicion.on_join("m2", watch.ms)
    assert watch.suspicion.joining(watch.ms) == ["m2", "m3"]


def test_a_wish_to_come_back_is_forgotten_when_it_is_not_said_again() -> None:
    watch = Watch()
    watch.look(STEP_MS, "m2")
    watch.suspicion.on_join("m3", watch.ms)
    watch.look(CONFIG.heard_ms, "m2")
    assert watch.suspicion.joining(watch.ms) == ["m3"]
    watch.look(STEP_MS, "m2")
    assert watch.suspicion.joining(watch.ms) == []
    # And the next one waits its short while again
    watch.suspicion.on_join("m3", watch.ms)
    assert watch.suspicion.joining(watch.ms) == []


def test_a_new_epoch_begins_with_no_suspicion() -> None:
    watch = Watch()
    watch.look(LAG_MS + STEP_MS, "m2", head=(4, 0, "t"))
    assert watch.missing("m2") == ["m3", "m2"]
    watch.suspicion.on_join("m3", watch.ms)
    watch.suspicion.begin(MEMBERS, MEMBERS, watch.ms)
    watch.peers.begin(first_epoch(MEMBERS))
    watch.look(STEP_MS)
    assert watch.missing("m2") == []
    assert watch.suspicion.joining(watch.ms + LAG_MS) == []


def test_one_that_is_left_out_again_and_again_waits_before_it_is_taken_back() -> None:
    # Given a master that was left out once
    watch = Watch()
    watch.suspicion.begin(MEMBERS, ("m1", "m2"), watch.ms)
    watch.suspicion.on_join("m3", watch.ms)
    assert watch.suspicion.joining(watch.ms + STEP_MS) == ["m3"]
    # When it is left out a second time soon after, then it waits for one lag
    watch.ms += LAG_MS
    watch.suspicion.begin(("m1", "m2"), MEMBERS, watch.ms)
    watch.suspicion.begin(MEMBERS, ("m1", "m2"), watch.ms)
    watch.suspicion.on_join("m3", watch.ms + LAG_MS - 1)
    assert watch.suspicion.joining(watch.ms + 2 * LAG_MS) == []
    watch.suspicion.on_join("m3", watch.ms + LAG_MS)
    assert watch.suspicion.joining(watch.ms + 2 * LAG_MS) == ["m3"]
    # And however often it happens, four lags are enough
    for _ in range(9):
        watch.suspicion.begin(MEMBERS, ("m1", "m2"), watch.ms)
    watch.suspicion.on_join("m3", watch.ms + MOST_LAGS * LAG_MS - 1)
    assert watch.suspicion.joining(watch.ms + 5 * LAG_MS) == []
    watch.suspicion.on_join("m3", watch.ms + MOST_LAGS * LAG_MS)
    assert watch.suspicion.joining(watch.ms + 5 * LAG_MS) == ["m3"]


def test_what_happened_long_ago_is_forgiven() -> None:
    watch = Watch()
    watch.suspicion.begin(MEMBERS, ("m1", "m2"), watch.ms)
    watch.ms += 4 * MOST_LAGS * LAG_MS + 1
    watch.suspicion.begin(MEMBERS, ("m1", "m2"), watch.ms)
    watch.suspicion.on_join("m3", watch.ms)
    assert watch.suspicion.joining(watch.ms + STEP_MS) == ["m3"]


def test_it_wants_to_be_woken_for_whatever_comes_first() -> None:
    watch = Watch()
    assert watch.suspicion.deadline_ms(watch.peers) is None
    watch.look(STEP_MS, "m2", "m3")
    first = watch.ms
    watch.look(STEP_MS, "m2", head=(4, 0, "t"))
    assert watch.suspicion.deadline_ms(watch.peers) == first + CONFIG.gone_ms
    watch.look(STEP_MS, "m2", "m3", head=(4, 0, "t"))
    assert watch.suspicion.deadline_ms(watch.peers) == watch.ms + CONFIG.gone_ms
    # Where the broker is not asked, the lag counts, of the member or of the head
    asked_nobody = SyncConfig(
        "m1", MEMBERS, split_recovery="simple", max_peer_lag_ms=LAG_MS, idle_round_ms=200, round_timeout_ms=100
    )
    watch.suspicion = Suspicion(asked_nobody)
    watch.look(STEP_MS, "m2", "m3", head=(4, 0, "t"))
    head_ms = watch.ms
    watch.look(STEP_MS, "m2", "m3", head=(4, 0, "t"))
    assert watch.suspicion.deadline_ms(watch.peers) == head_ms + LAG_MS
    watch.suspicion.on_join("m3", watch.ms)
    assert watch.suspicion.deadline_ms(watch.peers) == watch.ms + CONFIG.round_timeout_ms


def test_a_member_that_reads_on_its_way_is_waited_for_as_long_as_it_gets_on_but_not_for_ever() -> None:
    watch = Watch(ANY_SIDE)
    watch.suspicion.begin(MEMBERS, MEMBERS, watch.ms)
    began_ms = watch.ms
    # Given that m3 says again and again how far it is, and gets on
    lsn = 0
    while watch.ms - began_ms < HELD_LAGS * LAG_MS:
        lsn += 1
        watch.look(STEP_MS, "m2", head=(4, 0, "t"))
        watch.suspicion.on_its_way(watch.peers.peers["m3"], lsn, watch.ms)
        assert watch.missing("m3") == []
    # Then it is missed a lag after that was long enough
    watch.look(LAG_MS - 2 * STEP_MS, "m2", head=(4, 0, "t"))
    watch.suspicion.on_its_way(watch.peers.peers["m3"], lsn + 1, watch.ms)
    assert watch.missing("m3") == []
    watch.look(2 * STEP_MS, "m2", head=(4, 0, "t"))
    assert watch.missing("m3") == ["m3"]


def test_one_that_does_not_get_on_is_missed() -> None:
    watch = Watch()
    watch.suspicion.begin(MEMBERS, MEMBERS, watch.ms)
    for _ in range(LAG_MS // STEP_MS + 1):
        watch.look(STEP_MS, "m2")
        watch.suspicion.on_its_way(watch.peers.peers["m3"], 7, watch.ms)
    assert watch.missing() == ["m3"]


class TestLeaving:
    """A member says that its process is stopped."""

    def known(self, config: SyncConfig = CONFIG) -> Watch:
        watch = Watch(config)
        peer = watch.peers.peers["m3"]
        peer.row, peer.heard_ms = row("m3", incarnation=2), watch.ms
        watch.look(STEP_MS, "m2", "m3")
        return watch

    def leaves(self, watch: Watch, incarnation: int = 2) -> bool:
        return watch.suspicion.on_leave(watch.peers.peers["m3"], incarnation, watch.ms)

    @pytest.mark.parametrize("config", [CONFIG, ANY_SIDE])
    def test_it_is_missing_at_once_with_every_strategy(self, config: SyncConfig) -> None:
        watch = self.known(config)
        assert self.leaves(watch)
        assert watch.missing() == ["m3"]
        assert not watch.peers.is_heard("m3", watch.ms)

    def test_what_others_pass_on_of_it_changes_nothing(self) -> None:
        watch = self.known()
        assert self.leaves(watch)
        watch.look(STEP_MS, "m2", "m3")
        assert watch.missing() == ["m3"]
        assert watch.suspicion.looks(watch.peers, watch.ms) == []

    @pytest.mark.parametrize("incarnation", [1, 3])
    def test_another_process_of_it_is_not_the_one_that_is_known(self, incarnation: int) -> None:
        watch = self.known()
        assert not self.leaves(watch, incarnation)
        assert watch.missing() == []

    def test_its_next_process_is_not_missing(self) -> None:
        watch = self.known()
        assert self.leaves(watch)
        watch.peers.peers["m3"].row = row("m3", incarnation=3)
        watch.look(STEP_MS, "m2", "m3")
        assert watch.missing() == []

    def test_it_is_taken_back_as_soon_as_it_asks_however_often_it_was_stopped(self) -> None:
        watch = self.known()
        for incarnation in (2, 3, 4):
            watch.peers.peers["m3"].row = row("m3", incarnation=incarnation)
            assert self.leaves(watch, incarnation)
            watch.suspicion.begin(MEMBERS, ("m1", "m2"), watch.ms)
            watch.look(STEP_MS, "m2")
            watch.suspicion.on_join("m3", watch.ms)
            assert watch.suspicion.is_joining("m3")
            watch.suspicion.begin(("m1", "m2"), MEMBERS, watch.ms)

    def test_in_the_next_epoch_it_is_nobody(self) -> None:
        watch = self.known()
        assert self.leaves(watch)
        watch.suspicion.begin(MEMBERS, ("m1", "m2"), watch.ms)
        assert watch.suspicion.stopped == {"m3"}
        assert not watch.suspicion.has_left(watch.peers.peers["m3"])


class TestAbsence:
    """The broker says that the inbox of a member is gone."""

    def told(self, watch: Watch, node: NodeId) -> bool:
        return watch.suspicion.on_absence(watch.peers.peers[node], watch.ms)

    def test_one_that_is_silent_and_read_by_nobody_is_missing_at_once(self) -> None:
        watch = Watch()
        watch.look(STEP_MS, "m2", "m3")
        watch.look(CONFIG.gone_ms, "m2")
        assert self.told(watch, "m3")
        assert watch.missing() == ["m3"]
        assert not watch.peers.is_heard("m3", watch.ms)
        assert watch.suspicion.gone == {"m3"}
        # And nobody has to ask again
        watch.look(60_000, "m2", head=(1, 0, "t"))
        assert watch.suspicion.looks(watch.peers, watch.ms) == []
        assert watch.suspicion.gone == {"m3"}

    def test_one_that_was_heard_since_is_not(self) -> None:
        watch = Watch()
        watch.look(CONFIG.gone_ms - STEP_MS, "m2")
        watch.look(STEP_MS, "m2", "m3")
        assert not self.told(watch, "m3")
        assert watch.missing() == []

    def test_one_that_comes_back_is_not_missing_any_more(self) -> None:
        watch = Watch()
        watch.look(STEP_MS, "m2", "m3")
        watch.look(CONFIG.gone_ms, "m2")
        self.told(watch, "m3")
        watch.look(STEP_MS, "m2", "m3")
        assert watch.missing() == []
        assert watch.suspicion.gone == set()

    def test_the_broker_is_asked_once_something_waits_for_a_silent_one_and_again_after_a_while(self) -> None:
        watch = Watch()
        head: Head = (1, 0, "t")
        watch.look(STEP_MS, "m2", "m3", head=head)
        watch.look(CONFIG.gone_ms - STEP_MS, "m2", head=head)
        assert watch.suspicion.looks(watch.peers, watch.ms) == []
        watch.look(STEP_MS, "m2", head=head)
        due_ms = watch.suspicion.deadline_ms(watch.peers)
        assert due_ms is not None
        assert due_ms <= watch.ms
        assert watch.suspicion.looks(watch.peers, watch.ms) == ["m3"]
        assert watch.suspicion.looks(watch.peers, watch.ms) == []
        watch.look(CONFIG.retransmit_ms + STEP_MS, "m2", head=head)
        assert watch.suspicion.looks(watch.peers, watch.ms) == ["m3"]

    def test_where_nothing_waits_a_heartbeat_may_be_late(self) -> None:
        watch = Watch()
        watch.look(STEP_MS, "m2", "m3")
        watch.look(CONFIG.heard_ms - STEP_MS, "m2")
        assert watch.suspicion.looks(watch.peers, watch.ms) == []
        watch.look(STEP_MS, "m2")
        assert watch.suspicion.looks(watch.peers, watch.ms) == ["m3"]

    def test_where_any_side_may_go_on_nobody_is_asked(self) -> None:
        watch = Watch()
        for mode in ("smart", "simple"):
            watch.suspicion = Suspicion(SyncConfig("m1", MEMBERS, split_recovery=mode))
            watch.look(60_000, "m2")
            assert watch.suspicion.looks(watch.peers, watch.ms) == []
            assert not self.told(watch, "m3")

    def test_where_updates_are_not_to_be_delayed_it_is_asked_soon_and_believed(self) -> None:
        """The papers: "updates will not be delayed upon split"; not by a master whose process has ended, however long it stood still before."""
        watch = Watch(replace(HASTY, none_silent_ms=200))
        watch.look(5 * STEP_MS, "m2", "m3", head=HEAD)
        watch.heard_after(450)
        watch.look(STEP_MS, "m2", head=HEAD)
        assert watch.suspicion.looks(watch.peers, watch.ms) == []
        assert not self.told(watch, "m3")
        watch.look(STEP_MS, "m2", head=HEAD)
        assert watch.suspicion.looks(watch.peers, watch.ms) == ["m3"]
        assert watch.missing("m3") == []
        assert self.told(watch, "m3")
        assert watch.missing("m3") == ["m3"]


class TestWhereUpdatesAreNotToBeDelayed:
    """Strategy none: whom something waits for is parted from soon, later where it has been slow, and nobody for being idle."""

    def watch(self) -> Watch:
        """One that has heard both others in this epoch."""
        watch = Watch(HASTY)
        for node, peer in watch.peers.peers.items():
            peer.row = row(node)
        return watch

    def test_a_silent_member_that_something_waits_for_is_missed_soon(self) -> None:
        watch = self.watch()
        watch.look(STEP_MS, "m2", "m3", head=HEAD)
        watch.look(200 - STEP_MS, "m2", head=HEAD)
        assert watch.missing() == []
        watch.look(STEP_MS, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_an_idle_one_has_its_time_from_when_something_waits(self) -> None:
        watch = self.watch()
        watch.look(STEP_MS, "m2", "m3")
        watch.look(600, "m2")
        assert watch.missing() == []
        watch.look(STEP_MS, "m2", head=HEAD)
        assert watch.missing() == []
        watch.look(200, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_one_that_was_slow_is_given_twice_that_time_up_to_a_bound(self) -> None:
        for slow_ms, patience_ms in ((300, 600), (900, 1000), (90, 200)):
            watch = self.watch()
            watch.look(1000, "m2", "m3", head=HEAD)
            watch.heard_after(slow_ms)
            watch.look(patience_ms - STEP_MS, "m2", head=HEAD)
            assert watch.missing() == []
            watch.look(STEP_MS, "m2", head=HEAD)
            assert watch.missing() == ["m3"]

    @pytest.mark.parametrize(("after_ms", "patience_ms"), [(100, 600), (5_000, 200)])
    def test_one_that_was_parted_from_and_comes_right_back_was_only_slow(self, after_ms: int, patience_ms: int) -> None:
        """Else masters that are far from each other part with the first write of each idle time."""
        watch = self.watch()
        watch.look(STEP_MS, "m2", "m3", head=HEAD)
        watch.look(200, "m2", head=HEAD)
        assert watch.missing() == ["m3"]
        watch.look(STEP_MS)
        watch.suspicion.begin(MEMBERS, ("m1", "m2"), watch.ms)
        watch.look(after_ms - STEP_MS, "m2")
        watch.heard_after(after_ms + 200)
        watch.suspicion.begin(("m1", "m2"), MEMBERS, watch.ms)
        watch.look(STEP_MS, "m2", "m3", head=HEAD)
        watch.look(patience_ms - STEP_MS, "m2", head=HEAD)
        assert watch.missing() == []
        watch.look(STEP_MS, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_one_that_holds_nothing_up_has_the_time_of_all_others(self) -> None:
        watch = self.watch()
        watch.holding = ("m2",)
        watch.look(STEP_MS, "m2", "m3", head=HEAD)
        watch.look(HASTY.lag_of("none") - STEP_MS, "m2", head=HEAD)
        assert watch.missing() == []

    def test_that_nothing_was_asked_of_it_is_no_slowness(self) -> None:
        watch = self.watch()
        watch.look(1000, "m2", "m3")
        watch.heard_after(450)
        watch.look(STEP_MS, "m2", "m3", head=HEAD)
        watch.look(200, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_one_that_is_on_its_way_into_the_epoch_has_the_time_of_all_others(self) -> None:
        watch = self.watch()
        watch.peers.peers["m3"].row = None
        watch.look(STEP_MS, "m2", "m3", head=HEAD)
        watch.look(HASTY.lag_of("none") - STEP_MS, "m2", head=HEAD)
        assert watch.missing() == []
        watch.look(STEP_MS, "m2", head=HEAD)
        assert watch.missing() == ["m3"]

    def test_an_own_pause_is_nobody_elses_silence(self) -> None:
        watch = self.watch()
        watch.look(2 * STEP_MS, "m2", "m3", head=HEAD)
        watch.ms += 5_000
        watch.suspicion.look(watch.peers, HEAD, watch.ms, lambda: watch.holding)
        assert watch.missing() == []

    def test_posts_come_often_enough_to_tell(self) -> None:
        assert HASTY.busy_post_ms("none") < HASTY.none_silent_ms / 2
        assert HASTY.busy_post_ms("smart") == HASTY.retransmit_ms
