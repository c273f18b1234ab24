"""The first worker of a master whose log was forgotten in part while it had none: from its greeting to the record in the journal."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from brokerha.master.config import MasterConfig, RetentionConfig
from brokerha.master.core import MasterCore
from brokerha.model.ids import Instant
from brokerha.model.records import Rebased
from brokerha.model.wire.messages import Coin, Envelope, Execute, LoadFrom, Message, Progress
from brokerha.replication.site.config import FeedConfig
from brokerha.sync.config import SyncConfig
from tests.unit.master.test_master_core import APPLIED, Bench
from tests.unit.replication.benches import text

OF_ANOTHER_SITE = "x1"
_Kind = TypeVar("_Kind", bound=Message)


def _restarted(bench: Bench) -> None:
    """The same master with a worker, and with others at its broker."""
    bench.config = MasterConfig(SyncConfig("m1", ("m1",)), FeedConfig(("w1",), others=(OF_ANOTHER_SITE,), linger_ms=0))
    bench.core = MasterCore(bench.config, bench.journal.state(), bench.journal)
    bench.run()
    bench.ms += bench.config.feed.dead_after_ms


def _told(bench: Bench, kind: type[_Kind]) -> list[_Kind]:
    return [out.message for ready in bench.ready for out in ready.messages if out.to == "w1" and isinstance(out.message, kind)]


def _says(bench: Bench, journal: str, applied: int, follows: str = "basic", view: int = 1) -> None:
    progress = Progress(journal, applied, text(applied), applied, "on", follows=follows, view=view)
    bench.core.step(Envelope("c", "w1", 1, progress), Instant(bench.ms, bench.ms * 1000))
    bench.run()


def test_it_takes_the_content_of_another_site_and_executes_what_comes_after() -> None:
    bench = Bench(workers=())
    for number in range(10):
        bench.submit(f"t{number}", level="synchronised")
        bench.run()
    assert bench.journal.trim(below=7) == 6
    _restarted(bench)
    # Given an empty worker: the log lacks what it would begin with
    _says(bench, "empty", 0, "idle", 0)
    assert [order.sources for order in _told(bench, LoadFrom)] == [(OF_ANOTHER_SITE,)]
    assert _told(bench, Execute) == []
    # When it has what another site has at LSN 9
    _says(bench, "taken", 9, "idle", 0)
    rebased = [record for ready in bench.ready for record in ready.records if isinstance(record, Rebased)]
    assert [(record.lsn, record.items) for record in rebased] == [(9, 9)]
    assert bench.journal.state().executed_lsn == 9
    # Then it follows from there, also after a restart of the master
    _says(bench, "taken", 9, "idle", 0)
    assert _told(bench, Coin)
    _says(bench, "taken", 9)
    assert [message.first_lsn for message in _told(bench, Execute)] == [10]
    _restarted(bench)
    _says(bench, "taken", 9)
    assert bench.core.site.workers["w1"].is_on


def test_a_site_that_lost_its_last_worker_keeps_the_log_for_it_up_to_the_limit() -> None:
    bench = Bench(retention=RetentionConfig(max_size=4, hard_limit=10, slack=1))
    bench.worker_up()
    bench.submit("t0")
    bench.run()
    bench.execute(1, APPLIED)
    bench.ms += 1000
    bench.run()
    bench.config = replace(bench.config, feed=FeedConfig(()))
    bench.core = MasterCore(bench.config, bench.journal.state(), bench.journal)
    for number in range(1, 9):
        bench.submit(f"t{number}", level="synchronised")
        bench.run()
    step = bench.core.forgetting(bench.now())
    assert step is not None
    assert step.below == 2, "what its worker would need next is held"
    for number in range(9, 30):
        bench.submit(f"t{number}", level="synchronised")
        bench.run()
    bench.ms += 1000
    step = bench.core.forgetting(bench.now())
    assert step is not None
    assert step.below == 30 - 10 + 1, "and given up beyond the limit"
