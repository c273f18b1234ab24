"""What libraries of the transports say of themselves does not reach the terminal of a command."""

from __future__ import annotations

import logging
import socket

import pytest
from structlog.testing import capture_logs

from brokerha.transports.client import thread as pika_thread
from brokerha.transports.client.thread import PikaThread
from brokerha.transports.config import TransportConfig
from brokerha.transports.log_stream import reader as log_reader
from brokerha.transports.rabbitmq.addresses import parse_addresses


class Owner:
    """Nobody."""

    def up(self, channel: object) -> None: ...
    def lost(self, reason: str, remedy: str = "") -> None: ...
    def answered(self, correlation_id: str, body: bytes) -> None: ...
    def returned(self, correlation_id: str) -> None: ...
    def blocked(self, is_blocked: bool) -> None: ...


@pytest.mark.parametrize(("library", "module"), [("amqp", log_reader), ("pika", pika_thread)])
def test_warnings_of_the_amqp_libraries_are_not_printed_by_a_program_without_logging(
    library: str, module: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    logging.getLogger(library).warning("Received method (60, 60) during closing channel 1")
    assert capsys.readouterr().err == ""


def test_a_connection_that_is_closed_while_it_connects_ends_without_a_word() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, capture_logs() as told:
        port = server.getsockname()[1]
        thread = PikaThread(parse_addresses(f"amqp://u:p@127.0.0.1:{port}/"), "test", TransportConfig(), Owner())
        thread.start()
        server.settimeout(10)
        peer, _ = server.accept()
        with peer:
            peer.settimeout(10)
            assert peer.recv(4) == b"AMQP"
            thread.close(10)
    assert told == []
