"""The control suite of a store: its checks, how one transaction changes them, and which of them it touches.

    Suite          the checks at one LSN; immutable, a change makes another suite
    ControlChange  control operations of one transaction, on top of a suite      after()    changes()

A transaction touches a check when it can change its answer: it puts or deletes the check's key, changes quads of its repository,
or adds or replaces the check. Only touched checks are evaluated, so that other writes cost nothing. That is enough, because all
checks held before.

judge.py has the evaluation. On disk there is one row for each check, in its own LMDB table, written by the commit of its
transaction.

    key    name of the check
    row    digest, 16 bytes | msgpack [kind, target, text, expected]      the digest is the check's part of the fingerprint

As with keys (tables/key_value.py), the digest finds a row that the disk changed. A copy of a store includes these rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgpack

from brokerha.model.control import CHECKS_LIMIT, KEY, Check
from brokerha.model.errors import Rejected, StoreDamaged
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.model.operations import ControlAdd, ControlRemove, OnControl
from brokerha.stores.comparing.fingerprint import control_digest
from brokerha.stores.files.environment import WriteTransaction
from brokerha.stores.tables.key_range import row_key_of


class Suite:
    """The checks at one LSN."""

    __slots__ = ("_by_repository", "_by_row_key", "checks", "row_keys")

    def __init__(self, checks: Iterable[Check] = ()) -> None:
        self.checks: dict[str, Check] = {check.name: check for check in sorted(checks)}
        """Checks by name, in the order of names."""
        self._by_row_key: dict[bytes, list[str]] = {}
        self._by_repository: dict[str, list[str]] = {}
        for check in self.checks.values():
            if check.kind == KEY:
                row_key = row_key_of(check.target, check.text.encode())
                self._by_row_key.setdefault(row_key, []).append(check.name)
            else:
                self._by_repository.setdefault(check.target, []).append(check.name)
        self.row_keys = frozenset(self._by_row_key)
        """Row keys of all key checks."""

    def __bool__(self) -> bool:
        """Tell whether there are any checks."""
        return bool(self.checks)

    def changed(self, change: OnControl) -> Suite:
        """Return the suite after a change of an effect. Idempotent."""
        checks = dict(self.checks)
        if isinstance(change, ControlAdd):
            checks[change.name] = Check(*change[1:])
        else:
            checks.pop(change.name, None)
        return Suite(checks.values())

    def touched(self, row_keys: Collection[bytes], repositories: Iterable[str]) -> set[str]:
        """Return the names of the checks about one of these keys or repositories."""
        names: set[str] = set()
        for row_key in self.row_keys.intersection(row_keys):
            names.update(self._by_row_key[row_key])
        for repository in repositories:
            names.update(self._by_repository.get(repository, ()))
        return names

    def fingerprint(self) -> int:
        """Return the XOR of the digests of all checks."""
        total = 0
        for check in self.checks.values():
            total ^= control_digest(check)
        return total

    def report(self) -> bytes:
        """Return the answer to a read of kind ``control``, as JSON."""
        return json.dumps({"checks": [check._asdict() for check in self.checks.values()]}).encode()


EMPTY: Final = Suite()


class ControlChange:
    """The changes of one transaction to a suite, operation by operation; the suite stays unchanged."""

    __slots__ = ("_before", "_now")

    def __init__(self, before: Suite) -> None:
        self._before = before
        self._now: dict[str, Check] | None = None

    def __bool__(self) -> bool:
        """Tell whether there was an operation."""
        return self._now is not None

    def add(self, operation: OnControl) -> None:
        """Take in an operation. Raises Rejected for an unknown check, or above the limit."""
        if self._now is None:
            self._now = dict(self._before.checks)
        name = operation.name
        if isinstance(operation, ControlAdd):
            self._now[name] = Check(*operation[1:])
            if len(self._now) > CHECKS_LIMIT:
                raise Rejected(f"there are {CHECKS_LIMIT} checks, which is the limit")
        elif self._now.pop(name, None) is None:
            raise Rejected(f"check {name!r} does not exist")

    def after(self) -> Suite:
        """Return the suite after the transaction."""
        return self._before if self._now is None else Suite(self._now.values())

    def added(self) -> set[str]:
        """Return the names of checks that are new or replaced."""
        return {change.name for change in self.changes() if isinstance(change, ControlAdd)}

    def changes(self) -> list[OnControl]:
        """Return the net change."""
        if self._now is None:
            return []
        before, now = self._before.checks, self._now
        added: list[OnControl] = [
            ControlAdd("control-add", *check) for name, check in sorted(now.items()) if before.get(name) != check
        ]
        removed: list[OnControl] = [ControlRemove("control-remove", name) for name in before if name not in now]
        return added + removed


def read_suite(transaction: Any, table: Any) -> Suite:
    """Return the checks of the last commit. Raises StoreDamaged when a digest does not match."""
    with transaction.cursor(table) as cursor:
        return Suite(_read(key, row) for key, row in cursor)


def keep(transaction: WriteTransaction, table: Any, before: Suite, change: OnControl) -> tuple[Suite, int]:
    """Write a change of an effect; return the suite after it and the change of the fingerprint."""
    name = change.name
    old = before.checks.get(name)
    difference = 0 if old is None else control_digest(old)
    if isinstance(change, ControlAdd):
        digest = control_digest(Check(*change[1:]))
        difference ^= digest
        transaction.put(name.encode(), digest.to_bytes(DIGEST_BYTES, "big") + msgpack.packb(change[2:]), db=table)
    else:
        transaction.delete(name.encode(), db=table)
    return before.changed(change), difference


def _read(key: bytes, row: bytes) -> Check:
    damaged = StoreDamaged(f"check {key!r} of the control suite is damaged; take the content from another worker")
    try:
        kind, target, text, expected = msgpack.unpackb(row[DIGEST_BYTES:])
        check = Check(key.decode(), kind, target, text, expected)
        digest = control_digest(check)
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException):
        raise damaged from None
    if digest.to_bytes(DIGEST_BYTES, "big") != row[:DIGEST_BYTES]:
        raise damaged
    return check
