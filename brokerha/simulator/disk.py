"""Simulated disks: a journal that may be slow or full and at which a process may die, and a store with the same habits.

What `append` returned for is durable; what was deferred a crash loses. A crash inside it leaves the turn wholly there or wholly absent, and a process that
starts again finds exactly that. Nothing here can be half written: torn writes are the real journal's business and are
tested there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from brokerha.journal.memory_content import JournalImage
from brokerha.journal.memory_journal import MemoryJournal
from brokerha.journal.memory_journal_copy import MemoryJournalCopy
from brokerha.model.errors import JournalFull
from brokerha.model.invariants import invariant
from brokerha.model.ready import (
    BeginLoad,
    CopyDecision,
    Decision,
    KeepChunk,
    LoadFailed,
    LoadOpened,
    MakeSnapshot,
    OpenLoad,
    SnapshotMade,
    StoreAnswer,
    StoreDecision,
    StoreFailed,
)
from brokerha.model.records import Record
from brokerha.nodes.copying import carry_out_copy
from brokerha.nodes.worker_runner import carry_out
from brokerha.stores.memory_copy import MemoryCopy

if TYPE_CHECKING:
    from brokerha.simulator.backups import SimProcess
    from brokerha.simulator.processes import SimMaster, SimWorker


class SimJournal(MemoryJournal):
    """The journal of a simulated process of a master."""

    process: SimMaster | SimProcess
    """Who writes it; set when a process opens it."""
    last_turn: Sequence[Record] = ()
    """The records written last."""
    _numbers: tuple[int, ...] = ()
    """Their numbers, where they are those of another process."""
    waiting: tuple[Record, ...] = ()
    """What is deferred."""

    def append(self, records: Sequence[Record]) -> None:
        """Write a turn, in its virtual time, with a chance to die before or after it became durable."""
        self._numbers = ()
        self._write(records, "writes", lambda: MemoryJournal.append(self, records))

    def defer(self, records: Sequence[Record]) -> None:
        """Take records that a crash loses; it takes no time."""
        process = self._reach(records, records)
        try:
            super().defer(records)
        except JournalFull:
            self._lose()
            raise
        process.world.trace.note(process.world.now_us, process.node, "defers", list(records))
        self.waiting = (*self.waiting, *records)
        process.world.checkers.on_deferred(process, records)
        process.world.faults.on_deferred(process)
        self.last_turn = records

    def _lose(self) -> None:
        if self.waiting:
            self.waiting = ()
            self.process.world.checkers.on_lost(self.process)

    def follow(self, records: Sequence[tuple[int, Record]]) -> None:
        """Write records of another process, with the same habits."""
        plain = [record for _, record in records]
        self._numbers = tuple(number for number, _ in records)
        self._write(plain, "follows", lambda: MemoryJournal.follow(self, records))

    def promise(self, view: int) -> None:
        """Promise to a view, with the same habits; no record says so."""
        process = self._reach(f"view {view}", ())
        super().promise(view)
        process.world.trace.note(process.world.now_us, process.node, "promises", f"view {view}")
        process.world.checkers.on_promise(process, view)
        process.reach("append there", ())
        process.spend_write()

    def _write(self, records: Sequence[Record], verb: str, write: Callable[[], None]) -> None:
        records = (*self.waiting, *records)
        process = self._reach(records, records)
        try:
            write()
        except JournalFull:
            self._lose()
            raise
        self.waiting = ()
        process.world.trace.note(process.world.now_us, process.node, verb, list(records))
        self.last_turn = records
        self.flush(records)
        process.reach("append there", records)
        process.spend_write()

    def _reach(self, what: object, records: Sequence[Record]) -> SimMaster | SimProcess:
        """The moment before a write: the disk may be full, and the process may die."""
        process = self.process
        self.is_full = process.is_disk_full
        if self.is_full:
            process.world.faults_seen["write refused by a full disk"] += 1
            noted = list(records) if records else what
            process.world.trace.note(process.world.now_us, process.node, "disk full", noted)
        process.reach("append absent", records)
        return process

    def flush(self, records: Sequence[Record]) -> None:
        """The fsync: from here on the records are durable."""
        self.process.world.checkers.on_durable(self.process, records, self._numbers)

    def survivor(self) -> SimJournal:
        """The journal that the next start finds."""
        journal = SimJournal.from_image(self.image())
        invariant(isinstance(journal, SimJournal), "from_image builds its own class")
        return cast("SimJournal", journal)


class SimJournalCopy(MemoryJournalCopy):
    """The journal of a simulated process of a master with the place where it lives; its journals are `SimJournal`s."""

    @property
    def journal(self) -> SimJournal:
        """The present journal; another object after `open_load`."""
        return cast("SimJournal", self._journal)

    def exchanged(self, image: JournalImage) -> SimJournal:
        """The loaded journal, written by the process that wrote the old one."""
        journal = cast("SimJournal", SimJournal.from_image(image))
        journal.process = self.journal.process
        return journal

    def _check_space(self) -> None:
        self.journal.is_full = self.journal.process.is_disk_full
        super()._check_space()

    def survivor(self) -> SimJournalCopy:
        """What the next start finds: the journal, and what was loaded so far; snapshots are gone."""
        copy = SimJournalCopy(self.journal.survivor(), chunk_bytes=self._chunk_bytes)
        copy._load = self.image().load
        return copy


class SimDoor:
    """`StoreDoor` of a simulated worker: one decision at a time that writes the store, others beside it in their order."""

    def __init__(self, process: SimWorker, copy: MemoryCopy) -> None:
        self.copy = copy
        self._process = process
        self._answers: list[StoreAnswer] = []
        self._free_us = 0
        """When the work beside the store is done that was begun so far."""

    def begin(self, decision: Decision) -> None:
        """Start carrying a decision out."""
        process = self._process
        process.world.checkers.on_decision(process.node, decision)
        process.world.trace.note(process.world.now_us, process.node, "begins", type(decision).__name__)
        at_us = process.world.now_us + process.write_us()
        if not isinstance(decision, StoreDecision):
            at_us = self._free_us = max(at_us, self._free_us + 1)
        process.world.at(at_us, self._finish, process.life, decision)

    def _finish(self, life: int, decision: Decision) -> None:
        process = self._process
        if life == process.life:
            process.guarded(self._carry_out, decision)

    def _carry_out(self, decision: Decision) -> None:
        process = self._process
        if isinstance(decision, StoreDecision):
            self._answers.append(self._store(decision))
        else:
            answer = self._beside(decision)
            if answer is not None:
                self._answers.append(answer)
        process.world.trace.note(process.world.now_us, process.node, "finishes", type(decision).__name__)
        process.wake()

    def _store(self, decision: StoreDecision) -> StoreAnswer:
        process = self._process
        if process.is_disk_full:
            process.world.faults_seen["write refused by a full disk"] += 1
            return StoreFailed("the disk is full")
        process.reach("store absent", ())
        answer = carry_out(self.copy, decision)
        process.world.checkers.on_store(process.node, self.copy, answer)
        process.reach("store there", ())
        return answer

    def _beside(self, decision: CopyDecision) -> StoreAnswer | None:
        process = self._process
        if process.is_disk_full and isinstance(decision, BeginLoad | KeepChunk | OpenLoad | MakeSnapshot):
            process.world.faults_seen["write refused by a full disk"] += 1
            if isinstance(decision, MakeSnapshot):
                return SnapshotMade(decision.snapshot, 0, "", 0, 0, (), "the disk is full")
            return LoadFailed("the disk is full")
        process.reach("copy absent", (decision,))
        answer = carry_out_copy(self.copy, decision)
        if isinstance(answer, LoadOpened):
            process.world.faults_seen["snapshot loaded"] += 1
            process.world.checkers.on_loaded(process, self.copy)
            process.scrub_soon()
        elif isinstance(answer, LoadFailed):
            process.world.faults_seen["load failed"] += 1
        if isinstance(answer, SnapshotMade):
            process.scrub_soon()
        process.world.checkers.on_copy(process.node, self.copy, decision)
        process.reach("copy there", (decision,))
        return answer

    def finished(self) -> list[StoreAnswer]:
        """Answers that came since the last call."""
        answers, self._answers = self._answers, []
        return answers
