"""What a write costs the nodes of a bench: processor time by role and by what threads are for, turns, messages.

Taken from /metrics of each node before and after a measurement, so it holds what happened besides, such as heartbeats: little at any
rate that is worth measuring. The broker's own processor time is not in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httpx2

from brokerha.http.operating.families import numbers_of
from brokerha.model.errors import NotReady

Counters = Callable[[], dict[tuple[str, str, str], float]]
"""(role, metric, label) -> sum over the nodes of the role."""
WANTED = ("cpu_seconds_total", "turns_total", "transport_total")
ASK_S = 10.0


@dataclass(frozen=True, slots=True)
class WriteCost:
    """For one write, over all nodes of a role."""

    cpu_us: dict[str, dict[str, float]]
    """Microseconds of a processor: ``masters`` and ``workers`` -> what the thread is for."""
    turns: float
    """Of the loops of all nodes."""
    messages: float
    """That nodes handed to the broker."""

    @property
    def total_us(self) -> float:
        """Of all nodes."""
        return sum(sum(threads.values()) for threads in self.cpu_us.values())

    def sentence(self) -> str:
        """For a person, the largest parts only."""
        parts = []
        for role, threads in self.cpu_us.items():
            largest = sorted(threads.items(), key=lambda item: -item[1])[:3]
            named = ", ".join(f"{name} {us:,.0f}" for name, us in largest)
            parts.append(f"{role} {sum(threads.values()):,.0f} us ({named})")
        return f"a write: {'; '.join(parts)}; {self.turns:.2f} turns, {self.messages:.2f} messages"


def counters_of(urls: Mapping[str, str]) -> dict[tuple[str, str, str], float]:
    """Sums of what is wanted of the nodes behind these URLs, by node id; masters' begin with m. Raises NotReady."""
    found: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    for node, url in urls.items():
        role = "masters" if node.startswith("m") else "workers"
        try:
            told = httpx2.get(f"{url}/metrics", timeout=ASK_S).raise_for_status().text
        except httpx2.HTTPError as error:
            raise NotReady(f"{node} does not tell its metrics: {error}") from None
        for key, value in numbers_of(told).items():
            name, label = (key, "") if isinstance(key, str) else key[:2]
            if name in WANTED:
                found[role, name, label] += value
    return dict(found)


def cost_of(
    before: Mapping[tuple[str, str, str], float], after: Mapping[tuple[str, str, str], float], writes: int
) -> WriteCost | None:
    """What each of so many writes cost; None when nothing was counted.

    >>> cost = cost_of({}, {("masters", "cpu_seconds_total", "loop"): 2.0, ("masters", "turns_total", ""): 300}, 1000)
    >>> cost.total_us, cost.turns
    (2000.0, 0.3)
    """
    if not after or not writes:
        return None
    grown = {key: max(0.0, value - before.get(key, 0.0)) / writes for key, value in after.items()}
    cpu_us: dict[str, dict[str, float]] = {}
    for (role, name, label), each in grown.items():
        if name == "cpu_seconds_total":
            cpu_us.setdefault(role, {})[label] = 1e6 * each
    turns = sum(each for (_, name, _), each in grown.items() if name == "turns_total")
    messages = sum(each for (_, name, label), each in grown.items() if (name, label) == ("transport_total", "sent"))
    return WriteCost(cpu_us, turns, messages)
