"""Commands about splits, and a report on transactions that lost their place when the queue went back.

    split-recovery {}          the strategy in force, and its source; the strategies in the files of the masters; the last wish
    split-recovery {mode}      wish for another strategy (`sync/splits/choosing.py`); answered at once with the state of the wish
    splits         {}          the split book of this master, joined with the present log
    split          {number, from, limit}       one of them, with a page of the given-up transactions

| effect               | before                | now                                                        |
|----------------------|-----------------------|------------------------------------------------------------|
| `waits`              |                       | has no place yet, or is not executed there yet             |
| `forgotten`          |                       | had a place again, and its id is forgotten since           |
| `rejected now`       | applied               | rejected                                                   |
| `applied now`        | rejected              | applied                                                    |
| `not executed again` | applied               | applied; the site kept its content, which had it already   |
| `same place`         | the same, or not known | the same LSN                                              |
| `executed again`     | applied               | applied after others, to the content there                 |
| `re-ordered`         | rejected, or not known | another LSN, and nothing else: it had changed nothing     |

Each master has its own book; on a side that stayed it is empty. All comes from records that are durable and can be told: a result
that backups do not hold yet does not count.

Must never: run in the loop of a master over more than a page, because a book may have a million transactions, and each is looked up
in the journal; change anything of the protocol, because an epoch of all masters carries out a wish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from brokerha.master.belonging import no_command
from brokerha.model.errors import InvalidRequest, NotFound, NotReady
from brokerha.model.given_up import UNKNOWN_OUTCOME, GivenUp, Split
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.operations import APPLIED, REJECTED
from brokerha.model.records import History
from brokerha.sync.core import SyncCore
from brokerha.sync.splits.choosing import Choice, differing, files

if TYPE_CHECKING:
    from brokerha.master.core import MasterCore

Answer = dict[str, Any]

FILE, EPOCH = "file", "epoch"
"""Source of the strategy in force; an epoch has it by command, or because files differed when it was decided."""

WAITS, FORGOTTEN, SAME_PLACE, RE_ORDERED, EXECUTED_AGAIN = "waits", "forgotten", "same place", "re-ordered", "executed again"
NOT_EXECUTED_AGAIN, REJECTED_NOW, APPLIED_NOW = "not executed again", "rejected now", "applied now"
EFFECTS = (SAME_PLACE, RE_ORDERED, EXECUTED_AGAIN, NOT_EXECUTED_AGAIN, REJECTED_NOW, APPLIED_NOW, WAITS, FORGOTTEN)
"""Effects in the order of the report."""

PAGE_ENTRIES = 1_000
"""Limit of the transactions of one answer."""
COUNTED_ENTRIES = 100_000
"""Limit of the transactions whose effects one answer counts: they take a second."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Other facts about a master."""

    master: NodeId
    shown: Lsn
    """Last LSN of the order that can be told."""
    executed: Lsn
    """Last LSN whose result can be told."""
    is_executing: bool = True
    """Whether there is a site that executes; without one only places are known."""


def listed(history: History, facts: Facts) -> Answer:
    """Return all splits, the newest first: {"master", "splits": [{head, "effects": {effect: number}, "counted"}]}.

    ``counted`` is the number of transactions, from the first on, that the effects cover: for old splits it may be 0.
    """
    rows: list[Answer] = []
    left = COUNTED_ENTRIES
    for split in reversed(history.splits()):
        rows.append({**_head(split), **_effects(history, split, facts, left)})
        left -= rows[-1]["counted"]
    return {"master": facts.master, "splits": rows}


def shown(history: History, facts: Facts, arguments: Answer) -> Answer:
    """Return one split with a page of its transactions: {"master", head, "effects", "counted", "entries", "next"}.

    By {"number", "from", "limit"}: ``from`` is an old LSN; ``next`` begins the next page, null on the last one. Effects are counted
    on the first page only, of `COUNTED_ENTRIES` at most, and null on others. Raises NotFound, InvalidRequest.
    """
    number, first = arguments["number"], arguments.get("from") or 0
    limit = min(PAGE_ENTRIES, arguments.get("limit") or PAGE_ENTRIES)
    splits = {split.number: split for split in history.splits()}
    if number not in splits:
        known = ", ".join(map(str, splits)) or "none"
        raise NotFound(f"{facts.master} knows no split {number} (any more); its splits are {known}")
    page = history.given_up(number, first, limit + 1)
    return {
        "master": facts.master,
        **_head(splits[number]),
        **({"effects": None, "counted": None} if first else _effects(history, splits[number], facts, COUNTED_ENTRIES)),
        "entries": [_row(history, splits[number], entry, facts) for entry in page[:limit]],
        "next": page[limit].lsn if len(page) > limit else None,
    }


def _effects(history: History, split: Split, facts: Facts, limit: int) -> Answer:
    """Count the effects of the first listed transactions; each effect is named."""
    entries = islice(_entries(history, split), limit)
    found = Counter(_row(history, split, entry, facts)["effect"] for entry in entries)
    return {"effects": {effect: found[effect] for effect in EFFECTS}, "counted": found.total()}


def _entries(history: History, split: Split) -> Iterator[GivenUp]:
    first = 0
    while page := history.given_up(split.number, first, PAGE_ENTRIES):
        yield from page
        first = page[-1].lsn + 1


def _head(split: Split) -> Answer:
    return {
        "number": split.number,
        "last_write": split.stamped if split.total else None,
        "epoch": split.epoch,
        "lineage": split.lineage,
        "lsn": split.lsn,
        "keeps_content": split.keeps_content,
        "total": split.total,
        "held": split.held,
    }


def _row(history: History, split: Split, entry: GivenUp, facts: Facts) -> Answer:
    newest = history.known_at(entry.txid, facts.shown) or 0
    # An LSN up to there is of a transaction that came under its id long before.
    lsn = newest if newest > split.lsn else None
    outcome, reason = _outcome(history, lsn, facts)
    # No id after that place is forgotten while one of these waits (R20).
    is_forgotten = lsn is None and history.ids_from(facts.shown) > split.lsn + 1
    return {
        "lsn": entry.lsn,
        "txid": entry.txid,
        "origin": entry.origin,
        "outcome": None if entry.outcome == UNKNOWN_OUTCOME else entry.outcome,
        "new_lsn": lsn,
        "new_outcome": outcome,
        "reason": reason,
        "effect": FORGOTTEN if is_forgotten else effect_of(entry, lsn, outcome, split, facts),
    }


def _outcome(history: History, lsn: Lsn | None, facts: Facts) -> tuple[str | None, str]:
    """Return (outcome at an LSN, why it was rejected); None while it cannot be told."""
    if lsn is None or lsn > facts.executed:
        return None, ""
    found = history.results(lsn, 1)
    if found:
        return found[0].outcome, found[0].reason
    # A trimmed result was applied, unless it is remembered as rejected.
    rejection = history.rejection(lsn)
    return (APPLIED, "") if rejection is None else (REJECTED, rejection)


def effect_of(entry: GivenUp, lsn: Lsn | None, outcome: str | None, split: Split, facts: Facts) -> str:
    """Return one of `EFFECTS`; see the table above."""
    if lsn is None or (outcome is None and facts.is_executing):
        return WAITS
    before = entry.outcome if outcome is not None else UNKNOWN_OUTCOME
    if before == APPLIED and outcome == REJECTED:
        return REJECTED_NOW
    if before == REJECTED and outcome == APPLIED:
        return APPLIED_NOW
    if before == APPLIED and split.keeps_content:
        return NOT_EXECUTED_AGAIN
    if lsn == entry.lsn:
        return SAME_PLACE
    return EXECUTED_AGAIN if before == APPLIED else RE_ORDERED


# ---- commands


def split_recovery(core: MasterCore, arguments: Answer, now: Instant) -> Answer:
    """Return the strategy in force, or wish for another one. Raises InvalidRequest, NotReady."""
    sync = core.sync
    if "mode" not in arguments:
        choice = sync.epochs.choosing.choice
        return {**_in_force(sync), "change": _told(choice) if choice is not None else None}
    mode = arguments["mode"]
    if not isinstance(mode, str):
        raise InvalidRequest(f"mode is none, simple, smart or quorum, not {mode!r}")
    if refused := no_command(sync):
        raise NotReady(refused)
    choice = sync.epochs.choosing.choose(sync, mode, now)
    return {**_in_force(sync), "change": _told(choice), "changed": choice is sync.epochs.choosing.choice}


def facts_of(core: MasterCore) -> Facts:
    """Return what a report has to know of this master; callable from any thread."""
    return Facts(core.sync.node, core.site.lsn, core.site.executed, bool(core.site.workers or core.site.executed))


def source_of(sync: SyncCore) -> str:
    """Return the source of the strategy in force."""
    return EPOCH if sync.epoch.mode else FILE


def _in_force(sync: SyncCore) -> Answer:
    return {
        "master": sync.node,
        "mode": sync.mode,
        "source": source_of(sync),
        "epoch": sync.epoch.number,
        "files": files(sync),
        "differing": differing(sync),
    }


def _told(choice: Choice) -> Answer:
    """Return a wish as plain data."""
    return {"mode": choice.mode, "state": choice.state, "stage": choice.stage}
