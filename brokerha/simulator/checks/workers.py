"""Checks of the workers: nothing twice, nothing out of order, nothing that is not agreed on, and the right content (S7)."""

from __future__ import annotations

from brokerha.model.ids import NodeId
from brokerha.model.operations import ResultRow
from brokerha.model.ready import ApplyBatch, Decision, ExecuteBatch, StoreDone, StoreFailed
from brokerha.model.wire.messages import Executed
from brokerha.simulator.checks.truth import Truth, check
from brokerha.simulator.copies import SimCopy


class WorkerChecks:
    """S7, equal results, and the content against the model."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def on_decision(self, node: NodeId, decision: Decision) -> None:
        """A worker is about to change its store."""
        truth = self._truth
        if isinstance(decision, (ExecuteBatch, ApplyBatch)):
            expected = truth.applied[node] + 1
            first = decision.first_lsn
            check(first == expected, "S7", "never twice, never out of order", node=node, first=first, expected=expected)
            check(bool(_length(decision)), "S7", "a batch is not empty", node=node)
        if isinstance(decision, ExecuteBatch):
            last = decision.first_lsn + len(decision.items) - 1
            # Its master may have lost the place again; it works out the same one.
            check(last <= truth.lsn, "S7", "never beyond what is agreed on", node=node, last=last, agreed=truth.lsn)
            for lsn, (txid, timestamp, body) in enumerate(decision.items, decision.first_lsn):
                is_same = (timestamp, txid) == truth.canon[lsn - 1][:2] and body == truth.body_at(lsn)
                check(is_same, "S7", "executes the queue", node=node, lsn=lsn, txid=txid)

    def on_store(self, node: NodeId, store: SimCopy, answer: StoreDone | StoreFailed) -> None:
        """A store committed something."""
        truth = self._truth
        applied = store.applied()
        before = truth.applied[node]
        check(applied.lsn >= before, "S7", "what is applied stays", node=node, lsn=applied.lsn, before=before)
        truth.set_applied(node, applied.lsn)
        if truth.may_differ:
            return
        right = truth.model.fingerprints[applied.lsn] if applied.lsn < len(truth.model.fingerprints) else "nothing"
        check(applied.fingerprint == right, "S7", "the content is the fold of the queue", node=node, lsn=applied.lsn)
        check(not isinstance(answer, StoreFailed), "S7", "nothing fails without a cause", node=node, answer=answer)
        if isinstance(answer, StoreDone) and answer.results:
            self._results(node, answer.first_lsn, answer.results)

    def on_executed(self, node: NodeId, _to: NodeId, report: Executed) -> None:
        """A worker reports results: they are durable there."""
        last = report.first_lsn + len(report.results) - 1
        check(last <= self._truth.reached[node], "S7", "reports only what is durable", node=node, last=last)
        self._results(node, report.first_lsn, report.results)

    def _results(self, node: NodeId, first_lsn: int, results: tuple[ResultRow, ...]) -> None:
        if self._truth.may_differ:
            return
        known = self._truth.results
        for lsn, result in enumerate(results, first_lsn):
            if lsn == len(known) + 1:
                known.append(result)
            if lsn <= len(known):
                check(tuple(result) == known[lsn - 1], "S7", "equal results everywhere", node=node, lsn=lsn)

    def compare(self, node: NodeId, store: SimCopy) -> None:
        """The whole content against the model, at the end of the queue."""
        truth = self._truth
        found = store.recompute()
        check(found.lsn == truth.lsn, "S10", "every worker has everything", node=node, applied=found.lsn)
        check(found.fingerprint == truth.model.fingerprints[-1], "S10", "equal content", node=node)
        check(found == store.applied(), "S10", "the fingerprint is that of the data", node=node)
        check(found.items == truth.model.items, "S10", "equal counts", node=node, items=found.items)
        executed = [txid for txid, _ in store.executed]
        check(len(executed) == len(set(executed)), "S7", "nothing is executed twice", node=node)


def _length(decision: ExecuteBatch | ApplyBatch) -> int:
    return len(decision.items)
