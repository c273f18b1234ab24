"""What the programs say: one sentence about what is wrong, and no password."""

from __future__ import annotations

import contextlib
import importlib
import logging
import runpy
import sys
from types import ModuleType

import pytest

from brokerha.model.errors import NotReady
from brokerha.model.operation_checks import TABLE_LIMIT_BYTES
from consumers import changes, queue_worker
from producers import bridge, publisher

BROKER = "amqp://anna:secret@127.0.0.1:5672/orders"


@pytest.mark.parametrize(
    ("program", "function", "arguments"),
    [
        (bridge, "move", ["--from", BROKER, "--queue", "q", "--to", BROKER, "--into", "inbox"]),
        (changes, "follow", ["--broker", BROKER, "--queue", "q"]),
        (queue_worker, "consume", ["--cluster", BROKER]),
    ],
)
def test_what_is_tried_again_is_told_in_one_sentence_without_a_password(
    program: ModuleType, function: str, arguments: list[str], monkeypatch, caplog
) -> None:
    ends = iter([program.AMQPError("away") if hasattr(program, "AMQPError") else NotReady("away"), None])

    def once(*_: object) -> None:
        if error := next(ends):
            raise error

    monkeypatch.setattr(program, function, once)
    monkeypatch.setattr("sys.argv", ["program", *arguments])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    monkeypatch.setattr("brokerha.connect", lambda _address: contextlib.nullcontext())

    assert program.main() == 0

    [told] = [record.getMessage() for record in caplog.records]
    assert "once in 0" in told
    assert told.endswith(("away.", "away")), told
    assert "secret" not in told
    assert " at 0x" not in told
    assert logging.getLogger("pika").level == logging.CRITICAL


@pytest.mark.parametrize("url", ["amqp://anna:secret@host:port/orders", "http://anna:secret@host/orders"])
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        (bridge, ["--queue", "q", "--to", BROKER, "--into", "inbox", "--from"]),
        (changes, ["--queue", "q", "--broker"]),
        (publisher, ["--broker"]),
    ],
)
def test_an_address_that_is_none_is_told_with_the_form_of_one_and_is_not_shown(
    program: ModuleType, arguments: list[str], url: str, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("sys.argv", ["program", *arguments, url])

    with pytest.raises(SystemExit):
        program.main()

    told = capsys.readouterr().err
    assert "write amqp://user:password@host:port/vhost" in told
    assert "secret" not in told


@pytest.mark.parametrize("name", ["", "ü" * (TABLE_LIMIT_BYTES // 2) + "x"])
def test_a_queue_that_cannot_be_is_a_mistake_of_the_command_and_no_message_goes_aside_for_it(
    name: str, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("sys.argv", ["bridge", "--from", BROKER, "--queue", "q", "--to", BROKER, "--into", name])

    with pytest.raises(SystemExit) as ended:
        bridge.main()

    said = f"argument --into: a queue name has 1 to {TABLE_LIMIT_BYTES} bytes"
    assert (ended.value.code, said in capsys.readouterr().err) == (2, True)
    assert bridge.name_of(name[:-1] or "q")


def test_a_driver_that_is_missing_is_named_with_what_brings_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "producers.coordinator", raising=False)

    with pytest.raises(SystemExit, match=r"pip install 'brokerha\[postgresql\]'"):
        runpy.run_module("producers.coordinator", run_name="__main__")
    with pytest.raises(ImportError):
        importlib.import_module("producers.coordinator")


def test_a_log_of_decisions_that_is_another_file_is_named(monkeypatch, capsys, tmp_path) -> None:
    coordinator = importlib.import_module("producers.coordinator")
    other = tmp_path / "transactions.jsonl"
    other.write_text('{"id": "4711", "orders": [["put", "paid", "4711", "9.90"]]}\n' * 20)
    monkeypatch.setattr("sys.argv", ["coordinator", "--log", str(other), "--at", f"orders={BROKER}"])

    with pytest.raises(SystemExit) as ended:
        coordinator.main()

    assert (ended.value.code, f"--log {other}: file is not a database" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize(
    "line", ["", "[]", '{"id": "1"}', f'{{"id": "{"x" * 256}", "update": ""}}', '{"id": "\\ud800", "update": ""}']
)
def test_a_write_that_cannot_be_published_is_named_by_its_line(line: str) -> None:
    writes = publisher.writes_of(['{"id": "1", "update": "CLEAR ALL"}', line])
    assert next(writes) == ("1", "CLEAR ALL")
    with pytest.raises(ValueError, match=r"line 2 is no .* with an id of at most 255 bytes"):
        next(writes)
