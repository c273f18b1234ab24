"""The state words of nodes: one word, a reason and an action text, the same in status, JSON, metrics and page.

>>> describe("waiting-for-broker", reason="connection refused")["action"]
'start the broker, or correct the broker address; the node goes on by itself'
"""

from __future__ import annotations

OK = "ok"
READ_ONLY = "read-only"
NEEDS_ATTENTION = "needs-attention"
DIFFERS = "differs"

ON = "on"
OFF = "off"
UNINITIALISED = "uninitialised"
OUT_OF_SYNC = "out-of-sync"
WAITING_WRITE = "waiting-write"
WRITING = "writing"
WRITING_COPY = "writing-copy"
REPLICATION_SERVER = "replication-server"
REPLICATION_CLIENT = "replication-client"
UNKNOWN = "unknown"

READY = "ready"
JOINING = "joining"
IDLE = "idle"
PAUSED = "paused"
WAITING_FOR_PRIMARY = "waiting-for-primary"
WAITING_FOR_BACKUPS = "waiting-for-backups"

STARTING = "starting"
CATCHING_UP = "catching-up"
WAITING_FOR_BROKER = "waiting-for-broker"
WAITING_FOR_PEERS = "waiting-for-peers"
NO_MAJORITY = "no-majority"
EXCLUDED = "excluded"
LEFT_BEHIND = "left-behind"
SPLIT = "split"
WAITING_TO_BE_ADDED = "waiting-to-be-added"
RETIRED = "retired"
NO_WORKER = "no-worker"
BLOCKED = "blocked"
DISK_FULL = "disk-full"
HALTED = "halted"
LOST_STATE = "lost-state"
UNREACHABLE = "unreachable"

ACTIONS = {
    OK: "",
    READ_ONLY: "wait until the workers that the reason names are in sync again, or switch one on; reads go on",
    NEEDS_ATTENTION: "choose the worker whose copy is right: brokerha worker trust ID; the others are healed from it",
    DIFFERS: "find the right content with brokerha verify --deep, then brokerha worker repair MASTER --from WORKER",
    ON: "",
    OFF: "brokerha worker on ID brings it back",
    UNINITIALISED: "wait; if it lasts, look whether its master runs",
    OUT_OF_SYNC: "wait; it is brought back by itself as soon as there is a good copy",
    WAITING_WRITE: "",
    WRITING: "",
    WRITING_COPY: "",
    REPLICATION_SERVER: "",
    REPLICATION_CLIENT: "wait; it takes the content of another worker and goes on by itself",
    UNKNOWN: "start the worker, or look at its log",
    READY: "",
    JOINING: "wait; it takes what it lacks from the others and goes on by itself",
    IDLE: "brokerha promote ID declares a primary; then it goes on by itself",
    PAUSED: "brokerha node coin ID, then brokerha node continue ID, bring it back",
    WAITING_FOR_PRIMARY: "wait for the fail-over; if it lasts, start the other processes of the master, or brokerha promote ID",
    WAITING_FOR_BACKUPS: "start the backups that the reason names: writes are held until they confirm, reads go on",
    STARTING: "wait; if it lasts, look at the log of the node",
    CATCHING_UP: "wait; the lag shrinks by itself",
    WAITING_FOR_BROKER: "start the broker, or correct the broker address; the node goes on by itself",
    WAITING_FOR_PEERS: "start the masters that the reason names; once a cluster has begun, the others go on by themselves",
    NO_MAJORITY: "start the masters that the reason names until a majority is heard; writes wait until then, reads go on",
    EXCLUDED: "wait; it is taken back by itself, and what it has accepted is synchronised then",
    SPLIT: "wait; when the masters that the reason names are heard again, all agree by themselves: brokerha splits list tells what came of it",
    LEFT_BEHIND: "wait; if it lasts, start a worker at a master that it hears; never empty its data directory",
    WAITING_TO_BE_ADDED: "add it, with the cluster file of the others: brokerha peer add MASTER",
    RETIRED: "stop it; to have it back empty its data directory, start it, and add it: brokerha peer add MASTER",
    NO_WORKER: "start a worker of this master: writes are ordered but not applied until then",
    BLOCKED: "free memory or disk space on the broker; the node goes on by itself",
    DISK_FULL: "free disk space in the data directory; the node goes on by itself",
    HALTED: "read the reason; the node needs a person, the rest of the cluster goes on",
    LOST_STATE: "the data directory was emptied or replaced: bring back the directory itself, never an older copy of it; or begin anew with brokerha peer replace MASTER",
    UNREACHABLE: "start the node, or look at its log",
}
"""Advice to people for each state."""

SERVING = frozenset({ON, WAITING_WRITE, WRITING, WRITING_COPY, REPLICATION_SERVER})
"""Words of a worker that is in sync."""
HEALTHY = frozenset({OK, READY, *SERVING})
DEGRADED = frozenset({
    STARTING, CATCHING_UP, WAITING_FOR_BROKER, WAITING_FOR_PEERS, NO_MAJORITY, EXCLUDED, SPLIT, BLOCKED, NO_WORKER, READ_ONLY, OFF,
    UNINITIALISED, OUT_OF_SYNC, REPLICATION_CLIENT, JOINING, PAUSED, WAITING_FOR_PRIMARY, WAITING_FOR_BACKUPS,
})  # fmt: skip
"""States that end by themselves when their cause is gone; all others need a person."""


def describe(state: str, reason: str = "", remedy: str = "") -> dict[str, str]:
    """Return ``{"state", "reason", "action"}``; ``remedy``, if given, replaces the general action."""
    return {"state": state, "reason": reason, "action": remedy or ACTIONS[state]}
