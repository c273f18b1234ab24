"""What a worker says of itself: its state word for people, and the heartbeat for its master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerha.following.machine import State
from brokerha.model import states
from brokerha.model.messages import Progress

if TYPE_CHECKING:
    from brokerha.replication.worker import WorkerCore


def word_of(core: WorkerCore) -> tuple[str, str]:
    """State word and reason."""
    if core.state is State.LOAD:
        return states.REPLICATION_CLIENT, (f"{core.trouble}; " if core.trouble else "") + _loading(core)
    if core.trouble:
        return states.OUT_OF_SYNC, core.trouble
    if core.failure:
        return states.HALTED, core.failure
    if core.state is State.IDLE:
        return (states.OFF, core.idle_reason) if core.idle_reason else (states.UNINITIALISED, "waits for its master")
    followers = core.offering.followers
    if followers:
        word = states.WRITING_COPY if core.is_writing else states.REPLICATION_SERVER
        return word, f"gives its copy to {', '.join(followers)}"
    if core.master_lsn > core.applied:
        word = states.WRITING if core.is_writing else states.WAITING_WRITE
        return word, f"{core.master_lsn - core.applied} to apply"
    return states.ON, ""


def _loading(core: WorkerCore) -> str:
    loading = core.replacing.loading
    if core.kept.is_restoring:
        return f"restores what it kept at LSN {core.kept.state.lsn}"
    if loading is None:
        return "waits for a source"
    if not loading.total_bytes:
        return f"waits for a snapshot of {loading.source}"
    return f"loading from {loading.source}: {100 * loading.done_bytes // loading.total_bytes} %"


def progress_of(core: WorkerCore) -> Progress:
    """The heartbeat."""
    word, reason = word_of(core)
    loading = core.replacing.loading
    return Progress(
        journal=core.journal,
        applied_lsn=core.applied,
        fingerprint=core.fingerprint,
        items=core.items,
        state=word,
        reason=reason,
        running_reads=core.running_reads,
        follows=core.state.value,
        view=core.view,
        trouble=core.trouble,
        load_lsn=loading.lsn if loading is not None else 0,
        done_bytes=loading.done_bytes if loading is not None else 0,
        total_bytes=loading.total_bytes if loading is not None else 0,
        free_bytes=core.free_bytes,
        wanted_lsn=core.master_lsn,
        differs_lsn=core.differs[0],
        differs_fingerprint=core.differs[1],
        lineage=core.lineage,
        kept_lsn=core.kept.state.lsn,
        kept_lineage=core.kept.state.lineage,
        kept_number=core.kept.state.number,
        kept_reason=core.kept.reason,
    )
