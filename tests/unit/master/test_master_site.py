"""MasterCore and its site: when writes are refused, what the state says, and how results begin anew."""

from __future__ import annotations

from brokerha.model import states
from brokerha.model.epochs import FIRST
from brokerha.model.records import Rebased
from brokerha.model.requests import Reply, Submit
from brokerha.model.wire.epoch_messages import Row
from brokerha.model.wire.messages import Coin, Executed, Post
from tests.unit.master.one_master import OneMaster
from tests.unit.replication.benches import content, results, text


def differs(master: OneMaster, node: str, came_to: int) -> None:
    """A worker came to another content at LSN 4."""
    fields = {"trouble": "another content", "differs_lsn": 4, "differs_fingerprint": content(came_to)}
    master.hear(node, 3, journal=f"other-copy-of-{node}", follows="load", **fields)


def test_a_read_only_master_refuses_new_writes_and_goes_on_with_old_ones() -> None:
    master = OneMaster()
    master.hear("w2", 5, fingerprint=text(99))
    master.core.step(Submit(1, "new", b"body"), master.now())
    # What is known already is answered all the same.
    master.core.step(Submit(2, "t3", b"body"), master.now())
    replies: list[Reply] = []
    while ready := master.core.take_ready(master.now()):
        master.journal.append(ready.records)
        replies += ready.replies
    assert [(reply.ticket, reply.status, reply.error) for reply in replies] == [(1, "refused", "ReadOnly"), (2, "applied", "")]
    assert replies[0].reason.startswith("1 of 2 workers in sync, writes need 2: w2 is out-of-sync")
    assert master.core.state(master.now())[0] == states.READ_ONLY
    assert master.journal.lsn_of("new") is None


def test_a_majority_of_the_copies_lets_the_log_begin_anew_before_the_line_that_they_overrule() -> None:
    master = OneMaster(("w1", "w2", "w4"))
    for node in ("w2", "w4"):
        # Both stand before that line, as copies that are catching up do.
        master.hear(node, 3, journal=f"copy-of-{node}-again")
    for node in ("w2", "w4"):
        fields = {"trouble": "another content", "differs_lsn": 4, "differs_fingerprint": content(99)}
        master.hear(node, 3, journal=f"copy-of-{node}-again", follows="load", **fields)
    sent = master.run()
    rebased = [record for _, record in master.journal.records() if isinstance(record, Rebased)]
    assert rebased == [Rebased(3, content(3), 0, "a majority of the copies came to another content at LSN 4")]
    assert Coin(1, (), 4) in sent["w2"]
    assert Coin(1, (), 4) in sent["w4"]
    # They execute what was overruled; what they come to is the log now.
    master.hear("w2", 3, journal="copy-of-w2-again")
    master.run()
    rows = tuple((*row[:3], content(99)) for row in results(4, 5))
    master.step("w2", Executed(4, rows, 5, text(99), 5, "copy-of-w2-again"))
    master.run()
    assert master.core.history.fingerprint_at(4) == content(99)
    assert master.restart().feed.executed == 5


def test_disagreement_without_a_majority_is_the_state_and_stops_writes() -> None:
    master = OneMaster(("w1", "w2", "w4"))
    master.ms += master.config.feed.dead_after_ms
    differs(master, "w2", 98)
    differs(master, "w4", 99)
    master.run()
    word, reason = master.core.state(master.now())
    assert (word, reason) == (states.NEEDS_ATTENTION, "w2, w4 disagree about LSN 4 and no majority can be named")
    assert master.core.site.read_only_reason(master.ms) == reason


def test_another_site_that_holds_something_else_is_named_with_the_lsn() -> None:
    master = OneMaster()
    row = Row("m2", "journal-of-m2", 1, 1, FIRST, FIRST, 0, {}, 0, 0, (), fingerprint_lsn=5, fingerprint=text(99))
    # Only masters of this cluster are listened to.
    master.step("m2", Post(row, (), ()))
    master.run()
    assert master.core.sites.differing == {}
    master.core.sites.on_row("m2", 5, content(99))
    master.run()
    word, reason = master.core.state(master.now())
    assert (word, reason) == (states.DIFFERS, f"at LSN 5 this site holds {text(5)}, that of m2 {text(99)}")


def test_what_a_master_posts_of_its_content_is_durable() -> None:
    master = OneMaster(("w1",))
    assert master.core._posted_fingerprint() == (5, text(5))
    master.core.step(Submit(0, "t6", b"body"), master.now())
    master.run()
    master.step("w1", Executed(6, results(6, 6), 6, text(6), 6, "copy-of-w1"))
    master.core.take_ready(master.now())
    assert master.core._posted_fingerprint() == (5, text(5))
    master.ms += master.config.outcomes_wait_ms
    master.run()
    assert master.core._posted_fingerprint() == (6, text(6))
