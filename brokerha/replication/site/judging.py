"""Judging: whether a copy agrees with the log, and which copies are right when they disagree (replication, section 5).

`verdict` compares one copy with the log at the copy's own LSN. `Votes` counts the contents that copies have at a line of the log
where they disagree: the log, which is the content of the probe, against each other content. The content with more in-sync workers
is right. On a tie the probe is right, and one worker alone never overrules the log. If the probe no longer lives and the others
disagree among themselves, none is right.
"""

from __future__ import annotations

from enum import StrEnum

from brokerha.model.fingerprints import UNKNOWN, differs, from_text, text_of
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.records import History


class Verdict(StrEnum):
    """The result of a comparison."""

    FOUND = "found"
    """The log has the same content at this LSN."""
    AHEAD = "ahead"
    """It is where the log has no results yet: compared when it has."""
    BEYOND = "beyond"
    """It is where the log has no transactions."""
    NOT_IN_LOG = "not in the log"
    """The log does not reach back so far."""
    DIFFERENT = "different"


def verdict(history: History, lsn: Lsn, executed: Lsn, applied: Lsn, fingerprint: str) -> tuple[Verdict, str]:
    """Return (verdict, reason) on a copy with this fingerprint at ``applied``; ``lsn`` and ``executed`` are the log's ends."""
    if applied > lsn:
        return Verdict.BEYOND, f"it is at LSN {applied}, the log ends at {lsn}"
    if applied > executed:
        return Verdict.AHEAD, ""
    known = history.fingerprint_at(applied)
    if known == UNKNOWN:
        return Verdict.NOT_IN_LOG, f"it is at LSN {applied}, the log begins after {history.results_from() - 1}"
    if differs(known, from_text(fingerprint)):
        return Verdict.DIFFERENT, f"at LSN {applied} it holds {fingerprint}, the log says {text_of(known)}"
    return Verdict.FOUND, ""


def cut_off(history: History, executed: Lsn) -> Lsn:
    """Return the first LSN of a log that no longer holds the entry after ``executed``; 0 when it does, as a rule.

    A site without workers executes nothing, and still forgets its log: its first worker finds the rest of it.
    """
    first = history.first_lsn()
    return first if executed + 1 < first else 0


class Ruling(StrEnum):
    """The side that is right."""

    LOG = "log"
    OTHERS = "others"
    NOBODY = "nobody"


class Votes:
    """The contents of copies at one line of the log."""

    def __init__(self, lsn: Lsn) -> None:
        self.lsn = lsn
        self.others: dict[bytes, set[NodeId]] = {}
        """Contents other than the log's, with the workers that have them."""

    def add(self, node: NodeId, fingerprint: bytes) -> None:
        """Add a worker that has this content."""
        self.others.setdefault(fingerprint, set()).add(node)

    @property
    def voters(self) -> frozenset[NodeId]:
        """Return all workers with another content than the log's."""
        return frozenset(node for nodes in self.others.values() for node in nodes)

    def ruling(self, for_the_log: int) -> tuple[Ruling, frozenset[NodeId]]:
        """Return the ruling, and the wrong ones among the voters; ``for_the_log`` live workers have the log's content."""
        voters = self.voters
        sizes = sorted((len(nodes) for nodes in self.others.values()), reverse=True)
        most, second = sizes[0], sizes[1] if len(sizes) > 1 else 0
        if len(voters) == 1 or (for_the_log and for_the_log >= most):
            return Ruling.LOG, voters
        if most > second:
            right = next(nodes for nodes in self.others.values() if len(nodes) == most)
            return Ruling.OTHERS, voters - right
        return Ruling.NOBODY, frozenset()


class SiteComparison:
    """Comparison of this site's content with that of other sites, by their posts (LSN and fingerprint)."""

    def __init__(self) -> None:
        self.differing: dict[NodeId, tuple[Lsn, str, str]] = {}
        """(LSN, ours, theirs) at which another site was last found to differ."""
        self._waiting: dict[NodeId, tuple[Lsn, bytes]] = {}

    def on_row(self, peer: NodeId, lsn: Lsn, fingerprint: bytes) -> None:
        """Take in the content of a peer; it is compared once this site is there too."""
        # The oldest waits: otherwise a peer that is always ahead would never be compared.
        if fingerprint and peer not in self._waiting:
            self._waiting[peer] = (lsn, fingerprint)

    def compare(self, history: History, executed: Lsn) -> None:
        """Compare all contents whose LSN this site has reached."""
        for peer, (lsn, theirs) in list(self._waiting.items()):
            if lsn > executed:
                continue
            del self._waiting[peer]
            ours = history.fingerprint_at(lsn)
            if differs(ours, theirs):
                self.differing[peer] = (lsn, text_of(ours), text_of(theirs))
            elif ours:
                self.differing.pop(peer, None)

    def reason(self) -> str:
        """Return which sites differ from this one; empty when none does."""
        return "; ".join(
            f"at LSN {lsn} this site holds {ours}, that of {peer} {theirs}"
            for peer, (lsn, ours, theirs) in sorted(self.differing.items())
        )
