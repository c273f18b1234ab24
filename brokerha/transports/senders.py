"""Whether a message between nodes was published by the node that it names: by the user with which its publisher came to the broker.

RabbitMQ lets a publisher set the property ``user_id`` to its own user only, so what arrives with it is said by the broker, not by
the message. Each node sets it. A node whose own user is called after it, ``<cluster>.<node>`` as ``brokerha init definitions`` makes them, expects the same
of all others, and sets aside what comes with another user or with none. Where all nodes share one user nothing can be told apart, and
nothing is checked.

Who speaks for a master says which process it is. Of the masters in the cluster file it is known which processes they have; nobody else is believed.

A broker of another site keeps the property on its way here only if the link says so (``trust-user-id``); `init definitions` does.

>>> senders = Senders("orders", "m1", "orders.m1")
>>> senders.problem("m2", "orders.m2"), senders.problem("m2", "orders.app")[0], senders.problem("m2", "")[0]
(None, 'foreign_user', 'no_user')
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from brokerha.model.ids import NodeId
from brokerha.transports.rights import user_of

FOREIGN_USER: Final = "foreign_user"
NO_USER: Final = "no_user"


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
