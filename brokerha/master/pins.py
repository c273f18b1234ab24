"""Pins: who still needs which part of the log of a master, asked for in the moment in which it matters (retention.py).

A live worker, a backup of this master and a peer need what they have not got yet; who loads a snapshot needs what comes after it. Who is
no part of the cluster, such as an archive, sets a pin by a command: a name, the lowest LSN that it still needs, and a time after which it
is taken for gone. These pins are durable at the master that was asked (the record `PinsChanged`), and with its backups; other masters know
nothing of them.

    pin archive 4711 ---> [4711 ... newest LSN] is held ---> pin archive 5200 ---> ... ---> unpin, or its time is over

While the masters are not all in one epoch, where any side of a split may go on, a master may have to go back to where its way parted from
that of who is missing: that is a pin as well (`SPLIT`), and so is what a worker keeps for it. After a going back nobody needs less than
what comes after it, so pins after it are lowered.

Must never: count a pin whose time is over; it is taken out with the next change, and nothing has to be written before that.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

from brokerha.master.retention import RetentionConfig
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.records import History, Pin, PinsChanged, Record
from brokerha.replication.site.site import Site
from brokerha.sync.core import SyncCore

PINS_LIMIT: Final = 32
"""Pins of one master: all of them stand in the state that each turn writes."""
LONGEST_S: Final = 366 * 86_400
NAMED: Final = "pin "
"""Stands before the name of a pin where it is told beside workers."""
BACKUP: Final = "backup "
"""Stands there before the id of a backup of this master."""
PEER: Final = "master "
"""Stands there before the id of a master."""
SPLIT: Final = "a split"
"""The pin for going back; no node has such an id."""
PIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
"""The name of a pin."""
_SECOND_US: Final = 1_000_000


class Settings(Protocol):
    """Settings of a master that say how much of its log is held."""

    @property
    def retention(self) -> RetentionConfig:
        """How much of the log is kept."""


class Holder(Protocol):
    """Who holds a log: what is in it, and who may need it."""

    history: History
    sync: SyncCore
    site: Site
    pins: DurablePins
    dropped_pins: tuple[str, ...]
    needs_of_backups: dict[NodeId, Lsn]
    to_write: list[Record]

    @property
    def config(self) -> Settings:
        """Settings of the master."""


def pins_of(core: Holder, now: Instant) -> tuple[dict[str, Lsn], dict[str, Lsn]]:
    """Lowest LSN that each live worker, each backup and each durable pin still needs, and each peer."""
    pins = {f"{NAMED}{name}": lsn for name, lsn, _ in core.pins.live(now.wall_us)}
    # One of which nothing is known yet may need all that is held.
    first_lsn = core.history.first_lsn()
    pins |= {f"{BACKUP}{node}": lsn or first_lsn for node, lsn in core.needs_of_backups.items()}
    for worker in core.site.workers.values():
        progress = worker.progress
        if progress is None or not worker.is_switched_on or not core.site.is_alive(worker, now.mono_ms):
            continue
        if progress.load_lsn:
            pins[worker.node] = progress.load_lsn + 1
        elif worker.load_from_lsn is not None:
            pins[worker.node] = worker.load_from_lsn + 1
        elif worker.is_following and not worker.condemned:
            pins[worker.node] = worker.applied + 1
        if progress.kept_lsn >= 0:
            # A worker that restores its kept copy goes on from there.
            pins[worker.node] = min(pins.get(worker.node, progress.kept_lsn + 1), progress.kept_lsn + 1)
    for node, lsn in core.site.kept().items():
        pins[node] = min(pins.get(node, lsn + 1), lsn + 1)
    if (back := lowest_back(core)) is not None:
        pins[SPLIT] = max(1, back)
    masters = core.sync.peers
    # Also of one that is excluded: it needs all of it when it comes back.
    peers = {f"{PEER}{node}": masters.lsn_of(node) + 1 for node in (*masters.peers, *masters.outside)}
    return pins, peers


def needed_entries(core: Holder, now: Instant) -> int:
    """Transactions of the log that the reader furthest behind needs, of those for whom any are held; 0 when nobody is."""
    pins, peers = pins_of(core, now)
    held = [lsn for name, lsn in (pins | peers).items() if name not in core.dropped_pins]
    lowest = max(core.history.first_lsn(), min(held, default=core.sync.lsn + 1))
    return max(0, core.sync.lsn - lowest + 1)


def lowest_back(core: Holder) -> Lsn | None:
    """The lowest LSN to which this master may have to go back; None while all masters are in one epoch, or only a majority goes on.

    Who is missing left the way of this master with one of the epochs on it, at the end of that epoch here or earlier; what of it was heard
    from the missing one is its own pin.
    """
    sync = core.sync
    if not sync.keeps_sides or sync.is_whole():
        return None
    return min([sync.epoch.base_lsn, *(lsn for _, lsn in sync.epoch.path)])


class DurablePins:
    """The pins that commands have set, in memory; the caller that changes them writes the record that it gets."""

    def __init__(self, pins: tuple[Pin, ...]) -> None:
        self._pins = {pin[0]: pin for pin in pins}

    def live(self, wall_us: int) -> list[Pin]:
        """Those whose time is not over."""
        return [pin for pin in self._pins.values() if pin[2] > wall_us]

    def set(self, name: str, lsn: Lsn, until_us: int, wall_us: int) -> PinsChanged:
        """Set one, or move it. Raises NotReady when there are too many."""
        others = {pin[0]: pin for pin in self.live(wall_us) if pin[0] != name}
        if len(others) >= PINS_LIMIT:
            raise NotReady(f"{len(others)} pins are set already ({', '.join(sorted(others))}): take one back with unpin")
        self._pins = {**others, name: (name, lsn, until_us)}
        return self._record()

    def remove(self, name: str, wall_us: int) -> PinsChanged | None:
        """Take one back; None when there is none, or its time is over."""
        live = self.live(wall_us)
        self._pins = {pin[0]: pin for pin in live if pin[0] != name}
        return None if len(self._pins) == len(live) else self._record()

    def go_back(self, lsn: Lsn) -> PinsChanged | None:
        """The log went back to an LSN: who needed nothing up to a place after it needs what comes there now. None when nobody did."""
        lowered = {name: (name, min(needed, lsn + 1), until) for name, needed, until in self._pins.values()}
        if lowered == self._pins:
            return None
        self._pins = lowered
        return self._record()

    def _record(self) -> PinsChanged:
        return PinsChanged(tuple(sorted(self._pins.values())))


class PinCommands:
    """The commands ``pin``, ``unpin`` and ``pins``; see site_commands.py for what is common to all."""

    def __init__(self, core: Holder) -> None:
        self._core = core

    def pin(self, arguments: dict[str, Any], now: Instant) -> dict[str, Any]:
        """Hold the log from an LSN on, for so many seconds from now. Raises InvalidRequest, NotReady."""
        name, lsn, for_s = arguments["name"], arguments["lsn"], arguments["for_s"]
        core = self._core
        first = core.history.first_lsn()
        if lsn < first:
            raise InvalidRequest(
                f"LSN {lsn} is not held any more: the log of {core.sync.node} begins at {first}; pin that, or begin anew"
            )
        core.to_write.append(core.pins.set(name, lsn, now.wall_us + for_s * _SECOND_US, now.wall_us))
        return next(row for row in self.pins({}, now)["pins"] if row["name"] == name)

    def unpin(self, arguments: dict[str, Any], now: Instant) -> dict[str, Any]:
        """Let the log go. Raises InvalidRequest."""
        name = arguments["name"]
        record = self._core.pins.remove(name, now.wall_us)
        if record is not None:
            self._core.to_write.append(record)
        return {"name": name, "changed": record is not None}

    def pins(self, _arguments: dict[str, Any], now: Instant) -> dict[str, Any]:
        """All pins, with what each holds."""
        core = self._core
        rows = [
            {
                "name": name,
                "lsn": lsn,
                "until": until_us,
                "left_s": (until_us - now.wall_us) // _SECOND_US,
                "entries": max(0, core.sync.lsn - lsn + 1),
                "dropped": f"{NAMED}{name}" in core.dropped_pins,
            }
            for name, lsn, until_us in sorted(core.pins.live(now.wall_us))
        ]
        return {
            "master": core.sync.node,
            "first_lsn": core.history.first_lsn(),
            "last_lsn": core.sync.lsn,
            "hard_limit": core.config.retention.most,
            "split": self._split(),
            "pins": rows,
        }

    def _split(self) -> dict[str, Any] | None:
        """What is held because a split may lead back; None when none may."""
        lsn = lowest_back(self._core)
        if lsn is None:
            return None
        return {
            "lsn": lsn,
            "entries": max(0, self._core.sync.lsn - lsn + 1),
            "dropped": SPLIT in self._core.dropped_pins,
            "reason": f"a split may lead back to LSN {lsn}",
        }
