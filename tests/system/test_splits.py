"""Links between sites are cut, in all ways that three sites can lose sight of each other, and healed again.

Given three sites with writers at all of them; when some links are cut; then a majority that hears each other goes on, whoever is
alone holds writes and serves reads, and nobody is left out as long as word of it comes through somebody else. When the links are
healed, all are in one epoch, all logs are one, what was acknowledged is in it, and nothing is in it twice.

    halves     m1 | m2 m3                  m1 is alone                  mute    m1 hears the others, nobody hears m1
    one link   m1 – m3 – m2                the bridge: m3 sees both     deaf    m1 is heard, and hears nobody
    one way    m1 hears m2, and not the reverse; m3 sees both
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx2
import pytest

from brokerha import errors
from tests.support.broker_source import BrokerSource
from tests.support.links import BACKWARD, BLACK_HOLE, FORWARD, RESET, AnyLink
from tests.system.copies import check_books
from tests.system.split_sites import LAG_S, MASTERS, SplitSites, writers_at
from tests.system.writers import Writer, told

SHORT_S = 1.5
"""Of a client that does not wait for the end of a split."""
HELD_FORWARD, HELD_BACKWARD = "held forward", "held backward"


@dataclass(frozen=True)
class Split:
    """Directed links to cut, and who is alone then."""

    name: str
    links: tuple[str, ...]
    alone: str = ""
    how: str = RESET

    def cut(self, sites: SplitSites) -> None:
        for name in self.links:
            link = sites.links.of[name]
            if self.how in {HELD_FORWARD, HELD_BACKWARD}:
                link.hold(FORWARD if self.how == HELD_FORWARD else BACKWARD)
            else:
                link.cut(self.how)


def both(here: str, there: str) -> tuple[str, str]:
    return f"{here}>{there}", f"{there}>{here}"


def halves(alone: str, how: str = RESET) -> Split:
    others = [master for master in MASTERS if master != alone]
    return Split(f"{alone} | {' '.join(others)}", (*both(alone, others[0]), *both(alone, others[1])), alone, how)


def one_link(here: str, there: str, how: str = RESET) -> Split:
    return Split(f"{here} | {there}, both see the third", both(here, there), how=how)


def mute(alone: str, how: str = RESET) -> Split:
    return Split(f"{alone} is mute", tuple(f"{alone}>{m}" for m in MASTERS if m != alone), alone, how)


def deaf(alone: str, how: str = RESET) -> Split:
    return Split(f"{alone} is deaf", tuple(f"{m}>{alone}" for m in MASTERS if m != alone), alone, how)


def one_way(here: str, there: str, how: str = RESET) -> Split:
    return Split(f"{there} does not hear {here}", (f"{here}>{there}",), how=how)


@pytest.fixture(scope="module")
def sites(broker: BrokerSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SplitSites]:
    """Started once: each test leaves three members with equal copies."""
    with SplitSites(tmp_path_factory.mktemp("splits"), broker) as started:
        yield started


def await_told(sites: SplitSites, writers: list[Writer], count: int, within_s: float = 30.0) -> None:
    """Wait until each of these writers got so many more answers."""
    goals = {writer.name: told([writer]) + count for writer in writers}

    def slow() -> list[str]:
        assert all(writer.fault is None for writer in writers), [writer.fault for writer in writers]
        return [writer.name for writer in writers if told([writer]) < goals[writer.name]]

    sites.until(lambda: not slow(), lambda: f"answers at {slow()}: {list(map(sites.epoch, MASTERS))}", within_s)


def check_alone(sites: SplitSites, master: str, key: str) -> None:
    """A master that hears no majority holds a write, and its site serves reads."""
    with pytest.raises(errors.OutcomeUnknown):
        sites.write(master, key, timeout_s=SHORT_S)
    with httpx2.Client(timeout=10) as http:
        assert http.get(f"{sites.url(master)}/kv/books/known").content == b"1"


def check_nobody_left_out(sites: SplitSites, writers: list[Writer], seconds: float) -> int:
    """All masters stay in their epoch, and all writers go on; returns how many writes that were."""
    before = {master: sites.epoch(master) for master in MASTERS}
    acknowledged, end = told(writers), time.monotonic() + seconds
    while time.monotonic() < end:
        await_told(sites, writers, 1)
        assert {master: sites.epoch(master) for master in MASTERS} == before, sites.log_tail()
    return told(writers) - acknowledged


def run(sites: SplitSites, split: Split, name: str) -> str:
    """One split from its beginning until all is well again; returns what happened."""
    before = sites.await_epoch(MASTERS)
    sites.write("m1", "known")
    with writers_at(sites, name, MASTERS) as writers:
        await_told(sites, writers, 2)
        split.cut(sites)
        began = time.monotonic()
        if split.alone:
            others = [master for master in MASTERS if master != split.alone]
            sites.write(others[0], f"{name}-first")
            resumed_s = time.monotonic() - began
            without = sites.await_epoch(others)
            assert without.number > before.number
            check_alone(sites, split.alone, f"{name}-held")
            await_told(sites, [writer for writer in writers if not writer.name.endswith(split.alone)], 2)
            what = f"writes go on after {resumed_s:.1f} s"
        else:
            count = check_nobody_left_out(sites, writers, 3 * LAG_S)
            what = f"nobody left out, {count} writes in {time.monotonic() - began:.1f} s"
        sites.links.heal()
        healed_s = time.monotonic()
        sites.await_epoch(MASTERS)
        what += f"; healed: one epoch after {time.monotonic() - healed_s:.1f} s"
    what += f", all answered after {time.monotonic() - healed_s:.1f} s"
    sites.await_equal()
    txids = sites.check_logs()
    check_books(sites, writers, with_others=True)
    if split.alone:
        assert txids.count(f"{name}-held") == 1
    return f"{split.name} ({split.how}): {what}; {told(writers)} acknowledged, {len(txids)} in each log, 0 lost, 0 twice"


def test_halves(sites: SplitSites, covered: Callable[[str], None]) -> None:
    covered("split, " + run(sites, halves("m1"), "halves"))


def test_one_link_of_three(sites: SplitSites, covered: Callable[[str], None]) -> None:
    covered("split, " + run(sites, one_link("m1", "m2", BLACK_HOLE), "one-link"))


def test_one_way(sites: SplitSites, covered: Callable[[str], None]) -> None:
    covered("split, " + run(sites, mute("m3", BLACK_HOLE), "mute"))


@pytest.mark.campaign
def test_every_split(sites: SplitSites, covered: Callable[[str], None]) -> None:
    splits = [
        *(made(master, how) for how in (RESET, BLACK_HOLE) for made in (halves, mute, deaf) for master in MASTERS),
        *(one_link(*pair, how) for how in (RESET, BLACK_HOLE) for pair in itertools.combinations(MASTERS, 2)),
        *(one_way(*pair, how) for how in (RESET, HELD_FORWARD, HELD_BACKWARD) for pair in itertools.permutations(MASTERS, 2)),
    ]
    # In a random order, because whoever was alone lately waits longer for being taken back.
    random.Random(6).shuffle(splits)
    for number, split in enumerate(splits):
        covered("split, " + run(sites, split, f"every-{number}"))


@pytest.mark.campaign
@pytest.mark.parametrize("how", [RESET, BLACK_HOLE])
def test_a_split_during_a_split(sites: SplitSites, covered: Callable[[str], None], how: str) -> None:
    """The majority that went on without m1 breaks up too; then m1 is heard again, by m2 alone."""
    name = f"during-{how.replace(' ', '-')}"
    sites.await_epoch(MASTERS)
    sites.write("m1", "known")
    with writers_at(sites, name, MASTERS) as writers:
        await_told(sites, writers, 2)
        halves("m1", how).cut(sites)
        without_m1 = sites.await_epoch(("m2", "m3"))
        one_link("m2", "m3", how).cut(sites)
        for master in MASTERS:
            check_alone(sites, master, f"{name}-held-{master}")
        for link in both("m1", "m2"):
            sites.links.of[link].heal()
        began = time.monotonic()
        sites.write("m2", f"{name}-first")
        resumed_s = time.monotonic() - began
        without_m3 = sites.await_epoch(("m1", "m2"))
        assert without_m3.number > without_m1.number
        sites.links.heal()
        healed_s = time.monotonic()
        sites.await_epoch(MASTERS)
        one_epoch_s = time.monotonic() - healed_s
    sites.await_equal()
    txids = sites.check_logs()
    check_books(sites, writers, with_others=True)
    assert [txids.count(f"{name}-held-{master}") for master in MASTERS] == [1, 1, 1]
    covered(
        f"split, m1 | m2 m3, then all alone, then m1 m2 | m3 ({how}): writes go on {resumed_s:.1f} s after m1 and m2 hear each other; healed: "
        f"one epoch after {one_epoch_s:.1f} s; {told(writers)} acknowledged, {len(txids)} in each log, 0 lost, 0 twice"
    )


def harm_a_link(link: AnyLink, draw: random.Random) -> None:
    """Cut it, slow it down, or leave it well."""
    link.heal()
    match draw.randrange(6):
        case 0:
            link.cut(RESET)
        case 1:
            link.cut(BLACK_HOLE)
        case 2:
            link.delay(draw.choice((20, 200, 1000)))


@pytest.mark.campaign
@pytest.mark.parametrize(("rounds", "kills"), [(40, 0), (40, 10)])
def test_links_that_come_and_go(sites: SplitSites, covered: Callable[[str], None], rounds: int, kills: int) -> None:
    draw = random.Random(7)
    killed_in = range(2, rounds, 3)[:kills]
    with writers_at(sites, f"flapping-{kills}", MASTERS) as writers:
        for round_ in range(rounds):
            for link in sites.links.of.values():
                harm_a_link(link, draw)
            time.sleep(draw.uniform(0.2, 3 * LAG_S))
            if round_ in killed_in:
                master = draw.choice(MASTERS)
                # One that was killed a moment ago may not be back: it is started again after pauses that grow.
                sites.await_ready([master])
                sites.kill(master)
        meanwhile, most = told(writers), max(sites.epoch(master).number for master in MASTERS)
        sites.links.heal()
        sites.await_ready(list(MASTERS))
        healed_s = time.monotonic()
        sites.await_epoch(MASTERS)
        one_epoch_s = time.monotonic() - healed_s
    sites.await_equal()
    txids = sites.check_logs()
    check_books(sites, writers, with_others=True)
    covered(
        f"split, links that come and go: {rounds} rounds, {len(killed_in)} times kill -9 of a master, {most} epochs, {meanwhile} writes "
        f"acknowledged meanwhile; healed: one epoch after {one_epoch_s:.1f} s; {told(writers)} acknowledged, {len(txids)} in each log, "
        "0 lost, 0 twice"
    )
