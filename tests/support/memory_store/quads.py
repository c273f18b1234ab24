"""Quads of a memory store while a transaction is evaluated: lines of N-Quads are added and removed as they are, without SPARQL."""

from __future__ import annotations

from collections.abc import Iterator

from brokerha.model.errors import Rejected
from brokerha.model.operations import (
    Add,
    Change,
    Checked,
    Clear,
    Cleared,
    ControlAdd,
    ControlRemove,
    CreateRepository,
    Delete,
    Put,
    QuadsChanged,
    Remove,
    RemoveRepository,
    Update,
)
from brokerha.model.reserved.about import repository_of
from brokerha.stores.control.suite import ControlChange
from brokerha.stores.execution.evaluation import CLEAR_ABOVE_CHARACTERS, Presence

NO_SPARQL = "this store holds quads but does not evaluate SPARQL"


class LineChange:
    """What a transaction does to the lines of one repository, which stay as they are meanwhile."""

    def __init__(self, lines: set[str]) -> None:
        self._lines = lines
        self.removed: set[str] = set()
        self.added: set[str] = set()
        self.unnamed = 0
        """How many lines went without being named."""

    def clear(self, above: int) -> None:
        """Take all lines away, without naming them if they are more than ``above``, or long."""
        if not self.unnamed and (len(self._lines) > above or sum(map(len, self._lines)) > CLEAR_ABOVE_CHARACTERS):
            self.unnamed, self._lines = len(self._lines), set()
        self.removed = set(self._lines)
        self.added = set()

    def change(self, kind: str, lines: Iterator[str]) -> None:
        """Add or remove lines, each net of what was done before."""
        gone, come = (self.removed, self.added) if kind == "add" else (self.added, self.removed)
        for line in lines:
            if line in gone:
                gone.discard(line)
            elif (line in self._lines) is (kind == "remove"):
                come.add(line)


def changes_of_repositories(
    repositories: dict[str, set[str]], operations: list[Checked], control: ControlChange, clear_above: int
) -> list[Change]:
    """What operations on repositories and on the control suite would change. Raises Rejected."""
    quads: dict[str, LineChange] = {}
    presence = Presence(repositories)

    def on(name: str) -> LineChange:
        presence.check(name)
        return quads.setdefault(name, LineChange(repositories.get(name, set())))

    for operation in operations:
        match operation:
            case ControlAdd() | ControlRemove():
                control.add(operation)
            case Put() | Delete():
                presence.check(repository_of(operation.key))
            case CreateRepository():
                presence.create(operation.repository)
            case RemoveRepository():
                emptied = on(operation.repository)
                presence.remove(operation.repository)
                emptied.clear(clear_above)
            case Update():
                on(operation.repository)
                raise Rejected(NO_SPARQL)
            case Clear():
                on(operation.repository).clear(clear_above)
            case Add() | Remove():
                on(operation.repository).change(operation.kind, lines_of(operation.text))
    changes: list[Change] = [CreateRepository("create-repository", name) for name in presence.created()]
    changes += [RemoveRepository("remove-repository", name) for name in presence.removed()]
    changes += [Cleared("clear", name, overlay.unnamed) for name, overlay in quads.items() if overlay.unnamed]
    for name, overlay in quads.items():
        if overlay.removed or overlay.added:
            changes.append(QuadsChanged("quads", name, tuple(sorted(overlay.removed)), tuple(sorted(overlay.added))))
    return changes


def lines_of(text: str) -> Iterator[str]:
    """The lines of N-Quads text without their final dots. Raises Rejected for a line without one."""
    for number, line in enumerate(text.split("\n"), 1):
        quad = line.strip()
        if not quad or quad.startswith("#"):
            continue
        if not quad.endswith("."):
            raise Rejected(f"line {number} of the quads does not end with a dot")
        yield quad[:-1].rstrip()
