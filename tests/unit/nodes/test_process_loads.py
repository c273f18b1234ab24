"""A primary holds of its journal what a backup that loads a snapshot will ask for, while it forgets the rest.

Given a primary whose worker executes everything and whose retention is short, when a backup begins anew and its load takes longer than the
retention lasts, then it loads once and follows; when it never ends, the hard limit lets the journal go on forgetting, and says so.
"""

from __future__ import annotations

from brokerha.master.config import MasterConfig, RetentionConfig
from brokerha.master.retention import Owner
from brokerha.model.ready import BeginLoad
from brokerha.model.wire.messages import Chunk, Envelope, Executed, Progress
from brokerha.replication.site.config import FeedConfig
from brokerha.sync.config import SyncConfig
from tests.support.logs import memory_copy
from tests.unit.nodes.process_group import Group
from tests.unit.replication.benches import results, text

KEPT = 10
WRITE_EACH_MS = 150
"""Less than what a source may be silent for, in all; the journal looks once in a second what it may forget."""


class Site:
    """A master of two processes and one worker, which executes what it gets."""

    def __init__(self, hard_limit: int) -> None:
        self.group = Group(
            1,
            sync_n=0,
            config=MasterConfig(
                SyncConfig("m1", ("m1",)), FeedConfig(("w1",)), retention=RetentionConfig(KEPT, hard_limit=hard_limit, slack=1)
            ),
        ).elected()
        primary = self.group.primary.master.primary
        assert primary is not None
        # As if more had been written than fits: what is still in memory needs no journal.
        primary.feed._recent.limit_bytes = 0
        self.executed = 0

    def write(self, count: int) -> None:
        """So many transactions,."""
        for lsn in range(self.executed + 1, self.executed + count + 1):
            self.group.write(lsn)
            view = self.group.primary.runner.role.view
            progress = Progress("copy-of-w1", lsn - 1, text(lsn - 1), lsn - 1, "on", follows="basic", view=view)
            for message in (progress, Executed(lsn, results(lsn, lsn), lsn, text(lsn), lsn, "copy-of-w1")):
                self.group.primary.wire.arrived.append(Envelope("orders", "w1", 1, message))
            self.group.turn(WRITE_EACH_MS)
        self.executed += count

    def begin_anew(self) -> None:
        """The backup comes back without its journal, and nothing of a snapshot reaches it."""
        backup = self.group["b1"]
        backup.copy = memory_copy("m1", "journal-of-b1")
        self.group.lost.add(Chunk)
        backup.start()

    def is_ready(self) -> bool:
        primary = self.group.primary.master.primary
        assert primary is not None
        return primary.feed.ready() == ("b1",)

    def loads(self) -> int:
        return sum(isinstance(each, BeginLoad) for each in self.group["b1"].door.begun)


def test_a_backup_whose_load_takes_longer_than_the_retention_loads_once() -> None:
    site = Site(hard_limit=1000)
    site.write(3 * KEPT)
    assert site.group["m1"].journal.first_lsn() > KEPT
    site.begin_anew()
    site.write(5 * KEPT)
    assert not site.is_ready()
    site.group.lost.clear()
    for _ in range(10 * KEPT):
        if not site.is_ready():
            site.write(1)
    assert site.is_ready()
    assert site.loads() == 1
    assert site.group.primary.master.core.dropped_pins == ()
    site.group.run(500)
    assert site.group["b1"].journal.state().last_number == site.group["m1"].journal.state().last_number

    site.write(3 * KEPT)
    assert site.executed - site.group["m1"].journal.first_lsn() < 2 * KEPT, "what it holds is needed no longer"


def test_a_backup_that_never_ends_its_load_holds_the_log_up_to_the_hard_limit() -> None:
    site = Site(hard_limit=4 * KEPT)
    site.write(KEPT)
    site.begin_anew()
    site.write(10 * KEPT)
    assert site.executed - site.group["m1"].journal.first_lsn() < 4 * KEPT
    assert site.group.primary.master.core.dropped_pins == (Owner("backup", "b1"),)
