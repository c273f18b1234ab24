"""Checks of transactions: answers to clients against the safe state, and the fate of each transaction in the queue.

These are the guarantees for clients; other tests check how the rules of brokerha/transactions/PROTOCOL.md lead to them.

    T1   an answer "prepared" is about a safe record with exactly the client's operations
    T3   a transaction told as committed or prepared is rolled back only by its decider
    T5   a transaction told as rolled back never appears
    T6   one decision, with the same answer to every question
    T8   a transaction told as prepared can be committed, whatever others do; a transaction that is over is not kept
    T7   the bank: transfers keep the tokens, at every LSN
    T9   all findings of an isolated transaction were true at one LSN, and at its own place still are: for its writes, or all of them
"""

from __future__ import annotations

from typing import Any

from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.model.operations import APPLIED, REJECTED
from brokerha.model.outside.isolation import SERIALIZABLE
from brokerha.model.records import Accepted, Added, Record, TxDecided, TxPrepared
from brokerha.model.requests import ACCEPTED, APPLIED_LEVEL, TxReply
from brokerha.model.reserved.branches import branch_id, prepare_id
from tests.simulator.checks.truth import Truth, check
from tests.simulator.clients.transactions import Run, Step, TxClients


class TxChecks:
    """All transactions of a world."""

    def __init__(self, truth: Truth, clients: TxClients) -> None:
        self._truth = truth
        self._clients = clients
        self._prepared: set[TxId] = set()
        self._decided: dict[TxId, bool] = {}
        """Safe decisions."""

    # ---- safe records

    def on_record(self, node: NodeId, record: Record) -> None:
        """Check a safe record."""
        match record:
            case TxPrepared():
                self._prepared.add(record.txid)
                self._is_whole(node, record.txid, record.body)
            case TxDecided():
                self._on_decided(node, record)
            case Accepted():
                for txid, body in record.items:
                    if self._clients.is_known(branch_id(txid)):
                        self._is_whole(node, txid, body)
                        self._may_appear(node, txid)
            case Added():
                for _, txid, _ in record.entries:
                    self._may_appear(node, txid)
                    self._can_be_committed(node, txid)
                self._bank(node)
            case _:
                pass

    def _is_whole(self, node: NodeId, txid: TxId, body: bytes) -> None:
        is_whole = self._clients.is_body_of(txid, body)
        check(is_whole, "T1", "a transaction has the operations of its client", node=node, txid=txid)

    def _on_decided(self, node: NodeId, record: TxDecided) -> None:
        before = self._decided.get(record.txid)
        is_overruled = before is True and not record.is_commit and record.is_heuristic
        check(before is None or is_overruled, "T6", "decided once", node=node, txid=record.txid, before=before)
        check(record.txid in self._prepared, "T6", "decided after it was prepared", node=node, txid=record.txid)
        self._decided[record.txid] = record.is_commit
        run = self._clients.by_txid.get(record.txid)
        if run is None or record.is_commit:
            return
        is_wanted = run.asked_rollback or run.by_hand or is_overruled or not run.told_prepared
        check(is_wanted, "T3", "what is prepared waits for its coordinator", node=node, txid=record.txid,
              reason=record.reason)  # fmt: skip

    def _may_appear(self, node: NodeId, txid: TxId) -> None:
        run = self._clients.by_txid.get(txid)
        if run is None or not run.told_aborted:
            return
        lsn = self._truth.lsn_of.get(txid)
        is_rejected = lsn is not None and self._truth.model.outcomes[lsn] == REJECTED
        check(is_rejected, "T5", "what was rolled back does not appear", node=node, txid=txid)

    def _can_be_committed(self, node: NodeId, txid: TxId) -> None:
        """Check that a client with the answer "prepared" can commit, unless a person ended the transaction."""
        run = self._clients.by_txid.get(txid)
        if run is not None and run.told_prepared and not run.by_hand:
            check(not self._is_rejected(txid), "T8", "what is prepared can be committed", node=node, txid=txid)

    def _is_prepared(self, txid: TxId) -> bool:
        """Tell whether a branch is durably closed, and its prepare was applied at its place."""
        lsn = self._truth.lsn_of.get(prepare_id(txid))
        return txid in self._prepared and lsn is not None and self._truth.model.outcomes[lsn] == APPLIED

    def _bank(self, node: NodeId) -> None:
        tokens = self._truth.model.tokens()
        check(tokens in ([], sorted(self._clients.tokens)), "T7", "transfers keep the tokens", node=node, tokens=tokens)

    # ---- answers

    def on_reply(self, node: NodeId, step: Step | None, reply: TxReply) -> None:
        """Check the answer to one step."""
        check(step is not None, "T6", "a step is answered once", node=node, reply=reply)
        if step is None:
            return
        check(step.node == node and step.txid == reply.txid, "T6", "answered where it was asked", reply=reply)
        run = step.run
        if reply.error in ("Aborted", "Conflict", "Rejected"):
            self._told_aborted(node, run, reply.txid)
        elif reply.error or run.txid != reply.txid:
            return
        elif step.action == "commit":
            self._told_committed(node, run, step.level or ACCEPTED, reply)
        elif step.action == "prepare" and reply.answer["state"] == "prepared":
            run.told_prepared = True
            is_safe = self._is_prepared(reply.txid)
            check(is_safe, "T1", "prepared is told of what can be committed", node=node, txid=reply.txid)
        elif step.action == "rollback" and reply.answer["state"] == "aborted":
            self._told_aborted(node, run, reply.txid)

    def _told_aborted(self, node: NodeId, run: Run, txid: TxId) -> None:
        if txid != run.txid:
            return
        is_wanted = run.asked_rollback or run.by_hand or not run.told_prepared
        check(is_wanted, "T3", "what is prepared waits for its coordinator", node=node, txid=txid)
        run.told_aborted = True
        if not self._is_rejected(txid):
            is_open = txid not in self._truth.lsn_of and txid not in self._truth.mirrors[run.master].accepted
            check(is_open, "T5", "nothing is called aborted that appears", node=node, txid=txid)

    def _is_rejected(self, txid: TxId) -> bool:
        lsn = self._truth.lsn_of.get(txid)
        return lsn is not None and self._truth.model.outcomes[lsn] == REJECTED

    def _told_committed(self, node: NodeId, run: Run, level: str, reply: TxReply) -> None:
        truth, txid = self._truth, reply.txid
        # An answer after a decision by hand reports only the decision, without waiting for the probe.
        level = ACCEPTED if reply.answer.get("reason") else level
        is_safe = txid in truth.mirrors[run.master].accepted or txid in truth.lsn_of
        check(is_safe, "T3", "committed is told of what is safe", node=node, txid=txid)
        check(not run.told_aborted, "T6", "told alike", node=node, txid=txid)
        run.told_committed = run.told_committed or level
        if reply.answer.get("lsn"):
            lsn = truth.lsn_of.get(txid)
            check(lsn == reply.answer["lsn"], "T3", "its LSN is that of the queue", node=node, reply=reply, lsn=lsn)
            if level == APPLIED_LEVEL and lsn is not None:
                check(truth.model.outcomes[lsn] == APPLIED, "T3", "committed is applied", node=node, txid=txid)

    def on_outcome(self, node: NodeId, txid: TxId, answer: dict[str, Any] | None) -> None:
        """Check the answer to a question for an outcome."""
        run = self._clients.by_txid.get(txid)
        if run is None or answer is None:
            return
        truth, state = self._truth, answer["state"]
        if state == "aborted" or (state == "applied" and answer["outcome"] == REJECTED):
            self._told_aborted(node, run, txid)
        elif state in ("accepted", "synchronised", "applied", "committed"):
            is_safe = txid in truth.mirrors[run.master].accepted or txid in truth.lsn_of or not run.operations
            check(is_safe, "T3", "an outcome is told of what is safe", node=node, txid=txid, answer=answer)
        elif state == "prepared":
            check(self._is_prepared(txid), "T1", "prepared is told of what can be committed", node=node, txid=txid)
        if answer["lsn"]:
            lsn = truth.lsn_of.get(txid)
            check(answer["lsn"] == lsn, "T3", "its LSN is that of the queue", node=node, txid=txid, answer=answer)

    # ---- the end

    def at_the_end(self) -> None:
        """T3, T5: check that clients' knowledge is true."""
        truth = self._truth
        for run in self._clients.runs:
            lsn = truth.lsn_of.get(run.txid)
            is_applied = lsn is not None and truth.model.outcomes[lsn] == APPLIED
            check(not (run.told_aborted and is_applied), "T5", "what was rolled back does not appear", txid=run.txid)
            if lsn is not None and is_applied:
                self._is_isolated(run, lsn)
            is_there = lsn is not None and (is_applied or run.told_committed != APPLIED_LEVEL)
            check(is_there or not run.told_committed, "T3", "what was committed is there", txid=run.txid)

    def _is_isolated(self, run: Run, lsn: Lsn) -> None:
        """T9, for a transaction applied at an LSN; a branch was judged at its prepare, and is protected since then."""
        model = self._truth.model
        judged = self._truth.lsn_of.get(prepare_id(run.txid), lsn)
        written = {each[1:3] for each in run.operations if each[0] in {"put", "delete"}}
        for found in run.found:
            is_one_moment = model.held_at(found, run.read_lsn)
            check(is_one_moment, "T9", "all reads are of one moment", txid=run.txid, found=found, lsn=run.read_lsn)
            if run.isolation == SERIALIZABLE or found[1:3] in written:
                check(model.held_at(found, judged - 1), "T9", "what was read still holds", txid=run.txid, found=found, lsn=judged)
