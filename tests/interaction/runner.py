"""Runs scenarios that are written as text: commands, a line of dashes, and what happened.

    masters 3
    write m1 A
    round m1
    ----
    m1 writes  Accepted A; Appended m1[0] A@201.000
    m1 sends   Post to m2 m3: lsn 0, have m1:1, lists m1[0] A@201.000

`python -m tests.interaction.runner --rewrite` writes down what happens now, after a change that is meant: read the difference before you keep it.

| command | does |
|---|---|
| ``masters 3 split_recovery=smart`` | begins with so many masters that know each other; words of `SyncConfig` |
| ``write m1 A B`` | hands transactions to a master |
| ``round [m1 m2]`` | one round of these, or of all: what they write, then what they send |
| ``deliver [m1>m2] [Post]``, ``lose …`` | what is under way arrives, or never does; all of it, or that of some links and kinds |
| ``pass 50`` | so many milliseconds pass |
| ``live 2000`` | so many pass with rounds and deliveries over the links that there are; tells what is different afterwards |
| ``sides m1 m2 | m3``, ``cut m1-m2``, ``heal`` | which links there are from now on |
| ``crash m1``, ``start m1``, ``newcomer m4`` | processes |
| ``choose m1 smart``, ``add m1 m4``, ``remove m1 m3`` | what operators say to a master |
| ``show [m1 m2]`` | epoch, queue, and what is not in the queue yet |

Timestamps are milliseconds since the beginning.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from brokerha.model.epochs import Epoch, EpochId
from brokerha.model.ids import Entry, Timestamp
from brokerha.model.records import Accepted, Added, Appended, BodiesHeld, ClockReserved, EpochInstalled, EpochPromised
from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare, EpochRefused, EpochReport, Row, Tail, TailWanted
from brokerha.model.wire.messages import Bodies, Fetch, Message, Outgoing, Post
from tests.unit.paper.masters import START_US
from tests.unit.sync.epoch_table import STEP_MS
from tests.unit.sync.member_table import MemberTable

FOLDER = Path(__file__).parent
RULE = "----"


class Block(NamedTuple):
    """Commands and what they say; comments and empty lines have no commands and are kept."""

    commands: tuple[str, ...]
    said: tuple[str, ...]


def blocks(text: str) -> Iterator[Block]:
    """What a file consists of."""
    commands: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not commands and (not line or line.startswith("#")):
            yield Block((), (line,))
        elif line == RULE:
            said = []
            for following in lines:
                if not following:
                    break
                said.append(following)
            yield Block(tuple(commands), tuple(said))
            yield Block((), ("",))
            commands = []
        else:
            commands.append(line)
    assert not commands, f"no {RULE} after {commands[-1]!r}"


def played(text: str) -> str:
    """The same file with what happens now."""
    scenario = Scenario()
    found: list[str] = []
    for block in blocks(text):
        if not block.commands:
            found += block.said
            continue
        said = [line for command in block.commands for line in scenario.do(command)]
        found += [*block.commands, RULE, *said]
    return "\n".join(found).rstrip("\n") + "\n"


class Scenario:
    """Some masters, and the words that make something happen to them."""

    def __init__(self) -> None:
        self._sides: list[set[str]] = []
        self._cut: set[frozenset[str]] = set()

    def do(self, command: str) -> list[str]:
        """Carry out one command; returns what it says."""
        word, *rest = command.split()
        method = getattr(self, f"do_{word}", None)
        assert method is not None, f"no such command: {command}"
        return list(method(*rest) or ())

    def do_masters(self, count: str, *settings: str) -> None:
        self.table = MemberTable(int(count), **dict(setting.split("=") for setting in settings))

    def do_write(self, node: str, *txids: str) -> None:
        self.table.write(node, *txids)

    def do_pass(self, milliseconds: str) -> None:
        self.table.pass_ms(int(milliseconds))

    def do_crash(self, node: str) -> None:
        self.table.crash(node)

    def do_start(self, node: str) -> None:
        self.table.start(node)

    def do_newcomer(self, node: str) -> None:
        self.table.newcomer(node)

    def do_choose(self, node: str, mode: str) -> Iterator[str]:
        choice = self.table.choose(node, mode)
        yield f"{node} says    {choice.state}"

    def do_add(self, node: str, other: str) -> Iterator[str]:
        yield f"{node} says    {self.table.add(node, other).state}"

    def do_remove(self, node: str, other: str) -> Iterator[str]:
        yield f"{node} says    {self.table.remove(node, other).state}"

    def do_sides(self, *words: str) -> None:
        self._sides = [set(side.split()) for side in " ".join(words).split("|")]

    def do_cut(self, *links: str) -> None:
        self._cut |= {frozenset(link.split("-")) for link in links}

    def do_heal(self) -> None:
        self._sides, self._cut = [], set()

    def do_round(self, *nodes: str) -> Iterator[str]:
        for node in nodes or tuple(self.table.cores):
            before, journal = len(self.table.sent), self.table.journals[node]
            number = journal.last_number
            self.table.round(node)
            records = [record for at, record in journal.records() if at > number]
            if records:
                yield f"{node} writes  {'; '.join(map(record_text, records))}"
            yield from sent_text([out for _, out in self.table.sent[before:]], node)

    def do_deliver(self, *which: str) -> Iterator[str]:
        yield from self._told("arrives", which)
        self.table.deliver(lambda sender, out: is_meant(sender, out, which))

    def do_lose(self, *which: str) -> Iterator[str]:
        yield from self._told("is lost", which)
        self.table.lose(lambda sender, out: is_meant(sender, out, which))

    def _told(self, what: str, which: tuple[str, ...]) -> Iterator[str]:
        links: dict[str, list[str]] = {}
        for sender, out in self.table.mail:
            if is_meant(sender, out, which):
                links.setdefault(type(out.message).__name__, []).append(f"{sender}>{out.to}")
        for kind, found in links.items():
            yield f"{what:10} {kind} {' '.join(found)}"

    def do_live(self, milliseconds: str) -> Iterator[str]:
        before = {node: self._shown(node) for node in self.table.cores}
        self.table.settle(int(milliseconds) // STEP_MS, STEP_MS, self._passes)
        if changed := [node for node in sorted(self.table.cores) if self._shown(node) != before.get(node)]:
            yield from self.do_show(*changed)

    def do_show(self, *nodes: str) -> Iterator[str]:
        alike: dict[str, list[str]] = {}
        for node in nodes or sorted(self.table.cores):
            alike.setdefault(self._shown(node), []).append(node)
        for shown, found in alike.items():
            yield f"{' '.join(found)}: {shown}"

    def _passes(self, sender: str, out: Outgoing) -> bool:
        if frozenset((sender, out.to)) in self._cut:
            return False
        return not self._sides or any({sender, out.to} <= side for side in self._sides)

    def _shown(self, node: str) -> str:
        core = self.table.cores[node]
        where = f"epoch {epoch_text(core.epoch)}" if core.epoch.members else "in no epoch"
        parts = [where, f"queue {' '.join(self.table.queue(node)) or '-'}"]
        if incoming := self.table.incoming(node):
            parts.append(f"incoming {' '.join(incoming)}")
        if core.is_frozen():
            parts.append(f"promised {id_text(core.promised)}")
        return ", ".join(parts)


def is_meant(sender: str, out: Outgoing, which: Iterable[str]) -> bool:
    """Whether a message is among those of these links and kinds."""
    links = [word for word in which if ">" in word]
    kinds = [word for word in which if ">" not in word]
    return (not links or f"{sender}>{out.to}" in links) and (not kinds or type(out.message).__name__ in kinds)


def sent_text(sent: list[Outgoing], node: str) -> Iterator[str]:
    """A line for each message; equal ones to several masters are one."""
    receivers: dict[str, list[str]] = {}
    for out in sent:
        receivers.setdefault(message_text(out.message), []).append(out.to)
    for text, to in receivers.items():
        kind, _, rest = text.partition(" ")
        yield f"{node} sends   {kind} to {' '.join(to)}{': ' + rest if rest else ''}"


def message_text(message: Message) -> str:
    """Kind and what matters of a message."""
    match message:
        case Post():
            parts = [row_text(message.row)]
            parts += [f"lists {origin}[{start}] {entries_text(entries)}" for origin, start, entries in message.streams]
            parts += [f"relays {row_text(row)}" for row in message.relayed]
            return f"Post {', '.join(parts)}"
        case Bodies():
            return f"Bodies {' '.join(txid for _, txid, _ in message.items)}"
        case Fetch():
            return f"Fetch {' '.join(txid for _, txid in message.wanted)}"
        case EpochPrepare():
            return f"EpochPrepare {id_text(message.epoch)}"
        case EpochRefused():
            return f"EpochRefused {id_text(message.epoch)}, promised {id_text(message.promised)}"
        case EpochReport():
            return f"EpochReport {id_text(message.epoch)}, {row_text(message.row)}"
        case EpochInstall():
            return f"EpochInstall {epoch_text(message.epoch)}"
        case Tail() | TailWanted():
            return type(message).__name__
        case _:
            return type(message).__name__


def row_text(row: Row) -> str:
    """What a master says of itself."""
    have = " ".join(f"{origin}:{count}" for origin, count in row.have.items() if count) or "-"
    return f"{row.node} has {have}, promises {time_text(row.promise)}, lsn {row.lsn}"


def record_text(record: object) -> str:
    """A record in few words."""
    match record:
        case Accepted(items):
            return f"Accepted {' '.join(txid for txid, _ in items)}"
        case BodiesHeld(items):
            return f"BodiesHeld {' '.join(txid for _, txid, _ in items)}"
        case Appended(origin, start, entries):
            return f"Appended {origin}[{start}] {entries_text(entries)}"
        case Added(first_lsn, entries):
            return f"Added from LSN {first_lsn} {' '.join(txid for _, txid, _ in entries)}"
        case ClockReserved():
            return "ClockReserved"
        case EpochPromised(epoch):
            return f"EpochPromised {id_text(epoch)}"
        case EpochInstalled(epoch):
            return f"EpochInstalled {epoch_text(epoch)}"
        case _:
            return type(record).__name__


def entries_text(entries: Iterable[Entry]) -> str:
    """Entries with their timestamps."""
    return " ".join(f"{txid}@{time_text(timestamp)}" for timestamp, txid in entries)


def id_text(epoch: EpochId) -> str:
    """Number and proposer; the first one has none."""
    return f"{epoch[0]}/{epoch[1]}" if epoch[1] else str(epoch[0])


def epoch_text(epoch: Epoch) -> str:
    """Number, proposer and members; the strategy where it is not that of the file."""
    mode = f", {epoch.mode}" if epoch.mode else ""
    return f"{id_text(epoch.id)} of {' '.join(epoch.members)}{mode}"


def time_text(timestamp: Timestamp) -> str:
    """Milliseconds since the beginning; - for none."""
    return f"{(timestamp - START_US) / 1000:.3f}" if timestamp else "-"


def main() -> int:
    """Compare, or with --rewrite write down what happens now; 1 when a file is another one."""
    changed = [
        path
        for path in sorted(FOLDER.glob("*.txt"))
        if played(path.read_text(encoding="utf-8")) != path.read_text(encoding="utf-8")
    ]
    for path in changed:
        print(path.name)
        if "--rewrite" in sys.argv:
            path.write_text(played(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
