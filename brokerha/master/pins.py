"""The parts of the log that are still needed, and their owners, computed when retention needs them (retention.py).

A live worker, a backup of this master and a peer need the entries that they have not got yet; a worker that loads a snapshot needs
those after it. An archive or another reader outside the cluster sets a pin by a command: a name, the lowest LSN that it still
needs, and a time after which it counts as gone. These pins are durable at the master that was asked (the record `PinsChanged`), and
with its backups; other masters do not know them.

    pin archive 4711 ---> [4711 ... newest LSN] is held ---> pin archive 5200 ---> ... ---> unpin, or its time is over

While the masters are not all in one epoch, and any side of a split can go on, a master may have to go back to where its way parted
from that of a missing one. That place is a pin as well (`SPLIT`), and so is a copy that a worker keeps for it. After going back,
pins after that place are lowered: their owners need all entries after it.

Must never: count an expired pin; the next change removes it, and no record is written before that.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol

from brokerha.master.config import RetentionConfig
from brokerha.master.retention import Owner
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.records import History, Pin, PinsChanged, Record
from brokerha.replication.site.site import Site
from brokerha.sync.core import SyncCore

PINS_LIMIT: Final = 32
"""Pins of one master; each turn writes the state that has all of them."""
LONGEST_S: Final = 366 * 86_400
SPLIT: Final = Owner("pin", "a split")
"""The pin for going back; no other pin has such a name."""
PIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
"""The pattern of a pin's name."""
_SECOND_US: Final = 1_000_000


class Settings(Protocol):
    """Settings of a master that limit how much of its log is held."""

    @property
    def retention(self) -> RetentionConfig:
        """Settings of the part of the log that is kept."""


class Holder(Protocol):
    """A holder of a log, with the log and its possible readers."""

    history: History
    sync: SyncCore
    site: Site
    pins: DurablePins
    dropped_pins: tuple[Owner, ...]
    needs_of_backups: dict[NodeId, Lsn]
    to_write: list[Record]

    @property
    def config(self) -> Settings:
        """Settings of the master."""


def pins_of(core: Holder, now: Instant) -> tuple[dict[Owner, Lsn], dict[Owner, Lsn]]:
    """Return the lowest LSN that each live worker, each backup and each durable pin still needs, and the same of each peer."""
    pins = {Owner("pin", name): lsn for name, lsn, _ in core.pins.live(now.wall_us)}
    # A backup without a known position may need all held entries.
    first_lsn = core.history.first_lsn()
    pins |= {Owner("backup", node): lsn or first_lsn for node, lsn in core.needs_of_backups.items()}
    for worker in core.site.workers.values():
        progress = worker.progress
        if progress is None or not worker.is_switched_on or not core.site.is_alive(worker, now.mono_ms):
            continue
        owner = Owner("worker", worker.node)
        if progress.load_lsn:
            pins[owner] = progress.load_lsn + 1
        elif worker.load_from_lsn is not None:
            pins[owner] = worker.load_from_lsn + 1
        elif worker.is_following and not worker.condemned:
            pins[owner] = worker.applied + 1
        if progress.kept_lsn >= 0:
            # A worker that restores its kept copy goes on from there.
            pins[owner] = min(pins.get(owner, progress.kept_lsn + 1), progress.kept_lsn + 1)
    for node, lsn in core.site.kept().items():
        owner = Owner("worker", node)
        pins[owner] = min(pins.get(owner, lsn + 1), lsn + 1)
    if (back := lowest_back(core)) is not None:
        pins[SPLIT] = max(1, back)
    masters = core.sync.peers
    # Also of an excluded peer: it needs all of it when it comes back.
    peers = {Owner("peer", node): masters.lsn_of(node) + 1 for node in (*masters.peers, *masters.outside)}
    return pins, peers


def needed_entries(core: Holder, now: Instant) -> int:
    """Return how many transactions of the log the reader furthest back needs, counting held ones only; 0 when none needs any."""
    pins, peers = pins_of(core, now)
    held = [lsn for owner, lsn in (pins | peers).items() if owner not in core.dropped_pins]
    lowest = max(core.history.first_lsn(), min(held, default=core.sync.lsn + 1))
    return max(0, core.sync.lsn - lowest + 1)


def lowest_back(core: Holder) -> Lsn | None:
    """Return the lowest LSN to which this master may have to go back; None while all masters are in one epoch, or with quorum.

    A missing master left the way of this master in one of its epochs, at the end of that epoch here or earlier. The LSN last heard
    from the missing master is its own pin.
    """
    sync = core.sync
    if not sync.keeps_sides or sync.is_whole():
        return None
    return min([sync.epoch.base_lsn, *(lsn for _, lsn in sync.epoch.path)])


class DurablePins:
    """The pins that commands have set, in memory; the caller that changes them writes the returned record."""

    def __init__(self, pins: tuple[Pin, ...]) -> None:
        self._pins = {pin[0]: pin for pin in pins}

    def live(self, wall_us: int) -> list[Pin]:
        """Return the pins whose time is not over."""
        return [pin for pin in self._pins.values() if pin[2] > wall_us]

    def set(self, name: str, lsn: Lsn, until_us: int, wall_us: int) -> PinsChanged:
        """Set a pin, or move it. Raises NotReady when there are too many."""
        others = {pin[0]: pin for pin in self.live(wall_us) if pin[0] != name}
        if len(others) >= PINS_LIMIT:
            raise NotReady(f"{len(others)} pins are set already ({', '.join(sorted(others))}): take one back with unpin")
        self._pins = {**others, name: (name, lsn, until_us)}
        return self._record()

    def remove(self, name: str, wall_us: int) -> PinsChanged | None:
        """Remove a pin; return None when there is none, or its time is over."""
        live = self.live(wall_us)
        self._pins = {pin[0]: pin for pin in live if pin[0] != name}
        return None if len(self._pins) == len(live) else self._record()

    def go_back(self, lsn: Lsn) -> PinsChanged | None:
        """Lower pins after the LSN to which the log went back: their owners need the new entries. Return None without a change."""
        lowered = {name: (name, min(needed, lsn + 1), until) for name, needed, until in self._pins.values()}
        if lowered == self._pins:
            return None
        self._pins = lowered
        return self._record()

    def _record(self) -> PinsChanged:
        return PinsChanged(tuple(sorted(self._pins.values())))


class PinCommands:
    """The commands ``pin``, ``unpin`` and ``pins``; site_commands.py has the common rules."""

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
        """Remove a pin. Raises InvalidRequest."""
        name = arguments["name"]
        record = self._core.pins.remove(name, now.wall_us)
        if record is not None:
            self._core.to_write.append(record)
        return {"name": name, "changed": record is not None}

    def pins(self, _arguments: dict[str, Any], now: Instant) -> dict[str, Any]:
        """Return all pins, with the number of entries that each holds."""
        core = self._core
        rows = [
            {
                "name": name,
                "lsn": lsn,
                "until": until_us,
                "left_s": (until_us - now.wall_us) // _SECOND_US,
                "entries": max(0, core.sync.lsn - lsn + 1),
                "dropped": Owner("pin", name) in core.dropped_pins,
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
        """Return the part of the log that is held because a split may lead back; None when none may."""
        lsn = lowest_back(self._core)
        if lsn is None:
            return None
        return {
            "lsn": lsn,
            "entries": max(0, self._core.sync.lsn - lsn + 1),
            "dropped": SPLIT in self._core.dropped_pins,
            "reason": f"a split may lead back to LSN {lsn}",
        }
