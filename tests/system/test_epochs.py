"""Epochs over RabbitMQ: a majority goes on without a master that is dead or frozen, and takes it back when it is there again.

Three sites with a master and a worker each, `max-peer-lag-s` at two seconds, and writers at the two masters that stay.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

import brokerha
from tests.support.broker_source import BrokerSource
from tests.system.copies import check_books
from tests.system.split_sites import LAG_S, MASTERS, WRITE_S, SplitSites, writers_at
from tests.system.writers import told

OWN_WRITES = 20


@pytest.fixture(scope="module")
def sites(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SplitSites]:
    """Started once: each test leaves three members with equal copies."""
    with SplitSites(tmp_path_factory.mktemp("epochs"), broker) as started:
        yield started


def seconds_until_back(sites: SplitSites) -> float:
    """How long it takes from now until all are members of one epoch."""
    began = time.monotonic()
    sites.await_epoch(MASTERS)
    return time.monotonic() - began


def test_a_majority_goes_on_without_a_dead_master_and_takes_it_back(sites: SplitSites, covered: Callable[[str], None]) -> None:
    left = ("m1", "m2")
    before = sites.await_epoch(MASTERS)
    with writers_at(sites, "dead", left) as writers:
        # What a return has to save is what nobody else has heard of: it is written while the links are cut, and what waits behind
        # them is dropped.
        sites.cut_between(["m3"], left)
        cut_s = time.monotonic()
        with brokerha.connect(sites.url("m3")) as db:
            own = [db.put("own", f"{n}", b"1", ack="accepted", timeout=WRITE_S).txid for n in range(OWN_WRITES)]

        with sites.down("m3"):
            sites.forget_sent("m3")
            sites.links.heal()
            sites.write("m1", "without-m3")
            resumed_s = time.monotonic() - cut_s
            without = sites.await_epoch(left)
            assert without.number > before.number
            sites.write("m2", "still-without-m3")
            assert not set(own) & set(sites.txids("m1"))

        back_s = seconds_until_back(sites)
        assert sites.await_epoch(MASTERS).number > without.number
    sites.await_equal()
    txids = sites.check_logs()
    assert [txids.count(txid) for txid in own] == [1] * OWN_WRITES
    check_books(sites, writers, with_others=True)
    covered(
        f"epochs, a master killed: lag {LAG_S:g} s, next synchronised write after {resumed_s:.1f} s; started again: member after "
        f"{back_s:.1f} s; {OWN_WRITES} of its own that nobody had heard of, each once; "
        f"{told(writers)} writes acknowledged, {len(txids)} in each log, 0 lost, 0 twice"
    )


def test_a_master_that_is_stopped_says_so_and_the_others_go_on_at_once(sites: SplitSites, covered: Callable[[str], None]) -> None:
    left = ("m2", "m3")
    sites.await_epoch(MASTERS)
    with writers_at(sites, "stopped", left) as writers:
        with sites.down("m1", signal.SIGTERM):
            stopped_s = time.monotonic()
            sites.write("m2", "without-m1-in-order")
            resumed_s = time.monotonic() - stopped_s
            sites.await_epoch(left)
        back_s = seconds_until_back(sites)
    sites.await_equal()
    said = [line for line in sites.log_tail(5000).splitlines() if "stopped=['m1']" in line]
    assert {node for node in left for line in said if f"node={node}" in line} == set(left), sites.log_tail()
    txids = sites.check_logs()
    check_books(sites, writers, with_others=True)
    covered(
        f"epochs, a master stopped in order, brokers joined by federation: next synchronised write after {resumed_s:.2f} s; started again: "
        f"member after {back_s:.1f} s; {told(writers)} writes acknowledged, {len(txids)} in each log, 0 lost, 0 twice"
    )


def test_a_majority_goes_on_without_a_frozen_master_and_takes_it_back(sites: SplitSites, covered: Callable[[str], None]) -> None:
    left = ("m2", "m3")
    before = sites.await_epoch(MASTERS)
    with writers_at(sites, "frozen", left) as writers:
        with sites.frozen("m1"):
            frozen_s = time.monotonic()
            sites.write("m2", "without-m1")
            resumed_s = time.monotonic() - frozen_s
            without = sites.await_epoch(left)
            assert without.number > before.number

        back_s = seconds_until_back(sites)
        assert sites.await_epoch(MASTERS).number > without.number
        sites.write("m1", "after-the-frost")
    sites.await_equal()
    txids = sites.check_logs()
    check_books(sites, writers, with_others=True)
    covered(
        f"epochs, a master frozen: lag {LAG_S:g} s, next synchronised write after {resumed_s:.1f} s; thawed: member after {back_s:.1f} s; "
        f"{told(writers)} writes acknowledged, {len(txids)} in each log, 0 lost, 0 twice"
    )
