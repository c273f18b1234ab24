"""Recovery of repositories from the effects log when the store opens.

After a kill an engine can lack one commit, because it commits last. After a power failure it can lack all writes since its last
flush. It lacks the effects after its own position, or after its base LSN, up to which it certainly has all of them:

    effects log     ... 95 96 97 98 99 100          applied LSN 100
    main            position 98                     gets 99 and 100
    quiet           position 12, base LSN 97        gets 98 to 100, which do not change it

Commits are idempotent and carry their position, so that a crash in here needs only another start.
"""

from __future__ import annotations

from typing import Any

from brokerha.model.errors import StoreDamaged
from brokerha.model.ids import Lsn
from brokerha.model.operations import QuadsChanged, unpack_effect
from brokerha.stores.execution.effects_log import EffectsLog
from brokerha.stores.rdf.change import QuadChange
from brokerha.stores.rdf.repositories import Repositories

WAITING_LINES_LIMIT = 50_000
"""Lines that can wait in memory before they are committed."""


def bring_up(repositories: Repositories, log: EffectsLog, transaction: Any, lsn: Lsn) -> None:
    """Give every repository the effects up to ``lsn`` that it lacks. Raises StoreDamaged when the log does not reach back."""
    behind = {
        name: max(repository.engine.position, repository.base_lsn)
        for name, repository in repositories.listed.items()
        if max(repository.engine.position, repository.base_lsn) < lsn
    }
    if not behind:
        return
    next_lsn = min(behind.values()) + 1
    for row_lsn, lines in log.rows(transaction, next_lsn):
        for line in lines[next_lsn - row_lsn :]:
            _give(repositories, behind, next_lsn, line.effect)
            next_lsn += 1
        if _waiting_lines(repositories) > WAITING_LINES_LIMIT:
            repositories.commit(next_lsn - 1)
    if next_lsn != lsn + 1:
        name = min(behind, key=lambda name: behind[name])
        raise StoreDamaged(
            f"repository {name} is at LSN {behind[name]} of {lsn}, and the effects log lacks LSN {next_lsn}: "
            "take the content from another worker"
        )
    repositories.commit(lsn)


def _give(repositories: Repositories, behind: dict[str, Lsn], lsn: Lsn, effect: bytes) -> None:
    for change in unpack_effect(effect):
        # An effect on an earlier repository of the same name is below the base LSN of this one.
        if isinstance(change, QuadsChanged) and behind.get(change.repository, lsn) < lsn:
            pending = repositories.listed[change.repository].pending
            pending.include(QuadChange(change.removed, change.added))


def _waiting_lines(repositories: Repositories) -> int:
    return sum(len(one.pending.removed) + len(one.pending.added) for one in repositories.listed.values())
