"""A body may end its parser, never the node: real processes, real signals."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from brokerha.ingress.limits import ParserLimits
from brokerha.ingress.parsers import Parsers
from brokerha.ingress.rdf_bodies import nquads_of
from brokerha.model.errors import InvalidRequest, NotReady, TooLarge
from brokerha.stores.sparql.protocol import check_update
from tests.unit.ingress import hostile_work


@pytest.fixture
def parsers() -> Iterator[Parsers]:
    some = Parsers(ParserLimits(processes=1, cpu_s=1, memory_bytes=64 << 20, wait_s=0.2, wall_factor=100))
    yield some
    some.close()


def test_the_result_is_that_of_the_function(parsers: Parsers) -> None:
    body = b"@prefix : <urn:x:> . :a :b [] ."
    assert parsers.run(nquads_of, body, "text/turtle", txid="t") == nquads_of(body, "text/turtle", txid="t")
    assert parsers.run(check_update, "INSERT DATA { <urn:a> <urn:b> 1 }") is None


def test_errors_are_those_of_the_function(parsers: Parsers) -> None:
    with pytest.raises(InvalidRequest, match="MALFORMED QUERY: line 1, column 1"):
        parsers.run(check_update, "nonsense")
    with pytest.raises(RuntimeError, match="KeyError"):
        parsers.run(nquads_of, b"", "no/type", txid="t")


@pytest.mark.parametrize(
    ("number", "problem"), [(signal.SIGSEGV, "stack"), (signal.SIGABRT, "memory"), (signal.SIGXCPU, "processor time")]
)
def test_a_body_that_ends_its_parser_is_refused_and_the_next_one_is_parsed(parsers: Parsers, number: int, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        parsers.run(hostile_work.end_by, int(number))
    assert parsers.ended == 1
    assert parsers.run(hostile_work.pid) != os.getpid()


def test_processor_time_is_limited(parsers: Parsers) -> None:
    with pytest.raises(InvalidRequest, match="processor time"):
        parsers.run(hostile_work.spin)


def test_memory_is_limited(parsers: Parsers) -> None:
    with pytest.raises(TooLarge, match="more than 64 MiB"):
        parsers.run(hostile_work.fill, 256 << 20)
    assert parsers.ended == 0


def test_each_body_has_its_own_time(parsers: Parsers) -> None:
    process = parsers.run(hostile_work.pid)
    assert [parsers.run(hostile_work.spin_for, 0.6) for _ in range(4)] == [process] * 4


def test_a_process_is_kept_warm_and_secrets_stay_outside(parsers: Parsers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERHA_PASSWORD", "secret")
    assert parsers.run(hostile_work.pid) == parsers.run(hostile_work.pid)
    assert parsers.run(hostile_work.environment, "BROKERHA_PASSWORD") is None


def test_who_finds_all_busy_is_told_so(parsers: Parsers) -> None:
    parsers.run(hostile_work.pid)
    busy = threading.Thread(target=lambda: parsers.run(hostile_work.spin_for, 0.9))
    busy.start()
    while parsers._turn._value:
        pass
    with pytest.raises(NotReady, match="busy"):
        parsers.run(hostile_work.pid)
    busy.join()


def test_a_process_that_ended_in_between_is_replaced(parsers: Parsers) -> None:
    first = parsers.run(hostile_work.pid)
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert parsers.run(hostile_work.pid) != first


def test_a_process_ends_when_its_parsers_close() -> None:
    some = Parsers()
    process = some.run(hostile_work.pid)
    some.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
