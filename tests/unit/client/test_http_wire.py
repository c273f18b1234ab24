"""Faults between a client and its nodes: keys are kept, other nodes stand in, deadlines end in the right error."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

import brokerha
from brokerha.client import http_lane, http_wire
from brokerha.client.http_nodes import HttpNodes, error_of_answer
from brokerha.client.http_wire import HttpWire, _is_answer
from brokerha.model import errors
from brokerha.model.fingerprints import packed
from brokerha.model.operations import pack_operations
from tests.unit.client.serving import CUT, CUT_BEFORE, GATEWAY, HANG, STRANGER, Served, serving, wait_until
from tests.unit.http.asking import request_of
from tests.unit.http.fake_front import FakeFront

PUT = pack_operations([("put", "t", b"k", b"v")])


@pytest.fixture
def nobody() -> str:
    """An address that refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("fault", [CUT, CUT_BEFORE, GATEWAY])
def test_a_write_without_an_answer_is_sent_again_with_its_key_and_applied_once(served: Served, fault) -> None:
    served.network.faults = [fault, fault]

    with brokerha.connect(served.url, timeout=10) as db:
        done = db.put("t", "k", "v", key="mine")

    assert (done.txid, done.lsn) == ("mine", 1)
    assert served.network.batches == 3
    assert {entry[0] for entry in served.front.submitted} == {"mine"}
    assert [entry[0] for entry in served.front.results] == ["mine"]


@pytest.mark.parametrize("fault", [CUT, CUT_BEFORE])
def test_a_batch_without_an_answer_is_sent_again_in_its_order(served: Served, fault) -> None:
    served.network.faults = [fault]
    wire = HttpWire(served.url)

    futures = wire.submit([(f"t{number}", PUT) for number in range(50)], "applied", 1, 10_000)

    assert [future.result(10).lsn for future in futures] == list(range(1, 51))
    wire.close()


def test_what_answers_and_is_no_node_is_told_and_writing_goes_on(served: Served) -> None:
    served.network.faults = [STRANGER] * http_lane.CONNECTIONS

    with brokerha.connect(served.url, timeout=5) as db:
        for _ in range(http_lane.CONNECTIONS):
            with pytest.raises(errors.ProtocolError, match="answers 200"):
                db.put("t", "k", "v")
        assert db.put("t", "k", "v").lsn == 1


def test_a_read_is_asked_again_after_a_fault(served: Served) -> None:
    served.front.put("t", b"k", b"v")
    served.network.faults = [CUT, GATEWAY]

    with brokerha.connect(served.url, timeout=10) as db:
        assert db.get("t", "k") == b"v"


def test_another_node_stands_in_for_one_that_is_gone(served: Served, nobody: str) -> None:
    with brokerha.connect(f"{nobody}, {served.url}/", timeout=10) as db:
        assert db.put("t", "k", "v").lsn == 1
        assert db.get("t", "k") == b"v"
        assert db.status()["state"] == "ok"


def test_a_node_that_stops_between_two_writes_is_replaced_by_another() -> None:
    with serving(FakeFront(threaded=True), FakeFront(node_id="m2", threaded=True)) as servers:
        with brokerha.connect(",".join(each.url for each in servers), timeout=10) as db:
            db.put("t", "k", "v")
            unasked, asked = sorted(servers, key=lambda each: len(each.front.results))
            # The next write would go to the one that nothing is known of.
            unasked.stop()
            db.put("t", "k", "w")
            assert db.get("t", "k") == b"w"
        assert (len(unasked.front.results), len(asked.front.results)) == (0, 2)


def test_a_worker_in_the_list_passes_writes_on_to_a_master_and_reads_itself() -> None:
    with serving(FakeFront("worker", "w1", threaded=True), FakeFront(threaded=True)) as [worker, master]:
        with brokerha.connect(f"{worker.url},{master.url}", timeout=10) as db:
            assert db.put("t", "k", "v").lsn == 1
        assert len(master.front.results) == 1


def test_workers_alone_refuse_a_write_at_once_and_name_the_master() -> None:
    with serving(FakeFront("worker", "w1"), FakeFront("worker", "w2")) as [one, other]:
        db = brokerha.connect(f"{one.url},{other.url}", timeout=60)
        with pytest.raises(errors.ReadOnly, match="send writes to master m1"):
            db.put("t", "k", "v")
        db.close()


def test_a_node_that_is_full_is_asked_again_until_it_has_room(served: Served) -> None:
    served.front.refusal = errors.NotReady("1000 transactions wait already: try again")
    wire = HttpWire(served.url)
    [future] = wire.submit([("mine", PUT)], "applied", 1, 10_000)
    wait_until(lambda: len(served.front.submitted) > 1)

    served.front.refusal = None

    assert future.result(10).status == "applied"
    wire.close()


def test_a_node_that_stays_full_is_the_answer_when_the_time_is_over(served: Served) -> None:
    served.front.refusal = errors.NotReady("1000 transactions wait already: try again")

    with brokerha.connect(served.url) as db, pytest.raises(errors.NotReady, match="1000 transactions"):
        db.put("t", "k", "v", timeout=0.4)


# ---- deadlines


def test_a_deadline_that_passes_at_the_node_is_an_unknown_outcome_with_its_id(served: Served) -> None:
    served.front.is_silent = True

    with brokerha.connect(served.url) as db, pytest.raises(errors.OutcomeUnknown, match="unknown of transaction mine") as raised:
        db.put("t", "k", "v", key="mine", timeout=0.05)

    assert raised.value.txid == "mine"


def test_an_outcome_that_a_node_does_not_know_in_time_is_asked_for_again_while_there_is_time(served: Served) -> None:
    served.front.is_silent = True
    wire = HttpWire(served.url)
    [future] = wire.submit([("mine", PUT)], "applied", 1, 10_000)
    wait_until(lambda: len(served.front.submitted) > 1)

    served.front.is_silent = False

    assert future.result(10).lsn == 1
    wire.close()


def test_nobody_there_is_unreachable_and_never_unknown(nobody: str) -> None:
    with brokerha.connect(nobody, timeout=0.3) as db:
        with pytest.raises(errors.Unreachable, match="refused"):
            db.put("t", "k", "v")
        with pytest.raises(errors.Unreachable, match="refused"):
            db.get("t", "k")
        with pytest.raises(errors.Unreachable, match="refused"):
            db.status()


@pytest.mark.parametrize(
    "ask",
    [
        lambda db: db.status(),
        lambda db: db.open_transactions(),
        lambda db: db.get("t", "k"),
        lambda db: db.put("t", "k", "v"),
        lambda db: db.transaction().__enter__(),
        lambda db: db.ask("outcome", {"txid": "t", "node": "m1"}),
    ],
    ids=["status", "open_transactions", "get", "put", "transaction", "outcome"],
)
def test_where_no_node_is_reached_each_is_named(nobody: str, ask: Callable[[brokerha.Client], object]) -> None:
    other = nobody.replace("127.0.0.1", "127.0.0.2")
    with brokerha.connect(f"{nobody},{other}", timeout=1) as db:
        with pytest.raises(errors.Unreachable, match="refused") as raised:
            ask(db)
        assert all(f"{url}: " in str(raised.value) for url in (nobody, other))


def test_a_write_ends_at_its_deadline_however_long_the_pause_is(nobody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_lane, "SILENCE_S", 3600.0)
    monkeypatch.setattr(HttpNodes, "on_failed", lambda *_: 3600.0)
    wire = HttpWire(nobody)
    (future,) = wire.submit([("t1", PUT)], "applied", 1, 100)
    assert isinstance(future.exception(60), errors.Unreachable)
    wire.close()


def test_a_write_that_may_have_arrived_is_never_unreachable(served: Served) -> None:
    served.network.faults = [CUT]
    served.front.refusal = errors.NotReady("busy: try again")
    wire = HttpWire(served.url)
    [future] = wire.submit([("mine", PUT)], "applied", 1, 1500)
    wait_until(lambda: not served.network.faults)

    served.stop()

    with pytest.raises(errors.OutcomeUnknown, match="mine"):
        future.result(10)
    wire.close()


def test_a_node_that_hangs_does_not_use_up_the_time_of_the_others(served: Served) -> None:
    with serving(FakeFront(threaded=True)) as [hanging]:
        hanging.network.faults = [HANG] * 3
        served.front.put("t", b"k", b"v")
        with brokerha.connect(f"{hanging.url},{served.url}", timeout=3) as db:
            assert db.get("t", "k") == b"v"


def test_a_silent_node_is_taken_for_dead_by_its_silence(served: Served, monkeypatch) -> None:
    monkeypatch.setattr(http_lane, "SILENCE_S", 0.2)
    served.network.faults = [HANG]

    with brokerha.connect(served.url, timeout=10) as db:
        assert db.put("t", "k", "v").lsn == 1


# ---- batches and order


def test_what_waits_travels_together_and_in_order(served: Served) -> None:
    wire = HttpWire(served.url)
    futures = []

    for number in range(2000):
        futures += wire.submit([(f"t{number}", PUT)], "applied", 1, 10_000)

    assert [future.result(10).lsn for future in futures] == list(range(1, 2001))
    assert served.network.batches < 1000
    wire.close()


def test_nobody_waits_behind_a_slow_reply(served: Served, monkeypatch) -> None:
    monkeypatch.setattr("brokerha.client.http_wire.PARTING_S", 0.05)
    served.front.is_dead = True
    wire = HttpWire(served.url)
    [slow] = wire.submit([("slow", PUT)], "applied", 1, 30_000)
    wait_until(lambda: served.front.submitted)
    served.front.is_dead = False

    [quick] = wire.submit([("quick", PUT)], "applied", 1, 30_000)

    assert quick.result(5).status == "applied"
    assert not slow.done()
    threading.Thread(target=served.stop).start()
    wire.close()
    assert isinstance(slow.exception(5), errors.OutcomeUnknown)


def test_writes_with_other_terms_do_not_share_a_batch(served: Served) -> None:
    wire = HttpWire(served.url)
    for number, level in enumerate(["accepted", "applied", "accepted"]):
        wire.submit([(f"t{number}", PUT)], level, 1, 10_000)

    wait_until(lambda: len(served.front.submitted) == 3)

    assert [entry[1] for entry in served.front.submitted] == ["accepted", "applied", "accepted"]
    wire.close()


def test_too_much_in_flight_is_refused_and_not_kept(nobody: str, monkeypatch) -> None:
    monkeypatch.setattr(http_lane, "OPEN_LIMIT", 10)
    wire = HttpWire(nobody)
    wire.submit([(f"t{number}", PUT) for number in range(10)], "applied", 1, 200)

    with pytest.raises(errors.NotReady, match="10 writes"):
        wire.submit([("one more", PUT)], "applied", 1, 200)
    wire.close()


def test_closing_ends_everything_and_nothing_begins_after_it(nobody: str, monkeypatch) -> None:
    monkeypatch.setattr("brokerha.client.http_wire.PARTING_S", 0.05)
    wire = HttpWire(nobody)
    [future] = wire.submit([("t1", PUT)], "applied", 1, 60_000)
    started = time.monotonic()

    wire.close()
    wire.close()

    assert isinstance(future.exception(5), errors.Unreachable)
    assert time.monotonic() - started < 30
    with pytest.raises(errors.Closed):
        wire.submit([("t2", PUT)], "applied", 1, 1000)
    with pytest.raises(errors.Closed):
        wire.read("get", "t", {"key": b"k"}, 0, 1000).result()
    with pytest.raises(errors.Closed):
        wire.ask("transact", {"action": "begin", "txid": "", "arguments": {}}, 1000)


def test_what_is_under_way_says_that_this_program_closed_the_connection(served: Served) -> None:
    served.network.faults = [HANG]
    wire, said = HttpWire(served.url), []
    reader = threading.Thread(target=lambda: said.append(wire.read("get", "t", {"key": b"k"}, 0, 60_000).exception(5)))
    reader.start()
    wait_until(lambda: not served.network.faults)

    wire.close()

    reader.join(10)
    assert str(said[0]) == "the connection was closed by this program"


# ---- nodes


def test_nodes_are_asked_in_turn_and_pauses_grow_only_from_round_to_round() -> None:
    nodes = HttpNodes(["http://a", "http://b"], draw=lambda: 1.0)

    pauses = [(nodes.current, nodes.on_failed(nodes.current)) for _ in range(6)]

    assert [url for url, _ in pauses] == ["http://a", "http://b"] * 3
    assert [round(pause, 3) for _, pause in pauses] == [0, 0.1, 0, 0.2, 0, 0.4]
    nodes.on_served(nodes.current)
    assert nodes.on_failed(nodes.current) == 0


def test_a_failure_that_others_have_seen_already_moves_nobody_on() -> None:
    nodes = HttpNodes(["http://a", "http://b"])

    nodes.on_failed("http://a")
    nodes.on_failed("http://a")

    assert nodes.current == "http://b"


@pytest.mark.parametrize("urls", [[], [""], ["localhost:7201"], ["http://a", "ftp://b"]])
def test_addresses_that_are_none_are_refused(urls) -> None:
    with pytest.raises(errors.ConfigurationError, match="write http://host:port"):
        HttpNodes(urls)


def test_an_answer_of_something_else_is_told_from_one_of_brokerha() -> None:
    assert isinstance(error_of_answer("http://x", 404, {}, b"<html>"), errors.Unreachable)
    assert isinstance(error_of_answer("http://x", 503, {}, b""), errors.NotReady)
    fault = error_of_answer("http://x", 500, {}, b"a fault")
    assert type(fault) is errors.BrokerhaError
    assert error_of_answer("http://x", 204, {}, b"") is None
    newer = error_of_answer("http://x", 499, {"brokerha-error": "ErrorOfTheFuture"}, b"text")
    assert isinstance(newer, errors.NotReady)


@pytest.mark.parametrize("status", [401, 403, 429])
def test_who_may_not_is_told_at_once_and_not_asked_again_elsewhere(status: int) -> None:
    told = error_of_answer("http://x", status, {"brokerha-error": "NotAllowed"}, b"this needs a user")

    assert isinstance(told, errors.NotAllowed)
    assert _is_answer(told)


def test_a_backup_begins_and_its_task_is_asked_for(served: Served) -> None:
    with brokerha.connect(served.url, timeout=10) as db:
        begun = db.backup("monday", incremental=True)
        assert (begun["state"], begun["done"]) == ("running", 40)
        db.task("monday")
        last = db.task("monday")
        assert last is not None
        assert last["answer"]["path"] == "backups/monday"
        assert db.task("tuesday") is None
    assert served.front.commands[0][1] == {"name": "monday", "incremental": True, "replace": False}


def test_lines_of_the_log_come_with_effects(served: Served) -> None:
    with brokerha.connect(served.url, timeout=10) as db:
        db.put("t", "k", "v", key="mine")
        assert db.logged(1, 5) == [("mine", 1001, "applied", "", b"", packed(1))]


def test_reads_of_one_moment_come_back_in_their_order_with_their_lsn(served: Served) -> None:
    with brokerha.connect(served.url, timeout=10) as db:
        lsn = db.write([("put", "t", b"k", b"v"), ("publish", "q", "text/plain", b"m")], key="a").lsn
        queue, value = db.together([("queue", "q", {"limit": 5}), ("get", "t", {"key": b"k"})])

    assert (queue.lsn, value.lsn) == (lsn, lsn)
    assert (value.content_type, value.body) == ("application/octet-stream", b"v")
    assert msgpack.unpackb(queue.body) == [["a.2", "text/plain", b"m"]]


def test_a_command_that_is_refused_is_told_at_once(served: Served) -> None:
    served.front.refusal = errors.NotReady("w1 is not heard: start it first")
    with brokerha.connect(served.url, timeout=30) as db, pytest.raises(errors.NotReady, match=r"^w1 is not heard: start it first$"):
        db.command("worker-off", {"worker": "w1"})
    assert len(served.front.commands) == 1


def test_a_command_goes_on_to_the_process_that_acts_when_another_one_stands_by() -> None:
    with serving(FakeFront(threaded=True), FakeFront(threaded=True)) as (standby, primary):
        standby.front.refusal = errors.NotPrimary("m1 is a backup of m1 (ready); m1b is primary")
        with brokerha.connect(f"{standby.url},{primary.url}", timeout=10) as db:
            db.command("backup", {"name": "monday"})
        assert [len(each.front.commands) for each in (standby, primary)] == [1, 1]


@pytest.mark.parametrize("fault", [CUT, CUT_BEFORE, HANG])
def test_a_command_that_may_have_arrived_is_not_given_to_another_master(fault: str, nobody: str) -> None:
    with serving(FakeFront(threaded=True), FakeFront(threaded=True)) as (first, second):
        first.network.faults = [fault]
        with brokerha.connect(f"{nobody},{first.url},{second.url}", timeout=6) as db:
            with pytest.raises(
                errors.OutcomeUnknown, match=r"whether backup was carried out is unknown: look with `brokerha backup list`"
            ):
                db.command("backup", {"name": "monday"})
            assert not second.front.commands
            # What only looks goes on to another one
            first.network.faults = [CUT]
            with pytest.raises(errors.NotFound, match="no task"):
                db.command("task", {"request": "monday"})


def test_a_transaction_that_begins_during_a_fail_over_begins_at_the_next_primary(nobody: str) -> None:
    with serving(FakeFront(threaded=True)) as [standby]:
        standby.front.refusal = errors.NotPrimary("m1 is a backup of m1 (ready); m1b is primary")
        threading.Timer(0.5, lambda: setattr(standby.front, "refusal", None)).start()
        with brokerha.connect(f"{nobody},{standby.url}", timeout=20) as db, db.transaction() as transaction:
            transaction.put("t", "k", "v")


@pytest.mark.parametrize("is_gone", [False, True], ids=["it stands by", "it is gone"])
@pytest.mark.parametrize("is_kept", [True, False], ids=["the next primary has it", "it was lost"])
def test_a_transaction_goes_on_at_the_next_primary_or_is_aborted(
    monkeypatch: pytest.MonkeyPatch, *, is_gone: bool, is_kept: bool
) -> None:
    def stand_by(txid: str) -> None:
        raise errors.NotPrimary(f"m1 is a backup of m1 (ready); m1b is primary of {txid}")

    with serving(FakeFront(threaded=True), FakeFront(threaded=True)) as (first, second):
        first.front.put("t", b"k", b"v")
        with brokerha.connect(f"{first.url},{second.url}", timeout=20) as db:
            steps = [
                lambda tx: tx.rollback(),
                lambda tx: tx.ping(),
                lambda tx: tx.get("t", "k"),
                lambda tx: tx.flush(),
                lambda tx: tx.commit(),
            ]
            begun = [db.transaction().begin() for _ in steps]
            before, after = (first, second) if begun[0].txid in first.front.transactions.open else (second, first)
            for transaction in begun[2:]:
                transaction.put("t", "k", "w")
            table = before.front.transactions
            if not is_kept:
                table.over = dict.fromkeys(table.open, ("aborted", 0, "its primary was lost"))
                table.open = {}
            after.front.transactions = table
            if is_gone:
                before.stop()
            before.front.refusal = before.front.read_error = errors.NotPrimary("m1 is a backup of m1 (ready); m1b is primary")
            monkeypatch.setattr(before.front, "outcome", stand_by)
            for step, transaction in zip(steps, begun, strict=True):
                if is_kept or step is steps[0]:
                    step(transaction)
                else:
                    with pytest.raises(errors.Aborted):
                        step(transaction)


def test_a_node_that_does_not_answer_hides_no_transaction_of_the_others(monkeypatch) -> None:
    monkeypatch.setattr(http_wire, "SILENT_S", 0.2)
    with serving(FakeFront(threaded=True), FakeFront(threaded=True)) as (frozen, other):
        frozen.network.faults.append(HANG)
        addresses = f"{frozen.url},{other.url}"
        with brokerha.connect(other.url, timeout=30) as at_other, brokerha.connect(addresses, timeout=30) as db:
            at_other.tpc_begin(at_other.xid(1, "order", "stock"))
            assert [row["xid"] for row in db.open_transactions()] == ["1:6f72646572:73746f636b"]
            at_other.tpc_rollback()
        assert not frozen.network.faults


@pytest.mark.parametrize(
    ("name", "arguments", "request_"),
    [
        ("workers", {}, ("GET", "/cluster/workers", b"")),
        ("worker-add", {"worker": "w2", "readable": False}, ("PUT", "/cluster/workers/w2", b'{"readable": false}')),
        ("worker-remove", {"worker": "w2", "force": True}, ("DELETE", "/cluster/workers/w2?force=true", b"")),
        ("worker-remove", {"worker": "a/b", "force": False}, ("DELETE", "/cluster/workers/a%2Fb", b"")),
        ("worker-on", {"worker": "w2"}, ("POST", "/cluster/workers/w2/on", b"")),
        ("worker-repair", {"from": ["w2"]}, ("POST", "/cluster/repair", b'{"from": ["w2"]}')),
        ("task", {"request": "scrub-1"}, ("GET", "/cluster/tasks/scrub-1", b"")),
        ("pin", {"name": "a.b", "lsn": 7, "for_s": 9}, ("PUT", "/cluster/pins/a%2Eb", b'{"lsn": 7, "for_s": 9}')),
        ("unpin", {"name": "a"}, ("DELETE", "/cluster/pins/a", b"")),
        ("setting-set", {"name": "idle-round-ms", "value": "9"}, ("PUT", "/cluster/settings/idle-round-ms", b'{"value": "9"}')),
        ("setting-unset", {"name": "idle-round-ms"}, ("DELETE", "/cluster/settings/idle-round-ms", b"")),
        ("settings", {}, ("GET", "/cluster/settings", b"")),
        ("pins", {}, ("GET", "/cluster/pins", b"")),
        ("backup", {"name": "monday"}, ("POST", "/cluster/backup", b'{"name": "monday"}')),
    ],
)
def test_each_command_has_its_request(name: str, arguments: dict[str, Any], request_: tuple[str, str, bytes]) -> None:
    assert request_of(name, arguments) == request_


def test_a_command_that_there_is_not_is_refused() -> None:
    with pytest.raises(errors.InvalidRequest, match="unknown command 'dance'"):
        request_of("dance", {})


# ---- writes that wait for each other


def test_writers_that_were_answered_together_write_together_again(served: Served, monkeypatch) -> None:
    for name in ("PER_CALLER_S", "MOST_S", "CLOSE_S"):
        monkeypatch.setattr(f"brokerha.model.gathering.{name}", 60.0)
    wire = HttpWire(served.url)
    for future in wire.submit([("t1", PUT), ("t2", PUT)], "applied", 1, 10_000):
        future.result(10)
    [first] = wire.submit([("t3", PUT)], "applied", 1, 10_000)
    assert served.network.batches == 1
    [second] = wire.submit([("t4", PUT)], "applied", 1, 10_000)
    assert [first.result(10).lsn, second.result(10).lsn] == [3, 4]
    assert served.network.batches == 2
    wire.close()


def test_who_does_not_come_back_is_not_awaited_for_long(served: Served) -> None:
    wire = HttpWire(served.url)
    for future in wire.submit([("t1", PUT), ("t2", PUT)], "applied", 1, 10_000):
        future.result(10)
    [lone] = wire.submit([("t3", PUT)], "applied", 1, 10_000)
    assert lone.result(10).lsn == 3
    wire.close()
