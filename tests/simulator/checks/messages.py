"""Checks of messages: only durable facts of the sender, and within the windows."""

from __future__ import annotations

from brokerha.model.epochs import ADD, NO_CHANGE, OF_A_JOINER, REMOVE, Change
from brokerha.model.ids import NodeId
from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare, EpochReport, Join, Row, Tail
from brokerha.model.wire.messages import Apply, Bodies, Execute, Fetch, Post
from brokerha.sync.bodies import FETCH_LIMIT
from brokerha.sync.catching_up import TAIL_LIMIT
from tests.simulator.checks.truth import Truth, check


class MessageChecks:
    """S8, S9 and S11 of messages between masters, S7 of messages to workers."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._config = {master.node: master.config for master in truth.world.masters}
        self._groups = frozenset(group.node for group in truth.world.groups)

    def on_post(self, sender: NodeId, _to: NodeId, post: Post) -> None:
        """Check that a post tells durable facts, and promises within the reservation."""
        truth = self._truth
        mirror = truth.mirrors[sender]
        row = post.row
        self._row(sender, row)
        for relayed in post.relayed:
            said = truth.rows.get((relayed.node, relayed.journal, relayed.incarnation, relayed.number))
            check(said == relayed, "R3", "a relayed row is what its master said", sender=sender, row=relayed)
        window = self._config[sender].sync.post_window
        for origin, start, entries in post.streams:
            end = start + len(entries)
            check(end <= mirror.counts.get(origin, 0), "S8", "lists only what is held", sender=sender, origin=origin)
            check(len(entries) <= window, "S9", "a post carries a window at most", sender=sender, listed=len(entries))
            if origin == sender and sender in truth.before_wipe:
                continue  # The other masters must ignore it.
            is_same = list(entries) == truth.streams[origin][start:end]
            check(is_same, "S1", "lists what the origin stamped", sender=sender, origin=origin, start=start)

    def _row(self, sender: NodeId, row: Row) -> None:
        truth = self._truth
        mirror = truth.mirrors[sender]
        said, last = (sender, row.journal, row.incarnation, row.number), mirror.posted.get(row.incarnation, 0)
        if row.number == last and truth.rows.get(said) == row:
            # The same message, to another process of a master whose primary is unknown.
            return
        # A former primary of a master with backups can go on sending for a while; nodes that heard the new one ignore it.
        is_later = row.number > last
        is_later = is_later and (sender in self._groups or row.incarnation >= max(mirror.posted, default=0))
        check(is_later, "S11", "posts are numbered upwards", sender=sender)
        for origin, count in row.have.items():
            durable = mirror.counts.get(origin, 0)
            check(count <= durable, "S8", "confirms only what is durable", sender=sender, origin=origin, count=count)
        check(row.lsn <= mirror.lsn, "S8", "tells only of durable LSNs", sender=sender, lsn=row.lsn)
        # A former primary can go on sending in a former epoch.
        is_joiner = row.epoch == OF_A_JOINER.id and mirror.epoch is None
        is_its = row.epoch == mirror.epoch_id or is_joiner or (sender in self._groups and row.epoch < mirror.epoch_id)
        is_its = is_its and row.promised <= max(mirror.promised_epoch, mirror.epoch_id)
        check(is_its, "S12", "tells of its durable epoch and promise", sender=sender, epoch=row.epoch)
        above = row.promise - mirror.high_water
        check(above <= 0, "S11", "promises at most the durable high-water mark", sender=sender, above=above)
        before = mirror.promises.get(row.incarnation, 0) if sender in self._groups else mirror.promised
        back = before - row.promise
        check(back <= 0, "S11", "promises never go back", sender=sender, back=back)
        mirror.promises[row.incarnation] = row.promise
        mirror.promised = max(mirror.promised, row.promise)
        truth.rows[said] = row
        mirror.posted[row.incarnation] = row.number

    def on_prepare(self, sender: NodeId, _to: NodeId, prepare: EpochPrepare) -> None:
        """Check that a proposer has promised its own proposal."""
        promised = self._truth.mirrors[sender].promised_epoch
        check(promised >= prepare.epoch, "S12", "a proposal is promised first", sender=sender, epoch=prepare.epoch)
        self._truth.changes[prepare.epoch] = prepare.change

    def on_report(self, sender: NodeId, _to: NodeId, report: EpochReport) -> None:
        """Check that a report comes after its promise, and tells durable facts."""
        mirror = self._truth.mirrors[sender]
        promised = mirror.promised_epoch >= report.epoch
        check(promised, "S12", "reports what it promised", sender=sender, epoch=report.epoch)
        truth, row = self._truth, report.row
        if truth.changes.get(report.epoch, NO_CHANGE).node == sender:
            accepted = frozenset(txid for txid in mirror.accepted if txid not in truth.lsn_of)
            truth.accepted_when[sender, row.incarnation, row.number] = accepted
        is_voter = self._is_voter(sender, report)
        check(is_voter, "M4", "only who is known reports", sender=sender, epoch=report.epoch)
        self._row(sender, report.row)
        entries = [(origin, txid) for _, _, txid, origin in report.recovered]
        entries += [(origin, txid) for origin, _, listed in report.streams for _, txid in listed]
        for origin, txid in entries:
            check((origin, txid) in mirror.bodies, "S8", "reports what it has bodies of", sender=sender, txid=txid)

    def _is_voter(self, sender: NodeId, report: EpochReport) -> bool:
        """Tell whether a node is, was, or becomes a master with its own journal; with backups its journal is of another kind."""
        truth, journal = self._truth, report.row.journal
        if sender in self._groups or truth.changes.get(report.epoch) == Change(ADD, sender, journal):
            return True
        if sender in truth.founders and sender not in truth.before_wipe and not truth.past[sender]:
            return True
        return any(epoch.configuration.journals.get(sender) == journal for epoch in truth.epochs.values())

    def on_report_taken(self, node: NodeId, sender: NodeId, report: EpochReport) -> None:
        """Note a leaving master's entries when the proposer takes its report in: they must not be lost by the change."""
        truth = self._truth
        change = truth.changes.get(report.epoch)
        if change is not None and (change.kind, change.node) == (REMOVE, sender) and report.epoch[1] == node:
            truth.told_by_leaving.setdefault(report.epoch, (sender, truth.accepted_at(report)))

    def on_install(self, _sender: NodeId, _to: NodeId, install: EpochInstall) -> None:
        """Check that an epoch is decided once."""
        self._truth.decided(install.epoch)

    def on_tail(self, sender: NodeId, _to: NodeId, tail: Tail) -> None:
        """Check that a tail is a part of the queue."""
        truth = self._truth
        first = tail.first_lsn
        is_right = list(tail.entries) == truth.canon[first - 1 : first - 1 + len(tail.entries)]
        check(is_right, "S1", "a tail is a part of the queue", sender=sender, first=first)
        check(len(tail.entries) <= TAIL_LIMIT, "S9", "a tail is bounded", sender=sender, entries=len(tail.entries))

    def on_join(self, sender: NodeId, _to: NodeId, join: Join) -> None:
        """Check that a joining node tells true facts."""
        self._row(sender, join.row)

    def on_bodies(self, sender: NodeId, _to: NodeId, bodies: Bodies) -> None:
        """Check that bodies are durable at their sender, and that a message exceeds its limit by at most one body."""
        mirror = self._truth.mirrors[sender]
        for origin, txid, _ in bodies.items:
            check((origin, txid) in mirror.bodies, "S8", "sends only durable bodies", sender=sender, txid=txid)
        size = sum(len(body) for _, _, body in bodies.items)
        limit = self._config[sender].sync.body_message_bytes
        check(size <= limit or len(bodies.items) == 1, "S9", "a message of bodies is bounded", sender=sender, size=size)

    def on_fetch(self, sender: NodeId, _to: NodeId, fetch: Fetch) -> None:
        """Check that a request is bounded."""
        check(len(fetch.wanted) <= FETCH_LIMIT, "S9", "a request is bounded", sender=sender, wanted=len(fetch.wanted))

    def on_execute(self, sender: NodeId, to: NodeId, execute: Execute) -> None:
        """Check that workers get only entries of the synchronised queue that can be told (R7)."""
        truth = self._truth
        last = execute.first_lsn + len(execute.items) - 1
        told = truth.mirrors[sender].told_lsn
        check(last <= told, "S7", "executes only what may be told", sender=sender, to=to, last=last, told=told)
        for lsn, (txid, timestamp, body) in enumerate(execute.items, execute.first_lsn):
            canon = truth.canon[lsn - 1]
            check((timestamp, txid) == canon[:2], "S7", "executes the queue", sender=sender, to=to, lsn=lsn)
            check(body == truth.body_at(lsn), "S7", "executes the right body", sender=sender, to=to, lsn=lsn)
        limit = self._config[sender].feed.message_items
        check(len(execute.items) <= limit, "S9", "a message to a worker is bounded", sender=sender)

    def on_apply(self, sender: NodeId, to: NodeId, apply: Apply) -> None:
        """Check that other workers get effects that the master has taken in."""
        truth = self._truth
        last = apply.first_lsn + len(apply.items) - 1
        told = truth.mirrors[sender].told_executed if sender in truth.mirrors else truth.reached[sender]
        # An empty one asks for a worker's position, and can count a result that is about to be written.
        is_told = last <= told or not apply.items
        check(is_told, "S7", "sends only effects that it has taken in", sender=sender, to=to, last=last, told=told)
        for lsn, line in enumerate(apply.items, apply.first_lsn):
            if lsn == len(truth.results) + 1:
                # A copy executed it before its process died, without a report.
                truth.results.append((line[2], line[3], line[4], line[5]))
            is_right = truth.may_differ or tuple(line[2:]) == truth.results[lsn - 1]
            check(is_right, "S7", "sends the right effect", sender=sender, lsn=lsn)
            canon = truth.canon[lsn - 1]
            check((line[1], line[0]) == canon[:2], "S7", "a line names its transaction", sender=sender, lsn=lsn)
        limit = self._config[sender].feed.message_items if sender in self._config else 1000
        check(len(apply.items) <= limit, "S9", "a message to a worker is bounded", sender=sender)
