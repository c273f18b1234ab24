"""300,000 transactions through a journal that keeps 50,000: the directory stays bounded, and shrinks after a peer came back.

Prints what it measured (``pytest -s``): the directory, and the cost of each step of forgetting.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from brokerha.log.disks import FileDisk
from brokerha.log.log import Log
from brokerha.master.config import RetentionConfig
from brokerha.master.retention import LOOK_MS, Facts, Owner, Retention
from brokerha.model.forgetting import forgetting_id
from brokerha.model.ids import Instant
from brokerha.model.records import Accepted, Added, Appended, Outcomes, Record

TRANSACTIONS = 300_000
KEPT = 50_000
PER_TURN = 200
BODY_BYTES = 300
STEP_US = 1_000
"""Time between two transactions on the clock of the test."""
TX_BYTES = 2_000
"""Far more than one transaction takes in the file, with its effect, its entry and its rows."""


def txid_of(lsn: int) -> str:
    """An id that begins anywhere, as those of clients do."""
    return f"{lsn * 2654435761 % 2**32:08x}-of-a-client-{lsn:09d}"


def size_of(directory: Path) -> int:
    """Bytes that a directory takes on the disk."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


@dataclass
class Site:
    """A journal that is written and kept as a master does it."""

    directory: Path
    journal: Log
    retention: Retention
    lsn: int = 0
    looks: int = 0
    peers: dict[Owner, int] = field(default_factory=dict)
    steps_s: list[float] = field(default_factory=list)
    most_bytes: int = 0

    def write(self) -> None:
        """One turn of own transactions with their results, and the forgetting that is due."""
        self.append([txid_of(lsn) for lsn in range(self.lsn + 1, self.lsn + PER_TURN + 1)])
        self.keep()

    def append(self, txids: list[str]) -> None:
        lsns = range(self.lsn + 1, self.lsn + len(txids) + 1)
        body = bytes(BODY_BYTES)
        entries = tuple((lsn * STEP_US, txid) for lsn, txid in zip(lsns, txids, strict=True))
        ordered = tuple((timestamp, txid, "m1") for timestamp, txid in entries)
        results = tuple(("applied", "", body, lsn.to_bytes(17, "big")) for lsn in lsns)
        turn: list[Record] = [Accepted(tuple((txid, body) for txid in txids)), Appended("m1", self.lsn, entries)]
        self.journal.append([*turn, Added(lsns[0], ordered, {"m1": lsns[-1]}), Outcomes(lsns[0], results, lsns[-1])])
        self.lsn += len(txids)

    def keep(self) -> None:
        self.looks += 1
        now = Instant(self.looks * LOOK_MS, self.lsn * STEP_US)
        step = self.retention.step(self.journal, now, Facts(self.lsn, self.lsn, peers=self.peers))
        assert step is not None
        below, done = min(step.ids_below, self.journal.first_lsn()), self.journal.ids_from(self.lsn)
        if below - done >= max(RetentionConfig().ids_at_once, (self.lsn - done) // 8):
            self.append([forgetting_id(below)])
        started = time.perf_counter()
        self.retention.done(more=self.journal.keep(step.below))
        self.steps_s.append(time.perf_counter() - started)
        if self.looks % 20 == 0:
            self.most_bytes = max(self.most_bytes, size_of(self.directory))

    def report(self, when: str) -> None:
        held = self.lsn - self.journal.first_lsn() + 1
        longest = sorted(self.steps_s)
        print(
            f"\n{when}: {self.lsn:,} written, {held:,} held; on disk {size_of(self.directory) / 1e6:.0f} MB, "
            f"most {self.most_bytes / 1e6:.0f} MB; a step: median {longest[len(longest) // 2] * 1e3:.1f} ms, "
            f"99 % {longest[len(longest) * 99 // 100] * 1e3:.1f} ms, longest {longest[-1] * 1e3:.0f} ms"
        )


@pytest.mark.slow
def test_the_directory_stays_bounded_over_300_000_transactions_and_shrinks_after_an_outage(tmp_path: Path) -> None:
    config = RetentionConfig(max_size=KEPT, max_depth_us=2 * KEPT * STEP_US, known_ids=0)
    site = Site(tmp_path / "m1", Log(FileDisk(tmp_path / "m1"), "orders", "m1"), Retention(config))
    # When all of them are written
    at_two_thirds = 0
    while site.lsn < TRANSACTIONS:
        site.write()
        if not at_two_thirds and site.lsn >= TRANSACTIONS * 2 // 3:
            at_two_thirds = site.most_bytes
            site.report("two thirds")
    site.report("all")
    # Then what is held is bounded, and so is the file, however long it goes on
    held = site.lsn - site.journal.first_lsn() + 1
    assert KEPT <= held <= KEPT + config.least + 2 * PER_TURN
    assert site.most_bytes < KEPT * TX_BYTES
    assert site.most_bytes < 1.2 * at_two_thirds
    # And ids are known for the depth of the log, and not for ever
    depth = config.max_depth_us // STEP_US
    assert all(site.journal.lsn_of(txid_of(lsn)) == lsn for lsn in range(site.lsn - depth, site.lsn, 997))
    assert not any(site.journal.lsn_of(txid_of(lsn)) for lsn in range(1, site.lsn - 2 * depth, 997))
    # When a peer holds four times as much back, and comes again
    site.peers[Owner("peer", "m2")] = site.lsn
    while site.lsn < TRANSACTIONS + 4 * KEPT:
        site.write()
    site.report("a peer was away")
    away_bytes = size_of(site.directory)
    site.peers.clear()
    for _ in range(200):
        site.keep()
    site.report("it came back")
    # Then the space is given back to the disk
    assert size_of(site.directory) < 0.5 * away_bytes
    last = site.journal.state().last
    assert last is not None
    assert site.journal.lsn_of(last[1]) == site.lsn
    assert list(site.journal.verify()) == []
    site.journal.close()
