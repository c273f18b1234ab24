"""Commands about masters, and what a master that is none any more, or not yet, says and refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brokerha.model import states
from brokerha.model.epochs import REMOVE, Change, Configuration, Epoch
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare, Notice
from brokerha.model.wire.messages import Post
from tests.unit.master.one_master import OneMaster
from tests.unit.master.one_of_three import OTHERS, OneOfThree


@pytest.fixture
def bench() -> OneOfThree:
    made = OneOfThree()
    made.post(*OTHERS)
    return made


def of(rows: list[dict[str, Any]], node: str) -> dict[str, Any]:
    return next(row for row in rows if row["node"] == node)


def test_all_masters_are_listed_with_what_is_known_of_them(bench: OneOfThree) -> None:
    answer = bench.do("peers")
    assert [row["node"] for row in answer["peers"]] == answer["masters"] == ["m1", "m2", "m3"]
    assert answer["change"] is None
    assert answer["refused"] == ""
    m2 = of(answer["peers"], "m2")
    assert (m2["standing"], m2["heard"], m2["journal"], m2["lag"]) == ("member", True, "journal-of-m2", 0)
    bench.post("m3", journal="another")
    assert of(bench.do("peers")["peers"], "m3")["other_journal"] == "another"


def test_a_wish_is_answered_at_once_and_shown_until_it_is_over(bench: OneOfThree) -> None:
    answer = bench.do("peer-add", node="m4")
    assert (answer["kind"], answer["state"], answer["changed"]) == ("add", "under way", True)
    assert "not heard" in answer["stage"]
    assert bench.do("peer-add", node="m4")["changed"]
    shown = bench.do("peers")
    assert shown["change"]["node"] == "m4"
    assert of(shown["peers"], "m4")["standing"] == "invited"
    with pytest.raises(NotReady, match="one at a time"):
        bench.do("peer-remove", node="m3")


def test_what_is_so_already_changes_nothing(bench: OneOfThree) -> None:
    assert bench.do("peer-add", node="m2") | {"stage": ""} == {
        "master": "m1", "kind": "add", "node": "m2", "state": "done", "stage": "", "forced": False, "changed": False,
        "masters": ["m1", "m2", "m3"],
    }  # fmt: skip
    assert not bench.do("peer-remove", node="m9")["changed"]


def test_a_master_that_was_taken_out_is_named_when_it_is_to_come_back(bench: OneOfThree) -> None:
    retired = Configuration(("m1", "m2", "m3"), retired=(("m4", "old"),))
    bench.core.sync.epoch = replace(bench.core.sync.epoch, configuration=retired)
    assert "empty data directory" in bench.do("peer-add", node="m4")["stage"]


@pytest.mark.parametrize("node", ["", "M4", None, 4])
def test_a_name_that_is_no_node_id_is_refused(bench: OneOfThree, node: object) -> None:
    with pytest.raises(InvalidRequest, match="a node id"):
        bench.do("peer-add", node=node)


def test_a_worker_is_no_master_and_nobody_takes_itself_out() -> None:
    one = OneMaster()
    for worker in ("w1", "w9"):
        with pytest.raises(InvalidRequest, match="is a worker"):
            one.do("peer-add", node=worker)
    with pytest.raises(InvalidRequest, match="ask another master"):
        one.do("peer-remove", node="m1")


# ---- one that is taken out


def test_who_is_being_taken_out_takes_no_writes(bench: OneOfThree) -> None:
    bench.say("m2", EpochPrepare((2, "m2"), Change(REMOVE, "m1", "journal-of-m1")))
    (reply,) = bench.write("t1")
    assert (reply.error, reply.reason) == ("ReadOnly", "m1 is being taken out of the cluster: write to another master")


def test_who_was_taken_out_says_so_refuses_and_answers_who_waits(bench: OneOfThree) -> None:
    # Given a write that waits for its place
    assert bench.write("t1") == []
    # When m2 says that m1 was taken out
    bench.say("m2", Notice((2, "m2"), "journal-of-m1"))
    # Then whoever waits is told to ask elsewhere, and nothing new is taken in
    (reply,) = bench.replies
    assert (reply.txid, reply.error) == ("t1", "OutcomeUnknown")
    assert "ask another master" in reply.reason
    (reply,) = bench.write("t2")
    assert reply.error == "ReadOnly"
    assert reply.reason.endswith("taken out of the cluster by epoch 2, as m2 says: write to another master")
    (reply,) = bench.write("t1")
    assert reply.error == "OutcomeUnknown"
    assert bench.core.state(bench.now())[0] == states.RETIRED
    shown = bench.do("peers")
    assert "ask another master" in shown["refused"]
    assert of(shown["peers"], "m1")["standing"] == "retired"
    for command in ("peer-add", "peer-remove"):
        with pytest.raises(NotReady, match="ask another master"):
            bench.do(command, node="m3")


# ---- one that is to be added


def test_a_joiner_waits_to_be_added_then_says_what_it_has_to_take_over() -> None:
    # Given a master with an empty journal that is told of an epoch without it
    bench = OneOfThree()
    bench.say("m2", EpochInstall(Epoch(3, "m2", OTHERS, configuration=Configuration(OTHERS))))
    assert bench.core.state(bench.now())[0] == states.WAITING_TO_BE_ADDED
    (reply,) = bench.write("t1")
    assert (reply.error, reply.reason) == ("ReadOnly", "m1 is not a master of the cluster yet: write to another master")
    with pytest.raises(NotReady, match="not a master of the cluster yet"):
        bench.do("peer-add", node="m4")
    assert of(bench.do("peers")["peers"], "m1")["standing"] == "joiner"
    # When m2 has been told to add it, and posts to it
    bench.post("m2", epoch=(3, "m2"), lsn=7000)
    word, reason = bench.core.state(bench.now())
    assert (word, reason) == (states.JOINING, "7,000 transactions to take over from m2")


def test_a_stranger_that_takes_itself_for_a_founder_is_told_who_the_masters_are(bench: OneOfThree) -> None:
    bench.sent.clear()
    bench.post("m4")
    assert [out.message for out in bench.sent if out.to == "m4"] == [EpochInstall(bench.core.sync.epoch)]
    bench.sent.clear()
    bench.ms += 1000
    bench.post("m4", epoch=(0, ""))
    assert [out for out in bench.sent if out.to == "m4"] == []


def test_one_that_is_only_listened_to_is_not_told_that_it_is_known(bench: OneOfThree) -> None:
    bench.do("peer-add", node="m4")
    bench.post("m4")
    posts = [out.message for out in bench.sent if isinstance(out.message, Post)]
    assert posts
    assert all("m4" not in post.row.known for post in posts)
