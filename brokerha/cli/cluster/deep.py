"""The deep half of ``brokerha verify --deep``: every worker looks at all of its own data, and what comes out of it.

Each master starts a scrub at each of its workers; all run at the same time, at the rate of the setting ``scrub-items-per-s``,
while reads and writes go on. A worker that is not in sync is named and not looked at. A copy that is found damaged is
taken out and replaced by its master, whether or not anybody waits here.

| result | means |
|---|---|
| equal | the fingerprint computed from the data is the one that the log says |
| damaged | it is not; the reason has both |
| unknown | nothing can be said: not in sync, too far behind to compare, or the work could not be done |
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from brokerha.cli.common.access import until_reached
from brokerha.cli.common.cluster import Cluster
from brokerha.cli.common.output import columns
from brokerha.cli.common.progress import progress
from brokerha.model import states
from brokerha.model.errors import BrokerhaError, NotReady, Unreachable

POLL_S = 0.5
EQUAL, DAMAGED, UNKNOWN = "equal", "damaged", "unknown"
COLUMNS = columns("id=COPY", "master", "result", "lsn", "items", "reason")


@dataclass(slots=True)
class _Look:
    """One worker's scrub."""

    master: str
    worker: str
    request: str = ""
    done: int = 0
    total: int = 0
    row: dict[str, Any] | None = None
    """What came out; None while it runs."""

    def end(self, result: str, reason: str = "", lsn: int | None = None, items: int | None = None) -> None:
        """Nothing more is expected."""
        self.row = {
            "id": self.worker, "master": self.master, "result": result, "lsn": lsn, "items": items, "reason": reason,
        }  # fmt: skip


def look_at_all(cluster: Cluster) -> list[dict[str, Any]]:
    """Have every worker look at its data, wait for all; a row for each. Raises Unreachable when no master answers."""
    looks, silent = _begin(cluster)
    running = [look for look in looks if look.row is None]
    # How much there is to look at comes with the first reports, and a bar needs it.
    while any(look.row is None and not look.total for look in running):
        _follow_all(cluster, running)
    done = 0
    with progress(f"{len(running)} copies", sum(look.total for look in running), "items") as meter:
        while any(look.row is None for look in running):
            _follow_all(cluster, running)
            meter.advance(sum(look.done for look in running) - done)
            done = sum(look.done for look in running)
    rows = [look.row for look in looks if look.row is not None]
    rows += [
        {"id": None, "master": master, "result": UNKNOWN, "lsn": None, "items": None, "reason": reason}
        for master, reason in silent.items()
    ]
    return rows


def _begin(cluster: Cluster) -> tuple[list[_Look], dict[str, str]]:
    answers, silent = cluster.worker_lists()
    looks = []
    for name, answer in answers.items():
        for worker in answer["workers"]:
            look = _Look(name, worker["id"])
            looks.append(look)
            if not worker["alive"] or worker["state"] not in states.SERVING:
                why = worker["reason"] or ("" if worker["alive"] else "not heard")
                look.end(UNKNOWN, f"{worker['state']}: {why}" if why else worker["state"])
                continue
            try:
                task = cluster.command(name, "scrub", worker=look.worker)
            except NotReady as error:
                look.end(UNKNOWN, str(error))
            else:
                look.request = task["request"]
                _take(look, task)
    return looks, silent


def _follow_all(cluster: Cluster, looks: list[_Look]) -> None:
    time.sleep(POLL_S)
    for look in looks:
        if look.row is None:
            _follow(cluster, look)


def _follow(cluster: Cluster, look: _Look) -> None:
    """Ask how far one is; a master that is away for longer than a question may take ends it."""
    try:
        _take(look, until_reached(cluster.timeout_s, POLL_S)(cluster.command, look.master, "task", request=look.request))
    except Unreachable as error:
        look.end(UNKNOWN, f"its master does not answer any more: {error}")
    except BrokerhaError as error:
        look.end(UNKNOWN, f"its master was started again meanwhile: {error}")


def _take(look: _Look, task: dict[str, Any]) -> None:
    look.done, look.total = task["done"], task["total"] or look.total
    answer = task["answer"]
    if task["state"] == "failed":
        look.end(DAMAGED if answer.get("damaged") else UNKNOWN, task["reason"])
    elif task["state"] == "done" and answer.get("is_compared", True):
        look.end(EQUAL, "", answer.get("lsn"), answer.get("items"))
    elif task["state"] == "done":
        look.end(UNKNOWN, "the log went on too far meanwhile to compare: try again", answer.get("lsn"), answer.get("items"))
