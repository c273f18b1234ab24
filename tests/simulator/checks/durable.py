"""Checks of durable records of a master: order, agreement, acknowledgement, clocks.

Each record is compared with the canon and with the mirror of its master, and then added to both.
"""

from __future__ import annotations

from brokerha.log.log import Log
from brokerha.model.epochs import Epoch
from brokerha.model.fingerprints import text_of
from brokerha.model.forgetting import BODY as FORGETTING
from brokerha.model.forgetting import is_forgetting
from brokerha.model.ids import Entry, Lsn, NodeId
from brokerha.model.records import (
    Accepted,
    Added,
    Appended,
    BodiesHeld,
    ClockReserved,
    EpochInstalled,
    EpochPromised,
    IdsTaken,
    Outcomes,
    PeerJournal,
    Rebased,
    Record,
    Started,
    StateTaken,
)
from brokerha.model.reserved.branches import branch_id
from tests.simulator.checks.truth import Mirror, Truth, check
from tests.simulator.clients.transactions import TxClients
from tests.simulator.clients.workload import Clients


class DurableChecks:
    """S1, S2, S3, S5, S6, S8 and S11, from records."""

    def __init__(self, truth: Truth, clients: Clients, tx_clients: TxClients) -> None:
        self._truth = truth
        self._clients = clients
        self._tx_clients = tx_clients

    def on_record(self, node: NodeId, record: Record) -> None:
        """Check one durable record of a master."""
        mirror = self._truth.mirrors[node]
        match record:
            case Appended():
                self._appended(node, mirror, record)
            case Added():
                self._added(node, mirror, record)
            case BodiesHeld():
                self._held(node, mirror, record)
            case Accepted():
                self._accepted(node, mirror, record)
            case Rebased():
                self._rebased(node, mirror, record)
            case Outcomes():
                self._outcomes(node, mirror, record)
            case ClockReserved():
                check(record.high_water >= mirror.high_water, "S11", "the high-water mark grows", node=node)
                mirror.high_water = record.high_water
            case EpochPromised(epoch):
                check(epoch > mirror.promised_epoch, "S12", "the promised epoch grows", node=node, epoch=epoch)
                mirror.promised_epoch = epoch
            case IdsTaken() | StateTaken():
                self._state(node, mirror, record)
            case EpochInstalled():
                self._installed(node, mirror, record.epoch)
            case Started():
                check(record.incarnation > mirror.incarnation, "S11", "incarnations grow", node=node)
                mirror.incarnation = record.incarnation
            case _:
                self._others(mirror, record)

    def on_deferred(self, node: NodeId, record: Record) -> None:
        """R18: check a place in the order or a result that counts from now on, but is not durable yet."""
        mirror = self._truth.mirrors[node]
        if mirror.waiting_since_us is None:
            mirror.waiting_since_us = self._truth.world.now_us
        if isinstance(record, Added):
            self._placed(node, mirror, record, mirror.told_lsn)
            mirror.waiting_lsns += len(record.entries)
        elif isinstance(record, Outcomes):
            first, told = record.first_lsn, mirror.told_executed
            check(first == told + 1, "S7", "results have no gap", node=node, first=first)
            mirror.waiting_results += len(record.results)
            check(mirror.told_executed <= mirror.told_lsn, "S7", "only what is in the order is executed", node=node)

    @staticmethod
    def _others(mirror: Mirror, record: Record) -> None:
        if isinstance(record, PeerJournal):
            mirror.journals[record.peer] = record.journal

    def _accepted(self, node: NodeId, mirror: Mirror, record: Accepted) -> None:
        truth = self._truth
        for txid, body in record.items:
            known = body in self._clients.bodies_of(txid) or self._tx_clients.is_body_of(txid, body)
            known |= is_forgetting(txid) and body == FORGETTING
            check(known, "S2", "only what was submitted is accepted", node=node, txid=txid)
            is_new = txid not in mirror.accepted or truth.is_new(txid, mirror.told_lsn)
            check(is_new, "S2", "accepted once, while the id is known", node=node, txid=txid)
            mirror.accepted.add(txid)
            mirror.stamped.discard(txid)
            mirror.bodies.add((node, txid))
            if node in truth.before_wipe and truth.world.options.wipes:
                continue
            truth.bodies[node, txid] = body
            if truth.is_new(txid, truth.lsn):
                truth.waiting.setdefault(txid, []).append(node)

    def _held(self, node: NodeId, mirror: Mirror, record: BodiesHeld) -> None:
        for origin, txid, body in record.items:
            same = self._truth.bodies.get((origin, txid)) == body
            check(same, "S2", "a body is the one that its origin accepted", node=node, origin=origin, txid=txid)
            mirror.bodies.add((origin, txid))

    def _appended(self, node: NodeId, mirror: Mirror, record: Appended) -> None:
        truth, origin = self._truth, record.origin
        count = mirror.counts.get(origin, 0)
        check(not mirror.is_frozen, "R9", "nothing is stamped or merged while frozen", node=node, origin=origin)
        check(record.start == count, "S8", "a stream has no gap", node=node, origin=origin, start=record.start)
        mirror.counts[origin] = count + len(record.entries)
        if node == origin and node in truth.before_wipe:
            return  # Another check finds other masters that take entries of a node without its disk.
        stream = truth.streams[origin]
        for number, entry in enumerate(record.entries, count):
            if (origin, number, entry) in truth.lost_entries:
                continue  # An entry of a lost disk; two absent masters can still have it.
            if node == origin and number >= len(stream):
                self._stamped(node, mirror, number, entry)
                stream.append(entry)
            is_same = number < len(stream) and stream[number] == entry
            check(is_same, "S1", "a stream is what its origin stamped", node=node, origin=origin, number=number)
            check((origin, entry[1]) in mirror.bodies, "S8", "held with its body", node=node, entry=entry)

    def _stamped(self, node: NodeId, mirror: Mirror, number: int, entry: Entry) -> None:
        stream = self._truth.streams[node]
        timestamp, txid = entry
        check(txid not in mirror.stamped, "S2", "stamped once in an epoch", node=node, txid=txid)
        mirror.stamped.add(txid)
        last = stream[-1][0] if stream else 0
        check(timestamp > last, "S11", "timestamps grow", node=node, timestamp=timestamp, last=last)
        promised = mirror.promised
        check(timestamp > promised, "S11", "nothing is stamped at or below a promise", node=node, promised=promised)
        above = mirror.epoch.above if mirror.epoch else 0
        check(timestamp > above, "S11", "stamped above everything before the epoch", node=node, above=above)
        self._truth.numbers[node, timestamp] = number

    def _added(self, node: NodeId, mirror: Mirror, record: Added) -> None:
        self._placed(node, mirror, record, mirror.lsn)
        mirror.lsn += len(record.entries)

    def _placed(self, node: NodeId, mirror: Mirror, record: Added, end: Lsn) -> None:
        truth = self._truth
        check(record.first_lsn == end + 1, "S1", "LSNs have no gap", node=node, first_lsn=record.first_lsn)
        check(not (mirror.is_frozen and record.used), "R9", "no stream is added while frozen", node=node)
        for lsn, entry in enumerate(record.entries, record.first_lsn):
            if lsn > truth.lsn:
                check(not mirror.is_frozen, "R9", "nothing new is added while frozen", node=node, entry=entry)
                self._extends(node, entry)
            canon = truth.canon[lsn - 1]
            check(canon == entry, "S1", "one order", node=node, lsn=lsn, here=entry, elsewhere=canon)
            check((entry[2], entry[1]) in mirror.bodies, "S8", "added with its body", node=node, entry=entry)

    def _extends(self, node: NodeId, entry: tuple[int, str, str]) -> None:
        """Check an entry that a master adds first, which decides its place for all."""
        truth = self._truth
        timestamp, txid, origin = entry
        check(truth.is_new(txid, truth.lsn), "S2", "each transaction id once, while it is known", node=node, txid=txid)
        mirror = truth.mirrors[node]
        epoch = mirror.epoch
        recovered = epoch.recovered if epoch else ()
        place = truth.lsn - (epoch.base_lsn if epoch else 0)
        if place < len(recovered):
            check(entry == recovered[place], "S1", "what was recovered comes in its order", node=node, entry=entry)
        elif place > len(recovered):
            last = truth.canon[-1][:2]
            check((timestamp, txid) > last, "S5", "sorted by timestamp and id", node=node, entry=entry, last=last)
        before = truth.canon[-1][0] if truth.canon else 0
        check(timestamp >= before, "S5", "timestamps never go back", node=node, entry=entry, before=before)
        number = truth.numbers.get((origin, timestamp))
        known = number is not None and truth.streams[origin][number : number + 1] == [(timestamp, txid)]
        # An entry recovered from an older epoch can have another timestamp now.
        known = known or (place < len(recovered) and (origin, txid) in truth.bodies)
        check(known, "S2", "only what an origin stamped is added", node=node, entry=entry)
        held = truth.holders(entry, number or 0, mirror.epoch_id)
        masters = truth.masters_of(epoch)
        needed, held = len(masters) // 2 + 1, held.intersection(masters)
        check(len(held) >= needed, "S6", "durable at a majority", node=node, entry=entry, held=held, needed=needed)
        if truth.acknowledge == "all":
            lacking = set(epoch.members if epoch else truth.founders) - held
            check(not lacking, "S6", "durable at all members", node=node, entry=entry, lacking=lacking)
        truth.epoch_at.append(mirror.epoch_id)
        truth.extend(entry)
        truth.waiting.pop(txid, None)
        body = truth.bodies[origin, txid]
        truth.model.fold(txid, entry[0], body)
        is_live = is_forgetting(txid) or self._clients.is_live(txid, body) or self._tx_clients.is_known(branch_id(txid))
        check(is_live, "replies", "what was refused does not come to be", node=node, txid=txid)

    def _installed(self, node: NodeId, mirror: Mirror, epoch: Epoch) -> None:
        truth = self._truth
        truth.decided(epoch)
        check(epoch.id == mirror.promised_epoch, "S12", "what was promised is installed", node=node, epoch=epoch.id)
        check(epoch.id > mirror.epoch_id, "S12", "epochs grow", node=node, epoch=epoch.id)
        check(node in epoch.members, "S12", "members install it", node=node, epoch=epoch.id)
        named = epoch.configuration.journals.get(node)
        check(named == mirror.journal or not mirror.journal, "M3", "a member has the journal that is known", node=node, named=named)
        check(epoch.base_lsn == mirror.lsn, "S1", "the base is owned", node=node, base=epoch.base_lsn, lsn=mirror.lsn)
        is_majority = epoch.configuration.is_majority(epoch.members)
        check(is_majority, "S1", "an epoch has a majority", node=node, members=epoch.members)
        for origin, count in mirror.counts.items():
            check(epoch.starts.get(origin, 0) >= count, "S1", "a stream goes on after what is held", node=node)
        truth.installed(epoch)
        mirror.epoch = epoch
        mirror.counts = {**mirror.counts, **epoch.starts}
        mirror.stamped = {txid for _, txid, origin in epoch.recovered if origin == node}

    def _outcomes(self, node: NodeId, mirror: Mirror, record: Outcomes) -> None:
        truth = self._truth
        check(record.first_lsn == mirror.executed + 1, "S7", "results have no gap", node=node, first=record.first_lsn)
        mirror.executed += len(record.results)
        check(mirror.executed <= mirror.lsn, "S7", "only what is durable is executed", node=node)
        if truth.may_differ:
            return
        for lsn, result in enumerate(record.results, record.first_lsn):
            if lsn > len(truth.results):
                truth.results.append(result)
            check(tuple(result) == truth.results[lsn - 1], "S7", "equal results everywhere", node=node, lsn=lsn)
            check(result[0] == truth.model.outcomes[lsn], "S7", "the outcome that the model has", node=node, lsn=lsn)
            right = truth.model.fingerprints[lsn]
            check(text_of(result[3]) == right, "S7", "the fingerprint after it", node=node, lsn=lsn)

    def _rebased(self, node: NodeId, mirror: Mirror, record: Rebased) -> None:
        right = self._truth.model.fingerprints[record.lsn]
        # A site without a worker can have trimmed the entry that it would execute next.
        first = max(process.journal.first_lsn() for process in self._truth.world.master(node).processes)
        may_begin = record.lsn <= mirror.executed or mirror.executed + 1 < first <= record.lsn + 1
        # Or an operator trusted a copy, because no node has the results that lead to it.
        may_begin |= node in self._truth.chosen and not self._has_result(mirror.executed + 1)
        check(may_begin, "S7", "results begin anew where they are known", node=node, lsn=record.lsn)
        is_right = text_of(record.fingerprint) == right or self._truth.may_differ
        check(is_right, "S7", "results begin anew from the right content", node=node)
        self._truth.assumed[node].update(range(mirror.executed + 1, record.lsn + 1))
        mirror.executed = record.lsn

    def _has_result(self, lsn: Lsn) -> bool:
        """Tell whether a worker that can give it has the result of an LSN."""
        applied = self._truth.applied
        good = [worker for worker in self._truth.world.workers if not worker.is_damaged]
        return any(worker.copy.logged_from() <= lsn <= applied[worker.node] for worker in good)

    def _state(self, node: NodeId, mirror: Mirror, record: IdsTaken | StateTaken) -> None:
        """R16: check that a state is true, and that the queue continues after it only when all entries up to it are known."""
        truth = self._truth
        if isinstance(record, IdsTaken):
            mirror.known.update(txid for txid, _ in record.ids)
            wrong = [txid for txid, lsn in record.ids if lsn not in truth.places.get(txid, ())]
            check(not wrong, "S3", "a state says LSNs as they are", node=node, wrong=wrong)
            return
        check(mirror.lsn < record.lsn <= truth.lsn, "S1", "a state is ahead", node=node, lsn=record.lsn, was=mirror.lsn)
        canon = truth.canon[record.lsn - 1]
        check(record.last == canon, "S1", "a state ends with the queue's", node=node, here=record.last, elsewhere=canon)
        first = max(mirror.lsn, truth.ids_from(record.lsn) - 1)
        unknown = [txid for _, txid, _ in truth.canon[first : record.lsn] if txid not in mirror.known]
        check(not unknown, "S2", "what is in a state is known", node=node, unknown=unknown)
        right = truth.model.fingerprints[record.lsn]
        is_right = text_of(record.fingerprint) == right or truth.may_differ
        check(is_right, "S7", "results begin anew from the right content", node=node)
        mirror.lsn = mirror.executed = mirror.state_lsn = record.lsn
        truth.attach(node, mirror.known)
        truth.world.faults_seen["state taken"] += 1

    def on_start(self, node: NodeId, journal: Log) -> None:
        """S3: a restart finds everything that was durable."""
        self._truth.mirrors[node].journal = journal.state().journal
        self.compare_state(node, journal)

    def compare_state(self, node: NodeId, journal: Log) -> None:
        """Compare the state that a restart finds with the mirror."""
        mirror, state = self._truth.mirrors[node], journal.state()
        was = mirror.told_lsn
        check(state.lsn == was, "S3", "the queue is kept", node=node, found=state.lsn, was=was)
        check(state.high_water == mirror.high_water, "S11", "the high-water mark is kept", node=node)
        check(state.installed == mirror.epoch, "S12", "the epoch is kept", node=node)
        promised = max(mirror.promised_epoch, mirror.epoch_id)
        check(state.promised_epoch == promised, "S12", "the promised epoch is kept", node=node, promised=promised)
        for origin, stream in state.streams.items():
            found = stream.start + len(stream.entries)
            check(found == mirror.counts.get(origin, 0), "S3", "streams are kept", node=node, origin=origin)

    def compare(self, node: NodeId, journal: Log) -> None:
        """S1, S3 in full: compare the whole journal with the canon."""
        self.compare_state(node, journal)
        self.compare_log(node, journal)

    def compare_log(self, node: NodeId, journal: Log) -> None:
        """S1, S3 in full, for a journal that can lag or have unsafe records: its agreed entries are those of the canon."""
        truth = self._truth
        first = journal.first_lsn()
        held = journal.ordered(first, max(0, truth.lsn - first + 1))
        check(held == truth.canon[first - 1 : first - 1 + len(held)], "S1", "one order, in full", node=node)
        for lsn, (_, txid, origin) in enumerate(held, first):
            found = journal.known([txid]).get(txid)
            is_kept = found in truth.places[txid] and lsn <= found
            check(is_kept, "S3", "an LSN is kept", node=node, txid=txid, lsn=lsn)
            check(journal.body(origin, txid) == truth.bodies[origin, txid], "S8", "a body is kept", node=node, txid=txid)
