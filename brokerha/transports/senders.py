"""Whether a message between nodes was published by the node that it names: by the user with which its publisher came to the broker.

RabbitMQ lets a publisher set the property ``user_id`` to its own user only, so what arrives with it is said by the broker, not by
the message. Each node sets it. A node whose own user is called after it, ``<cluster>.<node>`` as ``brokerha init definitions`` makes them, expects the same
of all others, and sets aside what comes with another user or with none. Where all nodes share one user nothing can be told apart, and
nothing is checked.

What is set aside is told in the log, once for each node and again after a while (`Foreigners`): a node that was started with the address of
another one knows nothing of it, nor does one of another version.

Who speaks for a master says which process it is. Of the masters in the cluster file it is known which processes they have; nobody else is believed.

A broker of another site keeps the property on its way here only if the link says so (``trust-user-id``); `init definitions` does.

>>> senders = Senders("orders", "m1", "orders.m1")
>>> senders.problem("m2", "orders.m2"), senders.problem("m2", "orders.app")[0], senders.problem("m2", "")[0]
(None, 'foreign_user', 'no_user')
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import structlog

from brokerha.model.ids import NodeId
from brokerha.ports.transport import Problem
from brokerha.transports.rights import user_of

FOREIGN_USER: Final = "foreign_user"
NO_USER: Final = "no_user"
TOLD_AGAIN_S: Final = 600.0
TOLD_LIMIT: Final = 100
"""Nodes that are kept in mind: a message can name any."""
log = structlog.get_logger(__name__)


class Senders:
    """What one node expects; see the head of the module."""

    def __init__(self, cluster: str, node: NodeId, user: str, processes: Mapping[NodeId, Collection[NodeId]] | None = None) -> None:
        """``processes`` are those of each master that is known, and each worker as its own."""
        self._cluster = cluster
        self._processes = dict(processes or {})
        self._owner = {process: owner for owner, group in self._processes.items() for process in group}
        self.is_checked = user == user_of(cluster, node)
        """Whether each node has a user of its own."""

    def problem(self, sender: NodeId, user_id: str, process: NodeId = "") -> tuple[str, str] | None:
        """(word, reason) when a message that names this sender did not come from it; None when it did, or nobody can tell.

        ``process`` is the one that speaks for a master; empty when that has no other name.
        """
        if not self.is_checked:
            return None
        # Of a master that was added at run time the processes are not known: they are none of those that are.
        is_known = sender in self._processes or process in self._owner
        if process and is_known and self._owner.get(process) != sender:
            return FOREIGN_USER, f"it says that {process} speaks for {sender}, which is none of its processes"
        publisher = process or sender
        if user_id == (expected := user_of(self._cluster, publisher)):
            return None
        if not user_id:
            why = "published without user_id, or passed on by a link without trust-user-id"
            return NO_USER, f"it says that it is of {publisher}, and was {why}: the user of that node is {expected}"
        return FOREIGN_USER, f"it says that it is of {publisher}, and user {user_id} published it, not {expected}"


def of_another_user(sender: NodeId, reason: str) -> Problem:
    """What is wrong with messages that name this node, and what to do."""
    return Problem(
        reason,
        f"start {sender} with its own user of the broker, as brokerha init definitions makes it, and with the cluster file "
        "of this node; if it runs so, somebody else publishes in its name: see brokerha quarantine list",
    )


def of_another_version(reason: str) -> Problem:
    """The same for messages that name a node of another version."""
    return Problem(reason, "start all nodes with the same version of brokerha")


class Foreigners:
    """Nodes whose messages were set aside; used by one thread, except `reasons`."""

    def __init__(self, node: NodeId) -> None:
        self._node = node
        self._told_s: dict[NodeId, float] = {}
        self._reasons: dict[NodeId, Problem] = {}

    def note(self, sender: NodeId, problem: Problem, now_s: float) -> None:
        """A message that names this node was set aside."""
        told_s = self._told_s.get(sender)
        if told_s is None and len(self._told_s) >= TOLD_LIMIT:
            self._told_s = {node: at for node, at in self._told_s.items() if now_s - at < TOLD_AGAIN_S}
            self._reasons = {node: why for node, why in self._reasons.items() if node in self._told_s}
            if len(self._told_s) >= TOLD_LIMIT:
                return
        self._reasons[sender] = problem
        if told_s is None or now_s - told_s >= TOLD_AGAIN_S:
            self._told_s[sender] = now_s
            log.warning("messages set aside", node=self._node, sender=sender, reason=problem.reason, action=problem.remedy)

    def hear(self, sender: NodeId) -> None:
        """A message came of which the broker says that it is of this node."""
        if self._reasons:
            self._reasons.pop(sender, None)

    def reasons(self) -> dict[NodeId, Problem]:
        """Why the last message of a node was set aside, for those of which none was of use since. Callable from any thread."""
        return self._reasons.copy()
