"""Over HTTP: writes that do not want to wait at a master that cannot agree with the others, and how old reads of it may be."""

from __future__ import annotations

import pytest

import brokerha
from brokerha.client.http_wire import HttpWire
from brokerha.model import errors, states
from brokerha.model.operations import pack_operations
from tests.unit.client.serving import Served, serving, wait_until
from tests.unit.http.fake_front import FakeFront
from tests.unit.http.test_apart import OldFront

PUT = pack_operations([("put", "t", b"k", b"v")])
APART = "m1 cannot agree with the other masters now (no-majority: …)"


def test_a_write_that_does_not_want_to_wait_is_refused_at_once(served: Served) -> None:
    served.front.refusal = errors.ReadOnly(APART)
    with brokerha.connect(served.url, timeout=30, apart="refuse") as db, pytest.raises(errors.ReadOnly, match="cannot agree"):
        db.put("t", "k", "v")
    assert served.front.apart == ["refuse"]
    assert served.network.batches == 1


def test_a_write_that_one_master_refuses_goes_to_the_next(served: Served) -> None:
    with serving(FakeFront(threaded=True)) as [other], brokerha.connect(f"{served.url},{other.url}") as db:
        wait_until(lambda: db.put("t", "k", "v").lsn and served.front.apart)
        served.front.refusal = errors.ReadOnly(APART)
        served.front.apart.clear()
        other.front.apart.clear()
        # Sooner or later it is the first to be asked
        wait_until(lambda: db.put("t", "k", "v", apart="refuse").lsn and served.front.apart)
        assert served.front.apart == ["refuse"]
        assert {*other.front.apart} == {"refuse"}


def test_writes_that_wait_and_writes_that_do_not_share_no_batch(served: Served) -> None:
    wire = HttpWire(served.url)
    for number, apart in enumerate(["wait", "refuse", "wait"]):
        wire.submit([(f"t{number}", PUT)], "applied", 1, 10_000, apart)
    wait_until(lambda: len(served.front.apart) == 3)
    assert served.front.apart == ["wait", "refuse", "wait"]
    wire.close()


def test_a_read_says_how_old_it_may_be() -> None:
    with serving(OldFront()) as [old], brokerha.connect(old.url) as db:
        outcome = db.read("queues", "", {})
        assert (outcome.apart, outcome.stale_ms) == (states.EXCLUDED, 12_345)
    with serving(FakeFront(threaded=True)) as [other], brokerha.connect(other.url) as db:
        outcome = db.read("queues", "", {})
        assert (outcome.apart, outcome.stale_ms) == ("", None)
