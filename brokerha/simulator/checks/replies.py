"""Checks of what clients are told: at most one answer for each ticket, and nothing but the truth."""

from __future__ import annotations

from brokerha.model.ids import NodeId
from brokerha.model.operations import REJECTED
from brokerha.model.requests import ACCEPTED, APPLIED_LEVEL, REFUSED, REJECTED_STATUS, SYNCHRONISED, UNKNOWN, Reply
from brokerha.simulator.checks.truth import Truth, check
from brokerha.simulator.clients.workload import Clients


class ReplyChecks:
    """Answers against what is durable."""

    def __init__(self, truth: Truth, clients: Clients) -> None:
        self._truth = truth
        self._clients = clients

    def on_reply(self, node: NodeId, reply: Reply) -> None:
        """One answer."""
        clients = self._clients
        ticket = clients.tickets.get(reply.ticket)
        check(ticket is not None, "replies", "a ticket is answered once", node=node, reply=reply)
        if ticket is None or reply.status == UNKNOWN:
            return
        check(
            clients.world.owner[ticket.node] == node, "replies", "answered where it was asked", node=node, reply=reply
        )
        check(reply.txid == ticket.txid, "replies", "names the transaction", node=node, reply=reply)
        if reply.status == REFUSED:
            self._refused(node, reply, ticket.body)
            return
        held = reply.txid in self._truth.mirrors[node].accepted or reply.txid in self._truth.lsn_of
        check(held, "replies", "answers only for what is durable", node=node, reply=reply)
        if reply.status == ACCEPTED:
            return
        self._ordered(node, reply)
        if reply.lsn < clients.world.master(node).journal.first_lsn():
            return  # Operations and outcome were trimmed there: only the LSN of the id is still known.
        is_same = self._truth.body_at(reply.lsn) == ticket.body
        check(is_same, "replies", "the operations are those that were sent", node=node, reply=reply)
        if reply.status != SYNCHRONISED:
            self._applied(node, reply, ticket.copies)

    def _ordered(self, node: NodeId, reply: Reply) -> None:
        truth = self._truth
        lsn = truth.lsn_of.get(reply.txid)
        check(lsn == reply.lsn, "S3", "the LSN is that of the queue", node=node, reply=reply, lsn=lsn)
        mirror = truth.mirrors[node]
        may_be_told = reply.lsn <= mirror.told_lsn or reply.txid in mirror.known
        check(may_be_told, "replies", "only what is in the order here", node=node, reply=reply)

    def _applied(self, node: NodeId, reply: Reply, copies: int) -> None:
        truth = self._truth
        outcome = truth.model.outcomes[reply.lsn]
        expected = REJECTED_STATUS if outcome == REJECTED else APPLIED_LEVEL
        check(reply.status == expected, "replies", "the outcome is the true one", node=node, reply=reply)
        # A worker that applied it may have lost its copy since, or taken an older one.
        done = sum(truth.reached[worker] >= reply.lsn for worker, master in truth.master_of.items() if master == node)
        check(done >= copies, "replies", "so many workers have it", node=node, reply=reply, done=done)

    def _refused(self, node: NodeId, reply: Reply, body: bytes) -> None:
        """What is refused was never taken in: it must not be in the queue because of this ticket."""
        truth = self._truth
        lsn = truth.lsn_of.get(reply.txid)
        if reply.error == "KeyReused":
            is_reused = len(self._clients.bodies_of(reply.txid)) > 1
            check(is_reused, "replies", "an id is called reused only when it was", node=node, reply=reply)
        clients = self._clients
        clients.on_refusal(reply.txid, body)
        if lsn is not None and truth.body_at(lsn) == body:
            is_live = clients.is_live(reply.txid, body)
            check(is_live, "replies", "what was refused has not come to be", node=node, reply=reply)
