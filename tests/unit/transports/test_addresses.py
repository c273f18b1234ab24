"""Broker URLs: what is read from them, and what is said about bad ones."""

from __future__ import annotations

import pytest

from brokerha.model.errors import ConfigurationError
from brokerha.transports.config import ELSEWHERE_WITHIN_S, TransportConfig
from brokerha.transports.rabbitmq.addresses import Address, is_embedded, parse_addresses


def test_a_full_url_gives_all_its_parts():
    (address,) = parse_addresses("amqp://us%40er:pa%2Fss@broker.example:1234/orders")
    assert address == Address("amqp", "broker.example", 1234, "orders", "us@er", "pa/ss")


@pytest.mark.parametrize("url", ["amqp://h", "amqp://h/", "amqp://h/%2F", "amqp://h//"])
def test_a_url_without_virtual_host_means_the_default_one(url: str):
    assert parse_addresses(url)[0].vhost == "/"


def test_ports_and_user_have_their_usual_defaults():
    assert [(a.port, a.user, a.password, a.is_tls) for a in parse_addresses("amqp://h/v;amqps://h/v")] == [
        (5672, "guest", "guest", False),
        (5671, "guest", "guest", True),
    ]


def test_files_for_tls_come_in_the_query():
    (address,) = parse_addresses("amqps://h/v?cacertfile=%2Fetc%2Fca.pem&certfile=c.pem")
    assert address.tls_files == {"cacertfile": "/etc/ca.pem", "certfile": "c.pem"}


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://h/v", "write amqp://"),
        ("", "write amqp://"),
        ("amqp:///v", "no host"),
        ("amqp://h:99999/v", "port"),
        ("amqp://h/v?heartbeat=5", "unknown 'heartbeat'"),
    ],
)
def test_a_bad_url_is_refused_with_what_to_write_instead(url: str, complaint: str):
    with pytest.raises(ConfigurationError, match=complaint):
        parse_addresses(url)


def test_neither_a_complaint_nor_a_reason_shows_the_password():
    with pytest.raises(ConfigurationError) as problem:
        parse_addresses("http://user:secret@h/v")
    assert "secret" not in str(problem.value)
    (address,) = parse_addresses("amqp://user:secret@h/v")
    assert "secret" not in f"{address} {address!r}"


def test_embedded_urls_name_a_broker_of_this_process():
    assert is_embedded("embedded://orders")
    assert not is_embedded("amqp://orders")


@pytest.mark.parametrize(
    "wrong", [{"heartbeat_s": 1}, {"retry_first_ms": 0}, {"retry_most_ms": 1}, {"prefetch_data": 0}, {"window_messages": 0}]
)
def test_limits_that_cannot_be_meant_are_refused(wrong: dict[str, int]):
    with pytest.raises(ConfigurationError):
        TransportConfig(**wrong).check()  # type: ignore[arg-type]


def test_the_default_limits_are_accepted():
    TransportConfig().check()


def test_a_broker_gives_a_silent_connection_up_before_its_node_comes_back():
    """Else the node is refused its inbox, because of itself: after a cut of 14 s that took 14 s more."""
    config = TransportConfig()
    assert 2 * config.heartbeat_s * 1000 <= config.tcp_user_timeout_ms <= 10_000


def test_where_the_broker_has_other_nodes_one_that_says_nothing_is_left_soon():
    config = TransportConfig()
    alone, one_of_three = config.for_nodes(1), config.for_nodes(3)
    assert alone == config
    for name in ("connect_timeout_s", "answer_within_s"):
        assert getattr(one_of_three, name) == ELSEWHERE_WITHIN_S < getattr(config, name)
