"""Retention: how much of the log a master keeps, and from which LSN on.

The newest ``max_size`` transactions are kept, but none older than ``max_depth_us``, whichever bound is reached first. A **pin**
keeps entries that are still needed: the lowest LSN that a live worker, a load under way, an archive (pins.py) or a peer has not got
yet. A pin can make the log grow up to ``hard_limit`` transactions. Then it is dropped and named, for an alarm, and its owner has to
begin anew from a snapshot. The pins of peers are dropped, too, where the split recovery has epochs: these peers take over a state
(R16). Where it has none such a peer could not be brought back, and its pin is never dropped. A site that has workers keeps all
entries that it has not executed (`MasterCore.forgetting` for a site without).

    first            wanted        pin w3      executed          lsn
      |---- may go ----|- pinned ----|------------|----------------|
                       `-- max_size transactions, at most max_depth_us old

It only decides; the journal forgets, in steps that leave the loop its time:

    step = retention.step(history, now, Facts(lsn, executed_lsn, pins, peers))
    if step is not None:
        retention.done(more=journal.keep(step.below))

Ids are another matter: all masters must forget one at the same place of the order, so one of them proposes it there as an entry
(model/forgetting.py), for ``ids_below``.

Invariants: ``below`` is never above the executed LSN, nor above a pin within the hard limit. Ids stay known for ``max_depth_us`` at
least, those of the newest ``known_ids`` transactions longer, and as long as a peer may hold transactions that were synchronised
without it.

Must never: decide by remembered pins. Every step takes the pins of that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from brokerha.master.config import RetentionConfig
from brokerha.model.ids import Instant, Lsn
from brokerha.model.records import History

LOOK_MS = 1_000
"""Time between two checks whether anything can be forgotten."""


class Owner(NamedTuple):
    """An owner of a pin."""

    kind: Literal["worker", "backup", "peer", "pin"]
    """``pin``: one that was set by a command, or `pins.SPLIT`."""
    name: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Other inputs of the decision beside the journal."""

    lsn: Lsn
    """Length of the synchronised queue."""
    executed_lsn: Lsn
    pins: Mapping[Owner, Lsn] = field(default_factory=dict)
    """Owner -> lowest LSN still needed: live workers, loads under way, archives."""
    peers: Mapping[Owner, Lsn] = field(default_factory=dict)
    """The same for peers."""
    peers_give_way: bool = False
    """Whether their pins can be dropped, too: they can take over a state instead."""


class Step(NamedTuple):
    """The parts of the log that can be forgotten now."""

    below: Lsn
    """Bodies, entries and results below this LSN; the first held LSN when nothing can go."""
    ids_below: Lsn
    """Transaction ids below this LSN, by an entry of the order."""
    dropped: tuple[Owner, ...]
    """Pins that hold too much, and no longer count."""


class Retention:
    """Decides at most once in `LOOK_MS`, and again in each turn while a step left more to do."""

    def __init__(self, config: RetentionConfig) -> None:
        self._config = config
        self._look_at_ms: int | None = None
        self._is_busy = False
        self._target: Lsn = 1
        """Forgetting goes on up to here, in as many steps as needed, and then waits until it is worth it again."""
        self._old_below: Lsn = 1
        """All entries below this LSN were too old at the last look."""

    def is_due(self, now: Instant) -> bool:
        """Tell whether it is time to look, or the last step left more to do."""
        return self._is_busy or self._look_at_ms is None or now.mono_ms >= self._look_at_ms

    def step(self, history: History, now: Instant, facts: Facts) -> Step | None:
        """Return what to forget in this turn; None when it is not time to look. Asks ``history`` for the age of entries."""
        if not self.is_due(now):
            return None
        is_due = self._look_at_ms is None or now.mono_ms >= self._look_at_ms
        if is_due:
            self._look_at_ms = now.mono_ms + LOOK_MS
            old_lsn = history.lsn_before(now.wall_us - self._config.max_depth_us)
            self._old_below = max(self._old_below, old_lsn + 1)
        first_lsn = history.first_lsn()
        below, dropped = self._below(facts, first_lsn)
        if is_due and below - first_lsn >= self._config.least:
            self._target = below
        # A lagging peer may hold transactions that were synchronised without it: their ids must be found.
        ids_below = max(1, min([self._old_below, facts.lsn + 1 - self._config.known_ids, *facts.peers.values()]))
        return Step(max(first_lsn, min(below, self._target)), ids_below, dropped)

    def done(self, *, more: bool) -> None:
        """Say whether the step left more to do at once."""
        self._is_busy = more

    def _below(self, facts: Facts, first_lsn: Lsn) -> tuple[Lsn, tuple[Owner, ...]]:
        """Return the LSN below which all can go, and the pins that do not count for it."""
        end = facts.lsn + 1
        wanted = max(end - self._config.max_size, self._old_below)
        firm = min(wanted, facts.executed_lsn + 1)
        pins = dict(facts.pins)
        if facts.peers_give_way:
            # A peer that was not heard yet, or reads a state now, may need all held entries.
            pins.update({node: max(lsn, first_lsn) for node, lsn in facts.peers.items()})
        else:
            firm = min([firm, *facts.peers.values()])
        lowest_pinned = end - self._config.most
        dropped = sorted(name for name, lsn in pins.items() if lsn < min(firm, lowest_pinned))
        kept = [lsn for name, lsn in pins.items() if name not in dropped]
        return min([firm, *kept]), tuple(dropped)

    def deadline_ms(self) -> int | None:
        """Return when to look again, by the monotonic clock; None for at once."""
        return None if self._is_busy else self._look_at_ms
