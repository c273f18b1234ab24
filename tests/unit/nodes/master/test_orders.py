"""Orders to single processes of a master: taken at any of its processes, by HTTP's way in and by that of apps, answered by the right one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokerha.model import states
from brokerha.model.errors import InvalidRequest, NotReady, OutcomeUnknown, WrongState
from brokerha.model.wire.messages import Envelope, Message
from brokerha.model.wire.process_messages import NodeAnswer, NodeOrder
from brokerha.nodes.master import orders
from brokerha.nodes.master.process_node import ProcessNode
from tests.support.waiting import until
from tests.unit.nodes.master.test_process_node import WAIT_S, Pair

Answer = dict[str, object]


@pytest.fixture
def pair() -> Iterator[Pair]:
    running = Pair()
    until(running.is_settled)
    yield running
    running.stop()


def standby(pair: Pair) -> ProcessNode:
    primary = pair.primary
    return next(each for each in pair.nodes.values() if each is not primary)


def order(node: ProcessNode, command: str, about: str, *, force: bool = False) -> Answer:
    return node.command(command, {"node": about, "force": force}).result(WAIT_S)


@pytest.mark.parametrize("way", ["itself", "its primary", "its primary, by an app"])
def test_a_backup_is_paused_coined_and_continued_through_any_process(pair: Pair, way: str) -> None:
    backup, primary = standby(pair), pair.primary
    asked = backup if way == "itself" else primary
    if way.endswith("app"):
        assert primary.master is not None
        asked = primary.master  # type: ignore[assignment]
    paused = order(asked, "node-pause", backup.node_id, force=True)
    assert (paused["node"], paused["changed"], paused["state"]) == (backup.node_id, True, states.PAUSED)
    assert order(asked, "node-pause", backup.node_id)["changed"] is False
    assert backup.copy.journal.state().rest.is_on
    until(lambda: rows(primary)[backup.node_id] == states.PAUSED)
    assert backup.ready() == (False, ["[-]backup paused"])
    with pytest.raises(WrongState, match=f"{backup.node_id} was not coined since it was paused"):
        order(asked, "node-continue", backup.node_id)
    coined = order(asked, "node-coin", backup.node_id)
    assert f"coined on {primary.node_id} in view" in str(coined["reason"])
    assert order(asked, "node-continue", backup.node_id)["changed"] is True
    until(lambda: backup.runner.state()[0] == states.READY)


def test_an_app_promotes_through_the_primary(pair: Pair) -> None:
    backup, primary = standby(pair), pair.primary
    assert primary.master is not None
    answer = primary.master.command("promote", {"node": backup.node_id, "force": False}).result(WAIT_S)
    assert (answer["node"], answer["primary"]) == (backup.node_id, primary.node_id)
    until(lambda: backup.role == "master")


def rows(node: ProcessNode) -> dict[str, str]:
    return {row["id"]: row["state"] for row in node.status(2000)["nodes"] if row["role"] == "backup"}


def test_the_primary_refuses_wherever_it_is_asked(pair: Pair) -> None:
    primary = pair.primary
    for asked in (primary, standby(pair)):
        with pytest.raises(WrongState, match=f"{primary.node_id} is primary of m1: first brokerha promote"):
            order(asked, "node-pause", primary.node_id, force=True)


def test_a_worker_and_a_stranger_are_for_the_primary(pair: Pair) -> None:
    assert order(pair.primary, "node-pause", "w1", force=True)["changed"] is True
    with pytest.raises(InvalidRequest, match="w9 is no worker of m1"):
        order(pair.primary, "node-pause", "w9")
    with pytest.raises(NotReady, match="is primary"):
        standby(pair).command("node-pause", {"node": "w1"})
    with pytest.raises(InvalidRequest, match="needs the argument 'node', a name"):
        standby(pair).command("node-coin", {})


def test_orders_without_an_answer_are_bounded(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    backup, primary = standby(pair), pair.primary
    monkeypatch.setattr(orders, "WAITING_LIMIT", 1)
    monkeypatch.setattr(backup.orders, "on_node", lambda _envelope: True)
    first = primary.command("node-pause", {"node": backup.node_id})
    second = primary.command("node-pause", {"node": backup.node_id})
    with pytest.raises(OutcomeUnknown, match=f"{backup.node_id} did not answer"):
        first.result(WAIT_S)
    assert not second.done()


def test_strangers_neither_order_nor_answer(pair: Pair) -> None:
    backup = standby(pair)
    assert backup.orders.on_node(Envelope("pair", "m9", 1, NodeOrder("m9.1", "pause", True)))
    assert backup.orders.on_node(Envelope("pair", pair.primary.node_id, 1, NodeAnswer("b7.1", True, "", "", "", "")))
    assert backup.loop.call(lambda: backup.runner.state()[0]).result(WAIT_S) == states.READY
    assert not backup.copy.journal.state().rest.is_on


def test_an_order_of_a_later_version_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    backup, primary = standby(pair), pair.primary
    sent: list[Message] = []
    monkeypatch.setattr(backup.runner.transport, "send", lambda messages: sent.extend(out.message for out in messages))
    envelope = Envelope("pair", primary.node_id, 1, NodeOrder("m1.7", "dance", True))
    backup.loop.call(lambda: backup.orders.on_node(envelope)).result(WAIT_S)
    until(lambda: [each for each in sent if isinstance(each, NodeAnswer)])
    (answer,) = [each for each in sent if isinstance(each, NodeAnswer)]
    assert answer == NodeAnswer("m1.7", False, "", "", "InvalidRequest", "unknown order 'dance'")
