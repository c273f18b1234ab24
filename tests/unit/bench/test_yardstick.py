"""What measures the bare broker reaches it as nodes do."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from brokerha.model.errors import Unreachable
from tests.bench import yardstick

TLS_HANDSHAKE = 22


@pytest.mark.parametrize(("scheme", "first"), [("amqp", ord("A")), ("amqps", TLS_HANDSHAKE)])
def test_it_speaks_tls_where_the_address_says_so(scheme: str, first: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:

        def listen() -> int:
            peer, _ = server.accept()
            with peer:
                return peer.recv(1)[0]

        heard = thread.submit(listen)
        with pytest.raises(Unreachable):
            yardstick.publish_and_confirm(f"{scheme}://127.0.0.1:{server.getsockname()[1]}/", 1, 0.1)
        assert heard.result(10) == first
