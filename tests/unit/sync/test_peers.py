"""What is kept of the others over epochs: journals, last rows, who is outside; and streams that went on without one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.model.epochs import FIRST, Configuration, Epoch, first_epoch
from brokerha.model.records import PeerJournal
from brokerha.model.wire.epoch_messages import EpochReport
from brokerha.model.wire.messages import Bodies, Fetch, Outgoing
from brokerha.sync import bodies, streams
from brokerha.sync.config import SyncConfig
from brokerha.sync.peers import NEWER, OLD, REFUSED, RESTARTED, PeerTable
from brokerha.sync.streams import Stream
from tests.unit.paper.masters import Table, with_row
from tests.unit.sync.epoch_table import LAG_MS, EpochTable
from tests.unit.sync.reports import row

MEMBERS = ("m1", "m2", "m3", "m4")
NEXT = Epoch(
    2, "m2", ("m1", "m2", "m3"), configuration=Configuration(MEMBERS, journals={n: f"journal-of-{n}" for n in ("m1", "m2", "m3")})
)


def peer_table() -> PeerTable:
    return PeerTable(SyncConfig("m1", MEMBERS), {"m2": "journal-of-m2"}, first_epoch(MEMBERS))


# ---- rows and journals


def test_rows_of_one_incarnation_are_ordered_by_number_and_incarnations_by_themselves() -> None:
    peers = peer_table()
    assert peers.learn(row("m2", 5)) == RESTARTED
    assert peers.learn(row("m2", 5)) == OLD
    assert peers.learn(row("m2", 6)) == NEWER
    assert peers.learn(row("m2", 1, incarnation=2)) == RESTARTED
    assert peers.learn(row("m2", 99)) == REFUSED
    assert peers.ignored["old_incarnation"] == 1


def test_an_epoch_names_the_journals_of_its_members() -> None:
    # Given a master that has never heard m3
    peers = peer_table()
    peers.begin(NEXT)
    # Then it knows m3 by what the epoch says, and writes it down, and not what it knew already
    assert peers.journals == {"m2": "journal-of-m2", "m3": "journal-of-m3"}
    assert peers.new_journals == [PeerJournal("m3", "journal-of-m3")]
    assert peers.learn(row("m3", epoch=NEXT.id, journal="another")) == REFUSED
    assert peers.impostors == {"m3": "another"}


def test_a_new_epoch_forgets_what_was_said_in_the_old_one_but_not_that_it_was_said() -> None:
    peers = peer_table()
    peers.learn(row("m2", 7, lsn=4))
    peers.peers["m2"].heard_ms = 1000
    peers.begin(NEXT)
    assert peers.peers["m2"].row is None
    assert peers.heard(1200) == ("m2",)
    assert peers.lsn_of("m2") == 4
    assert set(peers.outside) == {"m4"}
    assert not peers.is_active("journal-of-m1")


def test_of_a_master_in_another_epoch_the_last_row_is_kept_and_nothing_of_it_counts() -> None:
    peers = peer_table()
    for number, lsn in ((2, 8), (1, 5), (3, 9)):
        assert peers.learn(row("m2", number, epoch=NEXT.id, lsn=lsn)) == REFUSED
    assert peers.ignored["other_epoch"] == 3
    assert (peers.lsn_of("m2"), peers.lsn_of("m3"), peers.lsn_of("nobody")) == (9, 0, 0)
    assert peers.peers["m2"].row is None
    # A later row of this epoch is newer than that
    peers.learn(row("m2", 4, lsn=3))
    assert peers.lsn_of("m2") == 3


def test_one_that_claims_to_be_in_an_epoch_whose_member_it_is_not_is_refused() -> None:
    peers = peer_table()
    peers.begin(NEXT)
    assert peers.learn(row("m4", epoch=NEXT.id)) == REFUSED
    assert peers.ignored["no_member"] == 1


def test_nothing_is_added_before_a_majority_of_all_masters_is_heard_in_the_epoch() -> None:
    peers = peer_table()
    peers.begin(NEXT)
    peers.learn(row("m2", epoch=NEXT.id))
    assert not peers.is_active("journal-of-m1")
    peers.learn(row("m3", epoch=NEXT.id))
    assert peers.is_active("journal-of-m1")


def test_in_the_first_epoch_nothing_is_added_before_all_know_each_other() -> None:
    masters = ("m1", "m2", "m3")
    names = {node: f"journal-of-{node}" for node in masters}
    peers = PeerTable(SyncConfig("m1", masters), {}, first_epoch(masters))
    # Given m2, which was emptied before this master had heard of it, and m3, which knows it by the journal of before
    peers.learn(row("m2", journal="emptied", known=names))
    peers.learn(row("m3", known=names))
    assert not peers.is_active("journal-of-m1")
    # One that does not know this master yet does not count either
    peers = PeerTable(SyncConfig("m1", masters), {}, first_epoch(masters))
    peers.learn(row("m2", known={"m3": names["m3"]}))
    peers.learn(row("m3", known=names))
    assert not peers.is_active("journal-of-m1")
    # Nor one that holds more of another than that says itself: it was emptied, and has another journal here
    peers = PeerTable(SyncConfig("m1", masters), {}, first_epoch(masters))
    peers.learn(row("m2", journal="emptied", known=names, have={"m2": 0}))
    peers.learn(row("m3", known={"m1": names["m1"]}, have={"m2": 1}))
    assert not peers.is_active("journal-of-m1")
    # But one that holds something of it, which it need not name
    peers = PeerTable(SyncConfig("m1", masters), {}, first_epoch(masters))
    peers.learn(row("m3", known=names))
    peers.learn(row("m2", 2, known={"m3": names["m3"]}, have={"m1": 1}))
    assert peers.is_active("journal-of-m1")


@pytest.mark.parametrize(("acknowledge", "held"), [("all", 1), ("present", 2), ("majority", 4)])
def test_a_recovered_list_is_added_as_far_as_it_is_held_wherever_it_has_to_be(acknowledge: str, held: int) -> None:
    # Given five members, two of which are not heard: one of these holds less than the others, the other one does not
    names = ("m1", "m2", "m3", "m4", "m5")
    config = SyncConfig("m1", names, acknowledge=acknowledge)
    peers = PeerTable(config, {}, Epoch(2, "m2", names, configuration=Configuration(names)))
    for node, recovered in (("m2", 2), ("m3", 4), ("m4", 4), ("m5", 1)):
        peers.learn(row(node, epoch=(2, "m2"), recovered=recovered))
        peers.peers[node].heard_ms = 0 if node in {"m4", "m5"} else 9000
    assert peers.recovered_by_required(4, 9000) == held


def test_a_majority_of_all_masters_has_to_hold_it_even_when_fewer_members_are_present() -> None:
    config = SyncConfig("m1", ("m1", "m2", "m3"), acknowledge="present")
    peers = PeerTable(config, {}, first_epoch(("m1", "m2", "m3")))
    assert peers.recovered_by_required(3, 9000) == 0


# ---- the own past, by the word of others


@pytest.mark.parametrize(
    ("said", "words"), [({"have": {"m1": 3}}, "the journal here holds 0"), ({"known": {"m1": "older"}}, "with another journal")]
)
@pytest.mark.parametrize("epoch", [FIRST, (4, "m2")])
def test_a_master_that_lost_its_past_takes_part_in_nothing(said: dict[str, object], words: str, epoch: tuple[int, str]) -> None:
    # When somebody, in this epoch or a later one, knows more of this master than it does
    table = EpochTable()
    table.cores["m1"].on_post("m2", with_row(table.posts("m2", "m1")[-1], number=99, epoch=epoch, **said), table.now)
    assert words in table.cores["m1"].lost
    # Then it neither promises nor says anything
    assert table.prepare("m1", (9, "m2")) == []
    assert table.cores["m1"].deadline_ms() is None


def test_a_report_shows_a_lost_past_as_well() -> None:
    table = EpochTable()
    (out,) = table.prepare("m2", (2, "m1"))
    assert isinstance(out.message, EpochReport)
    table.tell("m1", replace(out.message, row=replace(out.message.row, have={"m1": 5})), "m2")
    assert "the journal here holds 0" in table.cores["m1"].lost


# ---- streams that went on


def test_a_member_that_is_far_behind_gets_old_entries_out_of_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a member to which nothing comes, while a majority goes on for more than a few windows
    monkeypatch.setattr(streams, "FORGET_STEP", 2)
    table = Table(3, acknowledge="majority", max_peer_lag_ms=10**6, post_window=2)
    table.settle(6)
    for number in range(20):
        table.write("m1", f"t{number}")
        table.settle(3, 20, lambda _sender, out: out.to != "m3")
    table.settle(60, 20, lambda _sender, out: out.to != "m3")
    assert len(table.queue("m1")) == 20
    assert table.cores["m1"].own.start > 0
    # When it hears the others again
    table.settle(200, 50)
    assert table.queue("m3") == table.queue("m1")


def test_what_is_known_leaves_a_gap_or_has_no_room_is_not_announced() -> None:
    stream = Stream("m2", 0, [(5, "a")], 0)
    stream.announce(0, [(5, "a")], 10, 1000)
    stream.announce(2, [(7, "c")], 10, 1000)
    assert stream.waiting == []
    stream.announce(0, [(5, "a"), (6, "b"), (7, "c")], 1, 1000)
    assert stream.waiting == [(6, "b")]
    stream.announce(2, [(7, "c")], 1, 1000)
    assert stream.announced == 2
    # Timestamps of a stream grow; what does not follow them is not taken
    stream.announce(2, [(6, "x"), (8, "d")], 10, 1000)
    assert stream.announced == 2


def test_a_body_is_fetched_once_its_entry_was_announced_a_while_ago() -> None:
    table = EpochTable()
    core, at_ms = table.cores["m1"], table.now.mono_ms
    late_ms = at_ms + core.config.fetch_after_ms
    stream = Stream("m2", 0, [], 0)
    stream.announce(0, [(5, "a")], 10, at_ms)
    stream.announce(1, [(6, "b")], 10, late_ms - 1)
    assert core.bodies.fetches([stream], core.peers, late_ms - 1) == []
    assert core.bodies.fetches([stream], core.peers, late_ms) == [Outgoing("m2", Fetch((("m2", "a"),)))]


def test_names_of_bodies_that_wait_for_no_entry_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "LOOSE_LIMIT", 2)
    table = EpochTable()
    core = table.cores["m1"]
    for number in range(4):
        core.on_bodies("m2", Bodies((("m2", f"t{number}", b"x"),)))
    core.on_bodies("m2", Bodies((("m2", "t3", b"x"),)))
    table.write("m1", "own")
    table.round("m1")
    # All are in the journal, where the forgotten ones are found as well
    assert [core.bodies.has("m2", f"t{number}") for number in range(4)] == [True] * 4
    assert core.bodies.is_durable("m2", "t0")


# ---- posts to those outside


def test_one_outside_is_told_now_and_then_that_there_is_an_epoch() -> None:
    table = EpochTable()
    table.crash("m3")
    table.live(2 * LAG_MS)
    assert set(table.cores["m1"].peers.outside) == {"m3"}
    count = len(table.posts("m1", "m3"))
    table.write("m2", "a")
    table.live(1000)
    posts = table.posts("m1", "m3")[count:]
    assert 4 <= len(posts) <= 6
    assert {post.row.epoch for post in posts} == {table.cores["m1"].epoch.id}
    assert all(not post.streams for post in posts)
