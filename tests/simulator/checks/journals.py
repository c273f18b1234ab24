"""Checks of masters with backups: the primary, the journals of all processes, and the safe records.

For each master there is one **line**: the writer of each record by (view, number), and the records that each process holds. A
record is **safe** when `sync-n` processes besides the primary, all obeying its view, hold it. Only then it enters the mirrors of
truth.py, so every check of a message or reply also checks the promise of sync-N. The names are those of
brokerha/replication/PROTOCOL.md, sections 9 and 10, and

    P1   one primary for each view, one view at a time begins
    P2   every later primary has all safe records in its journal
    P3   a promise is durable before it is told, survives restarts, and no process obeys an older view
    P5   at the end there is one primary, and all backups are ready
    J1   equal (view, number), equal records, bodies included
    J2   a journal ends with whole turns: never a decision without its prepare record
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from brokerha.model.ids import NodeId, TxId
from brokerha.model.records import Accepted, Record, TxDecided, TxPrepared, ViewStarted
from brokerha.model.wire.messages import Outgoing
from brokerha.model.wire.process_messages import Candidate, Confirmed, TxAnswer, Vote
from brokerha.transactions.locks import accepted_in_body
from brokerha.transactions.states import Phase
from tests.simulator.backups import SimGroup, SimProcess
from tests.simulator.checks.truth import Truth, check

PATIENCE_US = 2_000
"""Clocks of processes count whole milliseconds."""


@dataclass(slots=True)
class Line:
    """The journal of one master, as held by all its processes together."""

    group: SimGroup
    written: dict[tuple[int, int], Record] = field(default_factory=dict)
    """By view and number."""
    views: dict[int, NodeId] = field(default_factory=dict)
    """Views that were started, with their primaries."""
    safe: list[int] = field(default_factory=list)
    """View of each safe record; its number is its position, from 1."""
    acknowledged: dict[int, dict[NodeId, int]] = field(default_factory=dict)
    """By view and process: length of the primary's journal at an obeying process."""
    held: dict[NodeId, list[int]] = field(default_factory=dict)
    """View of each record that a process holds."""
    promised: dict[NodeId, int] = field(default_factory=dict)
    asked: dict[TxId, tuple[TxPrepared, int, int]] = field(default_factory=dict)
    """Prepare records, with time and incarnation of their writing: a rebuilt primary finds them in its journal."""
    parted: dict[TxId, set[NodeId]] = field(default_factory=dict)
    """By prepare record: participants that were not ready at some moment since then; they count as lost."""
    began_us: int = 0
    """When the last view began."""
    halves: dict[NodeId, set[TxId]] = field(default_factory=dict)
    """Decisions that a process holds without the decided transaction."""
    prepared: dict[NodeId, set[TxId]] = field(default_factory=dict)
    """Transactions whose prepare record a process holds, or held."""

    @property
    def view(self) -> int:
        """The acting view: the highest one that was started."""
        return max(self.views, default=0)

    @property
    def needed(self) -> int:
        """Number of processes that must hold a safe record."""
        return self.group.sync_n + 1


class JournalChecks:
    """Every master with backups in a world."""

    def __init__(self, truth: Truth, on_safe: Callable[[NodeId, Sequence[Record]], None]) -> None:
        self._truth = truth
        self._on_safe = on_safe
        self._lines = {group.node: self._new_line(group) for group in truth.world.groups}

    @staticmethod
    def _new_line(group: SimGroup) -> Line:
        names = [process.node for process in group.processes]
        return Line(
            group,
            held={name: [] for name in names},
            promised=dict.fromkeys(names, 0),
            halves={name: set() for name in names},
            prepared={name: set() for name in names},
        )

    def line_of(self, process: SimProcess) -> Line:
        """Return the line of a process's master."""
        return self._lines[process.group.node]

    # ---- records

    def on_appended(self, process: SimProcess, records: Sequence[Record]) -> None:
        """Check a turn that a primary wrote."""
        line, node = self.line_of(process), process.node
        held = line.held[node]
        for record in records:
            if isinstance(record, ViewStarted):
                self._on_view(line, node, record)
            view = record.view if isinstance(record, ViewStarted) else (held[-1] if held else 0)
            held.append(view)
            place = view, len(held)
            check(line.views.get(view) == node, "P1", "only its primary writes in a view", node=node, view=view)
            check(place not in line.written, "J1", "a number is written once in a view", node=node, place=place)
            line.written[place] = record
            if isinstance(record, TxPrepared):
                line.asked[record.txid] = record, self._truth.world.now_us, _incarnation(process)
            elif isinstance(record, TxDecided) and record.is_commit:
                self._on_decision(line, process, record.txid)
        self._settle(line, node, records)

    def _on_decision(self, line: Line, process: SimProcess, txid: TxId) -> None:
        """Check a primary's commit: every participant that is not lost has it prepared, and so have enough others."""
        asked, asked_us, incarnation = line.asked.get(txid, (None, 0, 0))
        runner = process.runner.master
        if asked is None or not asked.participants or runner is None or runner.primary is None:
            return
        having = [name for name, held in line.prepared.items() if txid in held and name != process.node]
        enough = line.group.sync_n
        check(len(having) >= enough, "T1", "decided when enough have it prepared", txid=txid, having=having)
        is_patient = self._truth.world.now_us - asked_us < runner.config.tx.prepare_ms * 1000 - PATIENCE_US
        ready = set(asked.participants) & set(runner.primary.feed.ready()) - set(having) - line.parted.pop(txid, set())
        is_new = line.views.get(line.view) == process.node and asked_us > line.began_us
        is_new = is_new and incarnation == _incarnation(process)
        check(not (ready and is_patient and is_new), "T1", "decided when all have it prepared", txid=txid,
              lacking=sorted(ready))  # fmt: skip

    def after_turn(self, process: SimProcess) -> None:
        """Check that prepared transactions keep their locks, whichever process is primary."""
        runner = process.runner.master
        if runner is None or runner.failure:
            return
        book = runner.core.transacting.coordinator.book
        line = self.line_of(process)
        ready = set(runner.primary.feed.ready()) if runner.primary is not None else set()
        for txid, each in book.table.items():
            if txid in line.asked and not ready.issuperset(each.participants):
                line.parted.setdefault(txid, set()).update(set(each.participants) - ready)
            if each.phase is Phase.PREPARED and txid in line.asked:
                for queue, message in accepted_in_body(line.asked[txid][0].body):
                    holder = book.locks.holder(queue, message)
                    check(holder == txid, "T3", "what is prepared keeps its locks", node=process.node, txid=txid,
                          queue=queue, message=message, holder=holder)  # fmt: skip

    def _on_view(self, line: Line, node: NodeId, record: ViewStarted) -> None:
        known = line.views.get(record.view)
        check(known is None, "P1", "a view is started once", node=node, view=record.view, before=known)
        check(record.process == node, "P1", "a process starts its own view", node=node, record=record)
        check(record.view > max(line.held[node], default=0), "P1", "views grow", node=node, view=record.view)
        promised = line.promised[node]
        check(promised >= record.view, "P3", "promised before it acts", node=node, view=record.view, promised=promised)
        held = line.held[node][: len(line.safe)]
        check(held == line.safe, "P2", "a primary begins with all that is safe", node=node, view=record.view,
              held=len(line.held[node]), safe=len(line.safe))  # fmt: skip
        line.views[record.view] = node
        line.began_us = self._truth.world.now_us

    def on_followed(self, process: SimProcess, records: Sequence[Record], numbers: Sequence[int]) -> None:
        """Check records that a backup wrote after its primary."""
        line, node = self.line_of(process), process.node
        held = line.held[node]
        for number, record in zip(numbers, records, strict=True):
            # Records that the primary no longer has leave a gap.
            held.extend([held[-1] if held else 0] * (number - 1 - len(held)))
            view = record.view if isinstance(record, ViewStarted) else (held[-1] if held else 0)
            held.append(view)
            written = line.written.get((view, number))
            check(record == written, "J1", "a backup has the records of its primary", node=node, view=view,
                  number=number, here=record, there=written)  # fmt: skip
        self._settle(line, node, records)

    def _settle(self, line: Line, node: NodeId, records: Sequence[Record]) -> None:
        halves = line.halves[node]
        for record in records:
            if isinstance(record, TxDecided) and record.is_commit:
                halves.add(record.txid)
            elif isinstance(record, Accepted):
                halves.difference_update(txid for txid, _ in record.items)
            elif isinstance(record, TxPrepared):
                line.prepared[node].add(record.txid)
        check(not halves, "J2", "a decision comes with what it decides", node=node, txids=sorted(halves))
        self._look_for_safe(line, node)

    def _look_for_safe(self, line: Line, node: NodeId) -> None:
        """Find records that became safe by a write of a process, in a view that it obeys."""
        for view, primary in line.views.items():
            whole = line.held[primary]
            if view < line.promised[node] or not whole or whole[-1] != view:
                continue
            acknowledged = line.acknowledged.setdefault(view, dict.fromkeys(line.held, 0))
            acknowledged[node] = max(acknowledged[node], _common(line.held[node], whole))
            safe = sorted(acknowledged.values(), reverse=True)[line.needed - 1]
            # Records older than the view count only together with its beginning.
            if safe > len(line.safe) and whole[safe - 1] == view:
                self._is_safe(line, whole[:safe])

    def _is_safe(self, line: Line, safe: list[int]) -> None:
        begin = len(line.safe)
        check(safe[:begin] == line.safe, "P6", "what is safe grows", master=line.group.node, view=safe[-1])
        line.safe = safe
        places = ((safe[number - 1], number) for number in range(begin + 1, len(safe) + 1))
        records = [record for place in places if (record := line.written.get(place)) is not None]
        self._on_safe(line.group.node, records)

    def holds_safe_only(self, process: SimProcess) -> bool:
        """Tell whether all records in the journal of a process are safe."""
        line = self.line_of(process)
        held = line.held[process.node]
        return held == line.safe[: len(held)]

    # ---- processes

    def on_start(self, process: SimProcess) -> None:
        """Check that a process finds its durable state."""
        line, state = self.line_of(process), process.journal.state()
        promised = line.promised[process.node]
        check(state.promised_view == promised, "P3", "a promise outlives its process", node=process.node,
              found=state.promised_view, promised=promised)  # fmt: skip
        held = len(line.held[process.node])
        check(state.last_number == held, "J1", "records are kept", node=process.node, found=state.last_number, held=held)

    def on_promise(self, process: SimProcess, view: int) -> None:
        """Check a promise of a process to a view."""
        promised = self.line_of(process).promised
        check(view > promised[process.node], "P3", "promises grow", node=process.node, view=view)
        promised[process.node] = view

    def on_loaded(self, process: SimProcess) -> None:
        """Check a replaced journal: a primary wrote every record of it at this place."""
        line, state = self.line_of(process), process.journal.state()
        held: list[int] = []
        bounds = [*state.views, (0, state.last_number + 1)]
        for (view, first), (_, following) in pairwise(bounds):
            held.extend([view] * (following - first))
        line.held[process.node] = held
        for number, record in process.journal.records():
            written = line.written.get((held[number - 1], number))
            check(record == written, "J1", "a loaded journal has the records of its primary", node=process.node,
                  number=number, here=record, there=written)  # fmt: skip
            if isinstance(record, TxPrepared):
                line.prepared[process.node].add(record.txid)
        kept = state.promised_view >= line.promised[process.node]
        check(kept, "P3", "a promise outlives a load", node=process.node, found=state.promised_view)
        line.halves[process.node].clear()
        self._look_for_safe(line, process.node)

    def on_emptied(self, process: SimProcess) -> None:
        """Note that a process lost its directory."""
        line = self.line_of(process)
        line.held[process.node], line.promised[process.node] = [], 0
        line.halves[process.node].clear()

    def may_be_emptied(self, process: SimProcess) -> bool:
        """Tell whether losing this directory loses no safe record and no valid promise, because others hold all."""
        line = self.line_of(process)
        others = [name for name in line.held if name != process.node]
        is_quiet = all(promised <= line.view for promised in line.promised.values()) and bool(line.safe)
        is_quiet = is_quiet and line.safe[-1] == line.view and line.views[line.view] != process.node
        return is_quiet and all(line.held[name][: len(line.safe)] == line.safe for name in others)

    # ---- messages

    def on_message(self, process: SimProcess, outgoing: Outgoing) -> None:
        """Check a message of a process to another one of its master."""
        message, node, line = outgoing.message, process.node, self.line_of(process)
        promised = line.promised[node]
        match message:
            case Confirmed():
                is_right = message.view >= promised
                check(is_right, "P3", "nobody obeys an older view", node=node, view=message.view, promised=promised)
                view, number = message.last
                held = line.held[node][number - 1] if 0 < number <= len(line.held[node]) else view if not number else -1
                check(held == view, "J1", "confirms what is durable", node=node, last=message.last)
            case Vote(is_granted=True):
                check(message.promised <= promised, "P3", "votes for what it promised", node=node, view=message.view)
                check(message.view <= promised, "P3", "a vote is a promise", node=node, view=message.view)
            case Candidate():
                last = line.held[node][-1] if line.held[node] else 0
                check(message.last[0] <= max(last, 1), "J1", "stands with what is durable", node=node, last=message.last)
            case TxAnswer(answer="prepared"):
                is_there = message.txid in line.prepared[node]
                check(is_there, "T1", "prepared is said of what is durable", node=node, txid=message.txid)
            case _:
                pass

    # ---- the end

    def what_is_missing(self) -> str:
        """Return why a master is not complete; empty when all are."""
        for line in self._lines.values():
            group = line.group
            if len(group.acting) != 1:
                return f"{group.node} has {len(group.acting)} primaries"
            acting = group.acting[0]
            primary = group.runner.primary
            if primary is None or len(primary.feed.ready()) < len(group.processes) - 1:
                rows = primary.feed.rows() if primary is not None else ()
                return f"backups of {acting.node} are not ready: {rows}"
            if len(line.safe) < acting.journal.last_number:
                return f"{acting.node} has {acting.journal.last_number} records, {len(line.safe)} are safe"
            for node, held in line.held.items():
                if held != line.safe:
                    return f"{node} has other records than {acting.node}: {len(held)}, and {len(line.safe)} are safe"
        return ""

    def at_the_end(self) -> None:
        """J1, P5: check that every journal equals that of the primary."""
        for line in self._lines.values():
            for node, held in line.held.items():
                check(held == line.safe, "J1", "all journals are equal", node=node, held=len(held), safe=len(line.safe))


def _common(one: list[int], other: list[int]) -> int:
    """Return the length of the common beginning: a view has one primary, so one number with equal views is enough."""
    common = min(len(one), len(other))
    while common and one[common - 1] != other[common - 1]:
        common -= 1
    return common


def _incarnation(process: SimProcess) -> int:
    """Return the incarnation of the core that a process runs as primary; 0 without one."""
    runner = process.runner.master
    return runner.core.sync.incarnation if runner is not None else 0
