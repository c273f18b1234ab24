"""Masters and workers with their loops, threads and an in-process wire, but without disks: what a front door can rely on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from brokerha.master.config import MasterConfig
from brokerha.model import errors, states
from brokerha.model.forgetting import BODY, forgetting_id
from brokerha.model.outside.levels import LATEST_LSN
from brokerha.model.requests import Reply
from brokerha.nodes.building import SystemClock
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.master.node import MasterNode
from brokerha.nodes.observing.probes import NO_WORKER_LINE
from brokerha.nodes.observing.staleness import Age, Staleness
from brokerha.nodes.observing.status import StatusGathering
from brokerha.nodes.settings import NodeSettings
from brokerha.nodes.worker.limits import GuardLimits
from brokerha.nodes.worker.node import WorkerNode
from brokerha.ports.transport import Problem, TransportStatus
from brokerha.replication.site.config import FeedConfig
from brokerha.replication.worker.config import WorkerConfig
from brokerha.sync.config import SyncConfig
from brokerha.transports.kombu_transport import KombuTransport
from tests.support.logs import disk_of, memory_log, reopened
from tests.support.memory_store.worker_copy import MemoryCopy
from tests.support.waiting import until

WAIT_S = 15.0
_numbers = itertools.count()


class Site:
    """Two masters with one worker each; the second master may be left out."""

    def __init__(self, name: str, masters: tuple[str, ...] = ("m1", "m2"), outcomes_wait_ms: int = 20, **feed: Any) -> None:
        self.feed = feed
        self.outcomes_wait_ms = outcomes_wait_ms
        self.url = f"embedded://{name}"
        self.names = masters
        self.journals = {m: memory_log(m, f"journal-of-{m}") for m in masters}
        self.masters: dict[str, MasterNode] = {}
        self.workers: dict[str, WorkerNode] = {}
        for master in masters:
            self.start_worker(f"w{master[1:]}")
            self.start_master(master)

    def start_master(self, name: str, workers: tuple[str, ...] | None = None) -> MasterNode:
        workers = (f"w{name[1:]}",) if workers is None else workers
        sync, feed = SyncConfig(name, self.names or (name,)), FeedConfig(workers, **self.feed)
        config = MasterConfig(sync, feed, outcomes_wait_ms=self.outcomes_wait_ms)
        # A journal that was closed is read from its disk again, as by a new process.
        journal = self.journals.get(name) or memory_log(name, f"journal-of-{name}")
        self.journals[name] = reopened(journal)
        wire = KombuTransport(self.url, "nodes", name, 1, "master")
        node = MasterNode(config, "nodes", self.journals[name], wire, SystemClock(), self.settings(name))
        self.masters[name] = node
        node.start()
        return node

    def start_worker(self, name: str) -> WorkerNode:
        wire = KombuTransport(self.url, "nodes", name, 1, "worker")
        config = WorkerConfig(name, f"m{name[1:]}")
        copy = MemoryCopy(lambda: f"copy-{next(_numbers)}-of-{name}")
        node = WorkerNode(config, "nodes", copy, wire, SystemClock(), self.names, self.settings(name))
        self.workers[name] = node
        node.start()
        return node

    def settings(self, node: str) -> NodeSettings:
        return NodeSettings(ClusterConfig(name="nodes", broker=self.url), node)

    def put(self, master: str, key: bytes, value: bytes = b"v", **terms: Any) -> Future[Reply]:
        return self.masters[master].submit([("put", "t", key, value)], **terms)

    def stop(self) -> None:
        for master in self.masters.values():
            master.stop(5)
        for worker in self.workers.values():
            worker.stop(5)


@pytest.fixture
def site() -> Iterator[Site]:
    running = Site(f"nodes-{next(_numbers)}")
    until(lambda: all(master.ready()[0] and not master.staleness.found for master in running.masters.values()))
    yield running
    running.stop()


def test_a_write_is_applied_and_read_through_any_master(site: Site) -> None:
    reply = site.put("m1", b"k", b"hello").result(WAIT_S)
    assert (reply.status, reply.lsn) == ("applied", 1)
    for master in site.masters.values():
        outcome = master.read("get", "t", {"key": b"k"}, min_lsn=1, timeout_ms=5000).result(WAIT_S)
        assert outcome.body == b"hello"
        assert outcome.lsn >= 1


def test_what_lingers_goes_to_the_worker_once_anybody_waits_for_it() -> None:
    site = Site(f"nodes-{next(_numbers)}", ("m1",), linger_ms=600_000)
    try:
        master, worker = site.masters["m1"], site.workers["w1"]
        until(lambda: master.ready()[0])
        asks: tuple[Callable[[int], object], ...] = (
            lambda lsn: master.read("get", "t", {"key": b"k"}, min_lsn=lsn).result(WAIT_S),
            lambda _lsn: master.read("get", "t", {"key": b"k"}, min_lsn=LATEST_LSN).result(WAIT_S),
            lambda lsn: master.wait_for(lsn, 1, 30_000).result(WAIT_S),
            # A door that is about to ask the worker itself
            master.readers,
            lambda _lsn: site.put("m1", b"k").result(WAIT_S),
        )
        for ask in asks:
            lsn = site.put("m1", b"k", level="synchronised").result(WAIT_S).lsn
            until(lambda lsn=lsn: master.runner.core.feed.lingers_after == lsn - 1)  # type: ignore[misc]
            assert worker.runner.core.applied == lsn - 1
            ask(lsn)
            until(lambda lsn=lsn: worker.runner.core.applied >= lsn)  # type: ignore[misc]
            until(lambda: master.applied_lsn() == master.runner.core.sync.lsn)
    finally:
        site.stop()


def test_errors_of_a_read_come_back_as_what_they_are(site: Site) -> None:
    site.put("m1", b"k").result(WAIT_S)
    with pytest.raises(errors.NotFound):
        site.masters["m1"].read("get", "t", {"key": b"missing"}).result(WAIT_S)
    with pytest.raises(errors.TimedOut):
        site.masters["m1"].read("get", "t", {"key": b"k"}, min_lsn=99, timeout_ms=50).result(WAIT_S)


def test_bad_writes_are_refused_at_once_and_nothing_is_taken_in(site: Site) -> None:
    master = site.masters["m1"]
    for operations, terms in (
        ([], {}),
        ([("put", "t", b"", b"v")], {}),
        (b"\xc1", {}),
        ([("update", "main", "INSERT DATA {")], {}),
        ([("add", "main", "no quads")], {}),
        ([("put", "t", b"k", b"v")], {"txid": "with space"}),
        ([("put", "t", b"k", b"v")], {"level": "perhaps"}),
        ([("put", "t", b"k", b"v")], {"timeout_ms": 0}),
    ):
        with pytest.raises(errors.InvalidRequest):
            master.submit(operations, **terms)
    assert master.runner.core.sync.backlog() == 0


def test_ids_are_never_given_twice(site: Site) -> None:
    ids = {site.masters[m].new_txid() for m in site.names for _ in range(100)}
    assert len(ids) == 200


def test_status_shows_every_node_and_a_silent_master_as_unreachable(site: Site) -> None:
    site.put("m1", b"k").result(WAIT_S)
    # A fingerprint is empty until it is known for the LSN beside it.
    until(lambda: all(row["applied_lsn"] == 1 and row["fingerprint"] for row in site.masters["m1"].status()["nodes"]))
    status = site.masters["m1"].status()
    assert [row["id"] for row in status["nodes"]] == ["m1", "w1", "m2", "w2"]
    assert {row["state"] for row in status["nodes"]} <= {states.OK, *states.SERVING}
    assert [row["probe"] for row in status["nodes"]] == [None, True, None, True]
    assert len({row["fingerprint"] for row in status["nodes"]}) == 1
    assert site.workers["w1"].status()["state"] == states.OK
    site.masters.pop("m2").stop(5)
    rows = {row["id"]: row for row in site.masters["m1"].status(timeout_ms=200)["nodes"]}
    assert rows["m2"]["state"] == states.UNREACHABLE
    assert rows["m2"]["action"]


def test_a_master_that_writes_while_its_answer_is_lost_is_not_to_be_started(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where each site has a broker, and one of the links between them is down."""
    monkeypatch.setattr(StatusGathering, "on_report", lambda *_lost: None)

    def row() -> dict[str, Any]:
        with ThreadPoolExecutor(1) as beside:
            asked = beside.submit(site.masters["m1"].status, timeout_ms=1000)
            while not asked.done():
                site.put("m2", b"k").result(WAIT_S)
        rows: dict[str, dict[str, Any]] = {row["id"]: row for row in asked.result()["nodes"]}
        return rows["m2"]

    assert (row()["state"], row()["reason"]) == (states.UNREACHABLE, "is heard, but did not answer")
    site.masters.pop("m2").stop(5)
    told = site.masters["m1"].status(timeout_ms=1)["nodes"]
    assert [row["reason"] for row in told if row["id"] == "m2"] == ["did not answer"]


def test_a_master_whose_messages_are_set_aside_is_not_told_to_be_started(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.masters.pop("m2").stop(5)
    wrong = TransportStatus("connected", "", 0, {}, {"m2": Problem("it has another version", "start all with the same one")})
    monkeypatch.setattr(KombuTransport, "status", lambda _wire: wrong)
    rows = {row["id"]: row for row in site.masters["m1"].status(timeout_ms=1)["nodes"]}
    assert rows["m2"]["reason"] == "did not answer; its messages are set aside: it has another version"
    assert (rows["m2"]["state"], rows["m2"]["action"]) == (states.UNREACHABLE, "start all with the same one")


def test_a_worker_tells_the_status_of_its_master_and_its_own(site: Site) -> None:
    own = {row["id"]: row for row in site.workers["w1"].status()["nodes"]}["w1"]
    assert (own["state"], own["probe"], own["readable"]) == (states.ON, True, True)


def test_log_lines_say_what_happened(site: Site) -> None:
    site.put("m1", b"k", txid="first").result(WAIT_S)
    until(lambda: site.masters["m1"].log(1, 9)[0]["outcome"] == "applied")
    line = site.masters["m1"].log(1, 9)[0]
    assert (line["lsn"], line["txid"], line["origin"], line["kind"], line["operations"]) == (1, "first", "m1", "put", 1)
    assert len(line["effect_digest"]) == 32
    assert site.masters["m1"].log(5, 4) == []


def test_an_entry_that_forgets_ids_is_a_line_without_operations(site: Site) -> None:
    master = site.masters["m1"]
    master.loop.call(lambda: master.runner.core.admit(forgetting_id(1), BODY)).result(WAIT_S)
    site.put("m1", b"k").result(WAIT_S)
    until(lambda: [line["outcome"] for line in master.log(1, 9)] == ["applied"] * 2)
    line = master.log(1, 1)[0]
    assert (line["txid"], line["kind"], line["operations"], line["user"]) == ("forget-ids-below 1", "forget-ids", 0, None)
    until(lambda: master.entries(1, 1)["entries"] != [])
    assert master.logged(1, 1)[0][0] == master.entries(1, 1)["entries"][0][1] == "forget-ids-below 1"


def test_the_log_has_every_result_that_was_answered() -> None:
    site = Site(f"nodes-{next(_numbers)}", ("m1",), outcomes_wait_ms=600_000)
    try:
        master = site.masters["m1"]
        until(lambda: master.ready()[0])
        for number in range(3):
            site.put("m1", b"%d" % number).result(WAIT_S)
            lines = master.log(1, 0)
            assert [line["outcome"] for line in lines] == ["applied"] * (number + 1)
            assert len(lines[-1]["effect_digest"]) == 32
    finally:
        site.stop()


def test_outcomes_are_known_by_id(site: Site) -> None:
    site.put("m1", b"k", txid="known").result(WAIT_S)
    known = site.masters["m1"].outcome("known")
    assert known is not None
    assert (known["state"], known["lsn"], known["outcome"]) == ("applied", 1, "applied")
    assert site.masters["m1"].outcome("unknown") is None


def test_waiting_for_copies(site: Site) -> None:
    site.put("m1", b"k").result(WAIT_S)
    assert site.masters["m1"].wait_for(1, "all", 5000).result(WAIT_S)["workers"] == ["w1"]
    assert site.workers["w1"].wait_for(1, 1, 5000).result(WAIT_S)["lsn"] >= 1
    with pytest.raises(errors.TimedOut):
        site.masters["m1"].wait_for(99, 1, 50).result(WAIT_S)
    with pytest.raises(errors.InvalidRequest):
        site.masters["m1"].wait_for(1, 7, 50)


def test_the_log_begins_with_the_first_line_that_is_held(site: Site) -> None:
    for n in range(5):
        site.put("m1", b"%d" % n).result(WAIT_S)
    master, journal = site.masters["m1"], site.journals["m1"]
    assert master.loop.call(lambda: journal.trim(4)).result(WAIT_S) == 3
    assert [[line["lsn"] for line in master.log(*asked)] for asked in ((1, 0), (0, 0), (2, 4), (5, 9), (6, 0))] == [
        [4, 5], [4, 5], [4], [5], [],
    ]  # fmt: skip
    with pytest.raises(errors.InvalidRequest, match="LSN 1 to 3 are not held any more: the first one is 4"):
        master.log(1, 3)


def test_probes_say_what_is_wrong(site: Site) -> None:
    site.put("m1", b"k").result(WAIT_S)
    assert site.masters["m1"].writable() == (True, "")
    until(lambda: site.masters["m1"].ready(max_lag_entries=0, max_lag_s=1)[0])
    assert site.workers["w1"].ready(max_lag_entries=0)[0]
    site.workers.pop("w1").stop(5)
    site.masters["m1"].runner.core.feed.workers["w1"].heard_ms = -(10**12)
    is_ready, lines = site.masters["m1"].ready()
    assert not is_ready
    assert "[-]worker none is in sync: reads wait for one" in lines
    with pytest.raises(errors.NotReady):
        site.masters["m1"].read("get", "t", {"key": b"k"}).result(WAIT_S)


def test_a_worker_asks_its_master_how_old_its_copy_is(site: Site) -> None:
    site.put("m1", b"k").result(WAIT_S)
    until(lambda: site.workers["w1"].ready(max_lag_s=1)[0])
    site.masters.pop("m1").stop(5)
    is_ready, lines = site.workers["w1"].ready(max_lag_s=1)
    assert not is_ready
    assert "[-]lag nobody knows how old it is" in lines
    assert site.workers["w1"].ready()[0], "without a bound it may be as old as it is"


def test_what_a_master_apart_cannot_know_is_old_although_nothing_is_left_to_apply(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    master = site.masters["m1"]
    site.put("m1", b"k").result(WAIT_S)
    until(lambda: master.ready(max_lag_s=1)[0])
    monkeypatch.setattr(Staleness, "of", lambda _self, _mono_ms: Age(states.NO_MAJORITY, 2500))
    assert master.ready(max_lag_s=3)[0]
    assert master.ready(max_lag_s=1)[1][-1] == "[-]lag 2.5 s behind, more than 1"
    monkeypatch.setattr(Staleness, "of", lambda _self, _mono_ms: Age(states.NO_MAJORITY, None))
    assert master.ready(max_lag_s=1)[1][-1] == "[-]lag nobody knows how old it is"


def test_a_master_without_workers_orders_serves_no_reads_and_shows_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    lone = Site(f"nodes-{next(_numbers)}", ())
    node = lone.start_master("m1", workers=())
    try:
        until(lambda: node.writable()[0])
        assert lone.put("m1", b"k", level="synchronised").result(WAIT_S).lsn == 1
        is_ready, lines = node.ready()
        assert (is_ready, [line for line in lines if "[+]" not in line]) == (False, [NO_WORKER_LINE])
        row = node.status()["nodes"][0]
        assert (row["received_lsn"], row["lag_entries"], row["lag_s"]) == (1, 0, 0.0)
        assert (row["applied_lsn"], row["fingerprint"], row["items"]) == (None, None, None)
        for workers in ("all", "quorum", 1):
            with pytest.raises(errors.InvalidRequest, match="no worker to wait for"):
                node.wait_for(1, workers, 50)
        # What any master may take it leaves to those that have workers, if there are any
        said = list[bool]()
        monkeypatch.setattr(node.transport, "serve_shared", said.append)
        until(lambda: said[-1:] == [True])
        node.watching.leaves_writes = True
        until(lambda: said[-1] is False)
    finally:
        lone.stop()


def test_workers_take_no_writes_and_say_who_does(site: Site) -> None:
    worker = site.workers["w1"]
    assert worker.writable()[0] is False
    with pytest.raises(errors.ReadOnly, match="send writes to master m1"):
        worker.submit([("put", "t", b"k", b"v")])
    with pytest.raises(errors.ReadOnly):
        worker.new_txid()
    with pytest.raises(errors.NotReady):
        worker.log(1, 2)
    with pytest.raises(errors.NotReady):
        worker.outcome("x")
    with pytest.raises(errors.NotReady, match="w1 is a worker: give the command workers to master m1"):
        worker.command("workers", {}).result(WAIT_S)


def test_metrics_are_numbers(site: Site) -> None:
    site.put("m1", b"k").result(WAIT_S)
    for node in (site.masters["m1"], site.workers["w1"]):
        assert all(isinstance(value, (int, float)) for value in node.metrics().values())
    assert site.masters["m1"].metrics()["synchronised_lsn"] == 1
    assert site.workers["w1"].metrics()["applied_lsn"] == 1


def test_a_full_disk_refuses_writes_with_the_reason_and_goes_on_when_there_is_space(site: Site) -> None:
    site.put("m1", b"before").result(WAIT_S)
    disk_of(site.journals["m1"]).is_full = True
    reply = site.put("m1", b"during", txid="during").result(WAIT_S)
    assert (reply.status, reply.txid) == ("unknown", "during")
    until(lambda: site.masters["m1"].view.state()[0] == states.DISK_FULL)
    reply = site.put("m1", b"refused", txid="refused").result(WAIT_S)
    assert (reply.status, reply.error) == ("refused", "ReadOnly")
    assert not site.masters["m1"].writable()[0]
    disk_of(site.journals["m1"]).is_full = False
    until(lambda: site.masters["m1"].writable()[0])
    # What was derived and not flushed is derived again: until the log has it, a copy after it does not count.
    until(lambda: site.put("m1", b"during", txid="during").result(WAIT_S).status == "applied")
    assert site.masters["m1"].outcome("refused") is None


def test_a_stopping_master_answers_whoever_waits(site: Site) -> None:
    site.masters.pop("m2").stop(5)
    waiting = site.put("m1", b"k", txid="waits")
    until(lambda: site.masters["m1"].runner.core.sync.backlog() == 1)
    site.masters.pop("m1").stop(5)
    reply = waiting.result(WAIT_S)
    assert (reply.status, reply.txid) == ("unknown", "waits")


def test_a_master_comes_back_and_finishes_what_it_accepted(site: Site) -> None:
    site.put("m1", b"a").result(WAIT_S)
    site.masters.pop("m2").stop(5)
    assert site.put("m1", b"b", txid="b", level="accepted").result(WAIT_S).status == "accepted"
    site.masters.pop("m1").stop(5)
    site.start_master("m1")
    site.start_master("m2")
    assert site.put("m2", b"b", txid="b").result(WAIT_S).lsn == 2


def test_a_worker_that_takes_too_much_memory_refuses_reads_until_it_does_not(site: Site) -> None:
    # Given a limit that this process is over already.
    worker = site.workers["w1"]
    site.put("m1", b"k").result(WAIT_S)
    until(lambda: not worker.reads.closed_reason)
    worker.guard.limits = GuardLimits(memory_bytes=1024 * 1024)
    until(lambda: "cannot evaluate more: the process takes" in worker.reads.closed_reason)
    assert (worker.must_leave_at_once, worker.must_restart) == (True, worker.guard.over_memory)
    with pytest.raises(errors.NotReady, match="memory-limit-mb"):
        worker.read("get", "t", {"key": b"k"}).result(WAIT_S)
    worker.guard.limits = GuardLimits(memory_bytes=1 << 50)
    until(lambda: not worker.reads.closed_reason and not worker.must_restart)


def test_a_master_that_cannot_agree_goes_on_reading_and_says_how_old_that_may_be(site: Site) -> None:
    # Given a master that agrees with the other: its reads say nothing of age
    site.put("m1", b"k", b"before").result(WAIT_S)
    master = site.masters["m1"]
    read = master.read("get", "t", {"key": b"k"}, timeout_ms=5000).result(WAIT_S)
    assert (read.body, read.apart, read.stale_ms) == (b"before", "", None)
    assert master.view.rows(master.clock.now())[0]["stale_s"] == 0.0
    # When the other one is gone
    site.masters["m2"].stop(5)
    until(lambda: master.staleness.found is not None)
    # Then reads go on, with state and age, and so does the status
    first = master.read("get", "t", {"key": b"k"}, timeout_ms=5000).result(WAIT_S)
    assert (first.body, first.lsn, first.apart) == (b"before", 1, states.WAITING_FOR_PEERS)
    until(lambda: (master.read("get", "t", {"key": b"k"}).result(WAIT_S).stale_ms or 0) > (first.stale_ms or 0) > 0)
    assert (master.view.rows(master.clock.now())[0]["stale_s"] or 0) > 0
    # And that there is no such key is as old
    with pytest.raises(errors.NotFound) as missing:
        master.read("get", "t", {"key": b"missing"}).result(WAIT_S)
    assert missing.value.apart == states.WAITING_FOR_PEERS
    assert (missing.value.stale_ms or 0) > 0


def test_a_master_that_cannot_agree_refuses_what_does_not_want_to_wait_and_holds_the_rest(site: Site) -> None:
    site.masters["m2"].stop(5)
    master = site.masters["m1"]
    until(lambda: master.staleness.found is not None)
    refused = site.put("m1", b"refused", txid="refused", apart="refuse").result(WAIT_S)
    assert (refused.status, refused.error) == ("refused", "ReadOnly")
    held = site.put("m1", b"held", txid="held", timeout_ms=300).result(WAIT_S)
    assert (held.status, held.error) == ("unknown", "OutcomeUnknown")
    with pytest.raises(errors.InvalidRequest, match="wait or refuse, not 'later'"):
        site.put("m1", b"k", apart="later")
    # When the other one is back, only what was held takes place
    site.start_master("m2")
    until(lambda: (master.outcome("held") or {}).get("outcome") == "applied")
    assert master.outcome("refused") is None
    assert [line["txid"] for line in master.log(1, 10)] == ["held"]


def test_what_any_master_may_take_is_left_to_those_that_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(f"nodes-{next(_numbers)}", ("m1", "m2", "m3"))
    try:
        master, said = site.masters["m1"], list[bool]()
        monkeypatch.setattr(master.transport, "serve_shared", said.append)
        for each in site.masters.values():
            # As with brokers of their own, which know nothing of the others, and with masters that are killed.
            monkeypatch.setattr(each.transport, "look", lambda _masters: None)
            monkeypatch.setattr(each.runner, "leave", lambda: None)
        until(lambda: said[-1:] == [True])
        # Given a master that still hears another one: both wait for the third, and take what comes
        site.masters["m3"].stop(5)
        until(lambda: master.staleness.found is not None)
        assert master.staleness.found[0] == states.WAITING_FOR_PEERS  # type: ignore[index]
        assert said[-1]
        # When it hears none any more, then it leaves such writes to the others
        site.masters["m2"].stop(5)
        until(lambda: said[-1] is False)
        # But not where no other master takes from the same broker
        master.watching.shares_broker = False
        master.transport.wake()
        until(lambda: said[-1])
        # And it takes them again once a majority is heard
        master.watching.shares_broker = True
        until(lambda: said[-1] is False)
        site.start_master("m2")
        until(lambda: said[-1])
    finally:
        site.stop()


def test_a_master_keeps_samples_for_the_charts_and_a_worker_names_it(site: Site) -> None:
    rates = site.masters["m1"].command("rates", {"after": 0}).result(WAIT_S)

    assert (rates["master"], rates["samples"][0][0]) == ("m1", 1)
    with pytest.raises(errors.NotReady, match="m1"):
        site.workers["w1"].command("rates", {"after": 0}).result(WAIT_S)
