"""Both sides of a split go on, and come together again, in each of the modes none, simple and smart.

Given three sites with a broker and a worker each, and writers at all of them; when m3 is cut off, then m1 m2 and m3 go on, each side for
itself, and both take writes: of the same key, too, and of one that only the first of them may have. When the links are healed, all logs are
one, with everything that either side took, once; and

    smart    the log of m1 m2 stays, m3 goes back; all copies are equal, the later line is that of m3
    simple   all go back, and what both sides had is ordered anew; all copies are equal
    none     the log is that of smart; nobody's content goes back: each site holds what it executed, and executes what it lacks

A client that waited while the split began, or has an answer from a place that was given up, asks for its transaction id and is told the
place and the outcome of now. In one of the runs a worker and a master are killed while the sides come together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

import brokerha
from tests.support.broker_source import BrokerSource
from tests.support.waiting import until
from tests.system.copies import check_books
from tests.system.split_sites import MASTERS, WRITE_S, SplitSites, writers_at
from tests.system.test_splits import await_told, halves
from tests.system.writers import Writer, told

ALONE: Final = "m3"
TOGETHER: Final = ("m1", "m2")
SPLIT: Final = halves(ALONE)
SIDES: Final = ("m1", ALONE)
"""One master of each side."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


class Conflict:
    """What both sides write while they are apart."""

    def __init__(self, sites: SplitSites) -> None:
        self.sites = sites
        self.lsns: dict[str, int] = {}
        """By transaction id, as clients were told during the split."""

    def write(self) -> None:
        """Each side puts the same key, and claims another one that has to be free; both sides say that it is done."""
        for master in SIDES:
            with brokerha.connect(self.sites.url(master)) as db:
                value = master.encode()
                put = db.put("books", "both", value, key=f"both-{master}", timeout=WRITE_S)
                claim = [("expect-key", "books", b"claim", ""), ("put", "books", b"claim", value)]
                claimed = db.write(claim, key=f"claim-{master}", timeout=WRITE_S)
                self.lsns |= {put.txid: put.lsn, claimed.txid: claimed.lsn}

    def check(self, txids: list[str]) -> int:
        """Each is in the log once, at the place that everybody tells; returns how many places are others than those that clients were told."""
        lsns = {txid: {answer["lsn"] for answer in self.sites.outcomes(txid)} for txid in self.lsns}
        assert lsns == {txid: {1 + txids.index(txid)} for txid in self.lsns}
        return sum(lsns[txid] != {told} for txid, told in self.lsns.items())

    def held(self, key: str) -> list[bytes | None]:
        """What each site says of a key that both sides have written."""
        found = []
        for master in MASTERS:
            with brokerha.connect(self.sites.url(master)) as db:
                found.append(db.get("books", key, min_lsn="latest"))
        return found

    def claims(self) -> dict[str, list[str]]:
        """Outcomes of the claims at all masters, by who claimed."""
        return {side: [answer["outcome"] for answer in self.sites.outcomes(f"claim-{side}")] for side in SIDES}


def kept_copies(sites: SplitSites) -> list[str]:
    """Workers that keep a copy."""
    return [worker for worker in sites.workers if (sites.folder / "var" / worker / "kept").exists()]


def await_kept(sites: SplitSites, masters: set[str], within_s: float = 30.0) -> None:
    """Wait until one worker of each of these sites keeps a copy, and nobody else."""
    until(
        lambda: {worker[:-1] for worker in kept_copies(sites)} == masters,
        lambda: f"{kept_copies(sites)} keep copies, not one of each of {sorted(masters)}\n{sites.log_tail()}",
        within_s,
    )


def check_contents(sites: SplitSites, conflict: Conflict) -> None:
    """What becomes of a key that both sides have written, and of one that only one of them may have."""
    both, claim, claims = conflict.held("both"), conflict.held("claim"), conflict.claims()
    if sites.mode == "none":
        # What m3 has executed is not executed there again, and comes last in the log: each side ends with what the other one wrote.
        assert both == [b"m3", b"m3", b"m1"]
        assert claim == [b"m1", b"m1", b"m3"]
        assert claims == {"m1": ["applied", "applied", "rejected"], "m3": ["rejected", "rejected", "applied"]}
        return
    assert both in ([b"m1"] * 3, [b"m3"] * 3)
    winner, loser = SIDES if claim[0] == b"m1" else SIDES[::-1]
    assert claim == [winner.encode()] * 3
    assert claims == {winner: ["applied"] * 3, loser: ["rejected"] * 3}
    if sites.mode == "smart":
        assert (both[0], winner) == (b"m3", "m1")


def check(sites: SplitSites, writers: list[Writer], conflict: Conflict) -> str:
    """All is well again; returns what is worth telling."""
    sites.await_settled(60.0)
    txids = sites.check_logs()
    check_books(sites, writers, with_others=True)
    moved = conflict.check(txids)
    assert moved >= {"none": 2, "smart": 2, "simple": 1}[sites.mode]
    check_contents(sites, conflict)
    await_kept(sites, set())
    return f"{told(writers)} acknowledged, {len(txids)} in each log, 0 lost, 0 twice"


def run(sites: SplitSites, pool: ThreadPoolExecutor, at_heal: Callable[[], None]) -> str:
    """One split from its beginning until all is well again; returns what happened."""
    conflict = Conflict(sites)
    sites.await_epoch(MASTERS)
    with writers_at(sites, sites.mode, MASTERS) as writers:
        await_told(sites, writers, 2)
        # When m3 is cut off, then both sides go on, and a client that waited has its answer
        SPLIT.cut(sites)
        began_s = time.monotonic()
        waits = {master: pool.submit(sites.write, master, f"waited-{master}", 60.0) for master in SIDES}
        sites.await_epoch(TOGETHER)
        sites.await_epoch([ALONE])
        conflict.write()
        apart_s = time.monotonic() - began_s
        await_kept(sites, set() if sites.mode == "none" else set(MASTERS))
        await_told(sites, writers, 3)
        # When they hear each other, then there is one epoch of all, under load
        sites.links.heal()
        healed_s = time.monotonic()
        at_heal()
        sites.await_epoch(MASTERS)
        one_epoch_s = time.monotonic() - healed_s
        await_told(sites, writers, 2)
    what = f"both sides go on after {apart_s:.1f} s; healed: one epoch after {one_epoch_s:.1f} s"
    counts = check(sites, writers, conflict)
    for master, wait in waits.items():
        assert wait.result(0) == f"waited-{master}"
        assert {answer["outcome"] for answer in sites.outcomes(f"waited-{master}")} == {"applied"}
    return f"split, {sites.mode}: {what}, equal or executed after {time.monotonic() - healed_s:.1f} s; {counts}"


@pytest.mark.parametrize("mode", ["smart", *(pytest.param(mode, marks=pytest.mark.campaign) for mode in ("simple", "none"))])
def test_both_sides_go_on_and_come_together(
    broker: BrokerSource, tmp_path: Path, pool: ThreadPoolExecutor, covered: Callable[[str], None], mode: str
) -> None:
    with SplitSites(tmp_path, broker, mode) as sites:
        covered(run(sites, pool, lambda: None))


@pytest.mark.campaign
def test_a_worker_and_a_master_are_killed_while_sides_come_together(
    broker: BrokerSource, tmp_path: Path, pool: ThreadPoolExecutor, covered: Callable[[str], None]
) -> None:
    with SplitSites(tmp_path, broker, "simple", workers_each=2) as sites:

        def kill() -> None:
            sites.kill(f"{ALONE}a")
            sites.kill("m1")
            sites.await_ready([*MASTERS])

        covered(f"{run(sites, pool, kill)}; kill -9 of m1 and of a worker of m3 after the heal")


def go_on(sites: SplitSites, name: str, *sides: Sequence[str]) -> None:
    """A split without m3, in which each of these sides writes; then all agree again."""
    sites.await_epoch(MASTERS)
    SPLIT.cut(sites)
    for side in sides:
        sites.write(side[0], f"{name}-{side[0]}")
        sites.await_epoch(side)
    sites.links.heal()
    sites.await_epoch(MASTERS)
    sites.await_settled()


def test_the_strategy_is_changed_to_a_majority_and_back_while_somebody_writes(broker: BrokerSource, tmp_path: Path) -> None:
    with SplitSites(tmp_path, broker, "smart") as sites:
        go_on(sites, "smart", TOGETHER, [ALONE])
        with writers_at(sites, "meanwhile", MASTERS) as writers:
            for mode in ("quorum", "none", "simple", "quorum"):
                sites.choose(mode)
                await_told(sites, writers, 3)
        sites.await_settled()
        check_books(sites, writers, with_others=True)
        # Only a majority goes on now, and nothing that was before is taken for another split.
        go_on(sites, "quorum", TOGETHER)
        sites.choose("simple")
        go_on(sites, "simple", TOGETHER, [ALONE])
        alone = [txid for txid in sites.check_logs() if txid.partition("-")[0] in {"smart", "quorum", "simple"}]
        assert sorted(alone) == ["quorum-m1", "simple-m1", "simple-m3", "smart-m1", "smart-m3"]
