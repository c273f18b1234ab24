"""A link carries labelled bytes between one node and its broker: the part that differs between the two kinds of broker.

    KombuTransport ── Link ─┬─ LoopLink       RabbitMQ: two connections, served by the loop itself
                            └─ DirectLink     in-process: no thread; everything happens in the calls of the loop

`LinkState` holds the reports of a link's threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Protocol

from brokerha.model.ids import NodeId
from brokerha.model.states import BLOCKED, WAITING_FOR_BROKER
from brokerha.ports.transport import Problem
from brokerha.transports.lanes import Arrival, ClientTag, Publication

CONNECTED = "connected"


class Link(Protocol):
    """Used by one thread, except `wake`, `state` and `waiting`."""

    def publish(self, publications: Sequence[Publication]) -> None:
        """Queue publications; never blocks."""

    def take(self, limit: int, timeout_s: float) -> list[Arrival]:
        """Return up to ``limit`` arrivals, sync first; wait at most ``timeout_s`` for the first one or for `wake`.

        Raises ConfigurationError when the broker is another cluster's and the node was never connected.
        """

    def wake(self) -> None:
        """Make a waiting `take` return at once."""

    def settle(self, tags: Iterable[ClientTag]) -> None:
        """Acknowledge messages of apps."""

    def serve_shared(self, is_open: bool) -> None:
        """Start or stop consuming the queue of writes that all masters share."""

    def serve_clients(self, is_open: bool) -> None:
        """Start or stop consuming messages of apps; a stop returns the unsettled ones."""

    def follow(self, queue: str) -> None:
        """Read the queue of a transaction while it exists; never blocks."""

    def leave(self, queue: str) -> None:
        """Stop reading the queue of a transaction."""

    def state(self) -> tuple[str, Problem]:
        """Return the state word and the reason."""

    def hear(self, node: NodeId) -> None:
        """Note a message of this node: its inbox is possibly at this broker, where `look` finds it."""

    def look(self, masters: Iterable[NodeId]) -> None:
        """Ask for the inboxes of masters; each that existed and is gone gives an arrival of `ABSENCE_LANE`."""

    @property
    def has_other_nodes(self) -> bool:
        """Whether the broker has more than one address."""

    def leave_broker_node(self, directions: Iterable[str]) -> None:
        """Reconnect ``in`` or ``out`` at another address of the broker, if there is one."""

    def waiting(self) -> int:
        """Return the number of waiting publications."""

    def most_bytes(self) -> int:
        """Return the size of the largest message that the broker takes."""

    def close(self, timeout_s: float) -> None:
        """Publish the waiting messages as far as time allows, then disconnect. Idempotent."""


class LinkState:
    """The state of a link's connections, with reasons; any thread can use it."""

    def __init__(self, directions: Sequence[str]) -> None:
        self._lock = Lock()
        self._down = dict.fromkeys(directions, Problem("not connected yet", ""))
        """Reasons why connections are down, by direction."""
        self._blocked: dict[str, str] = {}
        self.most_bytes = 16 * 1024 * 1024
        """Size of the largest message that the broker takes; known from the first connection on."""
        self.foreign: Problem | None = None
        """Why this node must not start: the virtual host is another cluster's."""

    def up(self, direction: str) -> None:
        """Note that a connection works."""
        with self._lock:
            self._down.pop(direction, None)

    def down(self, direction: str, problem: Problem) -> None:
        """Note that a connection was lost, or could not be opened."""
        with self._lock:
            self._down[direction] = problem
            self._blocked.pop(direction, None)

    def block(self, direction: str, reason: str) -> None:
        """Note that the broker takes no publications on this connection now."""
        with self._lock:
            self._blocked[direction] = reason

    def unblock(self, direction: str) -> None:
        """Note that the broker takes publications again."""
        with self._lock:
            self._blocked.pop(direction, None)

    def is_blocked(self) -> bool:
        """Tell whether the broker takes no publications now."""
        return bool(self._blocked)

    def read(self) -> tuple[str, Problem]:
        """Return the state word and the reason."""
        with self._lock:
            for problem in self._down.values():
                return WAITING_FOR_BROKER, problem
            for reason in self._blocked.values():
                return BLOCKED, Problem(reason, "")
            return CONNECTED, Problem("", "")
