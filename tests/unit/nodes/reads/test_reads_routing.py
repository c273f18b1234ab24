"""Where a read goes, told as small stories: `time what` on one side, what the routing does about it on the other."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from brokerha.nodes.reads.routing import GiveUp, Routing, RoutingLimits, Send
from brokerha.nodes.reads.worker_order import WorkerFacts

LIMITS = RoutingLimits(reads=20, patience_ms=500, savings=3, bench_after=3, probe_ms=2000, grace_ms=1000)


@dataclass
class Site:
    """Workers and reads by short names: ``r1`` is the first read; each worker has one attempt of it at most."""

    workers: dict[str, WorkerFacts] = field(default_factory=dict)
    reads: dict[str, int] = field(default_factory=dict)
    attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    probes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.routing = Routing(LIMITS)

    def does(self, line: str) -> str:
        """Carry out ``<ms> <what> ...`` and tell what the routing does about it."""
        time, what, *rest = line.split(maxsplit=2)
        words = rest[0].split() if rest else []
        mono_ms = int(time)
        if what == "workers":
            self.workers = {}
            for word in words:
                name, *numbers = word.split(":")
                applied, running = (*map(int, numbers), *(100, 0)[len(numbers) :])
                self.workers[name] = WorkerFacts(name, applied, running, mono_ms)
        elif what == "heard":
            self.workers.update({name: self.workers[name]._replace(heard_ms=mono_ms) for name in words})
        self.routing.update(list(self.workers.values()), mono_ms)
        ended = ""
        if what == "ask":
            name, min_lsn, timeout_ms = (*words, *("0", "30000")[len(words) - 1 :])
            number = self.routing.ask("get", int(min_lsn), int(timeout_ms), mono_ms)
            self.reads[name] = number
        elif what in ("answer", "wrong"):
            number = self.attempts.get((words[0], words[1]), 0) or self.probes[words[1]]
            read = self.routing.answered(number, mono_ms, is_good=what == "answer")
            ended = "late" if read is None else f"{self._name(read)} done"
        elif what == "error":
            text = " ".join(words[3:]) or words[2]
            self.routing.failed(self.attempts[words[0], words[1]], words[2], text, mono_ms)
        elif what == "tick":
            self.routing.tick(mono_ms)
        return " ".join(word for word in (ended, *map(self._told, self.routing.take())) if word)

    def _told(self, step: Send | GiveUp) -> str:
        name = self._name(step.read)
        if isinstance(step, GiveUp):
            return f"{name} {'late' if step.is_timeout else 'refused'} [{step.text}]"
        if not step.read:
            self.probes[step.worker] = step.attempt
            return f"probe>{step.worker}"
        self.attempts[name, step.worker] = step.attempt
        return f"{name}>{step.worker}"

    def _name(self, number: int) -> str:
        return next((name for name, known in self.reads.items() if known == number), f"r{len(self.reads) + 1}")


STORIES = {
    "reads are spread over the workers, the least busy first": """
        0 workers w1 w2 w3       |
        0 ask r1                 | r1>w1
        0 ask r2                 | r2>w2
        0 ask r3                 | r3>w3
        5 answer r2 w2           | r2 done
        5 ask r4                 | r4>w2
        6 answer r1 w1           | r1 done
        6 answer r3 w3           | r3 done
        6 ask r5                 | r5>w1
        6 ask r6                 | r6>w3
    """,
    "an idle site takes its workers in turn": """
        0 workers w1 w2          |
        0 ask r1                 | r1>w1
        1 answer r1 w1           | r1 done
        1 ask r2                 | r2>w2
        2 answer r2 w2           | r2 done
        2 ask r3                 | r3>w1
    """,
    "reads that came through other doors count": """
        0 workers w1:100:2 w2    |
        0 ask r1                 | r1>w2
        0 ask r2                 | r2>w2
        0 ask r3                 | r3>w1
    """,
    "without a worker a read is refused at once": """
        0 ask r1                 | r1 refused [no worker of this master can serve reads: start one, or ask another master]
    """,
    "an error of the worker sends the read on, until none is left": """
        0 workers w1 w2 w3       |
        0 ask r1                 | r1>w1
        9 error r1 w1 StoreError broken | r1>w2
        9 error r1 w2 NotReady busy     | r1>w3
        9 error r1 w3 TimedOut slow     | r1 refused [no worker could serve the read; w1: broken; w2: busy; w3: slow]
    """,
    "when only time was missing it is a time-out": """
        0 workers w1 w2          |
        0 ask r1 500             | r1>w1
        9 error r1 w1 TimedOut slow | r1>w2
        9 error r1 w2 TimedOut slow | r1 late [no worker could serve the read; w1: slow; w2: slow]
    """,
    "after the deadline nobody else is asked": """
        0 workers w1 w2          |
        0 ask r1 0 400           | r1>w1
        401 error r1 w1 TimedOut slow | r1 late [no worker answered the read in time; w1: slow]
    """,
    "a wrong request is not sent again": """
        0 workers w1 w2          |
        0 ask r1                 | r1>w1
        3 wrong r1 w1            | r1 done
        9 tick                   |
    """,
    "a worker that is lost, or not on any more, loses its reads to the others": """
        0 workers w1 w2          |
        0 ask r1                 | r1>w1
        50 workers w2            | r1>w2
        60 workers               | r1 refused [no worker could serve the read; w1: was lost, or may not serve reads any more; w2: was lost, or may not serve reads any more]
    """,
    "after its patience a second worker is asked, and the first answer counts": """
        0 workers w1 w2 w3       |
        0 ask r1                 | r1>w1
        499 tick                 |
        500 tick                 | r1>w2
        520 answer r1 w2         | r1 done
        530 answer r1 w1         | late
    """,
    "the first worker may still be the first to answer": """
        0 workers w1 w2 w3       |
        0 ask r1                 | r1>w1
        500 tick                 | r1>w2
        520 answer r1 w1         | r1 done
        530 answer r1 w2         | late
    """,
    "at most two are under way, unless one of them is silent": """
        0 workers w1 w2 w3       |
        0 ask r1                 | r1>w1
        500 tick                 | r1>w2
        900 heard w1 w2 w3       |
        1000 tick                |
        1600 heard w2 w3         |
        2500 tick                | r1>w3
    """,
    "a worker that is alive is slow, and gets four times the patience": """
        0 workers w1 w2          |
        0 ask r1                 | r1>w1
        400 heard w1 w2          |
        500 tick                 |
        1999 tick                |
        2000 tick                | r1>w2
    """,
    "when the second fails too the first is still waited for": """
        0 workers w1 w2          |
        0 ask r1                 | r1>w1
        500 tick                 | r1>w2
        510 error r1 w2 NotReady busy |
        900 answer r1 w1         | r1 done
    """,
    "second questions have to be earned": """
        0 workers w1 w2          |
        0 ask r1                 | r1>w1
        0 ask r2                 | r2>w2
        0 ask r3                 | r3>w1
        0 ask r4                 | r4>w2
        500 tick                 | r1>w2 r2>w1 r3>w2
        1000 tick                |
    """,
    "a read that nobody answers ends, and says who was asked": """
        0 workers w1             |
        0 ask r1 0 1000          | r1>w1
        1000 tick                |
        1999 tick                |
        2000 tick                | r1 late [no worker answered the read in time; w1 did not answer]
        2001 answer r1 w1        | late
    """,
    "who leaves three reads unanswered gets probes until it answers one": """
        0 workers w1 w2          |
        0 ask r1                 | r1>w1
        1 error r1 w1 StoreError a | r1>w2
        2 answer r1 w2           | r1 done
        2 ask r2                 | r2>w1
        3 error r2 w1 StoreError a | r2>w2
        4 answer r2 w2           | r2 done
        4 ask r3                 | r3>w1
        5 error r3 w1 StoreError a | r3>w2
        6 ask r4                 | r4>w2
        7 ask r5                 | r5>w2
        8 answer r3 w2           | r3 done
        8 answer r4 w2           | r4 done
        8 answer r5 w2           | r5 done
        2004 tick                |
        2005 tick                | probe>w1
        2006 answer probe w1     | late
        2007 ask r6              | r6>w2
        2007 ask r7              | r7>w1
    """,
    "the only worker is asked although it is benched": """
        0 workers w1             |
        0 ask r1                 | r1>w1
        1 error r1 w1 NotReady a | r1 refused [no worker could serve the read; w1: a]
        1 ask r2                 | r2>w1
        2 error r2 w1 NotReady a | r2 refused [no worker could serve the read; w1: a]
        2 ask r3                 | r3>w1
        3 error r3 w1 NotReady a | r3 refused [no worker could serve the read; w1: a]
        3 ask r4                 | r4>w1
    """,
    "time-outs bench nobody": """
        0 workers w1 w2          |
        0 ask r1                 | r1>w1
        1 error r1 w1 TimedOut a | r1>w2
        2 answer r1 w2           | r1 done
        2 ask r2                 | r2>w1
        3 error r2 w1 TimedOut a | r2>w2
        4 answer r2 w2           | r2 done
        4 ask r3                 | r3>w1
        5 error r3 w1 TimedOut a | r3>w2
        6 ask r4                 | r4>w1
    """,
    "a worker far behind is not asked for an LSN that another has nearly": """
        0 workers w1:100 w2:6000 w3:6500 |
        0 ask r1 6600            | r1>w2
        0 ask r2 6600            | r2>w3
        0 ask r3 6600            | r3>w2
        0 ask r4                 | r4>w1
        0 ask r5 9000            | r5>w3
    """,
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name: str) -> None:
    site = Site()
    for line in STORIES[name].strip().splitlines():
        what, _, expected = line.partition("|")
        assert site.does(what.strip()) == expected.strip(), what.strip()


def test_more_reads_than_the_limit_are_refused() -> None:
    site = Site()
    site.does("0 workers w1 w2")
    for number in range(LIMITS.reads):
        assert ">" in site.does(f"0 ask r{number}")
    assert "20 reads are under way already" in site.does("0 ask more")


def test_slow_kinds_get_a_longer_patience_by_themselves() -> None:
    site = Site()
    site.does("0 workers w1 w2")
    for number in range(20):
        site.does(f"{number * 300} ask r{number}")
        site.does(f"{number * 300 + 299} answer r{number} w{number % 2 + 1}")
    assert site.does("10000 ask long") == "long>w1"
    assert site.does("11000 tick") == ""
    assert site.does("11196 tick") == "long>w2"


def test_counts_say_what_happened() -> None:
    site = Site()
    for line in ("0 workers w1 w2", "0 ask r1", "500 tick", "510 answer r1 w2", "520 answer r1 w1"):
        site.does(line)
    for line in ("600 ask r2", "601 error r2 w1 NotReady x", "602 error r2 w2 NotReady x"):
        site.does(line)
    assert dict(site.routing.counts) == {"hedged": 1, "hedges_won": 1, "late": 1, "retried": 1, "failed": 1}


@pytest.mark.parametrize("seed", range(30))
def test_every_read_ends_exactly_once_whatever_the_workers_do(seed: int) -> None:
    rng = random.Random(seed)
    routing = Routing(LIMITS)
    nodes = [f"w{number}" for number in range(1, 5)]
    asked: set[int] = set()
    ended: list[int] = []
    sent: dict[tuple[int, str], int] = {}
    open_attempts: list[int] = []
    for mono_ms in range(0, 60_000, 100):
        up = [node for node in nodes if rng.random() < 0.9]
        routing.update([WorkerFacts(node, 100, rng.randrange(3), mono_ms - rng.randrange(900)) for node in up], mono_ms)
        if mono_ms < 40_000 and rng.random() < 0.7:
            asked.add(routing.ask(rng.choice(("get", "query")), rng.randrange(5000), rng.randrange(1, 4000), mono_ms))
        for attempt in rng.sample(open_attempts, min(len(open_attempts), rng.randrange(3))):
            open_attempts.remove(attempt)
            if rng.random() < 0.5:
                read = routing.answered(attempt, mono_ms)
                ended += [] if read is None else [read]
            else:
                routing.failed(attempt, rng.choice(("NotReady", "TimedOut")), "x", mono_ms)
        routing.tick(mono_ms)
        for step in routing.take():
            if isinstance(step, GiveUp):
                ended.append(step.read)
            else:
                # A read is never sent to one worker twice.
                assert not step.read or (step.read, step.worker) not in sent
                sent[step.read, step.worker] = step.attempt
                open_attempts.append(step.attempt)
    assert sorted(ended) == sorted(asked)
    assert len(routing) == 0
