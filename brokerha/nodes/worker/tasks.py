"""Long work that a master gives this worker (messages.Task): one task at a time, in its own thread, with progress reports.

    loop thread    on_task ─> a new request begins, a known one is reported again        take ─> reports to send
    task thread    work(arguments, meter) ─> answer                                      running … done or failed

A request has one report: a task that comes twice is done once. A request that comes while another one runs has failed, and stays
failed; the last 32 are remembered. A restarted process knows none of them, so the master's next order begins the work again. Every
kind of work must allow that (a backup finds the result of the same request).

The work calls its meter often, and the meter raises when the node stops: nothing runs on after `close` or leaves half a result.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from brokerha.model.errors import BrokerhaError, InvalidRequest, StoreDamaged, StoreError
from brokerha.model.faults import fault_fields
from brokerha.model.ids import NodeId
from brokerha.model.wire.messages import Outgoing, Task, TaskReport
from brokerha.ports.copies import WorkerCopy
from brokerha.stores.backup.directory import BackupFolder
from brokerha.stores.backup.manifest import Manifest
from brokerha.stores.backup.writing import About, Work, extend_backup, write_backup
from brokerha.stores.comparing.scrub import Finding, Scrub
from brokerha.stores.copies.lives import Lives

# ---- The background scrub of a worker: its times, its rate, and its reports (stores/comparing/scrub.py).
#
# One thread waits, scrubs and reports. It scrubs only a trusted copy, and never disturbs other work: its rate is bounded, and a stop
# ends it at once. It scrubs:
#
#     every `every_s` seconds                                             silent damage
#     soon after a copy was loaded, and after a snapshot was given away    a silently damaged source passes its damage on
#     first, after a process that ended badly                              the data can be the cause (stores/copies/lives.py)
#     ... before anything else, unpaced, after several bad ends            then nothing else can be the cause
#
# The last one runs in the thread that starts the node, before the node follows or answers.

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ScrubLimits:
    """Pause and rate of the scrub."""

    every_s: float = 600.0
    """Pause between two scrubs of everything; 0 for never."""
    items_per_s: float = 20_000.0


def _nobody(_reason: str) -> None:
    """Ignore a report of damage."""


class Scrubbing:
    """Scrubs one copy at intervals and on demand."""

    def __init__(self, copy: WorkerCopy, name: str, limits: ScrubLimits, lives: Lives | None = None) -> None:
        """``lives`` tells how the processes before this one ended; None counts as well."""
        self.limits = limits
        self.looks = 0
        """Number of scrubs finished since the start."""
        self.damages = 0
        """Number of scrubs that found damage."""
        self.last: Finding | None = None
        self._copy = copy
        self._name = name
        self._lives = lives
        self._on_damage: Callable[[str], None] = _nobody
        self._may_look: Callable[[], bool] = lambda: False
        self._is_owed = lives is not None and lives.bad_ends > 0
        self._every_s = limits.every_s
        """Pause as of the last change of the limits."""
        self._is_changed = False
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._one = threading.Lock()
        self._thread: threading.Thread | None = None

    def look_first(self, on_damage: Callable[[str], None]) -> None:
        """Scrub everything in the calling thread, if the copy must not be used before; ``close`` ends it."""
        lives = self._lives
        if lives is None or not lives.must_look_first:
            return
        log.warning("looks at all data before anything else", node=self._name, bad_ends=lives.bad_ends)
        self._on_damage = on_damage
        try:
            finding = self.look(math.inf, lambda _items: lives.look_goes_on())
        except BrokerhaError as error:
            log.warning("the data cannot be looked at", node=self._name, reason=str(error))
        else:
            self._is_owed = finding is None
        finally:
            lives.look_ended()

    def start(self, on_damage: Callable[[str], None], may_look: Callable[[], bool]) -> None:
        """Start. ``on_damage`` gets the damage; ``may_look`` returns whether the copy is trusted now."""
        self._on_damage = on_damage
        self._may_look = may_look
        self._begin()

    def on_limits(self) -> None:
        """React to possibly changed limits: a new pause begins at once."""
        if self.limits.every_s != self._every_s:
            self._every_s = self.limits.every_s
            self._is_changed = True
            self._wake.set()
            self._begin()

    def _begin(self) -> None:
        if self._thread is None and self.limits.every_s > 0:
            self._thread = threading.Thread(target=self._run, name=f"{self._name} scrub", daemon=True)
            self._thread.start()

    def look_soon(self) -> None:
        """Scrub as soon as the copy is trusted, without the pause. Any thread can call this."""
        self._is_owed = True
        self._wake.set()

    def give_up(self) -> None:
        """Note that this process ends badly, so that the next one scrubs the data first."""
        if self._lives is not None:
            self._lives.counts_as_bad()

    def on_trusted(self) -> None:
        """Note that the copy is trusted from now on. Any thread can call this."""
        if self._is_owed:
            self._wake.set()

    def close(self, timeout_s: float) -> None:
        """Stop at once. Idempotent."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    @property
    def items(self) -> int:
        """Number of items to scrub."""
        return self._copy.applied().items

    def look(self, items_per_s: float, on_items: Callable[[int], None] = lambda _: None) -> Finding | None:
        """Scrub everything once, in the calling thread; return None when it was stopped. Raises StoreError.

        ``on_items`` gets the number of items scrubbed so far, at intervals; its exception ends the scrub.
        """
        with self._one:
            scrub = Scrub(
                self._copy, items_per_s=items_per_s, clock=time.monotonic, stopped_within=self._stop.wait, on_items=on_items
            )
            finding = scrub.run()
        if finding is None:
            return None
        self.looks += 1
        self.last = finding
        if finding.damage:
            self.damages += 1
            self._on_damage(f"scrub: {finding.damage}")
        elif self._lives is not None and finding.is_compared:
            # When the disk cannot be written, the next start scrubs once more than needed.
            with suppress(StoreError):
                self._lives.found_whole()
        return finding

    def _run(self) -> None:
        while True:
            every_s = self.limits.every_s
            if every_s <= 0 or not (self._is_owed and self._may_look()):
                self._wake.wait(every_s or None)
                self._wake.clear()
            if self._stop.is_set():
                return
            is_changed, self._is_changed = self._is_changed, False
            if is_changed or every_s <= 0 or not self._may_look():
                continue
            self._is_owed = False
            try:
                self.look(self.limits.items_per_s)
            except BrokerhaError as error:
                # The copy was replaced or closed meanwhile: the next scrub reads the new one.
                log.info("scrub ended early", node=self._name, reason=str(error))


REPORT_S: Final = 1.0
"""Interval of reports of running work; shorter than the interval after which a master asks again."""
REMEMBERED: Final = 32

Answer = dict[str, str | int | bool | None]
Meter = Callable[[int, int], None]
"""Takes (done, total); raises when the node stops."""
Kind = Callable[[str, Mapping[str, Any], Meter], Answer]
"""Does the work of one task: (request, arguments, meter) to the answer. Raises BrokerhaError with the reason."""


class TaskStopped(BrokerhaError):
    """The node stops, and the work with it."""


class WorkerTasks:
    """The tasks of one worker; `on_task`, `take` and `close` belong to its loop."""

    def __init__(
        self, kinds: Mapping[str, Kind], name: str, wake: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``wake`` is called from the thread of a task when there is something to `take`."""
        self._kinds = kinds
        self._name = name
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._reports: dict[str, tuple[NodeId, TaskReport]] = {}
        """By request, the oldest first; each with the node to report to."""
        self._news: set[str] = set()
        self._running = ""
        self._thread: threading.Thread | None = None

    def on_task(self, sender: NodeId, task: Task) -> None:
        """Begin a task of a master, or report on a known one."""
        with self._lock:
            known = self._reports.get(task.request)
            report = known[1] if known is not None else self._begun(sender, task)
            self._note(sender, report)

    def take(self) -> list[Outgoing]:
        """Return the reports that are due."""
        with self._lock:
            news, self._news = self._news, set()
            return [Outgoing(*self._reports[request]) for request in sorted(news)]

    def close(self, timeout_s: float) -> None:
        """Stop the running task and wait for its thread. Idempotent."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _begun(self, sender: NodeId, task: Task) -> TaskReport:
        kind = self._kinds.get(task.kind)
        if kind is None:
            return _failed(task.request, f"{self._name} knows no task {task.kind!r}, only {', '.join(sorted(self._kinds))}")
        if self._running or self._stopping.is_set():
            return _failed(task.request, f"{self._name} is busy with {self._running or 'stopping'}: try again later")
        self._running = task.request
        self._thread = threading.Thread(target=self._run, args=(sender, task, kind), name=f"{self._name} {task.kind}", daemon=True)
        self._thread.start()
        return TaskReport(task.request, "running", 0, 0, "", {})

    def _note(self, sender: NodeId, report: TaskReport) -> None:
        """Keep a report and have it sent; called under the lock."""
        self._reports[report.request] = (sender, report)
        self._news.add(report.request)
        for old in list(self._reports)[:-REMEMBERED]:
            if old != self._running:
                del self._reports[old]
                self._news.discard(old)

    def _run(self, sender: NodeId, task: Task, kind: Kind) -> None:
        log.info("task begins", node=self._name, kind=task.kind, request=task.request)
        last = TaskReport(task.request, "running", 0, 0, "", {})
        told_s = self._clock()

        def meter(done: int, total: int) -> None:
            nonlocal last, told_s
            if self._stopping.is_set():
                raise TaskStopped(f"{self._name} was stopped")
            last = TaskReport(task.request, "running", done, total, "", {})
            if self._clock() - told_s >= REPORT_S:
                told_s = self._clock()
                self._tell(sender, last)

        try:
            answer = kind(task.request, task.arguments, meter)
            report = TaskReport(task.request, "done", last.total, last.total, "", answer)
        except BrokerhaError as error:
            # The caller must be able to tell a damaged copy from work that failed.
            answer = {"damaged": True} if isinstance(error, StoreDamaged) else {}
            report = TaskReport(task.request, "failed", last.done, last.total, str(error), answer)
        except Exception as error:  # noqa: BLE001  (told to the caller, and in the log)
            log.error("a task failed by a fault of brokerha", node=self._name, request=task.request, **fault_fields(error))
            report = _failed(task.request, f"{type(error).__name__}: {error}; the log of {self._name} has the details")
        log.info("task ends", node=self._name, request=task.request, state=report.state, reason=report.reason)
        with self._lock:
            self._running = ""
        self._tell(sender, report)

    def _tell(self, sender: NodeId, report: TaskReport) -> None:
        with self._lock:
            self._note(sender, report)
        self._wake()


def _failed(request: str, reason: str) -> TaskReport:
    return TaskReport(request, "failed", 0, 0, reason, {})


# ---- kinds of work


def backup_kind(
    copy: WorkerCopy, folder: Path, cluster: str, node: NodeId, masters: tuple[NodeId, ...], now_us: Callable[[], int]
) -> Kind:
    """Return the kind ``backup`` with {name, incremental, replace}: it makes or extends a backup in a folder of this machine."""
    return partial(_backup, copy, BackupFolder(folder), About(cluster, node, masters), now_us)


def _backup(
    copy: WorkerCopy,
    folder: BackupFolder,
    about: About,
    now_us: Callable[[], int],
    request: str,
    arguments: Mapping[str, Any],
    meter: Meter,
) -> Answer:
    name, is_incremental = str(arguments.get("name") or ""), bool(arguments.get("incremental"))
    is_replacing = bool(arguments.get("replace"))
    if is_incremental and is_replacing:
        raise InvalidRequest("an incremental backup adds to the one that is there and cannot replace it")
    suite = tuple(json.loads(b"".join(copy.read("control", "", {}).pieces)))
    work = Work(about._replace(control_suite=suite), now_us(), request, meter)
    if is_incremental:
        before = folder.backup(name).manifest().last_lsn
        manifest = extend_backup(folder, name, copy, work)
        return _answer(folder, manifest, added_lines=manifest.last_lsn - before)
    return _answer(folder, write_backup(folder, name, copy, work, replace=is_replacing))


def _answer(folder: BackupFolder, manifest: Manifest, **more: int) -> Answer:
    return {
        "name": manifest.name,
        "path": str((folder.path / manifest.name).resolve()),
        "lsn": manifest.last_lsn,
        "last_lsn": manifest.last_lsn,
        "fingerprint": manifest.last_fingerprint,
        "items": manifest.items,
        "base_lsn": manifest.lsn,
        "base_items": manifest.items,
        "size_bytes": manifest.size_bytes,
        **more,
    }


def scrub_kind(scrubbing: Scrubbing) -> Kind:
    """Return the kind ``scrub`` with {items_per_s}: it computes the fingerprint from the data, at the usual rate by default."""
    return partial(_scrub, scrubbing)


def _scrub(scrubbing: Scrubbing, _request: str, arguments: Mapping[str, Any], meter: Meter) -> Answer:
    total = scrubbing.items
    rate = float(arguments.get("items_per_s") or scrubbing.limits.items_per_s)
    finding = scrubbing.look(rate, lambda items: meter(min(items, total), total))
    if finding is None:
        raise TaskStopped("the node was stopped")
    if finding.damage:
        raise StoreDamaged(finding.damage)
    meter(finding.items, finding.items)
    return {"lsn": finding.lsn, "items": finding.items, "is_compared": finding.is_compared}
