"""A backup whose journal turns out to be damaged replaces it with the primary's.

Given three processes of a master, one of them with a byte of its journal changed on the disk, when another one asks it for the records of
that place, then it says what is damaged, loads the primary's journal and follows again; a kill in between leads to the same.
"""

from __future__ import annotations

import re

from brokerha.model import states
from brokerha.model.ready import BeginLoad
from brokerha.model.wire.messages import Envelope
from brokerha.model.wire.process_messages import RecordsWanted
from tests.support.logs import disk_of
from tests.unit.nodes.process_group import BODY, Group, Process

WRITES = 20


class Damaged:
    """A group whose backup b1 has a wrong byte in the body of its first transaction, and has just started."""

    def __init__(self) -> None:
        self.group = Group(2).elected()
        for ticket in range(1, WRITES + 1):
            self.group.write(ticket)
        self.group.run(500)
        self.backup.start()
        self.group.elected()
        disk = disk_of(self.backup.journal)
        name, at = next((name, data.find(BODY)) for name, data in disk.files.items() if BODY in data)
        disk.files[name][at] ^= 1

    @property
    def backup(self) -> Process:
        return self.group["b1"]

    def ask(self) -> None:
        """The other backup lacks everything."""
        view, last = self.group.primary.runner.role.view, self.backup.journal.last_number
        self.backup.wire.arrived.append(Envelope("orders", "b2", 1, RecordsWanted(view, 1, last)))
        self.group.turn()

    def loads(self) -> int:
        return sum(isinstance(each, BeginLoad) for each in self.backup.door.begun)


def test_a_backup_that_finds_its_journal_damaged_loads_that_of_the_primary() -> None:
    damaged = Damaged()
    damaged.ask()
    state, reason = damaged.backup.runner.state()
    assert state == states.HALTED
    assert re.fullmatch(r"record \d+ at offset \d+ is not what was written in memory/\S+", reason)
    damaged.group.run(4_000)
    assert damaged.backup.runner.state() == (states.READY, "")
    assert damaged.loads() == 1
    assert list(damaged.backup.journal.verify()) == []
    assert damaged.backup.journal.state().last_number == damaged.group["m1"].journal.state().last_number


def test_damage_is_remembered_until_there_is_a_primary_to_load_from() -> None:
    damaged = Damaged()
    primary = damaged.group.primary
    damaged.group.cut.add("b1")
    damaged.ask()
    damaged.group.run(3_000)
    assert (primary.acts(), damaged.loads()) == (True, 0)
    state, reason = damaged.backup.runner.state()
    assert state == states.WAITING_FOR_PRIMARY
    assert reason.startswith("its journal is damaged: record ")
    damaged.group.cut.clear()
    damaged.group.run(4_000)
    assert damaged.loads() == 1
    assert list(damaged.backup.journal.verify()) == []
