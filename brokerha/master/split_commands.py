"""Commands about splits: what becomes of them from now on, and what became of those that are over.

    split-recovery {}          what is in force, and where it comes from; what the files of the masters say; what became of the last wish
    split-recovery {mode}      wish for another strategy (`sync/splits/choosing.py`); answered at once with the state of the wish
    splits         {}          the split book of this master (split_report.py)
    split          {number, from, limit}       one of them, with a page of what was given up

Must never: change anything of the protocol. A wish is carried out by an epoch of all masters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brokerha.master import split_report
from brokerha.master.belonging import no_command
from brokerha.master.split_report import Facts
from brokerha.model.errors import InvalidRequest, NotReady
from brokerha.model.ids import Instant
from brokerha.sync.core import SyncCore
from brokerha.sync.splits.choosing import Choice, differing, files

if TYPE_CHECKING:
    from brokerha.master.core import MasterCore

Answer = dict[str, Any]

FILE, EPOCH = "file", "epoch"
"""Where the strategy in force comes from; an epoch has it by command, or because files differed when it was decided."""


class SplitCommands:
    """The commands of one master; see the head of the module."""

    def __init__(self, core: MasterCore) -> None:
        self._core = core

    def split_recovery(self, arguments: Answer, now: Instant) -> Answer:
        """What is in force, or a wish for something else. Raises InvalidRequest, NotReady."""
        sync = self._core.sync
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

    def splits(self, _arguments: Answer, _now: Instant) -> Answer:
        """The split book."""
        return split_report.listed(self._core.history, facts_of(self._core))

    def split(self, arguments: Answer, _now: Instant) -> Answer:
        """One split. Raises NotFound, InvalidRequest."""
        return split_report.shown(self._core.history, facts_of(self._core), arguments)


def facts_of(core: MasterCore) -> Facts:
    """What a report has to know of this master; may be asked from any thread."""
    return Facts(core.sync.node, core.site.lsn, core.site.executed, bool(core.site.workers or core.site.executed))


def source_of(sync: SyncCore) -> str:
    """Where the strategy in force comes from."""
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
    """A wish as plain data."""
    return {"mode": choice.mode, "state": choice.state, "stage": choice.stage}
