"""One transaction that takes a running cluster back to an earlier LSN, made from the changes in the log since then.

    the log after LSN 4711        LSN 4712: put a=2     4713: add q1, publish m    4714: remove q2, accept m0
    the state at LSN 4711                a=1                                                queue: m0
    the transaction               put a=1, remove q1, add q2, accept m, publish m0 again

Effects name the removed and added quads, so these are reversed without a read. The earlier state (`Earlier`) gives the values of
keys, queues and checks. Items that have their earlier value again are left out.

A message that was accepted since then gets a new id, and so do all messages after it, because a queue grows only at its tail. A
restore leaves settings of the cluster, claims of consumers, named snapshots and prepared branches as they are: they are not
content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Protocol

from brokerha.model import control
from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import (
    Accept,
    Change,
    Cleared,
    ControlAdd,
    ControlRemove,
    CreateRepository,
    Delete,
    Operation,
    Published,
    Put,
    QuadsChanged,
    RemoveRepository,
    Staged,
    unpack_effect,
)
from brokerha.model.reserved import claims, settings
from brokerha.model.reserved.pieces import pieces_of
from brokerha.stores.tables.queue_change import Message

KEPT_TABLES = frozenset({settings.TABLE, claims.TABLE, *control.PRIVATE})
"""Tables that a restore leaves as they are."""


class Earlier(Protocol):
    """The earlier state."""

    def value(self, table: str, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""

    def messages(self, queue: str) -> list[Message]:
        """Return all messages of a queue, oldest first."""

    def checks(self) -> Mapping[str, Operation]:
        """Return the control suite: the operation that adds each check, by its name."""


class Undoing:
    """The changes after the earlier LSN, line by line; see the module docstring."""

    def __init__(self) -> None:
        self.kept_tables: set[str] = set()
        """Changed tables that stay as they are."""
        self._repositories: dict[str, tuple[bool, bool]] = {}
        """Created and removed repositories: whether each existed at the earlier LSN, and exists now."""
        self._cleared: dict[str, int] = {}
        """Emptied repositories whose quads the log does not name, and their number of quads."""
        self._quads: dict[str, dict[str, bool]] = {}
        """By repository: lines that exist now and did not (True), or the reverse."""
        self._values: dict[tuple[str, bytes], bytes | None] = {}
        self._published: dict[str, dict[str, Message]] = {}
        """By queue: messages since then that still exist, oldest first."""
        self._taken: dict[str, set[str]] = {}
        """By queue: ids of older messages that no longer exist."""
        self._checks: dict[str, Operation | None] = {}
        """Each changed check, as it is now."""

    def take(self, effect: bytes) -> None:
        """Take note of the next line's effect. Raises InvalidRequest for an irreversible one."""
        for change in unpack_effect(effect):
            if isinstance(change, Staged):
                raise InvalidRequest(
                    f"large transaction {change.name} took place after that LSN, and a running cluster does not take it back: stop all "
                    "nodes, and restore without --online"
                )
            if isinstance(change, Cleared):
                self._cleared.setdefault(change.repository, change.quads)
            else:
                self._note(change)

    def _note(self, change: Change) -> None:
        match change:
            case QuadsChanged():
                lines = self._quads.setdefault(change.repository, {})
                for is_added, changed in ((False, change.removed), (True, change.added)):
                    for line in changed:
                        if lines.pop(line, is_added) is is_added:
                            lines[line] = is_added
            case CreateRepository() | RemoveRepository():
                is_there = isinstance(change, CreateRepository)
                was_there, _ = self._repositories.get(change.repository, (not is_there, is_there))
                self._repositories[change.repository] = was_there, is_there
            case Put() | Delete():
                if change.table in KEPT_TABLES:
                    self.kept_tables.add(change.table)
                else:
                    self._values[change.table, change.key] = change.after
            case Published():
                message = Message(change.message_id, change.content_type, change.body)
                self._published.setdefault(change.queue, {})[message.id] = message
            case Accept():
                if self._published.setdefault(change.queue, {}).pop(change.message_id, None) is None:
                    self._taken.setdefault(change.queue, set()).add(change.message_id)
            case ControlAdd() | ControlRemove():
                self._checks[change.name] = tuple(change) if isinstance(change, ControlAdd) else None

    def operations(self, earlier: Earlier) -> list[Operation]:
        """Return the transaction; empty when nothing differs. Raises InvalidRequest for an irreversible change."""
        listed = sorted(self._repositories.items())
        gone = {name for name, (_, is_there) in listed if not is_there}
        made = {name for name, (was_there, _) in listed if not was_there}
        if lost := sorted(self._cleared.keys() - made):
            raise InvalidRequest(
                f"repository {lost[0]!r} was emptied after that LSN, and the log does not name its {self._cleared[lost[0]]} quads: stop all "
                "nodes, and restore without --online"
            )
        operations: list[Operation] = [("create-repository", name) for name in sorted(gone - made)]
        for name, lines in sorted(self._quads.items()):
            # A repository that did not exist is removed as a whole.
            for kind, is_added in () if name in made else (("remove", True), ("add", False)):
                if found := sorted(line for line, each in lines.items() if each is is_added):
                    operations.append((kind, name, "".join(f"{line} .\n" for line in found)))
        for (table, key), value in sorted(self._values.items(), key=lambda item: item[0]):
            if (before := earlier.value(table, key)) != value:
                operations.append(("delete", table, key) if before is None else ("put", table, key, before))
        for queue in sorted({*self._published, *self._taken}):
            operations += self._queue(queue, earlier.messages(queue))
        operations += self._suite(earlier.checks) if self._checks else []
        operations += [("remove-repository", name) for name in sorted(made - gone)]
        return operations

    def _queue(self, queue: str, before: list[Message]) -> list[Operation]:
        taken, published = self._taken.get(queue, set()), self._published.get(queue, {})
        stays = list(takewhile(lambda message: message.id not in taken, before))
        again = before[len(stays) :]
        there = [message.id for message in again if message.id not in taken]
        if lost := next((message for message in again if pieces_of(message.content_type, message.body)), None):
            raise InvalidRequest(
                f"message {lost.id} of queue {queue} is longer than a transaction, and a running cluster does not put it back in its place: "
                "stop all nodes, and restore without --online"
            )
        accepts: list[Operation] = [("accept", queue, message_id) for message_id in (*there, *published)]
        return [*accepts, *(("publish", queue, message.content_type, message.body) for message in again)]

    def _suite(self, checks: Callable[[], Mapping[str, Operation]]) -> list[Operation]:
        before, operations = checks(), list[Operation]()
        for name, now in sorted(self._checks.items()):
            if (wanted := before.get(name)) == now:
                continue
            if now is not None:
                operations.append(("control-remove", name))
            if wanted is not None:
                operations.append(wanted)
        return operations
