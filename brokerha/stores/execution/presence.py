"""Which repositories exist for a transaction, and its limits: rules that must be identical in every store.

>>> presence = Presence({"main"})
>>> presence.create("new"), presence.remove("main"), presence.create("main")
(None, None, None)
>>> presence.created(), presence.removed()
(['new'], [])
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from brokerha.model.errors import TOO_MUCH, Rejected
from brokerha.model.operations import EFFECT_LIMIT_BYTES, Change, OnKey, pack_effect

REPOSITORY_LIMIT = 256
"""Limit of repositories in one cluster; each has an engine with its own files and threads on every worker."""
REASON_LIMIT = 2000
"""Limit of characters of a reason; an error can quote the whole statement."""


def check_size(on_keys: Iterable[OnKey], rest: Collection[Change]) -> None:
    """Raise Rejected when these changes exceed the limit of one effect.

    Operations on keys stand for their changes: alone they are not larger than the body that they came in.
    """
    if rest and (size_bytes := len(pack_effect([*on_keys, *rest]))) > EFFECT_LIMIT_BYTES:
        raise Rejected(
            f"{TOO_MUCH}the transaction changes {size_bytes} bytes; the limit is {EFFECT_LIMIT_BYTES}: split it, "
            "for instance by DELETE WHERE over SELECT ... LIMIT 50000"
        )


class Presence:
    """The existing names: those listed before the transaction, with its own changes on top."""

    __slots__ = ("_changed", "_listed")

    def __init__(self, listed: Collection[str]) -> None:
        self._listed = listed
        self._changed: dict[str, bool] = {}

    def exists(self, name: str) -> bool:
        """Tell whether the repository exists for the next operation."""
        changed = self._changed.get(name)
        return name in self._listed if changed is None else changed

    def check(self, name: str) -> None:
        """Raise Rejected unless it exists."""
        if not self.exists(name):
            raise Rejected(f"repository {name!r} does not exist")

    def create(self, name: str) -> None:
        """Take note of a new repository. Raises Rejected when it exists, or when there are too many."""
        if self.exists(name):
            raise Rejected(f"repository {name!r} exists already")
        if len(self._listed) + len(self.created()) - len(self.removed()) >= REPOSITORY_LIMIT:
            raise Rejected(f"there are {REPOSITORY_LIMIT} repositories, which is the limit")
        self._changed[name] = True

    def remove(self, name: str) -> None:
        """Take note of a removed repository. Raises Rejected unless it exists."""
        self.check(name)
        self._changed[name] = False

    def created(self) -> list[str]:
        """Return the names that exist after the transaction and did not before, sorted."""
        return sorted(name for name, exists in self._changed.items() if exists and name not in self._listed)

    def removed(self) -> list[str]:
        """Return the names that existed before the transaction and do not after it, sorted."""
        return sorted(name for name, exists in self._changed.items() if not exists and name in self._listed)


def reason_of(error: Exception) -> str:
    """Return the reason of a rejection. It must not depend on the machine, because it is the same on every site."""
    return str(error)[:REASON_LIMIT]
