"""One run: laps of faults over all workloads, until the time is over; each lap ends with everything back and judged."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import brokerha
from brokerha.client import Session
from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_source import local_scripts
from tests.system.nemesis.faults import FAULTS
from tests.system.nemesis.page import Page, Pauses
from tests.system.nemesis.schedule import Step, schedule
from tests.system.nemesis.site import NemesisSite
from tests.system.nemesis.workloads import WORKLOADS, Workload

LAP_S: Final = 180.0
ANSWERS_WITHIN_S: Final = 90.0
"""After a fault is over."""
VHOST: Final = "nemesis"


class Nemesis:
    """One run over one cluster."""

    def __init__(self, site: NemesisSite, page: Page, seed: int, say: Callable[[str], None]) -> None:
        self.site = site
        self.page = page
        self.workloads: list[Workload] = []
        self.drawn: Callable[[int], random.Random] = random.Random
        """Makes from the seed of a step what chooses whom it strikes."""
        self.longest: dict[str, float] = {}
        """Of each writer, what it waited for an answer in the last step."""
        self._draw = random.Random(seed)
        self._say = say
        self._lsn = 0
        self._known: set[str] = set()

    def lap(self, steps: Iterable[Step]) -> None:
        """Everything is done, these faults happen, everything comes back and is judged."""
        self.page.laps += 1
        self.workloads = [make(self.site, self.page.laps, self._draw) for make in WORKLOADS]
        for workload in self.workloads:
            workload.start()
        pauses = Pauses(self._done)
        self._try("the beginning", self._await_answers)
        for step in steps:
            self._step(step, pauses)
        pauses.end()
        self._judge()

    def _done(self) -> Mapping[str, int]:
        return {name: count for workload in self.workloads for name, count in workload.done().items()}

    def _told(self) -> dict[str, Counter[str]]:
        return {workload.name: workload.told() for workload in self.workloads}

    def _await_answers(self) -> None:
        """Wait until each client has an answer to something that it began after now."""
        # Of two answers the second is to what was begun after the first.
        before, deadline = self._done(), time.monotonic() + ANSWERS_WITHIN_S
        while slow := [name for name, count in self._done().items() if count < before.get(name, 0) + 2]:
            assert time.monotonic() < deadline, (
                f"no answers for {slow} within {ANSWERS_WITHIN_S:.0f} s: {self._errors(slow)}\n{self.site.log_tail()}"
            )
            time.sleep(0.02)

    def _errors(self, clients: Sequence[str]) -> list[str]:
        """What these were told last, as far as they keep it."""
        return [
            f"{name}: {dict(errors)}"
            for workload in self.workloads
            for name, errors in workload.errors().items()
            if name in clients
        ]

    def _step(self, step: Step, pauses: Pauses) -> None:
        time.sleep(step.rest_s)
        told, draw, what = self._told(), self.drawn(step.seed), []
        pauses.begin()
        began_s = time.monotonic()
        try:
            with contextlib.ExitStack() as lasting:
                for family in filter(None, (step.family, step.also)):
                    what.append(lasting.enter_context(FAULTS[family](self.site, draw)))  # noqa: PERF401  (told, when the next one fails)
                time.sleep(step.lasts_s)
            self._await_answers()
        except Exception as error:  # noqa: BLE001  (told on the page)
            what.append(f"{step.family} {step.also}")
            self.page.violations.append(f"step {step.number}, {', '.join(what)}: {type(error).__name__}: {error}")
        for ended in self._ended():
            self.page.violations.append(f"step {step.number}, {', '.join(what)}: {ended}")
        fresh = {name: counts - told[name] for name, counts in self._told().items()}
        longest = self.longest = pauses.longest()
        self.page.step(step.family, step.also, fresh, longest)
        slowest = max(longest, key=longest.__getitem__, default="nobody")
        self._say(
            f"{step.number:4} {', '.join(what)}: {time.monotonic() - began_s:.1f} s, {slowest} waited for {longest.get(slowest, 0.0):.1f} s"
        )

    def _ended(self) -> list[str]:
        """Processes that ended by themselves since the last time; they are started again."""
        self.site.wake()
        ended, self.site.ended = self.site.ended, []
        return ended

    def _judge(self) -> None:
        self._try("everything comes back", self.site.bring_back)
        for workload in self.workloads:
            self._try(workload.name, workload.finish)
        with brokerha.connect(self.site.doors[0], timeout=60) as db:
            self._try("all copies are equal", partial(self._await_equal, db))
            for workload in self.workloads:
                self._try(workload.name, partial(workload.judge, db))
            # Judges write, too: they end what was left in doubt.
            self._try("all copies are equal", partial(self._await_equal, db))
        self._try("order", self._judge_order)
        self._try("verify", self._verify)

    def _try(self, what: str, check: Callable[[], Sequence[str] | None]) -> None:
        """Have what is wrong on the page, and what keeps from finding it out."""
        try:
            wrong = check() or []
        except Exception as error:  # noqa: BLE001  (told on the page)
            wrong = [f"{type(error).__name__}: {error}"]
        self.page.violations += [f"lap {self.page.laps}, {what}: {each}" for each in wrong]

    def _await_equal(self, db: Session) -> None:
        db.put("t", "all is over", "v")
        self.site.await_everywhere(db)
        self.site.await_equal()

    def _judge_order(self) -> list[str]:
        txids, wrong = self.site.judge_order(self._lsn + 1, self._known)
        self._lsn, self._known = self._lsn + len(txids), set(txids)
        return wrong

    def _verify(self) -> list[str]:
        done = self.site.typed("verify", "--deep")
        return [done.stdout + done.stderr] if done.returncode else []


@contextlib.contextmanager
def opened(folder: Path, title: str, seed: int, say: Callable[[str], None]) -> Iterator[Nemesis]:
    """A nemesis over a cluster that runs; ``title`` is that of its page, ``say`` gets a line for each fault."""
    with BrokerCluster(3, local_scripts()) as brokers:
        url = brokers.create_vhost(VHOST)
        with brokers.nodes[0].management() as management:
            version = str(management.overview()["rabbitmq_version"])
        site = NemesisSite(folder, brokers, url)
        try:
            site.start(*site.nodes)
            site.bring_back()
            yield Nemesis(site, Page(f"{title}, three nodes of RabbitMQ {version}"), seed, say)
        finally:
            site.close()


def run(
    folder: Path, seed: int, seconds: float, families: Sequence[str] = tuple(FAULTS), say: Callable[[str], None] = print
) -> Page:
    """Run a seed for so long, and for all families once at least."""
    steps = schedule(seed, families)
    with opened(folder, f"Nemesis, seed {seed}", seed, say) as nemesis:
        page, ends_s = nemesis.page, time.monotonic() + seconds
        while page.steps < len(families) or time.monotonic() < ends_s:
            nemesis.lap(_of_one_lap(steps, page, len(families), ends_s))
    return page


def _of_one_lap(steps: Iterator[Step], page: Page, least: int, ends_s: float) -> Iterator[Step]:
    """Steps until the lap or the run is over."""
    lap_ends_s = time.monotonic() + LAP_S
    while True:
        yield next(steps)
        now_s = time.monotonic()
        if now_s > lap_ends_s or (now_s > ends_s and page.steps >= least):
            return
