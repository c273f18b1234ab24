"""Findings, judged from facts: the level, the finding, and the command that fixes it. Pure.

>>> text(Finding(WARNING, "disk", "3.0 GB are free", "df -h /srv"))
'warning  disk: 3.0 GB are free - df -h /srv'
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from brokerha.deploying.files import SAME
from brokerha.deploying.machine import OPEN_FILES
from brokerha.doctor.facts import (
    BrokerFact,
    ClockFact,
    DataFact,
    DeploymentFact,
    FileFact,
    LimitsFact,
    PortFact,
    QueueFact,
    SettingsFact,
    Wanted,
    WorkersFact,
)
from brokerha.transports.topology import DATA_EXCHANGE, SYNC_EXCHANGE, any_writes_queue, foreign_problem

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
LEVELS: Final = (OK, WARNING, PROBLEM)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about one subject."""

    level: str
    """One of `LEVELS`. An unknown fact is ok, with ``not checked`` and the reason as its text."""
    subject: str
    """``m1 data``, ``broker``, ``clock``: what it is about."""
    what: str
    command: str = ""
    """Command that fixes it; empty when all is well."""


def not_checked(subject: str, why: str) -> Finding:
    """Return a finding about an unknown fact: no reason to worry, and none to feel safe."""
    return Finding(OK, subject, f"not checked: {why}")


def judged(subject: str, ok: str, *cases: tuple[object, str, str, str]) -> Finding:
    """Return the first case that holds, of (condition, level, what, command); if none does, all is well, with the text ``ok``.

    >>> judged("disk", "it is large", (False, PROBLEM, "full", "rm"), (True, WARNING, "small", "df")).what
    'small'
    """
    for holds, level, what, command in cases:
        if holds:
            return Finding(level, subject, what, command)
    return Finding(OK, subject, ok)


def text(finding: Finding) -> str:
    """Format the finding as a line for people."""
    mended = f" - {finding.command}" if finding.command else ""
    return f"{finding.level:<8} {finding.subject}: {finding.what}{mended}"


def worst(findings: Iterable[Finding]) -> str:
    """Return the worst level of all; ok without any.

    >>> worst([Finding(OK, "a", "b"), Finding(WARNING, "a", "b")])
    'warning'
    """
    return max((finding.level for finding in findings), key=LEVELS.index, default=OK)


# ---- this machine: directories, disks, ports, limits, secrets, files of a deployment

GIGABYTE: Final = 1_000_000_000
FREE_PROBLEM_BYTES: Final = 1 * GIGABYTE
FREE_WARNING_BYTES: Final = 5 * GIGABYTE
FREE_PROBLEM_SHARE: Final = 0.02
FREE_WARNING_SHARE: Final = 0.10
FREE_ENOUGH_BYTES: Final = 100 * GIGABYTE
"""Enough, even as a small share of a large disk."""
SLOW_FSYNC_MS: Final = 20.0
MEMORY_WARNING_BYTES: Final = 1 * GIGABYTE
_FORGETTING = frozenset({"tmpfs", "ramfs"})
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p"})


def of_secret(file: FileFact) -> Finding:
    """Judge whether others can read a file with a secret."""
    mode = f"mode {file.mode:04o}"
    command = f"chmod 0600 {shlex.quote(file.path)}"
    return judged(f"secret {file.path}", mode, (file.mode & 0o077, PROBLEM, f"others may read it ({mode})", command))


def of_data(data: DataFact) -> list[Finding]:
    """Judge a directory and its disk."""
    subject, path = f"{data.node} data", shlex.quote(data.path)
    there = f"{data.path} belongs to {data.owner}"
    folder = judged(
        subject,
        there if data.exists else f"{data.path} is not there yet; the node makes it",
        (
            not data.exists and not data.is_writable, PROBLEM,
            f"{data.path} is not there, and {data.user} cannot make it",
            f"install -d -o {data.user} -m 0700 {path}",
        ),
        (not data.is_writable, PROBLEM, f"{there}, and {data.user} cannot write there", f"chown -R {data.user} {path}"),
        (
            data.exists and data.owner != data.user, WARNING,
            f"{there}, this is {data.user}: nodes and commands should be one user",
            f"sudo -u {data.owner} brokerha doctor",
        ),
        (
            data.exists and data.mode & 0o022, PROBLEM,
            f"others may write to {data.path} (mode {data.mode:04o})",
            f"chmod go-w {path}",
        ),
    )  # fmt: skip
    if not data.is_writable:
        return [folder]
    return [folder, _free(data, subject), _file_system(data, subject), _fsync(data, subject)]


def _free(data: DataFact, subject: str) -> Finding:
    share = data.free_bytes / max(1, data.size_bytes)
    what = f"{data.free_bytes / GIGABYTE:,.1f} GB are free, {share:.0%} of the disk"
    command = "give the disk more room, or lower tx-log-max-size"

    def is_below(least_bytes: int, least_share: float) -> bool:
        return data.free_bytes < least_bytes or (share < least_share and data.free_bytes < FREE_ENOUGH_BYTES)

    return judged(
        subject,
        what,
        (is_below(FREE_PROBLEM_BYTES, FREE_PROBLEM_SHARE), PROBLEM, what, command),
        (is_below(FREE_WARNING_BYTES, FREE_WARNING_SHARE), WARNING, what, command),
    )


def _file_system(data: DataFact, subject: str) -> Finding:
    if not data.file_system:
        return not_checked(subject, "nobody says which file system it is")
    where, command = f"on {data.file_system}", "move it to a local disk: set data in [cluster]"
    forgets = f"{where}, which is memory: what was acknowledged is lost when the machine stops"
    is_far = f"{where}, a disk of another machine: maps of files and fsync are not safe there"
    return judged(
        subject,
        where,
        (data.file_system in _FORGETTING, PROBLEM, forgets, command),
        (data.file_system in _REMOTE, PROBLEM, is_far, command),
    )


def _fsync(data: DataFact, subject: str) -> Finding:
    if not data.fsync_ms:
        return not_checked(subject, "nothing can be written there, so that fsync was not measured")
    typical = median(data.fsync_ms)
    what = f"fsync takes {typical:.1f} ms (the middle of {len(data.fsync_ms)})"
    slow = f"{what}: each transaction waits for it"
    return judged(subject, what, (typical > SLOW_FSYNC_MS, WARNING, slow, "put data on a faster disk"))


def of_port(port: PortFact) -> list[Finding]:
    """Judge whether a node can have its address, and who can reach it there."""
    subject, number = f"{port.node} http", port.address.rpartition(":")[2]
    held = judged(
        subject,
        f"a node answers at {port.address}" if port.listens else f"{port.address} is free",
        (
            not port.is_here, PROBLEM,
            f"{port.address} is no address of this machine",
            f"correct http of {port.node}, or name the nodes of this machine",
        ),
        (
            port.listens and not port.is_node, PROBLEM,
            f"another program holds {port.address}",
            f"ss -ltnp 'sport = :{number}'",
        ),
    )  # fmt: skip
    guarded = (
        "only this machine reaches it" if port.is_loopback
        else "other machines reach it, over TLS" if port.has_certificate
        else "other machines reach it without TLS: http-plain = true says that others are kept out"
    )  # fmt: skip
    is_open = not (port.is_loopback or port.has_certificate or port.is_plain)
    command = "set http-certificate and http-key (brokerha init certificates makes them), or a loopback address as http"
    return [
        held,
        judged(
            subject,
            guarded,
            (is_open, PROBLEM, f"other machines reach {port.address} without TLS", command),
            (port.problem, PROBLEM, f"it cannot be opened: {port.problem}", f"then: brokerha doctor {port.node}"),
        ),
    ]


def of_limits(limits: LimitsFact) -> list[Finding]:
    """Judge whether nodes get the resources that they need."""
    files = "no limit" if limits.open_files < 0 else f"{limits.open_files:,}"
    few = f"a process may open {files} files: {OPEN_FILES:,} are wanted"
    found = [judged("open files", files, (0 <= limits.open_files < OPEN_FILES, WARNING, few, f"ulimit -n {OPEN_FILES}"))]
    if not limits.memory_bytes:
        return [*found, not_checked("memory", "nobody says how much there is")]
    what = f"{limits.memory_bytes / GIGABYTE:,.1f} GB"
    is_little = limits.memory_bytes < MEMORY_WARNING_BYTES
    little = (is_little, WARNING, f"{what}: a node wants 1 GB", "give the machine more memory")
    return [*found, judged("memory", what, little)]


def of_deployment(files: DeploymentFact) -> Finding:
    """Judge whether deployment files match the cluster file."""
    old = [path for path, status in files.status.items() if status != SAME]
    out_of_date = (old, WARNING, f"out of date: {', '.join(old)}", files.command)
    return judged(f"{files.kind} files", f"up to date in {files.folder}", out_of_date)


# ---- nodes that answer: their clocks, and whether masters have the same settings

FAR_S: Final = 1.0


def of_clocks(clocks: Sequence[ClockFact]) -> list[Finding]:
    """Judge whether clocks agree. The order never depends on them; times in the log and timeouts of transactions do."""
    if not clocks:
        return [not_checked("clock", "no node with an http address answers")]
    command = "timedatectl set-ntp true (on both machines)"
    return [
        judged(
            f"{clock.node} clock",
            "agrees with this machine",
            (abs(clock.offset_s) > FAR_S, WARNING, f"{clock.offset_s:+.1f} s against this machine", command),
        )
        for clock in clocks
    ]


def of_settings(masters: Sequence[SettingsFact]) -> list[Finding]:
    """Judge whether all masters have equal settings: one with short rounds considers one with long rounds silent."""
    if len(masters) < 2:
        return [not_checked("settings of masters", "fewer than two masters tell theirs")]
    found = []
    for name, value in masters[0].values.items():
        values = {master.node: master.values.get(name, value) for master in masters}
        if len(set(values.values())) > 1:
            said = ", ".join(f"{each} at {node}" for node, each in values.items())
            waiting = [master.node for master in masters if name in master.from_start]
            command = f"restart {', '.join(waiting)}" if waiting else f"brokerha settings set {name} {value}"
            found.append(Finding(WARNING, f"setting {name}", f"it is {said}", command))
    return found or [Finding(OK, "settings of masters", f"the same at {', '.join(master.node for master in masters)}")]


def of_workers(masters: Sequence[WorkersFact]) -> list[Finding]:
    """Judge whether masters have the workers of the cluster file: after a worker add or remove they keep a list of their own."""
    return [
        Finding(
            WARNING,
            f"worker {worker}",
            f"{each.node} does not have it; add it, or take it out of the cluster file",
            f"brokerha worker add {worker}",
        )
        for each in masters
        for worker in each.in_file
        if worker not in each.listed
    ]


# ---- one broker, as one of its users sees it

OLDEST: Final = (3, 10)
MISSING: Final = "missing"
GUEST: Final = "guest"
RUNNING: Final = "running"
"""Federation's word for a working link."""
NEEDED: Final = ("basic.nack", "connection.blocked", "consumer_cancel_notify", "publisher_confirms")
"""Capabilities that nodes rely on."""
FEDERATION: Final = frozenset({"federation-upstream", "federation-upstream-set", "federation-upstream-pattern"})
_LIMITS: Final = frozenset({"max-length", "max-length-bytes", "max-age", "overflow", "message-ttl", "expires", "delivery-limit"})
HARMFUL: Final = {"queue": _LIMITS | FEDERATION | {"dead-letter-exchange"}, "exchange": FEDERATION | {"alternate-exchange"}}
"""Arguments that a policy must not set for brokerha's queues, and for its exchanges."""
OWN_HOST: Final = "give each cluster a virtual host of its own (rabbitmqctl add_vhost), or correct the cluster file"
DEFINITIONS: Final = "brokerha init definitions; rabbitmqctl import_definitions < deploy/definitions.json"


def of_broker(broker: BrokerFact, wanted: Wanted) -> list[Finding]:
    """Return all findings, the connection first; only that without a connection."""
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
        *_links(broker, wanted),
        *_strangers(broker, wanted),
    ]


def _no_connection(broker: BrokerFact, subject: str) -> Finding:
    vhost, user = shlex.quote(broker.vhost), shlex.quote(broker.user)
    if broker.refused == "user":
        command = f"rabbitmqctl change_password {user}, or {DEFINITIONS}"
        return Finding(PROBLEM, f"{subject} user", broker.unreachable, command)
    if broker.refused != "vhost":
        return Finding(PROBLEM, subject, broker.unreachable, broker.remedy)
    what, command = f"{broker.user} has no rights in the virtual host {broker.vhost!r}", DEFINITIONS
    if "not found" in broker.unreachable:
        what, command = (f"the virtual host {broker.vhost!r} does not exist", f"rabbitmqctl add_vhost {vhost}, or {command}")
    return Finding(PROBLEM, "broker virtual host", what, command)


def _software(broker: BrokerFact) -> list[Finding]:
    parts = tuple(int(each) for each in re.findall(r"\d+", broker.version)[:2])
    what, newer = f"{broker.product} {broker.version}", "install a newer RabbitMQ"
    lacking = [name for name in NEEDED if name not in broker.capabilities]
    another = (broker.product != "RabbitMQ", WARNING, f"{what}: brokerha is tried with RabbitMQ only", "use RabbitMQ")
    return [
        judged("broker version", what, another, (parts < OLDEST, PROBLEM, f"{what}: 3.10 is the oldest that works", newer)),
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
        if whose := foreign_problem(problem, f"the virtual host {broker.vhost!r}"):
            yield Finding(PROBLEM, "broker virtual host", f"{whose}: its nodes do not start", OWN_HOST)
            continue
        is_refused = problem.startswith("ACCESS_REFUSED")
        what = f"{broker.user} may not declare it" if is_refused else f"other than wanted: {problem}"
        yield Finding(PROBLEM, f"exchange {name}", what, DEFINITIONS if is_refused else again)
    differing = [queue for queue in broker.queues if queue.problem not in {"", MISSING}]
    for queue in differing:
        yield _differing(broker, queue)
    if not (missing or wrong or differing):
        yield Finding(OK, "broker queues", f"as wanted: {len(broker.queues)}")


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
        yield not_checked("broker permissions", f"whether {broker.user} may do more than it must: {broker.management_problem}")


def _topic(broker: BrokerFact, wanted: Wanted) -> Finding:
    subject = "broker topic permissions"
    patterns = " ".join(shlex.quote(each) for each in wanted.topic) if wanted.topic else "'^$' '.*'"
    command = (
        f"rabbitmqctl set_topic_permissions -p {shlex.quote(broker.vhost)} {shlex.quote(broker.user)} brokerha.changes {patterns}"
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
        yield not_checked("broker policies", broker.management_problem)
        return
    for name, definition in (broker.management.policies or {}).items():
        kind = name.partition(" ")[0]
        harmful = HARMFUL[kind] & definition.keys()
        if kind == "exchange" and wanted.linked:
            harmful -= FEDERATION
        if harmful:
            what = f"a policy sets {', '.join(sorted(harmful))}: messages go, or come from elsewhere, or queues vanish"
            vhost = shlex.quote(broker.vhost)
            command = f"rabbitmqctl list_policies -p {vhost}; rabbitmqctl clear_policy -p {vhost} NAME (or list_ and clear_operator_policy)"
            yield Finding(WARNING, name, what, command)
    for place in broker.management.listeners or ():
        what = f"it takes connections without TLS at {place}"
        command = "in rabbitmq.conf: listeners.tcp = none, or listeners.tcp.local = 127.0.0.1:5672"
        yield Finding(WARNING, "broker listeners", what, command)


def _strangers(broker: BrokerFact, wanted: Wanted) -> Iterator[Finding]:
    """Judge whether masters of another cluster consume writes for any master: they would acknowledge and keep them."""
    readers = next((queue.consumers for queue in broker.queues if queue.name == any_writes_queue()), 0)
    if wanted.masters and readers > wanted.masters:
        what = f"{readers} masters read {any_writes_queue()} in the virtual host {broker.vhost!r}, and the cluster file has {wanted.masters}"
        yield Finding(PROBLEM, "broker virtual host", what, OWN_HOST)


def _links(broker: BrokerFact, wanted: Wanted) -> Iterator[Finding]:
    """Judge whether the broker of one site fetches from those of the others."""
    links = broker.management.links if broker.management else None
    if not wanted.linked:
        return
    if links is None:
        plugin = "rabbitmq-plugins enable rabbitmq_federation_management, at this broker"
        yield not_checked("broker links", broker.management_problem or plugin)
        return
    for (upstream, exchange), state in sorted(links.items()):
        if state == RUNNING:
            continue
        command = "rabbitmqctl eval 'rabbit_federation_status:status().' tells more; see docs/several-brokers.md"
        yield Finding(PROBLEM, "broker links", f"{upstream} to {exchange} does not run: {state}", command)
    others = ", ".join(wanted.linked)
    for exchange in (SYNC_EXCHANGE, DATA_EXCHANGE):
        found = sum(target == exchange for _, target in links)
        lacking = f"{found} links to {exchange}, where one is wanted from the broker of each of {others}"
        command = "brokerha init definitions, and import those of this broker; see docs/several-brokers.md"
        yield judged(
            "broker links",
            f"{exchange} has one from the broker of each of {others}",
            (found < len(wanted.linked), PROBLEM, lacking, command),
        )
