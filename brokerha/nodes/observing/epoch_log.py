"""What happens to the epochs of a master, as lines in its log, and numbers of it for /metrics.

    epoch begins         number, proposer, members, who was left out, who came back, LSN, entries that were recovered
    masters change       who was added and who was taken out, with that epoch; all masters from then on
    epoch change begins  it has promised the next one, and is frozen until one begins
    is gone              the broker says that the inbox of a master that is silent is gone
    is excluded          the others are in a later epoch          hears no majority    writes wait
    waits to be added    it is none of their masters yet           is taken out          it is none any more
    is left behind       it needs what no other master holds      agrees again         none of these any more

`note` is called after turns and compares what is with what it saw last. What is over within a moment, as after a start, is not told.
It reads the core and changes nothing; a core that was built again from the journal is simply the next thing that it looks at.
"""

from __future__ import annotations

import structlog

from brokerha.master.core import MasterCore
from brokerha.master.state_words import epoch_state
from brokerha.model import states
from brokerha.model.epochs import Epoch, EpochId
from brokerha.model.ids import NodeId
from brokerha.model.numbers import Numbers

log = structlog.get_logger()

_TOLD = {
    states.EXCLUDED: "is excluded",
    states.NO_MAJORITY: "hears no majority",
    states.LEFT_BEHIND: "is left behind",
    states.WAITING_TO_BE_ADDED: "waits to be added",
    states.JOINING: "takes over",
    states.RETIRED: "is taken out",
}
"""Words that have a line of their own."""


class EpochLog:
    """Compares, tells and counts; used by one thread."""

    def __init__(self, master: NodeId) -> None:
        self._master = master
        self._epoch: Epoch | None = None
        self._changes = 0
        self._promised: EpochId | None = None
        """What the master is frozen for; None while it follows its epoch."""
        self._frozen_from_ms = 0
        self._frozen_ms = 0
        """Of the times that are over."""
        self._word = ""
        self._word_from_ms = 0
        self._told = ""
        self._gone: frozenset[NodeId] = frozenset()

    def note(self, core: MasterCore, mono_ms: int) -> None:
        """Tell what has changed since the last call."""
        sync = core.sync
        if self._epoch is None or sync.epoch.id != self._epoch.id:
            self._on_epoch(sync.epoch)
        gone, before = sync.epochs.suspicion.gone, self._gone
        for master in sorted(gone - before):
            log.warning("is gone", node=self._master, master=master, reason="its inbox at the broker is gone")
        self._gone = gone
        is_frozen = sync.is_frozen() and not sync.is_joiner()
        promised = sync.promised if is_frozen else None
        if promised != self._promised:
            self._on_promise(promised, mono_ms)
        word, reason = ("", "") if sync.lost else epoch_state(sync, mono_ms) or ("", "")
        if word != self._word:
            self._word, self._word_from_ms = word, mono_ms
        is_lasting = mono_ms - self._word_from_ms > sync.config.heard_ms
        if word != self._told and (is_lasting or word not in _TOLD):
            self._on_word(word if word in _TOLD else "", reason)

    def metrics(self, mono_ms: int) -> Numbers:
        """Numbers since the start."""
        now_ms = mono_ms - self._frozen_from_ms if self._promised is not None else 0
        return {"epoch_changes_total": self._changes, "frozen_seconds_total": (self._frozen_ms + now_ms) / 1000}

    def _on_epoch(self, epoch: Epoch) -> None:
        before, self._epoch = self._epoch, epoch
        if before is None or not epoch.number:
            return  # A joiner is in no epoch.
        self._changes += 1
        left_out = sorted({*before.members} - {*epoch.members})
        tell = log.warning if left_out else log.info
        tell(
            "epoch begins",
            node=self._master,
            epoch=epoch.number,
            proposer=epoch.proposer,
            members=list(epoch.members),
            left_out=left_out,
            back=sorted({*epoch.members} - {*before.members}),
            lsn=epoch.base_lsn,
            recovered=len(epoch.recovered),
        )
        masters, known = {*epoch.configuration.masters}, {*before.configuration.masters}
        if masters != known and known:
            log.warning(
                "masters change",
                node=self._master,
                epoch=epoch.number,
                added=sorted(masters - known),
                taken_out=sorted(known - masters),
                masters=sorted(masters),
            )

    def _on_promise(self, promised: EpochId | None, mono_ms: int) -> None:
        if self._promised is None:
            self._frozen_from_ms = mono_ms
        self._promised = promised
        if promised is None:
            self._frozen_ms += mono_ms - self._frozen_from_ms
        else:
            log.info("epoch change begins", node=self._master, epoch=promised[0], proposer=promised[1])

    def _on_word(self, word: str, reason: str) -> None:
        before, self._told = self._told, word
        if word:
            tell = log.error if word in {states.LEFT_BEHIND, states.RETIRED} else log.warning
            tell(_TOLD[word], node=self._master, reason=reason)
        elif before:
            log.info("agrees again", node=self._master)
