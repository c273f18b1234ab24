"""What happens at a site, as lines in the log of its master, and how often it happened.

    worker changes   w2: on -> out-of-sync, with the reason         read-only begins, ends
    probe lost       w1 does not execute any more, w2 does          another site differs, agrees again
    needs attention  no copy is known to be good                    worker removed
    log not kept     w3 needs more of it than may be held           log kept again

`note` is called after turns and compares what is with what it saw last: a few comparisons while nothing changes. It reads
the core and changes nothing; a core that was built again from the journal is simply the next thing that it looks at.
"""

from __future__ import annotations

from collections import Counter

import structlog

from brokerha.master.core import MasterCore
from brokerha.master.pins import NAMED, PEER, SPLIT
from brokerha.model.ids import NodeId
from brokerha.replication.site.config import Standing, WorkerFeed

log = structlog.get_logger()

_WARNED = frozenset({Standing.OUT_OF_SYNC, Standing.UNKNOWN})


class SiteLog:
    """Compares, tells and counts; used by one thread."""

    def __init__(self, master: NodeId) -> None:
        self.counts: Counter[str | tuple[str, ...]] = Counter()
        """Numbers for /metrics, by name and labels."""
        self._master = master
        self._standings: dict[NodeId, Standing] = {}
        self._probe: NodeId | None = None
        self._read_only = ""
        self._attention = ""
        self._differing: frozenset[NodeId] = frozenset()
        self._dropped: tuple[NodeId, ...] = ()
        for name in ("probe_turns_total", "probe_losses_total", "read_only_total", "pins_dropped_total"):
            self.counts[name] = 0

    def note(self, core: MasterCore, mono_ms: int) -> None:
        """Tell what has changed since the last call."""
        workers = core.site.workers
        for worker in workers.values():
            if self._standings.get(worker.node) is not worker.standing:
                self._on_standing(worker)
        if len(self._standings) > len(workers):
            self._on_removed(workers)
        if core.feed.probe != self._probe:
            self._on_probe(core, mono_ms)
        self._on_read_only(core.site.read_only_reason(mono_ms))
        if self._read_only or self._attention:
            self._on_attention(core.site.attention(mono_ms))
        if core.sites.differing.keys() != self._differing:
            self._on_differing(core)
        if core.dropped_pins != self._dropped:
            self._on_dropped(core)

    def _on_standing(self, worker: WorkerFeed) -> None:
        before = self._standings.get(worker.node)
        self._standings[worker.node] = worker.standing
        if before is None and worker.standing is Standing.UNKNOWN:
            return
        if worker.standing is Standing.LOADING:
            self._count("worker_loads_total", worker.node)
        elif worker.standing is Standing.OUT_OF_SYNC:
            self._count("worker_out_of_sync_total", worker.node)
        tell = log.warning if worker.standing in _WARNED else log.info
        tell(
            "worker changes",
            node=self._master,
            worker=worker.node,
            before=(before or Standing.UNKNOWN).value,
            now=worker.standing.value,
            reason=worker.reason,
            lsn=worker.applied,
        )

    def _on_removed(self, workers: dict[NodeId, WorkerFeed]) -> None:
        for node in [node for node in self._standings if node not in workers]:
            del self._standings[node]
            log.info("worker removed", node=self._master, worker=node)

    def _on_probe(self, core: MasterCore, mono_ms: int) -> None:
        """A turn that ended is nothing to tell; a probe that is gone is."""
        before, self._probe = self._probe, core.feed.probe
        if self._probe is not None:
            self.counts["probe_turns_total"] += 1
        if before is None:
            return
        lost = core.site.workers.get(before)
        if lost is None or not lost.is_on or not core.site.is_alive(lost, mono_ms):
            self.counts["probe_losses_total"] += 1
            log.warning("probe lost", node=self._master, probe=before, next=self._probe, lsn=core.feed.executed)

    def _on_read_only(self, reason: str) -> None:
        if bool(reason) is bool(self._read_only):
            return
        self._read_only = reason
        if reason:
            self.counts["read_only_total"] += 1
            log.warning("read-only begins", node=self._master, reason=reason)
        else:
            log.info("read-only ends", node=self._master)

    def _on_attention(self, reason: str) -> None:
        if bool(reason) is bool(self._attention):
            return
        self._attention = reason
        if reason:
            log.error("needs attention", node=self._master, reason=reason)
        else:
            log.info("needs no attention any more", node=self._master)

    def _on_differing(self, core: MasterCore) -> None:
        found = core.sites.differing
        for peer in sorted(found.keys() - self._differing):
            lsn, ours, theirs = found[peer]
            log.error("site differs", node=self._master, peer=peer, lsn=lsn, ours=ours, theirs=theirs)
        for peer in sorted(self._differing - found.keys()):
            log.info("site agrees again", node=self._master, peer=peer)
        self._differing = frozenset(found)

    def _on_dropped(self, core: MasterCore) -> None:
        """Who is behind by more of the log than may be held for anybody cannot catch up by it any more."""
        before, self._dropped = self._dropped, core.dropped_pins
        for name in sorted(set(self._dropped) - set(before)):
            self.counts["pins_dropped_total"] += 1
            more = "takes a snapshot"
            if name == SPLIT:
                more = "this master cannot go back any more: then it has to take over the state of another one"
            if name.startswith((NAMED, PEER)):
                more = "who set it has to begin anew" if name.startswith(NAMED) else "takes over the state of another master"
            log.warning(
                "log not kept",
                node=self._master,
                **_whom(name),
                lsn=core.site.workers[name].applied if name in core.site.workers else None,
                reason=f"it needs more of the log than tx-log-hard-limit allows, and {more}",
            )
        for name in sorted(set(before) - set(self._dropped)):
            log.info("log kept again", node=self._master, **_whom(name))

    def _count(self, name: str, worker: NodeId) -> None:
        self.counts[name, worker] += 1


def _whom(name: str) -> dict[str, str]:
    """For whom the log is held: a worker, a master, or whoever set a pin."""
    if name == SPLIT:
        return {"pin": SPLIT}
    if name.startswith(PEER):
        return {"peer": name.removeprefix(PEER)}
    return {"pin": name.removeprefix(NAMED)} if name.startswith(NAMED) else {"worker": name}
