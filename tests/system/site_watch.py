"""Watches a site from outside while a test harms it: what its master says of it, what becomes of writes, whether reads go on.

    samples   [began .. ended] read-only?      what `/cluster/workers` says: states and rule in one answer, of one moment
    writes    [began .. ended] refused?        one after the other, each under a key of its own
    reads     any that failed

A write is judged when all samples from the last one before it to the first one after it agree: then it must have been refused if
they say read-only, and taken if they do not. What falls on an edge is not judged; how many were is counted.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any, Self

import httpx2

from brokerha.model.states import SERVING
from tests.system.processes import ProcessCluster

PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer about the workers of the site."""

    began_s: float
    ended_s: float
    read_only: str
    in_sync: tuple[str, ...]
    states: dict[str, str]


@dataclass(frozen=True, slots=True)
class Write:
    """One write and what became of it."""

    began_s: float
    ended_s: float
    number: int
    status: int
    text: str
    lsn: int
    """0 when it was not taken."""


@dataclass
class SiteWatch:
    """Three threads with a connection each: samples, writes and reads at one master."""

    cluster: ProcessCluster
    master: str
    samples: list[Sample] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    reads: int = 0
    failed_reads: list[str] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        for work in (self._sample, self._write, self._read):
            self._threads.append(threading.Thread(target=self._run, args=(work,), daemon=True))
            self._threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, work: Any) -> None:
        try:
            with httpx2.Client(base_url=self.cluster.url(self.master), timeout=40) as http:
                number = 0
                while not self._stop.wait(PAUSE_S):
                    number += 1
                    work(http, number)
        except BaseException as fault:  # noqa: BLE001  (told by `check`)
            self.faults.append(fault)

    def _sample(self, http: httpx2.Client, _number: int) -> None:
        began_s = time.monotonic()
        answer = http.get("/cluster/workers").json()
        rows = answer["workers"]
        good = tuple(row["id"] for row in rows if row["state"] in SERVING and row["alive"])
        states = {row["id"]: row["state"] for row in rows}
        self.samples.append(Sample(began_s, time.monotonic(), answer["read_only"], good, states))

    def _write(self, http: httpx2.Client, number: int) -> None:
        began_s = time.monotonic()
        answer = http.put(f"/kv/watch/{number}", content=str(number), headers={"Idempotency-Key": f"watch-{number}"})
        lsn = int(answer.headers.get("Brokerha-Lsn", 0))
        self.writes.append(Write(began_s, time.monotonic(), number, answer.status_code, answer.text, lsn))

    def _read(self, http: httpx2.Client, _number: int) -> None:
        answer = http.get("/repositories/main/size")
        self.reads += 1
        if answer.status_code != 200:
            self.failed_reads.append(answer.text)

    # ---- waiting

    def await_sample(self, is_wanted: Any, what: str, within_s: float = 60.0) -> Sample:
        """The first sample from now on that is as wanted."""
        place, deadline = len(self.samples), time.monotonic() + within_s
        while True:
            for sample in self.samples[place:]:
                if is_wanted(sample):
                    return sample
            assert not self.faults, self.faults
            assert time.monotonic() < deadline, f"not {what} after {within_s:g} s: {self.samples[-1:]}\n{self.cluster.log_tail(40)}"
            time.sleep(PAUSE_S)

    def await_writes(self, count: int) -> None:
        """Wait until so many more writes were answered, one way or the other."""
        goal, deadline = len(self.writes) + count, time.monotonic() + 60
        while len(self.writes) < goal:
            assert not self.faults, self.faults
            assert time.monotonic() < deadline, f"writes are not answered\n{self.cluster.log_tail(40)}"
            time.sleep(PAUSE_S)

    # ---- judging

    def check_rule(self, needed: int) -> None:
        """Every sample says read-only exactly if fewer than so many workers are in sync, and names those that are not."""
        for sample in self.samples:
            assert bool(sample.read_only) is (len(sample.in_sync) < needed), sample
            if sample.read_only:
                away = [node for node in sample.states if node not in sample.in_sync]
                assert all(f"{node} is " in sample.read_only for node in away), sample
                assert f"writes need {needed}" in sample.read_only, sample

    def judge_writes(self) -> tuple[int, int, int]:
        """(taken, refused, not judged); fails at the first write that was taken or refused against the rule."""
        ends = [sample.ended_s for sample in self.samples]
        begins = [sample.began_s for sample in self.samples]
        taken = refused = unjudged = 0
        for write in self.writes:
            around = self.samples[max(0, bisect_right(ends, write.began_s) - 1) : bisect_left(begins, write.ended_s) + 1]
            rules = {bool(sample.read_only) for sample in around}
            if len(rules) != 1:
                unjudged += 1
            elif rules == {True}:
                assert write.status == 503, f"taken although read-only: {write}\n{around}"
                assert "writes need" in write.text, write
                refused += 1
            else:
                assert write.status in {200, 201, 204}, f"refused although writable: {write}\n{around}"
                taken += 1
        return taken, refused, unjudged
