"""The process that acts for each master, learnt from the masters' messages; and a transport that sends to it.

    receive ── who speaks for m1, with which incarnation? ── lower than known ──> dropped, counted as ``fenced``
                                                          └─ else ──> noted, handed on
    send ── to m1 ──> the process that spoke last for m1, with the highest incarnation
                  └─ before any process spoke, or after a long silence ──> all processes of m1

A process that becomes primary of its own master doubts all addresses: other processes can act for the other masters by now.
Otherwise two masters that change their primaries at once would never find each other. The same can happen when a late message of a
former primary arrives. So after `UNHEARD_MESSAGES` messages to a silent process, the next message goes to all processes again.

Every restart and every fail-over of a master has a higher incarnation than the one before. An old primary that does not know its
successor is ignored by every node that has heard the successor, and gets no answers.

Invariants: only masters of the cluster are noted. Messages that a process sends as itself (`BETWEEN_PROCESSES`, its status, all
with incarnation 0) and messages of workers pass unchecked, because their incarnations count something else. Messages between
processes go to exactly the process that they name.

A master that was taken out and added again with an empty journal begins with a low incarnation again. So the book learns the
journal that each master is known by (`trust`). When that journal changes, the book forgets the master's process, and from then on
only a message that shows this journal (a row) makes another process known. Messages of a process with another journal, or with a
retired one, are handed on, so that the process can be told; the process is never noted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from brokerha.model.ids import NodeId
from brokerha.model.ready import TxQueueDecision
from brokerha.model.requests import Absence
from brokerha.model.wire.messages import (
    BETWEEN_PROCESSES,
    Message,
    Outgoing,
    SettingsReport,
    SettingsRequest,
    StatusReport,
    StatusRequest,
)
from brokerha.ports.transport import ClientMessage, ClientReply, Inbound, Transport, TransportStatus

_AS_ITSELF: frozenset[type[Message]] = BETWEEN_PROCESSES | {StatusRequest, StatusReport, SettingsRequest, SettingsReport}
"""Messages that a standby sends under its own id, which can be that of its master."""


UNHEARD_MESSAGES = 64
"""Number of messages to one silent process of a master; after them, messages go to all its processes until one is heard."""


class _Acting(NamedTuple):
    """The process that acts for a master."""

    incarnation: int
    process: NodeId
    is_shown: bool = False
    """Whether one of its messages showed the journal that the master is known by."""


class AddressBook:
    """See the head of the module; pure, used by one thread.

    >>> book = AddressBook(["m1"])
    >>> book.process_of("m1")
    'm1'
    >>> book.note("m1", incarnation=8, process="m1b"), book.process_of("m1")
    (True, 'm1b')
    >>> book.note("m1", incarnation=7, process="m1"), book.process_of("m1")
    (False, 'm1b')
    """

    def __init__(self, masters: Iterable[NodeId], processes: Mapping[NodeId, Sequence[NodeId]] | None = None) -> None:
        """``processes``: those of each master that has backups, including its own."""
        self._masters = frozenset(masters)
        self._processes = {master: tuple(names) for master, names in (processes or {}).items()}
        self._known: dict[NodeId, _Acting] = {}
        """By master; only masters that were heard."""
        self._journals: dict[NodeId, str] = {}
        """The journal that each master is known by, as far as known."""
        self._retired: frozenset[tuple[NodeId, str]] = frozenset()
        self._doubted: set[NodeId] = set()
        """Masters that were heard, but not recently."""
        self._unheard: dict[NodeId, int] = {}
        """Number of messages sent to each master with several processes since it was last heard."""

    def trust(self, masters: Iterable[NodeId], journals: Mapping[NodeId, str], retired: Iterable[tuple[NodeId, str]]) -> None:
        """Set the masters, the journal that each is known by, and the (master, journal) pairs that were taken out.

        >>> book = AddressBook(["m1"])
        >>> book.note("m1", 8, "m1", "old"), book.trust(["m1"], {"m1": "new"}, [("m1", "old")])
        (True, None)
        >>> book.note("m1", 1, "m1b", "new"), book.note("m1", 9, "m1", "old"), book.note("m1", 9, "m1"), book.process_of("m1")
        (True, True, False, 'm1b')
        """
        self._masters, self._retired = frozenset(masters), frozenset(retired)
        for master, journal in self._journals.items():
            if journals.get(master) != journal:
                self.forget(master)
        self._journals = dict(journals)

    def forget(self, master: NodeId) -> None:
        """Forget the process that acts for a master, until it is heard again."""
        self._known.pop(master, None)

    def note(self, master: NodeId, incarnation: int, process: NodeId, journal: str = "") -> bool:
        """Note that a process acts for a master; return False when the book knows a newer one.

        ``journal`` is the journal that the message shows, if any. Of two processes with the same incarnation, the first one
        counts: they cannot both be right.
        """
        if master not in self._masters or incarnation <= 0:
            return True
        if journal and ((master, journal) in self._retired or self._journals.get(master, journal) != journal):
            return True
        known = self._known.get(master, _Acting(0, process))
        is_shown = bool(journal) and master in self._journals
        if is_shown and not known.is_shown:
            known = _Acting(0, process)
        elif known.is_shown and not journal and incarnation > known.incarnation:
            return False
        if incarnation < known.incarnation or (incarnation == known.incarnation and process != known.process):
            return False
        self._known[master] = _Acting(incarnation, process, is_shown or known.is_shown)
        self._doubted.discard(master)
        self._unheard.pop(master, None)
        return True

    def doubt(self) -> None:
        """Doubt the process of every other master, so that messages go to all until one is heard. Fences stay."""
        self._doubted = set(self._known)

    def addresses(self, node: NodeId) -> tuple[NodeId, ...]:
        """Return the inboxes for the next message to this node: one, or all processes of a master that was not heard.

        >>> book = AddressBook(["m1"], {"m1": ("m1", "m1b")})
        >>> book.addresses("m1"), book.note("m1", 3, "m1b"), book.addresses("m1")
        (('m1', 'm1b'), True, ('m1b',))
        """
        names = self._processes.get(node, (node,))
        if len(names) > 1 and node in self._known:
            self._unheard[node] = unheard = self._unheard.get(node, 0) + 1
            if unheard > UNHEARD_MESSAGES:
                self._doubted.add(node)
        if node in self._known and node not in self._doubted:
            return (self._known[node].process,)
        return names

    def processes(self, master: NodeId) -> Collection[NodeId]:
        """Return all processes that can act for a master."""
        return self._processes.get(master, (master,))

    def point(self, master: NodeId, process: NodeId) -> None:
        """Set the primary of a master. Only a standby knows it this way: from the journal's feed."""
        self._known[master] = self._known.get(master, _Acting(0, process))._replace(process=process)
        self._doubted.discard(master)

    def process_of(self, node: NodeId) -> NodeId:
        """Return the process whose inbox takes messages for this node."""
        return self._known[node].process if node in self._known else node


class AddressedTransport:
    """A ports.Transport around another one: it reaches the process that acts for a master, and ignores its other processes."""

    def __init__(
        self, transport: Transport, book: AddressBook, patience_s: float = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``patience_s``: a fence ends when the process behind it was silent for this long; 0 for never.

        Only a worker needs this: no message tells it that its master has another journal now.
        """
        self._transport = transport
        self._book = book
        self._patience_s = patience_s
        self._clock = clock
        self._heard_s: dict[NodeId, float] = {}
        self._fenced = 0
        self._speaks_for: tuple[NodeId, int] | None = None

    def speak_for(self, master: NodeId, incarnation: int) -> None:
        """Send under this master's name from now on, except between processes; with ``""``, only as itself."""
        self._speaks_for = (master, incarnation) if master else None
        if master:
            self._book.doubt()

    def point(self, master: NodeId, process: NodeId) -> None:
        """Send messages for this master to this process from now on, until another one is heard as the master."""
        self._book.point(master, process)

    def trust(self, masters: Iterable[NodeId], journals: Mapping[NodeId, str], retired: Collection[tuple[NodeId, str]]) -> None:
        """Set the masters and the journals that they are known by (`AddressBook.trust`)."""
        self._book.trust(masters, journals, retired)

    def send(self, outgoing: Sequence[Outgoing]) -> None:
        """Send each message to the process that acts for its destination, or to all that possibly do."""
        self._transport.send([message for each in outgoing for message in self._addressed(each)])

    def look(self, masters: Sequence[NodeId]) -> None:
        """Ask the broker about the masters that have one process: of the others, another process could be about to act."""
        self._transport.look([master for master in masters if len(self._book.processes(master)) == 1])

    def look_for(self, process: NodeId) -> None:
        """Ask the broker about one process of the own master."""
        self._transport.look([process])

    @property
    def has_other_nodes(self) -> bool:
        """Whether the broker has another node to connect to."""
        return self._transport.has_other_nodes

    def leave_broker_node(self, directions: Sequence[str]) -> None:
        """Reconnect at another node of the broker."""
        self._transport.leave_broker_node(directions)

    def receive(self, limit: int, timeout_ms: int) -> list[Inbound]:
        """Return the messages that arrived, except those of former primaries."""
        return [each for each in self._transport.receive(limit, timeout_ms) if self._is_heard(each)]

    def wake(self) -> None:
        """Make a waiting `receive` return at once."""
        self._transport.wake()

    def reply(self, replies: Sequence[ClientReply]) -> None:
        """Queue answers to apps."""
        self._transport.reply(replies)

    def settle(self, messages: Sequence[ClientMessage]) -> None:
        """Acknowledge messages of apps."""
        self._transport.settle(messages)

    def reject(self, message: ClientMessage, reason: str) -> None:
        """Move a poison message of an app aside."""
        self._transport.reject(message, reason)

    def serve_shared(self, is_open: bool) -> None:
        """Start or stop taking writes from the queues that all masters share."""
        self._transport.serve_shared(is_open)

    def serve_clients(self, is_open: bool) -> None:
        """Start or stop taking messages of apps; another process of this master takes them instead."""
        self._transport.serve_clients(is_open)

    def tx_queue(self, decision: TxQueueDecision) -> None:
        """Open, drop, follow or leave the queue of a transaction."""
        self._transport.tx_queue(decision)

    def status(self) -> TransportStatus:
        """Return the status of the wire, with the number of messages of former primaries."""
        status = self._transport.status()
        return replace(status, counters={**status.counters, "fenced": self._fenced})

    def close(self, timeout_ms: int = 5000) -> None:
        """Publish the waiting messages, then disconnect."""
        self._transport.close(timeout_ms)

    def _addressed(self, outgoing: Outgoing) -> list[Outgoing]:
        if type(outgoing.message) in BETWEEN_PROCESSES:
            return [outgoing]
        # Such an answer goes to the process that asked, which can be a standby under its master's id.
        is_answer = isinstance(outgoing.message, StatusReport | SettingsReport)
        addresses = (outgoing.to,) if is_answer else self._book.addresses(outgoing.to)
        sender, incarnation = outgoing.sender, outgoing.incarnation
        if not sender and self._speaks_for is not None:
            sender, incarnation = self._speaks_for
        if (*addresses, sender) == (outgoing.to, outgoing.sender):
            return [outgoing]
        return [replace(outgoing, to=to, sender=sender, incarnation=incarnation) for to in addresses]

    def _is_heard(self, item: Inbound) -> bool:
        if isinstance(item, (ClientMessage, Absence)) or type(item.message) in _AS_ITSELF:
            return True
        row = getattr(item.message, "row", None)
        said = (item.sender, item.incarnation, item.process or item.sender, row.journal if row is not None else "")
        if self._book.note(*said) or (self._is_silent(item.sender) and self._book.note(*said)):
            if self._patience_s:
                self._heard_s[item.sender] = self._clock()
            return True
        self._fenced += 1
        return False

    def _is_silent(self, master: NodeId) -> bool:
        """Forget the process that acts for a master when it was silent for long; tell whether it was."""
        if not self._patience_s or self._clock() - self._heard_s.get(master, 0.0) < self._patience_s:
            return False
        self._book.forget(master)
        return True
