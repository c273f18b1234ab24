"""The status of a cluster in which masters are in different epochs: the latest one counts, whoever is asked."""

from __future__ import annotations

from typing import Any

import pytest

from brokerha.nodes.observing.status import FIELDS, silent, summary

BOTH = ["m1", "m2"]
ALL = ["m1", "m2", "m3"]


def master(node: str, epoch: int, members: list[str], proposer: str = "m1") -> dict[str, Any]:
    excluded = [each for each in ALL if each not in members]
    row = {"id": node, "role": "master", "state": "ok", "master": node, "epoch": epoch, "proposer": proposer}
    return {**dict.fromkeys(FIELDS), **row, "members": members, "excluded": excluded, "masters": ALL}


def told(*rows: dict[str, Any]) -> tuple[Any, Any, Any]:
    answer = summary("orders", 1, list(rows))
    assert list(answer) == ["cluster", "epoch", "members", "excluded", "masters", "state", "nodes"]
    return answer["epoch"], answer["members"], answer["excluded"]


def test_the_master_in_the_latest_epoch_says_who_agrees() -> None:
    assert told(master("m1", 4, BOTH), master("m2", 4, BOTH), master("m3", 1, ALL)) == (4, BOTH, ["m3"])


@pytest.mark.parametrize("is_reversed", [False, True])
def test_of_two_epochs_with_one_number_the_one_of_the_higher_proposer_is_later(is_reversed: bool) -> None:
    rows = [master("m1", 2, BOTH, "m1"), master("m2", 2, ["m2", "m3"], "m2")]
    assert told(*(reversed(rows) if is_reversed else rows)) == (2, ["m2", "m3"], ["m1"])


def test_nobody_is_named_when_no_master_answers() -> None:
    assert told(silent("m1"), silent("m2")) == (1, [], [])
