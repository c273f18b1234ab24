"""Status rows, log lines, outcomes, probes and metrics of one master. It reads and changes nothing."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from math import nan
from typing import Any, Final, NamedTuple

import structlog

from brokerha.following.leader import NEVER
from brokerha.master.belonging import is_outside
from brokerha.master.core import MasterCore
from brokerha.master.pins import lowest_back, needed_entries
from brokerha.master.split_report import source_of
from brokerha.model import states
from brokerha.model.errors import InvalidRequest
from brokerha.model.fingerprints import text_of
from brokerha.model.given_up import Split
from brokerha.model.ids import Instant, Lsn, NodeId, TxId
from brokerha.model.log_lineages import Rewinds, lineage_at, newest, rewinds_of
from brokerha.model.numbers import Numbers
from brokerha.model.operations import NO_OPERATIONS, Checked, LoggedRow, ResultRow, unpack_operations
from brokerha.model.outside.authors import author_in, author_of
from brokerha.model.reserved.branches import branch_of
from brokerha.nodes.master.journal_lines import held_from, logged_lines, of_one_lineage, told_entries
from brokerha.nodes.master.runner import MasterRunner
from brokerha.nodes.observing.hearing import MasterHearing
from brokerha.nodes.observing.probes import NO_WORKER, broker_check, check_lines, lag_check, loop_check, wire_metrics
from brokerha.nodes.observing.staleness import Staleness
from brokerha.nodes.observing.status import FIELDS, cut_off
from brokerha.ports.transport import Transport
from brokerha.replication.site.config import WorkerFeed
from brokerha.replication.site.healing import progress_of
from brokerha.sync.core import SyncCore

# ---- Each going back of a master since its start: a log line, numbers for /metrics, and fields of its status row.
#
#     goes back        split, LSN, how many were given up, number of the epoch given up, lineage, whether the content stays
#
# `note` is called after turns and reads the split book only when a lineage has begun. The entries before the first call were logged
# by the process before.

log = structlog.get_logger()


class SplitLog:
    """Compares, logs and counts; used by one thread."""

    def __init__(self, master: NodeId) -> None:
        self._master = master
        self._lineage: int | None = None
        self._count = 0
        self._given_up = 0
        self._last: Split | None = None

    def note(self, core: MasterCore) -> None:
        """Log the changes since the last call."""
        lineage = core.sync.lineage
        if self._lineage is None:
            self._lineage = lineage
        if lineage == self._lineage:
            return
        for split in core.history.splits():
            if split.lineage > self._lineage:
                self._lineage = split.lineage
                self._on_split(split)

    def _on_split(self, split: Split) -> None:
        self._count, self._given_up, self._last = self._count + 1, self._given_up + split.total, split
        tell = log.warning if split.total else log.info
        tell(
            "goes back",
            node=self._master,
            split=split.number,
            lsn=split.lsn,
            given_up=split.total,
            epoch=split.epoch,
            lineage=split.lineage,
            keeps_content=split.keeps_content,
        )

    def metrics(self) -> Numbers:
        """Return the numbers since the start."""
        return {"splits_total": self._count, "transactions_given_up_total": self._given_up}

    def fields(self, core: MasterCore) -> dict[str, Any]:
        """Return the fields of the master's status row about splits."""
        return {
            "split_recovery": core.sync.mode,
            "split_recovery_from": source_of(core.sync),
            "splits": self._count,
            "given_up": self._given_up,
            "last_split": told(self._last) if self._last is not None else "",
        }


def told(split: Split) -> str:
    """Describe one going back in words."""
    return f"went back to LSN {split.lsn:,}, {split.total:,} given up, epoch {split.epoch}"


EVERY_MS: Final = 10_000
LENGTH: Final = 361
"""Number of samples kept: an hour, including both ends."""
NAMES: Final = ("writes_per_s", "reads_per_s", "lag_entries", "lag_s", "incoming", "open", "in_doubt")
"""Columns of a sample after its number and its time."""
PAUSE: Final = 3
"""After a gap of so many intervals the rates start again: a rate over the gap would hide what happened."""
LOG_LIMIT = 10_000
"""Most lines of one answer."""
BACKUP_STATES = {"joining": states.JOINING, "catch-up": states.CATCHING_UP, "ready": states.READY, "paused": states.PAUSED}


class Sample(NamedTuple):
    """The numbers at one moment."""

    executed: Lsn
    """Number of transactions executed since the beginning of the order."""
    reads: int
    """Number of reads since the start."""
    lag_entries: int
    lag_s: float | None
    incoming: int
    open: int
    in_doubt: int


class Rates:
    """A ring in memory with one sample each ten seconds of the last hour, for the charts of the status page; used by one thread.

    A sample keeps present values unchanged, and counters as a rate per second since the sample before. A rate that cannot be
    computed (the first sample, a pause of the loop, a count that went back with the queue) is None, and the chart has a gap there.

    Must never: grow. An hour is 361 samples of seven numbers.
    """

    def __init__(self) -> None:
        self._rows: deque[tuple[Any, ...]] = deque(maxlen=LENGTH)
        self._number = 0
        self._due_ms = 0
        self._last: tuple[Sample, int] | None = None

    def is_due(self, mono_ms: int) -> bool:
        """Tell whether it is time for a sample."""
        return self._last is None or mono_ms >= self._due_ms

    def note(self, sample: Sample, now: Instant) -> None:
        """Keep a sample."""
        self._number += 1
        executed, reads, *rest = sample
        was = self._last and self._last[0]
        self._rows.append(
            (
                self._number,
                now.wall_us // 1000,
                self._per_s(executed, was and was.executed, now.mono_ms),
                self._per_s(reads, was and was.reads, now.mono_ms),
                *rest,
            )
        )
        self._last = sample, now.mono_ms
        self._due_ms = now.mono_ms + EVERY_MS

    def _per_s(self, count: int, before: int | None, mono_ms: int) -> float | None:
        if self._last is None or before is None:
            return None
        passed_ms, more = mono_ms - self._last[1], count - before
        if more < 0 or not 0 < passed_ms <= PAUSE * EVERY_MS:
            return None
        return round(more * 1000 / passed_ms, 3)

    def samples_after(self, number: int, now: Instant) -> dict[str, Any]:
        """Return ``{"every_s", "now_ms", "last", "names", "samples"}``: [number, wall-clock ms, *NAMES] after ``number``."""
        return {
            "every_s": EVERY_MS / 1000,
            "now_ms": now.wall_us // 1000,
            "last": self._number,
            "names": list(NAMES),
            "samples": [list(row) for row in self._rows if row[0] > number],
        }


def backup_row(node: NodeId, master: NodeId, state: str, reason: str) -> dict[str, Any]:
    """Return the status row of a standby; its lag is counted in records of the journal."""
    row: dict[str, Any] = dict.fromkeys(FIELDS)
    return {**row, "id": node, "role": "backup", "master": master, **_described(state, reason, ID=node)}


class MasterView:
    """Answers to questions about one master; `rows` and `outcome` belong to the loop's thread, the rest to any."""

    def __init__(
        self,
        cluster: str,
        runner: MasterRunner,
        transport: Transport,
        staleness: Staleness,
        attention: Callable[[], str] = lambda: "",
        restart_for: Callable[[], list[str]] = list,
    ) -> None:
        """``attention`` returns what a person should look at although all is well, or an empty string. ``restart_for`` returns the
        settings that wait for the next start.
        """
        self.cluster = cluster
        self._runner = runner
        self._transport = transport
        self._staleness = staleness
        self._attention = attention
        self._restart_for = restart_for
        self._rates = Rates()
        self.hearing = MasterHearing()
        self.splits = SplitLog(runner.core.sync.node)

    def rows(self, now: Instant) -> list[dict[str, Any]]:
        """Return the status rows of this master and of its workers. A site without workers applies nothing, so its lag is 0."""
        core = self._runner.core
        has_workers = bool(core.feed.workers)
        applied = core.feed.applied_by(1)
        primary = self._runner.primary
        lag = core.sync.lsn - applied if has_workers else 0
        own = {
            "id": core.sync.node,
            "role": "master",
            **_described(*self.state(), self._transport.status().remedy, MASTER=core.sync.node),
            "master": core.sync.node,
            "received_lsn": core.sync.lsn,
            "applied_lsn": applied if has_workers else None,
            "lag_entries": lag,
            "lag_s": self._lag_s(applied, lag, now),
            "stale_s": self._stale_s(now),
            "fingerprint": text_of(self._runner.journal.fingerprint_at(applied)) if has_workers else None,
            "items": max((worker.items_now for worker in core.site.workers.values()), default=None),
            "incoming": core.sync.backlog(),
            "in_doubt": core.transacting.counts(now)["in_doubt"],
            "seen_s": 0.0,
            "probe": None,
            "readable": None,
            "free_bytes": None,
            "primary": primary.role.config.process if primary is not None else core.sync.node,
            "view": core.view,
            "restart_for": tuple(self._restart_for()),
            **_epoch_fields(core.sync),
            **self.splits.fields(core),
        }
        others = [*self._backup_rows(), *(self._worker_row(worker, now) for worker in core.feed.workers.values())]
        return [own, *(others if self._transport.status().state == "connected" else map(cut_off, others))]

    def _stale_s(self, now: Instant) -> float | None:
        """Return the seconds since this master was known to be up to date; 0 while it agrees, None if it never was."""
        stale_ms = self._staleness.of(now.mono_ms).stale_ms
        return None if stale_ms is None else stale_ms / 1000

    def _backup_rows(self) -> list[dict[str, Any]]:
        """Return the rows of the standby processes."""
        primary = self._runner.primary
        if primary is None:
            return []
        return [
            {
                **backup_row(row.node, self._runner.core.sync.node, BACKUP_STATES[row.state], row.reason),
                "lag_entries": row.lag_records,
                "free_bytes": row.free_bytes or None,
                "view": self._runner.core.view,
                "primary": primary.role.config.process,
            }
            for row in primary.feed.rows()
        ]

    def state(self) -> tuple[str, str]:
        """Return the state word and reason of the whole node, broker and disk included."""
        wire = self._transport.status()
        state, reason = self._runner.state()
        if state in (states.DISK_FULL, states.HALTED, states.LOST_STATE):
            return state, reason
        if wire.state == "blocked":
            return states.BLOCKED, wire.reason
        if wire.state != "connected":
            return states.WAITING_FOR_BROKER, wire.reason
        if state not in (states.OK, states.STARTING) and self.hearing.reason:
            return state, f"{reason}; {self.hearing.reason}"
        if state == states.OK and (attention := self._attention()):
            return states.NEEDS_ATTENTION, attention
        return state, reason

    def _worker_row(self, worker: WorkerFeed, now: Instant) -> dict[str, Any]:
        core = self._runner.core
        seen_ms = now.mono_ms - worker.heard_ms
        state, reason = self._standing(worker, now)
        remedy: dict[str, str] = {}
        if state == states.UNKNOWN and (wrong := self._transport.status().set_aside.get(worker.node)):
            reason = f"{reason}; its messages are set aside: {wrong.reason}"
            remedy = {"action": wrong.remedy}
        if worker.said.is_disk_full and state not in (states.OFF, states.UNKNOWN):
            remedy = {"action": states.ACTIONS[states.DISK_FULL]}
        progress = progress_of(worker, core.site.executed, now.mono_ms)
        if progress and state != states.UNKNOWN:
            reason = f"{reason}: {progress}" if reason else progress
        lag = max(0, core.sync.lsn - worker.applied)
        return {
            "id": worker.node,
            "role": "worker",
            **_described(state, reason, ID=worker.node),
            **remedy,
            "master": core.sync.node,
            "received_lsn": worker.sent,
            "applied_lsn": worker.applied,
            "lag_entries": lag,
            "lag_s": self._lag_s(worker.applied, lag, now),
            "fingerprint": worker.fingerprint,
            "items": worker.items_now,
            "incoming": 0,
            "in_doubt": 0,
            "seen_s": seen_ms / 1000 if seen_ms < 10**9 else None,
            "probe": worker.node == core.feed.probe,
            "readable": worker.is_readable,
            "free_bytes": worker.said.free_bytes or None,
        }

    def _standing(self, worker: WorkerFeed, now: Instant) -> tuple[str, str]:
        """Return the state word and reason of a worker. Silence is normal when it is switched off, or just after a start."""
        core = self._runner.core
        site = core.site
        if not worker.is_switched_on:
            return states.OFF, "switched off" + ("" if site.is_alive(worker, now.mono_ms) else "; not heard")
        if not site.is_alive(worker, now.mono_ms):
            is_new = worker.heard_ms == NEVER
            if is_new and site.is_settling(now.mono_ms):
                return states.UNINITIALISED, "not heard yet"
            silent_s = (now.mono_ms - worker.heard_ms) / 1000
            return states.UNKNOWN, "never heard" if is_new else f"not heard for {silent_s:.0f} s"
        if worker.task and worker.is_on:
            return worker.state, f"works on {worker.task}"
        if worker.is_on and core.feed.is_held(worker):
            return worker.state, f"waits at LSN {core.feed.holds_after:,} of the split until a copy of what all sides have is kept"
        own_words = worker.progress.reason if worker.is_on and worker.progress is not None else ""
        return worker.state, worker.reason or own_words

    def _lag_s(self, applied: Lsn, lag: int, now: Instant) -> float | None:
        """Return the age in seconds of the oldest transaction that is not applied yet."""
        if lag <= 0:
            return 0.0
        oldest = self._runner.journal.ordered(applied + 1, 1)
        return max(0.0, round((now.wall_us - oldest[0][0]) / 1e6, 3)) if oldest else None

    def outcome(self, txid: TxId) -> dict[str, Any] | None:
        """Return the outcome of a transaction; None when it is unknown here."""
        return self._runner.core.transacting.outcome(txid, self._runner.clock.now())

    def log(self, first_lsn: Lsn, last_lsn: Lsn, told: Mapping[Lsn, ResultRow]) -> list[dict[str, Any]]:
        """Return lines of the synchronised queue: the contract of ``log show -o json`` (see ports.Front).

        ``told`` has the results that can still be missing in the journal, taken from the core before the lines are read here.
        """
        journal, safe = self._runner.journal, self._runner.safe_lsn
        held = journal.first_lsn()
        if first_lsn <= last_lsn < held and last_lsn:
            raise InvalidRequest(f"LSN {first_lsn} to {last_lsn} are not held any more: the first one is {held}")
        first = max(held, first_lsn)
        count = min(LOG_LIMIT, min(last_lsn or safe, safe) - first + 1)
        if count < 1:
            return []
        return of_one_lineage(journal, lambda rewinds: self._lines(first, count, rewinds, told))

    def _lines(self, first: Lsn, count: int, rewinds: Rewinds, told: Mapping[Lsn, ResultRow]) -> list[dict[str, Any]]:
        journal = self._runner.journal
        results = journal.results(first, count)
        lines = []
        ordered = zip(journal.ordered(first, count), journal.epochs(first, count), strict=False)
        for place, ((timestamp, txid, origin), epoch) in enumerate(ordered):
            body = journal.body(origin, txid)
            result = results[place] if place < len(results) else told.get(first + place)
            operations, user, kind = _operations_of(body)
            lines.append(
                {
                    "lsn": first + place,
                    "txid": txid,
                    "origin": origin,
                    "timestamp": timestamp,
                    "epoch": epoch,
                    "lineage": lineage_at(rewinds, first + place),
                    "user": user or (author_of(result[2]) if result else "") or None,
                    "kind": kind,
                    "outcome": result[0] if result else None,
                    "reason": result[1] if result else "",
                    "operations": len(operations),
                    "effect_digest": hashlib.blake2b(result[2], digest_size=16).hexdigest() if result else None,
                }
            )
        return lines

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[LoggedRow]:
        """Return the same range as lines that a store can apply, as far as results can be shown; bounded (see ports.Front)."""
        return logged_lines(self._runner.journal, first_lsn, min(last_lsn, self._runner.safe_lsn))

    def entries(self, first_lsn: Lsn, last_lsn: Lsn) -> dict[str, Any]:
        """Return the readable range of the log, and entries of a range (see ports.Front): only entries that enough backups hold."""
        journal = self._runner.journal
        core = self._runner.core
        last = min(core.site.executed, self._runner.safe_lsn)
        rows: list[Any] = []
        rewinds = rewinds_of(journal.splits())
        if 1 <= first_lsn <= last:
            rows, rewinds = told_entries(journal, first_lsn, min(last_lsn, last))
        return {
            "cluster": self.cluster,
            "first_lsn": held_from(journal),
            "last_lsn": last,
            "lineage": newest(rewinds),
            "rewinds": [list(rewind) for rewind in rewinds],
            "entries": rows,
        }

    def ready(self, is_running: bool, max_lag_entries: int | None, max_lag_s: float | None, now: Instant) -> tuple[bool, list[str]]:
        """Return whether reads can be served through this master, with a line for each check."""
        core = self._runner.core
        applied = core.feed.applied_by(1)
        lag = core.sync.lsn - applied if core.feed.workers else 0
        ages = (self._lag_s(applied, lag, now), self._stale_s(now))
        known = [age for age in ages if age is not None]
        lag_s = max(known) if len(known) == len(ages) else None
        state, reason = self.state()
        return check_lines(
            {
                "loop": loop_check(is_running),
                "master": f"{state}: {reason}" if is_outside(core.sync) else "",
                "journal": str(self._runner.failure or ""),
                "broker": broker_check(self._transport.status()),
                "worker": self._worker_check(now),
                "lag": lag_check(lag, lag_s, max_lag_entries, max_lag_s),
            }
        )

    def _worker_check(self, now: Instant) -> str:
        feed = self._runner.core.feed
        if feed.readable(now.mono_ms):
            return ""
        return "none is in sync: reads wait for one" if feed.workers else NO_WORKER

    def metrics(self, now: Instant) -> Numbers:
        """Return the numbers for /metrics."""
        core = self._runner.core
        numbers: Numbers = {
            "synchronised_lsn": core.sync.lsn,
            "executed_lsn": core.feed.executed,
            "incoming_transactions": core.sync.backlog(),
            "waiting_clients": len(core.waiters),
            "posts_total": core.sync.row_number,
            "turns_total": self._runner.turns,
            ("state_info", self.state()[0]): 1,
        }
        numbers.update(self._runner.writes.numbers("fsync_duration_seconds"))
        numbers.update(self._lag_metrics(now))
        numbers.update(self._epoch_metrics())
        numbers.update(self.splits.metrics())
        counts = core.transacting.counts(now)
        for name in ("open", "prepared", "heuristic"):
            numbers[f"transactions_{name}"] = counts[name]
        numbers["transactions_oldest_prepared_seconds"] = counts["oldest_prepared_s"]
        numbers["in_doubt_transactions"] = counts["in_doubt"]
        numbers.update(self._site_metrics(now))
        if self._runner.primary is not None:
            numbers.update(self._runner.primary.metrics(now))
        for name, count in (*core.sync.peers.ignored.items(), *core.ignored.items()):
            numbers["ignored_messages_total", name] = count
        numbers.update(wire_metrics(self._transport.status()))
        return numbers

    def _lag_metrics(self, now: Instant) -> Numbers:
        """Return how far this master and its workers have applied the order, and how much of it the other masters lack."""
        core, numbers = self._runner.core, Numbers()
        lsn, peers = core.sync.lsn, core.sync.peers
        applied = {worker.node: worker.applied for worker in core.feed.workers.values()}
        for node, at in {core.sync.node: core.feed.applied_by(1) if applied else lsn, **applied}.items():
            lag = max(0, lsn - at)
            lag_s = self._lag_s(at, lag, now)
            numbers["last_applied_entry", node] = at
            numbers["lag_entries", node] = lag
            # The next entry is no longer held, so its age is unknown.
            numbers["lag_seconds", node] = nan if lag_s is None else lag_s
        for node in (*peers.peers, *peers.outside):
            numbers["backlog_entries", node] = max(0, lsn - peers.lsn_of(node))
        stale_s = self._stale_s(now)
        numbers["stale_seconds"] = nan if stale_s is None else stale_s
        return numbers

    def note_rates(self, reads: int, now: Instant) -> None:
        """Keep a sample for the status page when one is due; ``reads`` is their number so far. Called by the loop each turn."""
        if not self._rates.is_due(now.mono_ms):
            return
        core = self._runner.core
        applied = core.feed.applied_by(1)
        lag = core.sync.lsn - applied if core.feed.workers else 0
        counts = core.transacting.counts(now)
        self._rates.note(
            Sample(
                core.feed.executed,
                reads,
                lag,
                self._lag_s(applied, lag, now),
                core.sync.backlog(),
                counts["open"],
                counts["in_doubt"],
            ),
            now,
        )

    def rates(self, after: int) -> dict[str, Any]:
        """Return the samples after number ``after`` for the status page; from any thread."""
        return {"master": self._runner.core.sync.node, **self._rates.samples_after(after, self._runner.clock.now())}

    def _epoch_metrics(self) -> Numbers:
        sync = self._runner.core.sync
        numbers: Numbers = {
            "epoch": sync.epoch.number,
            "epoch_masters": len(sync.epoch.configuration.masters),
            "epoch_members": len(sync.epoch.members),
            "epoch_excluded": len({*sync.epoch.configuration.masters}.difference(sync.epoch.members)),
            "epoch_frozen": sync.is_frozen(),
        }
        for node in sync.epoch.configuration.masters:
            numbers["epoch_member", node] = node in sync.epoch.members
        return numbers

    def _site_metrics(self, now: Instant) -> Numbers:
        core, journal = self._runner.core, self._runner.journal
        pins = core.pins.live(now.wall_us)
        numbers: Numbers = {
            "workers_in_sync": len(core.site.in_sync(now.mono_ms)),
            "workers_needed": core.site.needed,
            "read_only": bool(core.site.read_only_reason(now.mono_ms)),
            "sites_differing": len(core.sites.differing),
            "pins_dropped": len(core.dropped_pins),
            "pins": len(pins),
            "pinned_entries": max((core.sync.lsn - lsn + 1 for _, lsn, _ in pins), default=0),
            "log_needed_entries": needed_entries(core, now),
            "log_limit_entries": core.config.retention.most,
            "split_back_lsn": lowest_back(core) or 0,
            "tasks_running": sum(row["state"] == "running" for row in core.tasks.rows(now.mono_ms)),
            "journal_first_lsn": journal.first_lsn(),
            "journal_results_first_lsn": journal.results_from(),
        }
        for worker in core.feed.workers.values():
            node = worker.node
            is_alive = core.feed.is_alive(node, now.mono_ms)
            numbers["worker_applied_lsn", node] = worker.applied
            numbers["worker_alive", node] = is_alive
            numbers["worker_in_sync", node] = worker.is_on and is_alive
            # Each counter must be there from the start; the part that counts replaces the zero.
            numbers["worker_loads_total", node] = numbers["worker_out_of_sync_total", node] = 0
            numbers["worker_probe", node] = node == core.feed.probe
            loading = worker.progress
            numbers["worker_load_done_bytes", node] = loading.done_bytes if loading is not None else 0
            numbers["worker_load_total_bytes", node] = loading.total_bytes if loading is not None else 0
        return numbers


def _epoch_fields(sync: SyncCore) -> dict[str, Any]:
    """Return the fields of a status row about the epoch that this master is in, which is not always the latest one."""
    epoch = sync.epoch
    return {
        "epoch": epoch.number,
        "proposer": epoch.proposer,
        "members": list(epoch.members),
        "excluded": sorted({*epoch.configuration.masters}.difference(epoch.members)),
        "masters": list(epoch.configuration.masters),
    }


def _described(state: str, reason: str, remedy: str = "", **names: str) -> dict[str, str]:
    """Return state, reason and action, with the name of the node in the commands of the action."""
    row = states.describe(state, reason, remedy if state == states.WAITING_FOR_BROKER else "")
    for placeholder, name in names.items():
        row["action"] = row["action"].replace(f" {placeholder}", f" {name}")
    return row


def _operations_of(body: bytes | None) -> tuple[list[Checked], str, str]:
    """Return the operations of a body, its author, and its kind in one word; nothing for a body that is no longer held."""
    if body == NO_OPERATIONS:
        return [], "", "forget-ids"
    branch = branch_of(body) if body is not None else None
    packed = body if branch is None else branch.body
    operations = unpack_operations(packed) if packed else []
    if user := author_in(operations):
        del operations[-1]
    kinds = {operation.kind for operation in operations}
    what = branch.step if branch is not None else kinds.pop() if len(kinds) == 1 else "transaction"
    return operations, user, what
