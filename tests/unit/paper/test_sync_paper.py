"""One test for each sentence of the TxLog sync design's normal operation, exceptions and additional notes.

The docstring of each test quotes the idea of the sentence in our words; rules are those of brokerha/sync/PROTOCOL.md.
"""

from __future__ import annotations

from functools import partial

import pytest

from brokerha.model.ids import is_tx_id
from brokerha.model.wire.messages import Bodies, Fetch, Outgoing, Post
from brokerha.sync.waiting import culprits
from tests.unit.paper.masters import START_US, Table, with_row


def is_prefix(left: list[str], right: list[str]) -> bool:
    return right[: len(left)] == left or left[: len(right)] == right


def is_lucky(number: int, sender: str, out: Outgoing) -> bool:
    """Two of three messages get through, others each time."""
    return (int(sender[1]) * 3 + int(out.to[1]) + number) % 3 != 0


# ---- node state variables


def test_synchronised_queues_are_identical_or_one_is_a_prefix_of_the_other() -> None:
    """Normal operation: for any pair of peers at any time."""
    table = Table(3)
    for number in range(30):
        table.write(f"m{number % 3 + 1}", f"t{number}")
        table.round()
        table.deliver(partial(is_lucky, number))
        table.pass_ms(1)
        for left in table.names:
            for right in table.names:
                assert is_prefix(table.queue(left), table.queue(right))
    table.settle()
    assert len(table.queue("m1")) == 30
    assert table.queue("m1") == table.queue("m2") == table.queue("m3")


def test_incoming_queue_is_sorted_by_timestamp_then_transaction_id() -> None:
    """The transactions are sorted by timestamp and transaction id, in this order."""
    table = Table(2)
    table.settle(4)
    table.write("m2", "b")
    table.round("m2")
    table.write("m1", "a")
    table.round("m1")
    table.deliver(lambda sender, out: out.to == "m1")
    table.round("m1")
    # Both were stamped at the same microsecond, so the id decides.
    assert len({entry[0] for entry in table.cores["m1"].incoming}) == 1
    assert table.incoming("m1") == ["a", "b"]


def test_incoming_transactions_come_from_clients_and_from_other_nodes() -> None:
    """Created locally, as requested by a client, or received from other nodes; listed with id, timestamp and origin."""
    table = Table(3)
    table.settle(4)
    table.write("m1", "own")
    table.write("m2", "foreign")
    table.round()
    table.deliver(lambda sender, out: out.to == "m1")
    table.round("m1")
    table.lose()
    assert {(entry[1], entry[2]) for entry in table.cores["m1"].incoming} == {("own", "m1"), ("foreign", "m2")}


def test_transaction_ids_are_assigned_once_at_the_origin() -> None:
    """Ids are globally unique and assigned upon creation; an id that came in through two masters is one transaction."""
    table = Table(3)
    table.write("m1", "same")
    table.write("m2", "same")
    table.settle()
    assert table.queue("m1") == table.queue("m2") == table.queue("m3") == ["same"]
    assert is_tx_id("m1.ab12cd34.1.1")


# ---- the four steps of a round


def test_post_carries_merge_base_counter_and_what_the_peer_lacks() -> None:
    """POST to all other known masters: merge base, timestamp counter, contents of the incoming queue."""
    table = Table(3)
    table.settle(6)
    table.write("m1", "x")
    table.round("m1")
    for peer in ("m2", "m3"):
        post = table.posts("m1", peer)[-1]
        assert post.row.lsn == 0
        assert post.row.promise >= START_US
        assert [entry[1] for origin, _, entries in post.streams for entry in entries if origin == "m1"] == ["x"]


def test_collect_keeps_the_last_row_of_each_peer() -> None:
    """COLLECT foreign queues and counters from what all other known masters posted; an older post changes nothing."""
    table = Table(2)
    table.settle(4)
    old = table.posts("m2", "m1")[0]
    before = table.cores["m1"].peers.peers["m2"].row
    table.cores["m1"].on_post("m2", old, table.now)
    assert table.cores["m1"].peers.peers["m2"].row is before


def test_add_takes_the_longest_common_prefix() -> None:
    """ADD the longest common prefix of all collected foreign queues and the local queue."""
    table = Table(2)
    table.settle(4)
    table.write("m1", "p", "q")
    table.round("m1")
    table.write("m1", "r")
    table.round("m1")
    table.deliver(lambda sender, out: not (isinstance(out.message, Bodies) and out.message.items[0][1] == "r"))
    table.round("m2")
    table.deliver(lambda sender, out: sender == "m2")
    table.round("m1")
    # m2 holds p and q; r is known here only.
    assert table.queue("m1") == ["p", "q"]
    assert table.incoming("m1") == ["r"]


def test_add_stops_at_the_least_counter() -> None:
    """ADD only transactions with timestamps up to the least of the collected counters."""
    table = Table(2)
    table.settle(4)
    table.write("m1", "late")
    table.round("m1")
    table.deliver()
    table.round("m2")
    table.deliver(lambda sender, out: False)
    # m2 holds it and says so, but its counter is made to stay below the entry: nothing may be added.
    entry = next(iter(table.cores["m1"].incoming))
    post = with_row(table.posts("m2", "m1")[-1], promise=entry[0] - 1)
    table.lose()
    table.cores["m1"].on_post("m2", post, table.now)
    table.round("m1")
    assert table.queue("m1") == []
    # With the counter at the entry it is added.
    row = post.row
    table.cores["m1"].on_post("m2", with_row(post, promise=entry[0], number=row.number + 1), table.now)
    table.round("m1")
    assert table.queue("m1") == ["late"]


def test_merge_puts_unknown_transactions_at_their_sorting_places() -> None:
    """MERGE into the local queue all unknown transactions from foreign queues, in their proper sorting places."""
    table = Table(3)
    table.settle(4)
    table.write("m2", "first")
    table.round("m2")
    table.pass_ms(5)
    table.write("m1", "second")
    table.round("m1")
    table.deliver(lambda sender, out: out.to == "m1")
    table.lose()
    table.round("m1")
    assert table.incoming("m1") == ["first", "second"]


# ---- exceptions: time-out


def test_a_round_completes_without_a_missing_node_up_to_its_last_counter() -> None:
    """Complete the round between the nodes that did post, using the last known counters of the missing ones."""
    table = Table(3, acknowledge="majority")
    table.settle(4)
    table.write("m1", "before")
    table.round("m1")
    table.deliver(lambda sender, out: True)
    table.round("m3")
    table.pass_ms(table.cores["m3"].config.confirm_delay_ms)
    table.round("m3")
    table.deliver(lambda sender, out: sender == "m3")
    # m3 promised past it, then it is gone; m1 and m2 complete the round with that counter.
    table.crash("m3")
    table.settle(10, choice=lambda sender, out: "m3" not in (sender, out.to))
    assert table.queue("m1") == table.queue("m2") == ["before"]


def test_empty_rounds_follow_when_everything_is_past_the_missing_counters() -> None:
    """If all remaining transactions are past the last counters of the missing nodes, rounds are empty until they are back."""
    table = Table(3, acknowledge="majority")
    table.settle(4)
    table.crash("m3")
    table.pass_ms(5)
    table.write("m1", "after")
    table.settle(15, step_ms=100)
    assert table.queue("m1") == table.queue("m2") == []
    assert culprits(table.cores["m1"], table.now.mono_ms) == ["m3"]
    table.start("m3")
    table.settle(50, step_ms=100)
    assert table.queue("m1") == table.queue("m2") == table.queue("m3") == ["after"]


# ---- exceptions: laggers


def test_a_lagger_is_brought_up_to_date_by_a_forerunner() -> None:
    """One or more forerunners update the laggers with the most up-to-date version of the synchronised queue."""
    table = Table(3, acknowledge="majority", post_window=3)
    table.settle(4)
    table.write("m1", *[f"t{n}" for n in range(20)])
    # m3 hears nothing of m1 but goes on promising: the others run ahead of it by more than a window.
    table.settle(60, step_ms=50, choice=lambda sender, out: not (out.to == "m3" and isinstance(out.message, Bodies)))
    assert len(table.queue("m1")) == 20
    assert len(table.queue("m3")) < 20
    table.settle(80, step_ms=50)
    assert table.queue("m3") == table.queue("m1")


# ---- additional notes


def test_posts_may_arrive_before_the_own_post() -> None:
    """A node is prepared to collect status posted by others before it posts its own."""
    table = Table(2)
    table.write("m2", "early")
    table.round("m2")
    assert table.deliver() > 0
    assert table.cores["m1"].row_number == 0
    table.settle()
    assert table.queue("m1") == ["early"]


def test_rounds_with_different_sets_of_messages_still_agree() -> None:
    """One node's round may include other messages than a peer's; they are still guaranteed to agree."""
    table = Table(3)
    table.settle(4)
    table.write("m1", "a")
    table.write("m2", "b")
    table.write("m3", "c")
    table.round()
    table.deliver(lambda sender, out: (sender, out.to) in {("m1", "m2"), ("m3", "m1")})
    table.round()
    table.settle()
    assert table.queue("m1") == table.queue("m2") == table.queue("m3")
    assert sorted(table.queue("m1")) == ["a", "b", "c"]


def test_busy_nodes_run_rounds_back_to_back_and_idle_ones_rarely() -> None:
    """While there are unsynchronised transactions rounds follow at once; idle rounds once a second or less often."""
    table = Table(3)
    table.settle(10)
    count = len(table.posts("m1", "m2"))
    for _ in range(100):
        table.settle(1, step_ms=100)
    # Ten seconds without work: about one post a second.
    assert 9 <= len(table.posts("m1", "m2")) - count <= 12
    assert not table.cores["m1"].is_busy()


def test_idle_mode_begins_with_the_first_idle_round() -> None:
    """Nodes switch to idle mode on the first idle round."""
    table = Table(2)
    table.write("m1", "x")
    table.settle(10)
    assert not table.cores["m1"].is_busy()
    due = table.cores["m1"].deadline_ms()
    assert due is not None
    assert due - table.now.mono_ms > 500


@pytest.mark.parametrize("origin", ["m1", "m2"])
def test_busy_mode_begins_with_a_local_write_or_the_first_non_empty_post(origin: str) -> None:
    """Back to busy mode on the first non-empty status posted by any peer, or on an incoming transaction."""
    table = Table(2)
    table.settle(10)
    table.write(origin, "wake")
    table.round(origin)
    table.deliver(lambda sender, out: isinstance(out.message, Post))
    assert table.cores["m1"].is_busy()


def test_posts_carry_no_bodies() -> None:
    """Only the minimum about transactions is exchanged in the protocol; bulky updates do not clog it."""
    table = Table(2)
    table.settle(4)
    table.write("m1", "big", body=b"x" * 100_000)
    table.round("m1")
    posts = [out.message for _, out in table.mail if isinstance(out.message, Post)]
    assert posts
    assert all(len(repr(post)) < 2000 for post in posts)
    assert any(isinstance(out.message, Bodies) for _, out in table.mail)


def test_bodies_are_fetched_from_the_origin_when_they_do_not_come() -> None:
    """Nodes acquire transaction data from the originating peer, asynchronously."""
    table = Table(2)
    table.settle(4)
    table.write("m1", "lost")
    table.round("m1")
    table.lose(lambda sender, out: isinstance(out.message, Bodies))
    table.settle(30, step_ms=20)
    asked = [out for sender, out in table.sent if sender == "m2" and isinstance(out.message, Fetch)]
    assert asked
    assert asked[0].to == "m1"
    assert asked[0].message == Fetch((("m1", "lost"),))
    assert table.queue("m2") == ["lost"]


def test_only_acquired_transactions_are_posted() -> None:
    """Nodes post only transactions that they have been able to acquire, so whoever merged one can execute it."""
    table = Table(3)
    table.settle(4)
    table.write("m1", "bodiless")
    table.round("m1")
    table.lose(lambda sender, out: isinstance(out.message, Bodies))
    table.deliver()
    table.round("m2")
    assert table.incoming("m2") == []
    assert all(post.row.have["m1"] == 0 for post in table.posts("m2", "m3"))


def test_unknown_peers_are_ignored_and_counted() -> None:
    """A master does not synchronise with unknown, that is unconfigured, peers."""
    table = Table(2)
    table.settle(4)
    stranger = with_row(table.posts("m2", "m1")[-1], node="stranger", number=99)
    table.cores["m1"].on_post("stranger", stranger, table.now)
    assert "stranger" not in table.cores["m1"].peers.peers
    assert table.cores["m1"].peers.ignored["unknown_peer"] == 1
