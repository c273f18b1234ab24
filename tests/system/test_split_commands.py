"""What operators ask and say about splits, over the doors of real masters: the strategy is changed while they run, and the report tells what came of a split.

Given three sites whose files say simple, with writes at all of them; when the strategy is told to be smart, then all masters follow it, and
do so in the split that comes next: m3 alone goes back. During the split nothing is chosen, and who is missing is named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import brokerha
from brokerha.model.errors import NotReady
from tests.support.broker_source import BrokerSource
from tests.support.waiting import until
from tests.system.processes import DEADLINE_S
from tests.system.split_sites import MASTERS, WRITE_S, SplitSites
from tests.system.test_split_modes import ALONE, SPLIT, TOGETHER


def ask(sites: SplitSites, master: str, name: str, **arguments: Any) -> dict[str, Any]:
    """Have one master carry out a command."""
    with brokerha.connect(sites.url(master)) as db:
        answer: dict[str, Any] = db.command(name, arguments)
        return answer


def await_chosen(sites: SplitSites, master: str) -> None:
    """Wait until what a master was told is in force everywhere."""

    def change() -> Any:
        return ask(sites, master, "split-recovery")["change"]

    until(lambda: change()["state"] == "done", lambda: f"{change()}\n{sites.log_tail()}", DEADLINE_S)


def await_books(sites: SplitSites) -> dict[str, list[dict[str, Any]]]:
    """What each master tells of splits, once nothing of it waits for its new place: copies may be equal before that."""

    def settled() -> dict[str, list[dict[str, Any]]]:
        books = {master: ask(sites, master, "splits")["splits"] for master in MASTERS}
        return {} if any(head["effects"]["waits"] for book in books.values() for head in book) else books

    return until(settled, sites.log_tail, DEADLINE_S)


def test_the_strategy_is_chosen_and_what_it_did_is_reported(broker: BrokerSource, tmp_path: Path) -> None:
    with SplitSites(tmp_path, broker, "simple") as sites:
        sites.await_epoch(MASTERS)
        for master in MASTERS:
            sites.write(master, f"before-{master}")
        assert {ask(sites, master, "split-recovery")["mode"] for master in MASTERS} == {"simple"}
        # When one master is told another one
        assert ask(sites, "m2", "split-recovery", mode="SMART")["changed"]
        await_chosen(sites, "m2")
        # Then all follow it
        assert {(each["mode"], each["source"]) for each in (ask(sites, m, "split-recovery") for m in MASTERS)} == {
            ("smart", "epoch")
        }
        # When m3 is cut off, then nothing is chosen at either side
        SPLIT.cut(sites)
        sites.await_epoch(TOGETHER)
        sites.await_epoch([ALONE])
        for master, missing in (("m1", ALONE), (ALONE, "m1, m2")):
            with pytest.raises(NotReady, match=f"refused during a split: not heard: {missing}; smart stays in force"):
                ask(sites, master, "split-recovery", mode="none")
        for master in ("m1", ALONE):
            with brokerha.connect(sites.url(master)) as db:
                db.put("books", f"apart-{master}", b"1", key=f"apart-{master}", ack="applied", timeout=WRITE_S)
        # When they are together again
        sites.links.heal()
        sites.await_epoch(MASTERS)
        sites.await_settled(60.0)
        # Then only m3 went back, and each book tells what became of its part
        books = await_books(sites)
        given_up = {master: [head for head in book if head["total"]] for master, book in books.items()}
        assert {master: [head["total"] for head in heads] for master, heads in given_up.items()} == {
            "m1": [],
            "m2": [],
            ALONE: [1],
        }, f"{books}\n{sites.log_tail()}"
        (head,) = given_up[ALONE]
        # A machine that is busy may have parted them for a moment besides.
        assert all(any(other["lineage"] == head["lineage"] for other in book) for book in books.values()), books
        (row,) = ask(sites, ALONE, "split", number=head["number"])["entries"]
        assert (row["txid"], row["origin"], row["outcome"], row["new_outcome"]) == (f"apart-{ALONE}", ALONE, "applied", "applied")
        assert (row["effect"], row["new_lsn"] > row["lsn"]) == ("executed again", True)
        assert head["effects"]["executed again"] == 1
        # And status and metrics say the same in numbers
        with brokerha.connect(sites.url(ALONE)) as db:
            (own,) = [node for node in db.status()["nodes"] if (node["id"], node["role"]) == (ALONE, "master")]
        assert (own["split_recovery"], own["splits"], own["given_up"]) == ("smart", len(books[ALONE]), 1)
        if len(books[ALONE]) == 1:
            assert own["last_split"] == f"went back to LSN {head['lsn']}, 1 given up, epoch {head['epoch']}"
