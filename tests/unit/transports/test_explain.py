"""Why there is no connection, in words that lead an operator the right way."""

from __future__ import annotations

from ssl import SSLCertVerificationError

import pytest
from amqp.exceptions import AccessRefused, NotAllowed, ResourceLocked
from pika.exceptions import AMQPConnectionError, ProbableAccessDeniedError, ProbableAuthenticationError

from brokerha.model import states
from brokerha.transports.client import thread
from brokerha.transports.link import LinkState
from brokerha.transports.rabbitmq.addresses import parse_addresses
from brokerha.transports.rabbitmq.connecting import explain, no_broker

(ADDRESS,) = parse_addresses("amqp://guest:guest@127.0.0.1:5672/x")


def test_an_inbox_that_is_taken_may_be_taken_by_this_node_itself() -> None:
    """Given a node that lost its broker silently, when it is back before the broker gave its old connection up, then nobody has to be stopped."""
    locked = ResourceLocked("RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'brokerha.m1.sync' in vhost 'x'")
    reason, remedy = explain(locked, ADDRESS)
    assert "another process runs under the id, or the broker still holds a lost connection" in reason
    assert remedy.startswith("wait: the broker gives up a lost connection by itself")


def test_a_refusal_of_rights_is_told_as_one() -> None:
    refused = AccessRefused("ACCESS_REFUSED - access to queue 'brokerha.m1.sync' refused for user 'x'")
    assert explain(refused, ADDRESS).reason.startswith("the broker refuses ")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ProbableAuthenticationError, "ACCESS_REFUSED - Login was refused"),
        (ProbableAccessDeniedError, "NOT_ALLOWED - vhost x not found"),
    ],
)
def test_a_client_that_the_broker_refuses_is_not_told_to_start_nodes(kind: type[AMQPConnectionError], said: str) -> None:
    reason, remedy = thread.explain(AMQPConnectionError(kind(f"ConnectionClosedByBroker: (403) '{said}.'")), ADDRESS)
    assert reason == f"the broker refuses amqp://guest@127.0.0.1:5672 vhost 'x': {said}"
    assert remedy.startswith("correct the user, the password or the virtual host")


def test_a_client_without_a_broker_is_told_to_start_that() -> None:
    reason, remedy = thread.explain(AMQPConnectionError(ConnectionRefusedError()), ADDRESS)
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
    refused, away = explain(refusal, ADDRESS), explain(ConnectionRefusedError(), ADDRESS)
    assert not refused.reason.endswith(".")
    for remedy in (refused.remedy, no_broker(refused).remedy, no_broker(away, refused).remedy):
        assert (remedy or "").startswith(
            "correct the user, the password or the virtual host of its address, or give the user its rights"
        )


def test_who_finds_none_is_told_to_start_it() -> None:
    away = explain(ConnectionRefusedError(), ADDRESS)
    assert (no_broker(away).remedy or "").startswith("start the broker")


def test_a_certificate_that_does_not_hold_is_no_broker_that_is_away() -> None:
    error = SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "self-signed certificate"
    assert explain(error, ADDRESS) == (
        "the certificate of 127.0.0.1:5672 does not hold: self-signed certificate",
        "correct cacertfile or the host name in its address, or give the broker a certificate for this name",
    )


def test_the_status_of_a_node_tells_the_remedy_of_its_reason() -> None:
    link = LinkState(["in"])
    link.down("in", explain(ResourceLocked("RESOURCE_LOCKED - queue in use"), ADDRESS))
    state, problem = link.read()
    assert states.describe(state, *problem)["action"] == problem.remedy != states.ACTIONS[states.WAITING_FOR_BROKER]
