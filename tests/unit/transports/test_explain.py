"""Why there is no connection, in words that lead an operator the right way."""

from __future__ import annotations

import pytest
from amqp.exceptions import AccessRefused, NotAllowed, ResourceLocked
from pika.exceptions import AMQPConnectionError, ProbableAccessDeniedError, ProbableAuthenticationError

from brokerha.model import states
from brokerha.model.errors import CORRECT_ADDRESS
from brokerha.transports.client.thread import reason_and_remedy
from brokerha.transports.rabbitmq.addresses import parse_addresses
from brokerha.transports.rabbitmq.connecting import explain, no_broker

(ADDRESS,) = parse_addresses("amqp://guest:guest@127.0.0.1:5672/x")


def test_an_inbox_that_is_taken_may_be_taken_by_this_node_itself() -> None:
    """Given a node that lost its broker silently, when it is back before the broker gave its old connection up, then nobody has to be stopped."""
    locked = ResourceLocked("RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'brokerha.m1.sync' in vhost 'x'")
    reason = explain(locked, ADDRESS)
    assert "gives up a lost one by itself" in reason
    assert "if it stays, another process runs under the id" in reason


def test_a_refusal_of_rights_is_told_as_one() -> None:
    refused = AccessRefused("ACCESS_REFUSED - access to queue 'brokerha.m1.sync' refused for user 'x'")
    assert explain(refused, ADDRESS).startswith("the broker refuses ")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ProbableAuthenticationError, "ACCESS_REFUSED - Login was refused"),
        (ProbableAccessDeniedError, "NOT_ALLOWED - vhost x not found"),
    ],
)
def test_a_client_that_the_broker_refuses_is_not_told_to_start_nodes(kind: type[AMQPConnectionError], said: str) -> None:
    reason, remedy = reason_and_remedy(AMQPConnectionError(kind(f"ConnectionClosedByBroker: (403) '{said}.'")), ADDRESS)
    assert reason == f"the broker refuses amqp://guest@127.0.0.1:5672 vhost 'x': {said}"
    assert remedy == CORRECT_ADDRESS


def test_a_client_without_a_broker_is_told_to_start_that() -> None:
    reason, remedy = reason_and_remedy(AMQPConnectionError(ConnectionRefusedError()), ADDRESS)
    assert (reason, remedy) == ("nothing listens at 127.0.0.1:5672", "start the broker, or correct its address")


@pytest.mark.parametrize(
    "refusal",
    [
        AccessRefused("ACCESS_REFUSED - Login was refused. For details see the broker logfile."),
        NotAllowed("NOT_ALLOWED - vhost x not found"),
        NotAllowed("NOT_ALLOWED - access to vhost 'x' refused for user 'guest'"),
    ],
)
def test_who_is_refused_is_not_told_to_start_the_broker(refusal: Exception) -> None:
    # Neither by a command, even where another address of the broker is away, nor by the status of a node
    reason, away = explain(refusal, ADDRESS), explain(ConnectionRefusedError(), ADDRESS)
    action = states.describe(states.WAITING_FOR_BROKER, reason)["action"]
    assert not reason.endswith(".")
    for remedy in (no_broker(reason).remedy, no_broker(away, reason).remedy, action):
        assert (remedy or "").startswith(
            "correct the user, the password or the virtual host of its address, or give the user its rights"
        )


def test_who_finds_none_is_told_to_start_it() -> None:
    away = explain(ConnectionRefusedError(), ADDRESS)
    assert (no_broker(away).remedy or "").startswith("start the broker")
    assert states.describe(states.WAITING_FOR_BROKER, away)["action"].startswith("start the broker")
