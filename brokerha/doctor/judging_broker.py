"""Findings about one broker, as one user of it sees it. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

from brokerha.doctor.facts import BrokerFact, QueueFact
from brokerha.doctor.findings import OK, PROBLEM, WARNING, Finding, judged, not_checked
from brokerha.doctor.wanted import Wanted

OLDEST: Final = (3, 10)
MISSING: Final = "missing"
GUEST: Final = "guest"
NEEDED: Final = ("basic.nack", "connection.blocked", "consumer_cancel_notify", "publisher_confirms")
"""Capabilities that nodes rely on."""
DEFINITIONS: Final = "brokerha init definitions; rabbitmqctl import_definitions deploy/definitions.json"


def of_broker(broker: BrokerFact, wanted: Wanted) -> list[Finding]:
    """All findings, the connection first; one alone when there is none."""
    subject = f"broker of {', '.join(broker.nodes)}" if broker.nodes else "broker"
    if broker.unreachable:
        return [_no_connection(broker, subject), _tls(broker)]
    return [
        Finding(OK, subject, f"reached as {broker.where}"),
        *_software(broker),
        _tls(broker),
        _guest(broker),
        *_declared(broker),
        *_rights(broker, wanted),
        _topic(broker, wanted),
        _alarm(broker),
        *_partitions(broker),
        _time_out(),
        *_management(broker, wanted),
    ]


def _no_connection(broker: BrokerFact, subject: str) -> Finding:
    vhost, user = shlex.quote(broker.vhost), shlex.quote(broker.user)
    if broker.refused == "user":
        command = f"rabbitmqctl change_password {user}, or {DEFINITIONS}"
        return Finding(PROBLEM, f"{subject} user", broker.unreachable, command)
    if broker.refused != "vhost":
        return Finding(PROBLEM, subject, broker.unreachable, "start the broker, or correct broker in the cluster file")
    what, command = f"{broker.user} has no rights in the virtual host {broker.vhost!r}", DEFINITIONS
    if "not found" in broker.unreachable:
        what, command = f"the virtual host {broker.vhost!r} does not exist", f"rabbitmqctl add_vhost {vhost}, or {command}"
    return Finding(PROBLEM, "broker virtual host", what, command)


def _software(broker: BrokerFact) -> list[Finding]:
    parts = tuple(int(each) for each in re.findall(r"\d+", broker.version)[:2])
    what, newer = f"{broker.product} {broker.version}", "install a newer RabbitMQ"
    lacking = [name for name in NEEDED if name not in broker.capabilities]
    another = (broker.product != "RabbitMQ", WARNING, f"{what}: brokerha is tried with RabbitMQ only", "use RabbitMQ")
    return [
        judged(
            "broker version", what, another, (parts < OLDEST, PROBLEM, f"{what}: 3.10 is the oldest that works", newer)
        ),
        judged("broker features", ", ".join(NEEDED), (lacking, PROBLEM, f"it has no {', '.join(lacking)}", newer)),
    ]


def _tls(broker: BrokerFact) -> Finding:
    is_open = not (broker.is_tls or broker.is_loopback)
    what = "off, and the broker is on another machine: passwords and data can be read on the way"
    command = "write amqps://…?cacertfile=FILE as broker of the cluster file"
    well = "on; the certificate is checked" if broker.is_tls else "off; the broker is on this machine"
    return judged("broker tls", well, (is_open, PROBLEM, what, command))


def _guest(broker: BrokerFact) -> Finding:
    command = "rabbitmqctl delete_user guest"
    users = (broker.management.users if broker.management else None) or ()
    known = "guest comes in with the password that everybody knows"
    is_far = broker.guest and broker.guest != "here"
    return judged(
        "broker guest",
        "it cannot come in from here",
        (is_far, PROBLEM, f"{known}, at {broker.guest}", command),
        (broker.guest, WARNING, f"{known}, from this machine", command),
        (GUEST in users, WARNING, "the user is there, with a password of its own", command),
    )


def _declared(broker: BrokerFact) -> Iterator[Finding]:
    missing = [name for name, problem in broker.exchanges.items() if problem == MISSING]
    missing += [queue.name for queue in broker.queues if queue.problem == MISSING]
    if missing:
        what = f"not there yet, nodes make them at their start: {', '.join(missing)}"
        yield Finding(OK, "broker queues", what)
    wrong = {name: problem for name, problem in broker.exchanges.items() if problem != MISSING}
    again = "delete it in the dashboard; nodes make it again"
    for name, problem in wrong.items():
        is_refused = problem.startswith("ACCESS_REFUSED")
        what = f"{broker.user} may not declare it" if is_refused else f"other than wanted: {problem}"
        yield Finding(PROBLEM, f"exchange {name}", what, DEFINITIONS if is_refused else again)
    differing = [queue for queue in broker.queues if queue.problem not in {"", MISSING}]
    for queue in differing:
        yield _differing(broker, queue)
    if not (missing or wrong or differing):
        yield Finding(OK, "broker queues", f"{len(broker.queues)} queues are as wanted")


def _differing(broker: BrokerFact, queue: QueueFact) -> Finding:
    subject = f"queue {queue.name}"
    if queue.problem.startswith("ACCESS_REFUSED"):
        return Finding(PROBLEM, subject, f"{broker.user} may not declare it", DEFINITIONS)
    what = f"other than wanted: {queue.problem}"
    if "x-queue-type" in queue.problem and "received the value 'quorum'" in queue.problem:
        what = "a classic queue, wanted is a quorum one (app-queues): while its node of the broker is away nobody takes from it"
    elif "x-queue-type" in queue.problem and "quorum" in queue.problem:
        what = (
            "a quorum queue, wanted is a classic one: after its delivery-limit of 20 it drops messages, "
            "and there is no dead-letter exchange that keeps them"
        )
    delete = f"rabbitmqctl -p {shlex.quote(broker.vhost)} delete_queue {queue.name}"
    held = f"it holds {queue.messages:,} messages" if queue.messages else "it is empty"
    return Finding(PROBLEM, subject, f"{what} ({held})", f"once it is empty: {delete} --if-empty; then start the nodes")


def _rights(broker: BrokerFact, wanted: Wanted) -> Iterator[Finding]:
    command = DEFINITIONS
    if wanted.rights is not None:
        patterns = " ".join(shlex.quote(each) for each in wanted.rights)
        command = f"rabbitmqctl set_permissions -p {shlex.quote(broker.vhost)} {shlex.quote(broker.user)} {patterns}"
    for name in broker.unwritable:
        yield Finding(PROBLEM, "broker permissions", f"{broker.user} may not publish to {name}", command)
    known = broker.management.permissions if broker.management else None
    if known is not None and wanted.rights is not None:
        has = known.get(broker.user)
        if has != tuple(wanted.rights):
            what = f"{broker.user} has other permissions than the definitions say: {has}"
            yield Finding(WARNING, "broker permissions", what, command)
            return
    if not broker.unwritable:
        yield Finding(OK, "broker permissions", f"{broker.user} may publish where it must")
    if known is None:
        yield not_checked("broker permissions", f"whether {broker.user} may do more than it must: {_asked(broker)}")


def _topic(broker: BrokerFact, wanted: Wanted) -> Finding:
    subject = "broker topic permissions"
    patterns = " ".join(shlex.quote(each) for each in wanted.topic) if wanted.topic else "'^$' '.*'"
    command = (
        f"rabbitmqctl set_topic_permissions -p {shlex.quote(broker.vhost)} {shlex.quote(broker.user)} "
        f"brokerha.changes {patterns}"
    )
    known = broker.management.topic_permissions if broker.management else None
    is_missing = broker.topic_is_open or (
        known is not None and wanted.topic is not None and known.get(broker.user) != tuple(wanted.topic)
    )
    if is_missing:
        what = f"{broker.user} may publish changes with any key: RabbitMQ allows everything where it has no topic permissions"
        if known is not None and broker.user in known and not broker.topic_is_open:
            what = f"{broker.user} has other topic permissions than the definitions say: {known[broker.user]}"
        is_bad = wanted.rights is not None or not broker.is_loopback
        return Finding(PROBLEM if is_bad else WARNING, subject, what, command)
    if broker.topic_is_open is None and known is None:
        return not_checked(subject, "the exchange brokerha.changes is not there yet, or nothing is published to it")
    return Finding(OK, subject, f"{broker.user} may not publish changes with any key")


def _alarm(broker: BrokerFact) -> Finding:
    alarms = broker.management.alarms if broker.management else None
    if broker.blocked is None and alarms is None:
        return not_checked("broker alarms", "no exchange is there to publish to")
    why = broker.blocked or ", ".join(alarms or ())
    command = "rabbitmqctl status (Alarms), then give the broker disk or memory"
    return judged("broker alarms", "it takes messages", (why, PROBLEM, f"it takes no message: {why}", command))


def _partitions(broker: BrokerFact) -> Iterator[Finding]:
    if broker.management is not None and broker.management.partitions is not None:
        cut = "; ".join(f"{node} from {', '.join(others)}" for node, others in sorted(broker.management.partitions.items()))
        what = f"its nodes were cut off from each other and have not come together, messages are lost between them: {cut}"
        command = "rabbitmqctl stop_app and rabbitmqctl start_app at each node named first, one after the other"
        yield judged("broker partitions", "its nodes agree with each other", (cut, PROBLEM, what, command))


def _time_out() -> Finding:
    why = "RabbitMQ tells its own machine only: rabbitmqctl environment | grep consumer_timeout (its default of 30 minutes is fine)"
    return not_checked("broker consumer time-out", why)


def _management(broker: BrokerFact, wanted: Wanted) -> Iterator[Finding]:
    if broker.management is None:
        yield not_checked("broker policies", _asked(broker))
        return
    for name, definition in (broker.management.policies or {}).items():
        if harmful := sorted(wanted.harmful & definition.keys()):
            what = f"a policy sets {', '.join(harmful)}: messages go or queues vanish"
            command = f"rabbitmqctl list_policies -p {shlex.quote(broker.vhost)}; rabbitmqctl clear_policy … NAME"
            yield Finding(WARNING, f"queue {name}", what, command)
    for place in broker.management.listeners or ():
        what = f"it takes connections without TLS at {place}"
        command = "in rabbitmq.conf: listeners.tcp = none, or listeners.tcp.local = 127.0.0.1:5672"
        yield Finding(WARNING, "broker listeners", what, command)


def _asked(broker: BrokerFact) -> str:
    return broker.management_problem or "set BROKERHA_MANAGEMENT_URL to ask the management interface"
