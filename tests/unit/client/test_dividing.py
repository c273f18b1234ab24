"""Writes over HTTP divide themselves among the masters: by what a write takes there, in their order, without those in trouble."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import brokerha
from brokerha.client import Session, http_lane, http_nodes
from brokerha.client.http_nodes import FADING_S, TROUBLE_FIRST_S, TROUBLE_MOST_S, HttpNodes
from brokerha.client.http_wire import HttpWire
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.model import errors
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from tests.unit.client.serving import HANG, Served, serving, wait_until
from tests.unit.http.fake_front import FakeFront

WAIT_S = 30.0
A, B, C = "http://a", "http://b", "http://c"
_numbers = itertools.count()


class Bench:
    """Nodes with a clock and answers that the test sets."""

    def __init__(self, *urls: str) -> None:
        self.now_s = 0.0
        self.well: set[str] = set(urls)
        self.asked: list[str] = []
        self.nodes = HttpNodes(urls, random.Random(7).random, self._is_writable, lambda: self.now_s)

    def greeted(self) -> Bench:
        """Once all nodes were asked and said that they take writes."""
        self.nodes.greet()
        wait_until(lambda: not any(each.ask_at_s is not None for each in self.nodes._standing.values()))
        self.asked.clear()
        return self

    def _is_writable(self, url: str) -> bool:
        self.asked.append(url)
        return url in self.well

    def write(self, seconds: dict[str, float], times: int = 1) -> Counter[str]:
        """Where so many writes went, each alone, that take so long at each node."""
        went: Counter[str] = Counter()
        for _ in range(times):
            url = self.nodes.choose()
            self.nodes.on_written(url, seconds[url])
            self.now_s += seconds[url]
            went[url] += 1
        return went


def test_before_the_first_write_all_are_asked_and_who_does_not_take_any_gets_none() -> None:
    bench = Bench(A, B, C)
    bench.well = {B, C}
    bench.nodes.greet()
    assert bench.nodes.current in {B, C}
    wait_until(
        lambda: bench.nodes._standing[A].failures and not any(bench.nodes._standing[url].ask_at_s is not None for url in (B, C))
    )
    assert bench.write({B: 0.01, C: 0.01}, 50).keys() == {B, C}
    # And once only
    bench.nodes.greet()
    assert sorted(bench.asked) == [A, B, C]


def test_the_first_of_the_list_gets_the_first_write_when_nobody_says_that_it_takes_any(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(A, B)
    bench.well = set()
    bench.nodes.greet()
    assert bench.nodes.choose() == A
    # Nor does it wait for ever for those that say nothing at all
    monkeypatch.setattr(http_nodes, "GREETING_S", 0.01)
    silent, bench = threading.Event(), Bench(B, A)
    bench.nodes._is_writable = lambda _url: silent.wait(WAIT_S)
    bench.nodes.greet()
    assert bench.nodes.choose() == B
    silent.set()


def test_one_that_is_frozen_holds_up_no_write() -> None:
    answered, bench = threading.Event(), Bench(B, A)
    bench.nodes._is_writable = lambda url: url == A or answered.wait(WAIT_S)
    bench.nodes.greet()
    assert bench.write({A: 0.01}, 1000) == {A: 1000}
    assert bench.now_s < TROUBLE_MOST_S
    answered.set()
    wait_until(lambda: bench.nodes.choose() == B)


def test_one_that_answers_late_takes_over_only_when_no_write_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_nodes, "GREETING_S", 0.01)
    answered, bench = threading.Event(), Bench(A, B)
    bench.nodes._is_writable = lambda url: url == B and answered.wait(WAIT_S)
    bench.nodes.greet()
    answered.set()
    wait_until(lambda: bench.nodes._standing[B].ask_at_s is None)
    assert bench.nodes.current == A
    assert bench.nodes.choose() == B


def test_masters_that_are_alike_get_alike() -> None:
    went = Bench(A, B, C).greeted().write({A: 0.010, B: 0.012, C: 0.011}, 300)
    assert min(went.values()) > 70


def test_a_master_that_is_far_or_busy_gets_few_writes_and_is_tried_again() -> None:
    bench = Bench(A, B, C).greeted()
    assert bench.write({A: 0.001, B: 0.050, C: 0.050}, 1000)[A] > 900
    # When the near one gets busy, the others are noticed
    bench.write({A: 0.500, B: 0.010, C: 0.010}, 50)
    went = bench.write({A: 0.500, B: 0.010, C: 0.010}, 200)
    assert went[B] + went[C] > 180
    # And it is tried again once what was known of it has faded
    bench.now_s += 10 * FADING_S
    assert bench.write({A: 0.001, B: 0.010, C: 0.010}, 200)[A] > 100


def test_a_master_in_trouble_gets_no_write_until_it_says_that_it_takes_them() -> None:
    bench = Bench(A, B).greeted()
    bench.write({A: 0.01, B: 0.01}, 10)
    failed = bench.nodes.current
    other = ({A, B} - {failed}).pop()
    bench.well.discard(failed)
    bench.nodes.on_failed(failed)
    assert bench.write({A: 0.01, B: 0.01}, 50) == {other: 50}
    assert bench.asked == []
    # When its time has come it is asked, again after a longer time, and the writes go on meanwhile
    for count in (1, 2):
        bench.now_s += count * TROUBLE_FIRST_S
        assert bench.write({A: 0.01, B: 0.01}, 5) == {other: 5}
        wait_until(lambda count=count: bench.nodes._standing[failed].failures == count + 1)
        assert bench.asked == [failed] * count
    bench.well.add(failed)
    bench.now_s += 4 * TROUBLE_FIRST_S
    wait_until(lambda: bench.nodes.choose() == failed)


def test_when_all_are_in_trouble_they_are_asked_in_turn() -> None:
    bench = Bench(A, B).greeted()
    found = []
    for _ in range(4):
        found.append(bench.nodes.choose())
        bench.nodes.on_failed(found[-1])
    assert found in ([A, B, A, B], [B, A, B, A])


@pytest.fixture
def two() -> Iterator[list[Served]]:
    with serving(FakeFront(threaded=True), FakeFront(node_id="m2", threaded=True)) as servers:
        yield servers


def urls_of(servers: list[Served]) -> str:
    return ",".join(each.url for each in servers)


def write_to_all(db: Session, servers: list[Served]) -> int:
    """Write until each has two: those for getting to know it, however slow the machine is. Returns how many writes that were."""
    numbers = itertools.count(1)
    wait_until(lambda: db.put("t", "all", b"%d" % next(numbers)).lsn and min(each.network.batches for each in servers) >= 2, WAIT_S)
    return next(numbers) - 1


def test_one_write_after_the_other_goes_to_all_masters(two: list[Served]) -> None:
    with brokerha.connect(urls_of(two), timeout=WAIT_S) as db:
        assert write_to_all(db, two) == sum(len(each.front.results) for each in two)


def test_writes_that_are_handed_over_in_an_order_get_their_places_in_it(two: list[Served], monkeypatch: pytest.MonkeyPatch) -> None:
    # Given two masters with one order, of which none is too slow for its share, whatever the machine does
    monkeypatch.setattr(http_nodes, "ALIKE", 1e9)
    two[0].front.results = two[1].front.results
    with brokerha.connect(urls_of(two), timeout=WAIT_S) as db, db.pipeline(window=50) as pipeline:
        first, batches = write_to_all(db, two), [each.network.batches for each in two]
        for number in range(1000):
            future = pipeline.put("t", str(number), b"v", key=f"k{number}")
            if number % 50 == 0:
                # Now and then none is under way, so that the next ones may go elsewhere
                future.result(WAIT_S)
    assert [txid for txid, _, _ in two[0].front.results][first:] == [f"k{number}" for number in range(1000)]
    assert all(each.network.batches > before for each, before in zip(two, batches, strict=True))


def test_what_is_only_accepted_keeps_later_writes_at_its_master(two: list[Served]) -> None:
    with brokerha.connect(urls_of(two), timeout=WAIT_S) as db:
        write_to_all(db, two)
        db.put("t", "first", b"v", ack="accepted")
        before = [len(each.front.results) for each in two]
        for number in range(30):
            db.put("t", str(number), b"v", ack="accepted")
    assert sorted(len(each.front.results) - count for each, count in zip(two, before, strict=True)) == [0, 30]


def test_a_master_that_takes_no_writes_is_left_out_and_comes_back(two: list[Served]) -> None:
    one, other = two
    one.front.refusal = errors.ReadOnly("too few workers")
    with brokerha.connect(urls_of(two), timeout=WAIT_S) as db:
        for number in range(10):
            db.put("t", str(number), b"v")
        assert (len(one.front.results), one.network.batches) == (0, 0), "it said so before it was given any"
        one.front.refusal = None
        wait_until(lambda: db.put("t", "again", b"v").lsn and one.front.results, WAIT_S)
        # One that takes none any more gets one to refuse
        before = len(one.front.results), one.network.batches
        one.front.refusal = errors.ReadOnly("too few workers")
        wait_until(lambda: db.put("t", "refused", b"v").lsn and one.network.batches > before[1], WAIT_S)
        for number in range(10):
            db.put("t", str(number), b"v")
        assert (len(one.front.results), one.network.batches) == (before[0], before[1] + 1)
    assert other.front.results


def test_a_master_that_is_alone_is_in_trouble_although_it_takes_writes(two: list[Served], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = two
    with contextlib.closing(HttpWire(urls_of(two))) as wire:
        assert wire._is_writable(one.url)
        monkeypatch.setattr(one.front, "ready", lambda *_: (False, ["[+]loop ok", "[-]worker this site has none"]))
        assert not wire._is_writable(one.url)
        monkeypatch.setattr(one.front, "ready", lambda *_: (False, ["[+]loop ok", "[-]lag not known to be up to date for 60 s"]))
        other.stop()
        assert not wire._is_writable(one.url)
        assert not wire._is_writable(other.url)


def test_a_write_at_a_process_that_freezes_goes_elsewhere_soon(two: list[Served], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_lane, "HEAD_S", 0.2)
    with brokerha.connect(urls_of(two), timeout=http_lane.SILENCE_S - 5) as db:
        write_to_all(db, two)
        for each in two:
            each.network.faults.append(HANG)
        assert db.put("t", "k", b"v", key="late").lsn
    assert not any(each.network.faults for each in two)


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[tuple[EmbeddedCluster, Callable[[str], str]]]:
    config = ClusterConfig(
        name="divided",
        broker=f"embedded://divided-{next(_numbers)}",
        data=tmp_path,
        masters=(MasterEntry(id="m1"), MasterEntry(id="m2")),
        workers=(WorkerEntry(id="w1", master="m1"), WorkerEntry(id="w2", master="m2")),
    )
    with contextlib.ExitStack() as stack, EmbeddedCluster(config) as cluster:
        urls = {}
        for name, master in cluster.masters.items():
            door = HttpServer(create_app(master), "127.0.0.1", 0)
            door.start()
            stack.callback(door.stop)
            urls[name] = door.url
        yield cluster, urls.__getitem__


def test_writes_are_read_back_at_whichever_master_they_were_and_both_order_some(
    doors: tuple[EmbeddedCluster, Callable[[str], str]],
) -> None:
    _, url_of = doors
    with brokerha.connect(f"{url_of('m1')},{url_of('m2')}", timeout=WAIT_S) as db:
        numbers = itertools.count()

        def both_wrote() -> bool:
            number = next(numbers)
            db.put("t", "counter", b"%d" % number)
            assert db.get("t", "counter") == b"%d" % number
            return {line["origin"] for line in db.log(1)} == {"m1", "m2"}

        wait_until(both_wrote, WAIT_S)
