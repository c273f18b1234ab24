"""Rules of the sync core that the paper does not speak of: impostors, restarts, windows, retransmission, the clock."""

from __future__ import annotations

import pytest

from brokerha.model.errors import ConfigurationError
from brokerha.model.forgetting import forgetting_id
from brokerha.model.wire.codec import encode_record
from brokerha.model.wire.messages import Bodies, Fetch, Post
from brokerha.sync import bodies
from brokerha.sync.config import SyncConfig
from brokerha.sync.state import HybridClock
from brokerha.sync.waiting import culprits
from tests.unit.paper.masters import Table, with_row, without


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"epoch": (7, "m2")}, "other_epoch"),
        ({"journal": "somebody else's"}, "foreign_journal"),
        ({"incarnation": 0}, "old_incarnation"),
    ],
)
def test_posts_of_another_epoch_journal_or_older_incarnation_change_nothing(changes: dict[str, object], reason: str) -> None:
    table = Table(2)
    table.settle(4)
    before = table.cores["m1"].peers.peers["m2"].row
    post = with_row(table.posts("m2", "m1")[-1], number=99, **changes)
    table.cores["m1"].on_post("m2", Post(post.row, (), (("m2", 0, ((5, "poison"),)),)), table.now)
    assert table.cores["m1"].peers.peers["m2"].row is before
    assert table.cores["m1"].peers.ignored[reason] == 1
    assert not table.cores["m1"].is_busy()


def test_bodies_and_fetches_of_strangers_are_counted() -> None:
    table = Table(2)
    table.cores["m1"].on_bodies("stranger", Bodies((("m2", "t", b""),)))
    table.cores["m1"].on_fetch("stranger", Fetch((("m1", "t"),)))
    table.cores["m1"].on_bodies("m2", Bodies((("nobody", "t", b""),)))
    assert table.cores["m1"].peers.ignored["unknown_peer"] == 2
    assert not table.cores["m1"].bodies.has("m2", "t")
    assert table.cores["m1"].peers.ignored["unknown_origin"] == 1


def test_a_post_that_claims_to_be_another_ones_is_refused() -> None:
    table = Table(3)
    table.settle(4)
    forged = table.posts("m3", "m1")[-1]
    table.cores["m1"].on_post("m2", with_row(forged, number=99), table.now)
    assert table.cores["m1"].peers.ignored["unknown_peer"] == 1


def test_entries_of_an_unknown_origin_and_of_the_own_stream_are_not_taken() -> None:
    table = Table(2)
    table.settle(4)
    post = table.posts("m2", "m1")[-1]
    row = with_row(post, number=99).row
    listed = (("nobody", 0, ((1, "x"),)), ("m1", 0, ((1, "y"),)))
    table.cores["m1"].on_post("m2", Post(row, (), listed), table.now)
    table.round("m1")
    assert not table.cores["m1"].is_busy()
    assert table.cores["m1"].peers.ignored["unknown_origin"] == 1


def test_a_restarted_master_goes_on_where_its_journal_ends() -> None:
    table = Table(3)
    table.write("m1", "a", "b")
    table.settle()
    table.write("m1", "c")
    table.round("m1")
    table.crash("m1")
    table.start("m1")
    assert table.cores["m1"].incarnation == 2
    table.settle(60, step_ms=20)
    assert table.queue("m1") == table.queue("m2") == table.queue("m3") == ["a", "b", "c"]


def test_all_masters_forget_an_id_at_the_same_place_whatever_each_holds() -> None:
    table = Table(3)
    table.write("m1", "a", "b", "c")
    table.settle()
    # Given one that holds nothing of it any more, and one that holds all
    table.journals["m2"].trim(4)
    table.write("m2", "a")
    table.settle()
    assert table.queue("m1") == table.queue("m3") == ["a", "b", "c"]
    # When an entry forgets what is below "c", and all three come again, in one turn with it and later
    table.write("m2", forgetting_id(3), "a", "c")
    table.settle()
    table.write("m3", "b", "a", "c")
    table.settle()
    # Then each master orders those that are forgotten, once, and drops the one that is not
    assert table.queue("m1") == table.queue("m3") == ["a", "b", "c", forgetting_id(3), "a", "b"]
    assert [txid for _, txid, _ in table.journals["m2"].ordered(4, 9)] == [forgetting_id(3), "a", "b"]


def test_what_is_forgotten_is_looked_up_once_for_all_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(2)
    txids = [f"t{number}" for number in range(200)]
    table.write("m1", *txids)
    table.settle()
    asked = 0
    ids_from = table.journals["m2"].ids_from

    def counted(end: int) -> int:
        nonlocal asked
        asked += 1
        return ids_from(end)

    monkeypatch.setattr(table.journals["m2"], "ids_from", counted)
    table.write("m2", *txids)
    table.settle()
    assert len(table.queue("m2")) == 200
    assert asked < 50


def test_timestamps_do_not_go_back_when_the_clock_does() -> None:
    table = Table(1)
    table.write("m1", "before")
    table.round("m1")
    last = table.journals["m1"].ordered(1, 1)[0][0]
    table.crash("m1")
    table.skew_us["m1"] = -3_600_000_000
    table.start("m1")
    table.write("m1", "after")
    table.round("m1")
    assert table.journals["m1"].ordered(2, 1)[0][0] > last


def test_the_clock_reserves_in_steps() -> None:
    clock = HybridClock(0, 1000)
    assert clock.ticks(5000, 1) == range(5000, 5001)
    record = clock.reservation()
    assert record is not None
    assert record.high_water == 6000
    clock.saw(5100)
    assert clock.reservation() is None
    assert clock.promise(5050) == 5100
    assert clock.ticks(1, 3) == range(5101, 5104)
    clock.saw(5800)
    assert clock.reservation() is not None


def test_what_got_lost_is_sent_again_after_the_retransmission_time_and_not_before() -> None:
    table = Table(2, retransmit_ms=250)
    table.settle(4)
    table.write("m1", "x")
    table.round("m1")
    table.lose()
    for _ in range(4):
        table.pass_ms(50)
        table.round("m1")
        assert not any(out.message.streams for _, out in table.mail if isinstance(out.message, Post))
        table.lose()
    table.pass_ms(250)
    table.round("m1")
    assert any(out.message.streams for _, out in table.mail if isinstance(out.message, Post))


def test_posts_keep_to_the_window_and_all_arrives() -> None:
    table = Table(2, post_window=1)
    table.settle(4)
    table.write("m1", *[f"t{n}" for n in range(12)])
    table.settle(60, step_ms=20)
    assert len(table.queue("m2")) == 12
    for post in table.posts("m1", "m2"):
        assert all(len(entries) <= 1 for _, _, entries in post.streams)


def test_transactions_beyond_the_queue_window_wait_without_a_timestamp() -> None:
    table = Table(2, queue_window=3)
    table.settle(4)
    table.write("m1", *[f"t{n}" for n in range(8)])
    table.round("m1")
    assert len(table.incoming("m1")) == 3
    assert table.cores["m1"].backlog() == 8
    table.settle()
    assert table.queue("m2") == [f"t{n}" for n in range(8)]


def test_a_backlog_of_large_bodies_is_stamped_and_pushed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PUSHED_LIMIT_BYTES", 300)
    table = Table(2)
    table.settle(4)
    core = table.cores["m1"]
    core.promised = (2, "m2")  # It waits for an epoch, and accepts meanwhile.
    for name in range(10):
        table.write("m1", f"t{name}", body=bytes(100))
        table.round("m1")
    core.promised = core.epoch.id
    # However many rounds there are: no more is pushed before it has an LSN.
    table.settle(choice=without("m2"))
    assert _pushed(table) == [300]
    assert len(core.parked) == 7
    table.settle(100, step_ms=20)
    assert max(_pushed(table)) == 300
    assert table.queue("m2") == [f"t{name}" for name in range(10)]


def test_entries_that_an_epoch_took_back_make_room_for_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PUSHED_LIMIT_BYTES", 300)
    table = Table(2)
    table.settle(4)
    core = table.cores["m1"]
    table.write("m1", *(f"t{name}" for name in range(3)), body=bytes(100))
    table.round("m1")
    assert core._pushed_bytes() == 300
    core.own.count -= 3
    assert core._pushed_bytes() == 0


def _pushed(table: Table) -> list[int]:
    return [sum(len(body) for _, _, body in sent.items) for sent in table.messages(Bodies, "m1", "m2")]


def test_posts_are_held_back_for_the_gap_and_then_sent() -> None:
    table = Table(2, post_gap_ms=10)
    table.settle(20, step_ms=5)
    count = len(table.posts("m1", "m2"))
    table.write("m1", "a")
    table.round("m1")
    table.write("m1", "b")
    table.round("m1")
    assert len(table.posts("m1", "m2")) <= count + 1
    table.settle(40, step_ms=5)
    assert table.queue("m2") == ["a", "b"]


def test_present_members_are_enough_when_asked_for() -> None:
    table = Table(3, acknowledge="present", max_peer_lag_ms=10**6)
    table.settle(10)
    table.write("m1", "x")
    table.settle()
    assert table.queue("m3") == ["x"]


def test_culprits_are_named() -> None:
    table = Table(3)
    table.settle(6)
    assert culprits(table.cores["m1"], table.now.mono_ms) == []
    table.crash("m3")
    table.write("m1", "x")
    table.settle(15, step_ms=100)
    assert culprits(table.cores["m1"], table.now.mono_ms) == ["m3"]


def test_a_master_alone_needs_nobody_and_no_waking() -> None:
    table = Table(1)
    table.write("m1", "x")
    table.round("m1")
    assert table.queue("m1") == ["x"]
    assert table.cores["m1"].deadline_ms() is None


def test_a_fetch_is_answered_in_bounded_messages() -> None:
    table = Table(2, body_message_bytes=10)
    table.settle(4)
    table.write("m1", "a", "b", "c", body=b"x" * 8)
    table.round("m1")
    table.lose()
    table.cores["m1"].on_fetch("m2", Fetch((("m1", "a"), ("m1", "b"), ("m1", "unknown"))))
    table.round("m1")
    answers = [out.message for _, out in table.mail if isinstance(out.message, Bodies)]
    assert [len(answer.items) for answer in answers] == [1, 1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"members": ("m2",)}, "not among the masters"),
        ({"members": ("m1", "m1")}, "same id"),
        ({"acknowledge": "some"}, "write one of all"),
        ({"split_recovery": "magic"}, "write one of none"),
        ({"post_window": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        SyncConfig(**{"node": "m1", "members": ("m1",), **settings})  # type: ignore[arg-type]


def test_large_transactions_of_one_turn_lie_in_records_that_each_fit_into_a_message() -> None:
    table = Table(2)
    table.settle(4)
    bodies = {f"t{number}": bytes([number]) * 3_000_000 for number in range(7)}
    for txid, body in bodies.items():
        table.write("m1", txid, body=body)
    table.settle(20)
    for name in ("m1", "m2"):
        records = [record for _, record in table.journals[name].records()]
        assert max(len(encode_record(record)) for record in records) < 9_000_000
        assert {txid: table.journals[name].body("m1", txid) for txid in bodies} == bodies
    assert table.queue("m1") == table.queue("m2") == list(bodies)


def _posted_to(table: Table, sender: str) -> set[str]:
    """Whom a master posts to in its next round; what it says is under way then."""
    before = len(table.sent)
    table.round(sender)
    return {out.to for who, out in table.sent[before:] if who == sender and isinstance(out.message, Post)}


def test_what_is_held_is_confirmed_at_once_to_its_origin_and_later_to_those_who_wait_for_nothing() -> None:
    table = Table(3, confirm_delay_ms=5)
    table.settle(4)
    table.write("m1", "A")
    table.round("m1")
    table.deliver(lambda sender, out: True)
    assert _posted_to(table, "m3") == {"m1"}
    due_ms = table.cores["m3"].deadline_ms()
    assert due_ms is not None
    assert due_ms == table.now.mono_ms + 5
    table.pass_ms(4)
    assert _posted_to(table, "m3") == set()
    table.pass_ms(1)
    assert _posted_to(table, "m3") == {"m2"}
    assert _posted_to(table, "m3") == set()


def test_who_has_entries_of_its_own_under_way_is_told_at_once() -> None:
    table = Table(3, confirm_delay_ms=5)
    table.settle(4)
    table.write("m2", "B")
    table.round("m2")
    table.deliver(lambda sender, out: out.to == "m3")
    assert _posted_to(table, "m3") == {"m2"}
    # "B" is held at m3 and not added yet when "A" comes: m2 waits for whatever may come before it
    table.write("m1", "A")
    table.round("m1")
    table.deliver(lambda sender, out: sender == "m1")
    assert _posted_to(table, "m3") == {"m1", "m2"}


def test_everybody_is_told_at_once_where_the_origin_hears_of_it_through_others() -> None:
    table = Table(3, confirm_delay_ms=5)
    table.settle(4)
    for _ in range(8):
        # m1 does not hear m3 for a while
        table.settle(2, choice=lambda sender, out: (sender, out.to) != ("m3", "m1"), step_ms=250)
    table.write("m1", "A")
    table.round("m1")
    table.deliver(lambda sender, out: sender == "m1")
    assert _posted_to(table, "m3") == {"m1", "m2"}
