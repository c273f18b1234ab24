"""The state words of nodes: one word, a reason and an action text, the same in status, JSON, metrics and page.

>>> describe("waiting-for-broker", reason="connection refused")["action"]
'start the broker, or correct the broker address; the node goes on by itself'
"""

from __future__ import annotations

OK = "ok"
STARTING = "starting"
CATCHING_UP = "catching-up"
WAITING_FOR_BROKER = "waiting-for-broker"
WAITING_FOR_PEERS = "waiting-for-peers"
NO_WORKER = "no-worker"
BLOCKED = "blocked"
DISK_FULL = "disk-full"
HALTED = "halted"
LOST_STATE = "lost-state"
UNREACHABLE = "unreachable"

ACTIONS = {
    OK: "",
    STARTING: "wait; if it lasts, look at the log of the node",
    CATCHING_UP: "wait; the lag shrinks by itself",
    WAITING_FOR_BROKER: "start the broker, or correct the broker address; the node goes on by itself",
    WAITING_FOR_PEERS: "start the masters that the reason names; the others go on by themselves",
    NO_WORKER: "start a worker of this master: writes are ordered but not applied until then",
    BLOCKED: "free memory or disk space on the broker; the node goes on by itself",
    DISK_FULL: "free disk space in the data directory; the node goes on by itself",
    HALTED: "read the reason; the node needs a person, the rest of the cluster goes on",
    LOST_STATE: "the data directory was emptied or replaced: bring back the directory itself, never an older copy of it",
    UNREACHABLE: "start the node, or look at its log",
}
"""What a person should do about each state."""

HEALTHY = frozenset({OK})
DEGRADED = frozenset({STARTING, CATCHING_UP, WAITING_FOR_BROKER, WAITING_FOR_PEERS, BLOCKED, NO_WORKER})
"""States that pass by themselves once their cause is gone; all others need a person."""


def describe(state: str, reason: str = "") -> dict[str, str]:
    """Return ``{"state", "reason", "action"}``."""
    return {"state": state, "reason": reason, "action": ACTIONS[state]}
