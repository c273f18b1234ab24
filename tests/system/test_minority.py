"""A site that is cut off from the majority: what it still does, what it says of itself, and that nothing hangs.

Given three sites with a broker each, and m3 cut off from the other two; then

    reads at m3            go on, and say the LSN, the state, and how old they may be
    a write at m3          is held until its deadline, and answered *outcome unknown*; after the healing it is in each log, once
    one that refuses       is refused at once, over HTTP and over AMQP, and is never anywhere
    shared writes          at the broker of the majority are carried out
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx2
import pytest

import brokerha
from brokerha import errors
from brokerha.model import states
from tests.support.broker_source import BrokerSource
from tests.system.split_sites import MASTERS, WRITE_S, SplitSites

HELD_S = 4.0
"""Deadline of what is held."""
UNDER_WAY_S = 1.0
"""Posts that had passed a link before it was cut may take so long."""
APART = "brokerha-apart"
STALE_MS = "brokerha-stale-ms"


@pytest.fixture(scope="module")
def sites(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SplitSites]:
    with SplitSites(tmp_path_factory.mktemp("minority"), broker) as started:
        yield started


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


class Minority:
    """m3, as somebody sees it who reads and writes there."""

    def __init__(self, sites: SplitSites, source: BrokerSource) -> None:
        self.sites = sites
        self.broker_of = {master: source.url_of(vhost) for master, vhost in sites.vhosts.items()}

    def read(self) -> httpx2.Response:
        answer = self.sites.get("m3", "/kv/books/known")
        assert answer is not None, self.sites.log_tail()
        return answer

    def await_apart(self, word: str) -> None:
        """Wait until m3 says that it is apart, in this state; empty: until it is not."""
        self.sites.until(lambda: self.read().headers.get(APART, "") == word, f"m3 is apart: {word!r}", 30.0)

    def stale_s(self, asked: str) -> dict[str, float | None]:
        """By master, as the status of one of them tells it."""
        answer = self.sites.get(asked, "/cluster/status")
        assert answer is not None
        return {row["id"]: row["stale_s"] for row in answer.json()["nodes"] if row["role"] == "master"}

    def write_over_amqp(self, master: str, key: str, timeout_s: float, apart: str = "wait") -> str:
        """To the shared queue at the broker of a master; returns the level that was reached."""
        with brokerha.connect(self.broker_of[master]) as db:
            return db.put("books", key, b"1", key=key, ack="synchronised", timeout=timeout_s, apart=apart).level

    def check_reads_go_on(self) -> None:
        """Each says what it contains and how old that may be, and it gets older."""
        first = self.read()
        assert (first.status_code, first.content) == (200, b"1")
        assert int(first.headers["brokerha-lsn"]) >= 1
        assert first.headers[APART] == states.NO_MAJORITY
        self.sites.until(lambda: int(self.read().headers[STALE_MS]) > int(first.headers[STALE_MS]), "it gets older", 10)
        with brokerha.connect(self.sites.url("m3")) as db:
            outcome = db.read("get", "books", {"key": b"known"})
            assert (outcome.body, outcome.apart) == (b"1", states.NO_MAJORITY)
            assert (outcome.stale_ms or 0) > 0
        assert (self.stale_s("m3")["m3"] or 0) > 0
        assert self.stale_s("m1") == {"m1": 0.0, "m2": 0.0, "m3": None}

    def check_refused(self) -> None:
        """What does not want to wait is not taken in, whichever way it comes; nobody waits for its deadline."""
        with brokerha.connect(self.sites.url("m3"), apart="refuse") as db:
            with pytest.raises(errors.ReadOnly, match=r"m3 cannot agree with the other masters now \(no-majority"):
                db.put("books", "refused-http", b"1", key="refused-http", timeout=600)
            assert db.outcome("refused-http") is None
        with pytest.raises(errors.ReadOnly, match="no-majority"):
            self.write_over_amqp("m3", "refused-amqp", 600, "refuse")


def held_s(write: Callable[[], str]) -> float:
    """For how long a write is held until it is answered that its outcome is unknown."""
    began_s = time.monotonic()
    with pytest.raises(errors.OutcomeUnknown):
        write()
    return time.monotonic() - began_s


def test_a_minority_reads_on_holds_writes_and_refuses_those_that_do_not_want_to_wait(
    sites: SplitSites, broker: BrokerSource, pool: ThreadPoolExecutor, covered: Callable[[str], None]
) -> None:
    # Given sites that agree, and whose reads say so by saying nothing
    minority = Minority(sites, broker)
    sites.await_epoch(MASTERS)
    sites.write("m1", "known")
    sites.await_equal()
    assert APART not in minority.read().headers
    assert minority.stale_s("m1") == dict.fromkeys(MASTERS, 0.0)
    # When m3 is cut off
    sites.cut_between(["m3"], ["m1", "m2"])
    cut_s = time.monotonic()
    minority.await_apart(states.NO_MAJORITY)
    held = [
        pool.submit(held_s, partial(sites.write, "m3", "held-http", HELD_S)),
        pool.submit(held_s, partial(minority.write_over_amqp, "m3", "held-amqp", HELD_S)),
    ]
    # Then the majority goes on, with what comes through the shared queue of its broker too
    assert minority.write_over_amqp("m1", "majority-amqp", WRITE_S) == "synchronised"
    sites.await_epoch(("m1", "m2"))
    # And at m3 what does not want to wait is refused, reads go on, and all else is held until its deadline
    minority.check_refused()
    minority.check_reads_go_on()
    # A write is sent again until there is no time left for it to be of use.
    assert min(each.result(HELD_S + 30) for each in held) > HELD_S - 0.5
    with brokerha.connect(sites.url("m3")) as db:
        assert [(db.outcome(txid) or {}).get("state") for txid in ("held-http", "held-amqp")] == ["accepted"] * 2
        assert db.outcome("majority-amqp") is None
    # What m3 says is no younger than the split, but for what was under way
    least_s = time.monotonic() - cut_s
    stale_s = int(minority.read().headers[STALE_MS]) / 1000
    assert stale_s > least_s - UNDER_WAY_S
    # When the links are healed, then m3 is up to date, what was held is in each log once, and what was refused nowhere
    sites.links.heal()
    healed_s = time.monotonic()
    sites.await_epoch(MASTERS)
    minority.await_apart("")
    back_s = time.monotonic() - healed_s
    for txid in ("held-http", "held-amqp", "majority-amqp"):
        assert {answer["outcome"] for answer in sites.outcomes(txid)} == {"applied"}
    sites.await_equal()
    txids = sites.check_logs()
    assert [txids.count(txid) for txid in ("held-http", "held-amqp", "majority-amqp")] == [1, 1, 1]
    assert not [txid for txid in txids if txid.startswith("refused")]
    for master in MASTERS:
        with brokerha.connect(sites.url(master)) as db:
            assert db.outcome("refused-http") is db.outcome("refused-amqp") is None
            assert db.get("books", "held-amqp", min_lsn="latest") == b"1"
            assert db.get("books", "refused-http", min_lsn="latest") is None
    covered(
        f"minority, m3 | m1 m2: reads went on, {stale_s:.1f} s old at the end; 2 writes held to their deadline and found once after the "
        f"healing, 2 refused and nowhere; agrees again after {back_s:.1f} s"
    )
