"""One test for each sentence of the TxLog sync design about time-outs that end, laggers and forerunners, and parts that lose each other.

The docstring of each test quotes the idea of the sentence in our words; here it is the way `split-recovery = quorum` keeps it.
Where this differs from the paper the docstring says so; PROTOCOL.md has the reasons.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from brokerha.model.wire.epoch_messages import Tail, TailWanted
from brokerha.model.wire.messages import Outgoing, Post
from tests.unit.paper.masters import Choice, Table, without

TIMEOUT_MS = 5_000
STEP_MS = 50


def parted(*groups: str) -> Choice:
    """Only masters of one group hear each other."""
    sides = [set(group.split()) for group in groups]
    return lambda sender, out: any({sender, out.to} <= side for side in sides)


def everybody(_sender: str, _out: Outgoing) -> bool:
    return True


class Cluster(Table):
    """Masters that know each other and wait five seconds for one that is missing; checks the queues all the time."""

    def __init__(self, masters: int = 3) -> None:
        super().__init__(masters, max_peer_lag_ms=TIMEOUT_MS)
        self.live(300)

    def live(self, for_ms: int, choice: Choice = everybody) -> None:
        for _ in range(for_ms // STEP_MS):
            self.settle(1, STEP_MS, choice)
            queues = sorted((self.queue(name) for name in self.names), key=len)
            for shorter, longer in pairwise(queues):
                assert longer[: len(shorter)] == shorter


# ---- exceptions: time-out


def test_without_progress_for_the_specified_time_the_remaining_nodes_continue_without_the_missing_ones() -> None:
    """If no progress is marked after a specified amount of time, the remaining nodes continue without the missing ones."""
    table = Cluster()
    table.crash("m3")
    table.write("m1", "a")
    # Not before that time, which is short while something waits
    table.live(table.cores["m1"].config.suspect_ms - 500)
    assert table.queue("m1") == []
    # But soon after it, and what comes later is not held up at all
    table.live(1500)
    assert table.queue("m1") == table.queue("m2") == ["a"]
    table.write("m2", "b")
    table.live(200)
    assert table.queue("m1") == table.queue("m2") == ["a", "b"]


def test_the_time_is_counted_from_the_last_word_of_the_missing_one() -> None:
    """The same: a node that posts again before the time is over is not missing any more."""
    table = Cluster()
    for _ in range(4):
        table.live(TIMEOUT_MS - 2500, without("m3"))
        table.live(1200)  # A heartbeat's time
    assert table.cores["m1"].epoch.members == table.names


def test_progress_goes_on_up_to_the_last_counters_without_waiting_for_the_time() -> None:
    """Complete the round with the last known counters: what a missing node holds and promised needs no time-out."""
    table = Cluster()
    table.write("m1", "before")
    table.round("m1")
    table.deliver()
    table.round("m3")
    table.deliver(lambda sender, out: sender == "m3")
    table.crash("m3")
    table.live(300)
    assert table.queue("m1") == table.queue("m2") == ["before"]
    assert table.cores["m1"].epoch.members == table.names


def test_no_split_brain_comes_of_it() -> None:
    """(Possibly creating a split brain case.) Not here: of two parts only the one with a majority continues."""
    table = Cluster(5)
    link = parted("m1 m2", "m3 m4 m5")
    table.write("m1", "few")
    table.write("m3", "many")
    table.live(3 * TIMEOUT_MS, link)
    assert table.queue("m1") == table.queue("m2") == []
    assert table.queue("m3") == table.queue("m4") == table.queue("m5") == ["many"]


def test_without_a_majority_anywhere_all_wait() -> None:
    """The same: three parts of five masters, none of which is a majority."""
    table = Cluster(5)
    link = parted("m1 m2", "m3 m4", "m5")
    table.write("m1", "a")
    table.live(3 * TIMEOUT_MS, link)
    assert [table.queue(name) for name in table.names] == [[], [], [], [], []]
    table.live(2 * TIMEOUT_MS)
    assert [table.queue(name) for name in table.names] == [["a"]] * 5


# ---- exceptions: laggers


def test_a_lagger_says_where_it_stands_and_one_of_the_forerunners_updates_it() -> None:
    """One or more nodes report merge bases in the tails of the others' queues; forerunners update the laggers."""
    # Given one that missed a hundred transactions
    table = Cluster()
    table.live(2 * TIMEOUT_MS, without("m3"))
    for number in range(100):
        table.write("m1", f"t{number}")
        table.live(STEP_MS, without("m3"))
    table.live(500, without("m3"))
    assert (len(table.queue("m1")), len(table.queue("m3"))) == (100, 0)
    # When it hears the others again, its row says how far it is
    table.live(2000)
    assert any(post.row.lsn == 0 for post in table.posts("m3", "m1"))
    # Then it asks one of them for what follows, gets it in the same order, and takes part again
    assert table.messages(TailWanted, "m3")[0].first_lsn == 1
    assert {txid for tail in table.messages(Tail, to="m3") for _, txid, _ in tail.entries} == set(table.queue("m1"))
    assert table.queue("m3") == table.queue("m1") == [f"t{number}" for number in range(100)]
    table.write("m3", "again")
    table.live(300)
    assert table.queue("m1")[-1] == table.queue("m3")[-1] == "again"


def test_a_lagger_goes_to_the_next_forerunner_when_the_first_is_gone() -> None:
    """One or more of the forerunners: any of them can."""
    table = Cluster(5)
    table.live(2 * TIMEOUT_MS, without("m5"))
    table.write("m1", *[f"t{number}" for number in range(50)])
    table.live(500, without("m5"))
    table.crash("m1")
    table.live(3 * TIMEOUT_MS)
    assert table.queue("m5") == table.queue("m2") == [f"t{number}" for number in range(50)]


# ---- split, and after it


def test_masters_that_are_cut_off_collect_updates_and_do_not_execute_them() -> None:
    """They continue to collect updates, but do not execute them, in the hope that the connection comes back."""
    table = Cluster()
    table.write("m3", "collected")
    table.live(3 * TIMEOUT_MS, parted("m1 m2", "m3"))
    assert table.queue("m3") == []
    assert table.cores["m3"].backlog() == 1
    # And a restart does not forget them
    table.crash("m3")
    table.start("m3")
    assert table.cores["m3"].backlog() == 1


def test_the_majority_negotiates_the_updates_of_the_minority_as_new_ones() -> None:
    """Majority masters negotiate the minority's updates and add them to their queues; the minority catches up."""
    # Given two parts that both went on taking updates
    table = Cluster(5)
    link = parted("m1 m2", "m3 m4 m5")
    table.write("m1", "uk1")
    table.live(2 * TIMEOUT_MS, link)
    for master, txid in (("m3", "us1"), ("m2", "uk2"), ("m5", "us2")):
        table.write(master, txid)
        table.live(300, link)
    before = table.queue("m3")
    assert before == ["us1", "us2"]
    # When they are connected again
    table.live(2 * TIMEOUT_MS)
    # Then nobody had to take anything back, and the minority's updates follow, each once, everywhere
    for name in table.names:
        assert table.queue(name)[:2] == before
        assert sorted(table.queue(name)[2:]) == ["uk1", "uk2"]


def test_those_that_go_on_do_not_stop_for_the_one_that_comes_back() -> None:
    """They continue executing updates, because the other part reports an older merge base: it is obviously behind."""
    table = Cluster()
    table.live(2 * TIMEOUT_MS, without("m3"))
    for number in range(40):
        table.write("m1", f"t{number}")
        table.live(STEP_MS, without("m3"))
    for number in range(40, 80):
        table.write("m2", f"t{number}")
        table.live(STEP_MS)
    # Each turn's transaction is added within a second, while m3 comes back
    assert len(table.queue("m1")) >= 80 - 1000 // STEP_MS
    table.live(2000)
    assert table.queue("m3") == table.queue("m1") == [f"t{number}" for number in range(80)]


@pytest.mark.parametrize("cut", [("m1", "m3"), ("m2", "m4")])
def test_one_connection_that_is_lost_changes_nothing(cut: tuple[str, str]) -> None:
    """With one connection down updates reach the unreachable master through the reachable one; nobody is missing."""
    table = Cluster(4)

    def link(sender: str, out: Outgoing) -> bool:
        return {sender, out.to} != set(cut)

    table.live(2 * TIMEOUT_MS, link)
    for number, master in enumerate(cut):
        table.write(master, f"t{number}")
    table.live(1000, link)
    assert [sorted(table.queue(name)) for name in table.names] == [["t0", "t1"]] * 4
    table.live(2 * TIMEOUT_MS, link)
    assert table.cores["m1"].epoch.members == table.names


# ---- idle and busy


def test_those_that_went_on_are_idle_again_and_post_rarely_to_the_missing_one() -> None:
    """With nothing to agree on rounds follow about once a second, also without the missing node, which is told that they go on."""
    table = Cluster()
    table.crash("m3")
    table.write("m1", "a")
    table.live(2 * TIMEOUT_MS)
    assert not table.cores["m1"].is_busy()
    counts = {peer: len(table.posts("m1", peer)) for peer in ("m2", "m3")}
    table.live(10_000)
    for peer, count in counts.items():
        assert 9 <= len(table.posts("m1", peer)) - count <= 11
    # Nothing of the epoch goes to the one outside but that there is one
    assert all(not post.streams for post in table.posts("m1", "m3")[counts["m3"] :])


def test_what_is_left_of_a_missing_nodes_updates_keeps_them_busy_until_it_is_decided() -> None:
    """While there are unsynchronised transactions rounds follow at once: an update that nobody else has confirmed counts."""
    table = Cluster()
    table.write("m3", "orphan")
    table.round("m3")
    table.deliver(lambda _sender, out: out.to == "m1")
    table.lose()
    table.crash("m3")
    table.live(500, lambda _sender, out: isinstance(out.message, Post))
    assert table.cores["m1"].is_busy()
    # It is not lost with its origin: whoever has it passes it on
    table.live(2 * TIMEOUT_MS)
    assert table.queue("m1") == table.queue("m2") == ["orphan"]
    assert not table.cores["m1"].is_busy()
