"""A link carries labelled bytes between one node and its broker: what differs between the two kinds of broker.

    KombuTransport ── Link ─┬─ LoopLink       RabbitMQ: two connections, served by the loop itself
                            └─ DirectLink     in-process: no thread; everything happens in the calls of the loop

`LinkState` is what the threads of a link tell about themselves.
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
        """Hand over publications; never blocks."""

    def take(self, limit: int, timeout_s: float) -> list[Arrival]:
        """Up to ``limit`` arrivals, sync first, waiting at most ``timeout_s`` for the first one or for `wake`.

        Raises ConfigurationError where the broker is another cluster's and the node was never connected.
        """

    def wake(self) -> None:
        """Make a waiting `take` return at once."""

    def settle(self, tags: Iterable[ClientTag]) -> None:
        """Acknowledge messages of apps."""

    def serve_shared(self, is_open: bool) -> None:
        """Whether the queue of writes that any master may take is consumed."""

    def serve_clients(self, is_open: bool) -> None:
        """Whether messages of apps are consumed at all; when it ends, what was not settled goes back."""

    def follow(self, queue: str) -> None:
        """Read the queue of a transaction, as long as it is there; never blocks."""

    def leave(self, queue: str) -> None:
        """Read it no longer."""

    def state(self) -> tuple[str, Problem]:
        """State word, and why."""

    def hear(self, node: NodeId) -> None:
        """A message of this node came: its inbox may be at this broker, where `look` finds it."""

    def look(self, masters: Iterable[NodeId]) -> None:
        """Ask for the inboxes of masters; an arrival of `ABSENCE_LANE` for each that was there and is gone."""

    @property
    def has_other_nodes(self) -> bool:
        """Whether there is more than one address of the broker."""

    def leave_broker_node(self, directions: Iterable[str]) -> None:
        """Connect ``in`` or ``out`` anew, at another address of the broker, where there is one."""

    def waiting(self) -> int:
        """How many publications wait to be published."""

    def close(self, timeout_s: float) -> None:
        """Publish what waits as far as the time allows, then disconnect. Idempotent."""


class LinkState:
    """Who of a link's connections is up, and why not; callable from any thread."""

    def __init__(self, directions: Sequence[str]) -> None:
        self._lock = Lock()
        self._down = dict.fromkeys(directions, Problem("not connected yet", ""))
        """Why connections are down, by direction."""
        self._blocked: dict[str, str] = {}
        self.foreign: Problem | None = None
        """Why this node must not start: the virtual host is another cluster's."""

    def up(self, direction: str) -> None:
        """The connection works."""
        with self._lock:
            self._down.pop(direction, None)

    def down(self, direction: str, problem: Problem) -> None:
        """The connection is lost, or could not be opened."""
        with self._lock:
            self._down[direction] = problem
            self._blocked.pop(direction, None)

    def block(self, direction: str, reason: str) -> None:
        """The broker takes no publications on this connection now."""
        with self._lock:
            self._blocked[direction] = reason

    def unblock(self, direction: str) -> None:
        """The broker takes publications again."""
        with self._lock:
            self._blocked.pop(direction, None)

    def is_blocked(self) -> bool:
        """Whether the broker takes no publications now."""
        return bool(self._blocked)

    def read(self) -> tuple[str, Problem]:
        """State word, and why."""
        with self._lock:
            for problem in self._down.values():
                return WAITING_FOR_BROKER, problem
            for reason in self._blocked.values():
                return BLOCKED, Problem(reason, "")
            return CONNECTED, Problem("", "")
