"""Planted mistakes about workers: followers, loads, snapshots, judgement; for `catalogue.py`, which makes them.

Like those of masters each switches off one rule in the shipped code, and the simulator has to notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from brokerha.following import follower as follower_module
from brokerha.following.follower import Follower
from brokerha.following.line import Line, Piece, piece
from brokerha.following.loading import Loading
from brokerha.following.machine import Event, State
from brokerha.following.offering import Offering
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.ready import CopyDecision, StoreFailed
from brokerha.model.records import History
from brokerha.model.wire.messages import Message, Outgoing, Progress
from brokerha.ports.copies import Snapshot
from brokerha.replication.site import adopting as adopting_module
from brokerha.replication.site import site as site_module
from brokerha.replication.site.config import WorkerFeed
from brokerha.replication.site.feed import Feed
from brokerha.replication.site.judging import Verdict, verdict
from brokerha.replication.site.site import Site
from brokerha.replication.worker.core import WorkerCore
from brokerha.stores.copies.directory import CopyDirectory
from brokerha.stores.copies.snapshots import Load
from brokerha.stores.copies.worker_copy import WorkerCopy
from brokerha.stores.execution import batch as batch_module
from brokerha.stores.execution import worker_store as worker_store_module
from brokerha.stores.execution.batch import Batch
from brokerha.stores.execution.effects_log import EffectsLog
from brokerha.stores.rdf.change import QuadChange
from brokerha.stores.rdf.repositories import Repositories, Repository
from tests.simulation.mistakes.patches import Patch, always, nothing

# The replacements below take ``self`` of classes whose insides they must touch.


def _nowhere(*_arguments: object) -> tuple[NodeId, ...]:
    return ()


def _no_reason(*_arguments: object) -> str:
    return ""


def _keep_any_chunk(self: Load, directory: Path, number: int, data: bytes) -> bool:
    place = self.chunks.place(number)
    assert place is not None
    with (directory / place.path).open("r+b") as file:
        file.seek(place.offset)
        file.write(data)
    self.kept.add(number)
    return True


def _open_early(self: Loading) -> None:
    if len(self._kept) + 1 >= len(self._sizes):
        self._kept = set(range(len(self._sizes)))
    _open_when_whole(self)


_open_when_whole = Loading._open_when_whole


def _open_what_is_there(_self: Load, _directory: Path) -> None:
    return


def _empty_before_loading(self: WorkerCopy, name: str, snapshot: Snapshot) -> set[int]:
    number = self._directory.next_number()
    store = self._opened(number)
    self._switch_pointer(number, store)
    self._replaced_by(store).replace()
    return _begin_load(self, name, snapshot)


_begin_load = WorkerCopy.begin_load


def _snapshot_of_two_moments(self: WorkerCopy, name: str) -> Snapshot:
    made = _make_snapshot(self, name)
    return made._replace(lsn=max(0, made.lsn - 1))


_make_snapshot = WorkerCopy.make_snapshot


def _never_ask_again(self: Loading, now: Instant) -> tuple[list[Outgoing], list[CopyDecision]]:
    self._in_flight = dict.fromkeys(self._in_flight, now.mono_ms)
    if self._in_flight:
        self._heard_ms = now.mono_ms
    return _take(self, now)


_take = Loading.take


def _ask_for_everything(self: Loading, now: Instant) -> None:
    config, self.config = self.config, replace(self.config, window=1000)
    _fetch(self, now)
    self.config = config


_fetch = Loading._fetch


def _go_on_when_told_to_stop(self: Follower, event: Event) -> None:
    if event is not Event.PAUSED:
        _change(self, event)


_change = Follower.change


def _take_next(self: Line, came: Piece) -> int:
    return _add(self, piece(min(came.after, self.end) + 1, came.items, came.sizes, came.kind))


_add = Line.add


def _keep_confirmed(self: Site, worker: WorkerFeed, progress: Progress, mono_ms: int) -> None:
    before = worker.applied
    _on_progress(self, worker, progress, mono_ms)
    worker.applied = max(before, worker.applied)


_on_progress = Site.on_progress


def _old_turn(self: Feed, mono_ms: int) -> None:
    before = self._turn_ends
    _choose_probe(self, mono_ms)
    self._turn_ends = before or self._turn_ends


_choose_probe = Feed._choose_probe


def _in_log_or_not(history: History, lsn: int, executed: int, applied: int, fingerprint: str) -> tuple[Verdict, str]:
    found = verdict(history, lsn, executed, applied, fingerprint)
    return (Verdict.FOUND, "") if found[0] is Verdict.NOT_IN_LOG else found


def _never(*_: object) -> int:
    return 0


def _forgive(self: Site, worker: WorkerFeed, mono_ms: int) -> None:
    worker.condemned = ""
    _judge(self, worker, mono_ms)


_judge = Site.judge


def _linger_for_company(self: Feed, probe: WorkerFeed, sent: int, mono_ms: int, _due_ms: int | None) -> bool:
    return _lingers(self, probe, sent, mono_ms, 2**62)


_lingers = Feed._lingers


def _linger_again(self: Feed, _probe: WorkerFeed, sent: int, mono_ms: int, due_ms: int | None) -> bool:
    due_ms = mono_ms + self.config.linger_ms if due_ms is None else due_ms
    if self.awaited_lsn > sent or sent < self.executed or mono_ms >= due_ms:
        return False
    self.lingers_after, self._linger_due_ms = sent, due_ms
    return True


def _shrug(self: WorkerCore, failed: StoreFailed, now: Instant) -> None:
    _on_failed(self, replace(failed, is_damage=False), now)


_on_failed = WorkerCore._on_failed


def _refuse_nobody(_self: WorkerCore, _message: Message) -> str:
    return ""


WORKER_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "chunks not checked": lambda: [(Load, "keep", _keep_any_chunk)],
    "opened with a chunk missing": lambda: [(Loading, "_open_when_whole", _open_early), (Load, "finish", _open_what_is_there)],
    "old copy deleted before the new one is open": lambda: [(WorkerCopy, "begin_load", _empty_before_loading)],
    "snapshot of two moments": lambda: [(WorkerCopy, "make_snapshot", _snapshot_of_two_moments)],
    "source in trouble gives its copy": lambda: [(WorkerCore, "_refusal", _refuse_nobody), (Offering, "forget_all", nothing)],
    "lost chunks not asked for again": lambda: [(Loading, "take", _never_ask_again)],
    "window of chunks ignored": lambda: [(Loading, "_fetch", _ask_for_everything)],
    "records taken while loading": lambda: [(follower_module, "FOLLOWING", frozenset(State))],
    "order to stop ignored": lambda: [(Follower, "change", _go_on_when_told_to_stop)],
    "gap taken as next": lambda: [(Line, "add", _take_next)],
    "damaged copy read": lambda: [(WorkerCore, "may_be_read", property(always))],
    "damage forgotten at a restart": lambda: [(WorkerCopy, "condemn", nothing)],
    "differing copy kept": lambda: [(WorkerCore, "_on_failed", _shrug)],
    "condemned copy forgiven": lambda: [(Site, "judge", _forgive)],
    "confirmed LSN of the old copy kept": lambda: [(Site, "on_progress", _keep_confirmed)],
    "read-only rule ignored": lambda: [(Site, "read_only_reason", _no_reason)],
    "writes refused for ever": lambda: [(Site, "read_only_reason", lambda *_: "0 workers in sync, writes need 1")],
    "good copy replaced": lambda: [(site_module, "should_copy", always)],
    "log trimmed under a copy that is not replaced": lambda: [(site_module, "verdict", _in_log_or_not)],
    "first worker of a site taken as it is": lambda: [(site_module, "cut_off", _never)],
    "results not begun with the first worker": lambda: [(adopting_module, "cut_off", _never)],
    "no copy taken from other sites": lambda: [(site_module, "foreign_sources", _nowhere)],
    "missing results not fetched": lambda: [(Site, "fill", nothing)],
    "what lingers waits for more for ever": lambda: [(Feed, "_lingers", _linger_for_company)],
    "results asked for again linger": lambda: [(Feed, "_lingers", _linger_again)],
    "next probe has no turn": lambda: [(Feed, "_choose_probe", _old_turn)],
}
"""Every mistake about workers, by what goes wrong."""


def _only_say_so(self: Repositories, lsn: Lsn) -> None:
    for repository in self.listed.values():
        repository.is_dirty = False
        repository.flushed_position = repository.engine.position
        repository.base_lsn = lsn


def _keep_less(self: EffectsLog, transaction: Any, first_lsn: Lsn, lines: Sequence[Any]) -> None:
    _append(self, transaction, first_lsn, lines[:-1] if len(lines) > 1 else lines)


def _leave_digest(self: Batch, repository: Repository, change: QuadChange) -> None:
    before = repository.digest
    _include(self, repository, change)
    repository.digest = before


def _clear_in_place(self: Batch, before: Repository, empty: Repository) -> None:
    self._count((before.digest, -before.items))
    before.digest, before.items = empty.digest, empty.items


_append = EffectsLog.append
_include = Batch._include


STORE_MISTAKES: dict[str, Callable[[], list[Patch]]] = {
    "place not written with the data": lambda: [(batch_module, "write_state", nothing)],
    "engines not brought up at a start": lambda: [(worker_store_module, "bring_up", nothing)],
    "engines said to be flushed": lambda: [(Repositories, "flush", _only_say_so)],
    "digest of a repository not carried along": lambda: [(Batch, "_include", _leave_digest)],
    "emptied repository keeps its files": lambda: [(Batch, "_clear", _clear_in_place)],
    "last line of a batch not logged": lambda: [(EffectsLog, "append", _keep_less)],
    "pointer not replaced": lambda: [(CopyDirectory, "point_to", nothing)],
}
"""Every mistake in the store, by what goes wrong."""
