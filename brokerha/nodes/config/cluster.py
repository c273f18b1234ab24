"""The cluster file: one TOML file that lists the nodes, the same for every node and every command.

    [cluster]                              [[master]]                    [[worker]]
    name = "orders"                        id = "m1"                     id = "w1"
    broker = "amqp://guest:guest@h/orders" http = "127.0.0.1:7201"       master = "m1"

`load_config` reads it, applies the environment and checks it. Any problem is one ConfigurationError with the place and the remedy.
`ClusterConfig` is frozen. Its first part is the table of the settings of ``[cluster]``; its second part makes the configuration of
each part of a node from them. settings.py defines a setting. Bounds of settings that can
change at run time are in model/reserved/settings.py.

Invariants: a relative ``data`` counts from the folder of the file, so that every command finds the same data from any
directory; the broker's URL is never shown (``repr``, errors), because it can hold a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brokerha.master.config import HOUR_US, MasterConfig, RetentionConfig
from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId, is_node_id
from brokerha.nodes.config.file import NODE_SECTIONS, Table, check_required, lay_over, read_document
from brokerha.nodes.config.rules import check_rules, http_address
from brokerha.nodes.config.settings import Setting, at_run_time, nearest, number, required, setting, settings_of, word
from brokerha.nodes.reads.book import MIB, ReadLimits
from brokerha.nodes.reads.routing import RoutingLimits
from brokerha.nodes.worker.limits import MACHINE_SHARE, GuardLimits
from brokerha.replication.site.config import FeedConfig
from brokerha.replication.worker.config import WorkerConfig
from brokerha.sync.config import ACKNOWLEDGE, SyncConfig
from brokerha.sync.modes import SPLIT_RECOVERY
from brokerha.transactions.config import TxConfig
from brokerha.transports.rabbitmq.addresses import is_embedded, parse_addresses
from brokerha.transports.topology import CLASSIC, QUORUM

# ---- The sections ``[[master]]``, ``[[backup]]`` and ``[[worker]]`` of the cluster file: the table of their settings.

_ID = ("Name of this node, unique in the whole cluster; never used again with other data. 1 to 32 of a-z, 0-9 and -.", '"m1"')
_OF_MASTER = ("The master that this node belongs to.", '"m1"')
_HTTP = "host:port where this node listens for HTTP; without it the node has no HTTP door."


@dataclass(frozen=True, slots=True)
class MasterEntry:
    """One ``[[master]]``."""

    id: str = required(*_ID)
    http: str = setting("", _HTTP, default_text="none")
    broker: str = setting(
        "",
        "Broker where the inbox of this master and of its workers lives. Not with embedded://.",
        default_text="the cluster's",
        is_secret=True,
    )
    probe: str = setting(
        "",
        "The worker of this master in this file that executes transactions, if it is always the same one.",
        default_text="the workers in sync take turns",
        example='"w1"',
    )

    role = "master"


@dataclass(frozen=True, slots=True)
class BackupEntry:
    """One ``[[backup]]``: a standby process of a master. It holds the journal and takes over when its primary is lost."""

    id: str = required(*_ID)
    master: str = required(*_OF_MASTER)
    http: str = setting("", _HTTP, default_text="none")

    role = "backup"


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """One ``[[worker]]``: a full copy of the data. One worker of a master executes, the others apply its effects."""

    id: str = required(*_ID)
    master: str = required(*_OF_MASTER)
    http: str = setting("", _HTTP, default_text="none")
    readable: bool = setting(True, "Whether masters send it reads; without them it only follows the log.")

    role = "worker"


NodeEntry = MasterEntry | BackupEntry | WorkerEntry


# Parts of a node with their own defaults give them here.
_SYNC = SyncConfig("m", ("m",))
_FEED = FeedConfig()
_WORKER = WorkerConfig("w", "m")
_MASTER = MasterConfig(_SYNC)
_GUARD = GuardLimits()
_POOL = ReadLimits()
_ROUTING = RoutingLimits()


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """The section ``[cluster]``, and all nodes in the order of the file."""

    # ---- nodes and places

    name: str = required("Name of the cluster. 1 to 32 of a-z, 0-9 and -.", '"orders"')
    broker: str = required(
        "amqp://, amqps:// (several, separated by ;, are tried in turn), or embedded:// for one process without a broker.",
        '"amqp://guest:guest@127.0.0.1:5672/orders"', is_secret=True)
    data: Path = setting(Path("var"),
        "Folder of all data; each node takes a folder with its id below it. Relative to the folder of this file.", default_text="var/NAME")

    # ---- how masters agree

    split_recovery: str = word(_SYNC.split_recovery, SPLIT_RECOVERY,
        "What the masters do when they lose sight of each other. quorum: a majority goes on. smart, simple, none: every side goes "
        "on, and what they promise is less (docs/splits.md); they need acknowledge = all. Alike at all masters; it is "
        "changed by a command (brokerha split-recovery), which goes before this.")
    acknowledge: str = word(_SYNC.acknowledge, ACKNOWLEDGE,
        "Which masters must hold a transaction before it is ordered: all, those that are heard (present), or a majority.")
    max_peer_lag_s: float = at_run_time(_SYNC.max_peer_lag_ms / 1000,
        "The masters that hear each other go on without one of which nothing was heard, or which held up the order, for this long, "
        "and take it back when it is heard again. With split-recovery = quorum if they are a majority of three or more; with simple "
        "and smart in any case; with none at most 5 s, and 0.15 to 1 s while something waits for it. A master whose inbox is gone has "
        "ended, and is missed after two round-timeout-ms with quorum, after 150 ms with none. At least two idle-round-ms and a round-timeout-ms.")
    suspect_after_ms: int = at_run_time(_SYNC.suspect_after_ms,
        "With split-recovery = quorum: the same while something waits for a master. One that was silent for longer and came back is "
        "given up to twice as long for a while. At most max-peer-lag-s; at least an idle-round-ms, a round-timeout-ms and two retransmit-ms, "
        "and where masters have backups twice fail-over-after-ms.")
    round_timeout_ms: int = at_run_time(_SYNC.round_timeout_ms,
        "A master that is silent for this long is late: rounds complete with its last known counter.")
    idle_round_ms: int = at_run_time(_SYNC.idle_round_ms,
        "Time between posts while there is nothing to agree on.")
    post_gap_ms: int = at_run_time(_SYNC.post_gap_ms,
        "Least time between two posts to one master; a turn gathers what came in meanwhile anyway.")
    retransmit_ms: int = at_run_time(_SYNC.retransmit_ms,
        "Entries that a master has not confirmed are sent again after this long.")
    fetch_after_ms: int = at_run_time(_SYNC.fetch_after_ms,
        "Bodies that did not come are asked for after this long, then ever less often.")
    post_window: int = at_run_time(_SYNC.post_window,
        "Entries of one master in one post.")
    queue_window: int = at_run_time(_SYNC.queue_window,
        "Own transactions that may be under way to an agreement; those beyond it wait.")
    accept_limit: int = at_run_time(_MASTER.accept_limit,
        "Accepted transactions that may wait to be synchronised; more are refused until there is room.")

    # ---- workers of a site, and how they are trusted

    heartbeat_ms: int = at_run_time(_WORKER.heartbeat_ms,
        "How often a worker tells its master that it lives and how far it is.")
    dead_after_ms: int = at_run_time(_FEED.dead_after_ms,
        "A worker that is silent for this long is dead, and another one executes; one that is waited for and whose process has ended, as the broker "
        "knows, after a tenth of it. At least two heartbeats.")
    min_in_sync: int = at_run_time(-1,
        "A master with fewer workers in sync than this takes no writes until they are back. -1: two where the site has two or more, "
        "else one. 0: it always takes them.")
    apply_limit: int = at_run_time(1_000_000,
        "Synchronised transactions that may wait for the workers of a site; while there are more, further writes of its clients are "
        "refused, so that who does not wait for `applied` is not ahead of the site without a bound.")
    probe_turn: int = at_run_time(10_000,
        "The workers in sync of a site take turns in executing transactions; a turn has so many.")
    protect_single_worker: bool = at_run_time(True,
        "Whether the last worker in sync of a site is never switched off or removed, and answers reads while it makes a backup.")
    full_replication_factor: float = at_run_time(1.3,
        "A worker that is behind takes a snapshot instead of replaying only if the replay would take this many times longer")
    min_replay_s: float = at_run_time(600,
        "... and longer than this.")
    scrub_every_s: float = at_run_time(600,
        "Pause between two looks of a worker at all of its data, which find silent damage. 0: never.")
    scrub_items_per_s: int = at_run_time(20_000,
        "Most quads and keys that such a look reads in a second.")
    memory_limit_mb: int = at_run_time(-1,
        "A worker whose process takes more memory than this ends, to be started again; 0: never. -1: three quarters of the memory "
        "of its machine, divided by the workers of its master. Nodes that are embedded in a program refuse reads instead.")
    store_patience_s: float = at_run_time(_GUARD.store_patience_s,
        "A worker whose store has not come back from a write after this time ends, to be started again, if its copy is damaged, it "
        "takes more than half of its memory, or it only waits.")

    # ---- processes of a master: backups and fail-over

    sync_n: int = number(-1, "backups", -1, 9,
        "Backups of a master that must hold a write before anybody hears of it. -1: one where the master has a backup, else none. "
        "With 0 a backup may lack what was acknowledged, so that fail-over is by hand.")
    sync_timeout_ms: int = at_run_time(5_000,
        "Writes that not enough backups have confirmed after this long are answered with an unknown outcome, and no new ones are "
        "taken until backups are back.")
    sync_lost: str = at_run_time("read-only",
        "What a primary without enough backups does: stay readable and keep trying (read-only), or wait for a primary to be "
        "declared (idle).")
    fail_over: str = at_run_time("automatic",
        "Whether a backup takes over by itself, or by hand (brokerha promote).")
    fail_over_after_ms: int = at_run_time(3_000,
        "A primary that its backups have not heard for this long is replaced; one whose process has ended, as the broker knows, after a third of it. "
        "Heartbeats go out four times as often.")
    on_role_change: str = setting("",
        "Program that each process of a master starts when it becomes primary or stops being it, with four arguments: node, master, "
        "role (primary, backup or idle), view. Its exit code is logged, and nothing waits for it.",
        default_text="none", example='"/usr/local/bin/role-changed"')
    lost_backup: str = at_run_time("continue",
        "When a backup is lost while a transaction is prepared: go on with the others if they are enough for sync-n (continue), or "
        "roll back (abort).")

    # ---- transactions of several steps

    tx_timeout_s: float = at_run_time(60,
        "An open transaction in which nothing happens for this long is rolled back. Prepared ones with an xid never are.")
    tx_timeout_max_s: float = at_run_time(3_600,
        "Longest time-out that a client may ask for.")
    tx_open_limit: int = at_run_time(1_000,
        "Open transactions of one master; more are refused.")

    # ---- how long the log is, and backups of the data

    tx_log_max_size: int = at_run_time(100_000,
        "Transactions that a journal keeps; older ones are forgotten when nobody needs them any more.")
    tx_log_max_depth_h: float = at_run_time(168,
        "Transactions older than this are forgotten too; ids stay known for this long.")
    tx_log_hard_limit: int = at_run_time(0,
        "With more transactions than this a journal forgets what a slow worker still needs; the worker takes a snapshot. 0: four "
        "times tx-log-max-size.")
    backup_folder: Path = setting(Path(),
        "Folder of backups, on the machine of the worker that makes one. Relative to the folder of this file.",
        default_text="backups in the folder of all data")

    # ---- reads

    read_threads: int = at_run_time(_POOL.threads,
        "Reads that a worker evaluates at once.")
    read_queue: int = at_run_time(_POOL.queue,
        "Reads that a worker holds, waiting or running; it refuses more.")
    read_limit_mb: int = at_run_time(_POOL.result_bytes // MIB,
        "Largest result of a read; a larger one is an error.")
    read_stuck_limit: int = at_run_time(_POOL.stuck,
        "Reads that go on after their time because nothing can stop them; with so many a worker ends, to be started again. 0: twice "
        "read-threads. Each worker after the first of a site bears read-threads more, so that not all end at once.")
    read_patience_ms: int = at_run_time(_ROUTING.patience_ms,
        "A worker that has not answered a read after this long, or after four times what such reads take, is not waited for alone: "
        "another one is asked too.")

    # ---- HTTP doors of all nodes

    http_users: str = setting("",
        "File with the users of the HTTP doors (docs/security.md), made by brokerha user. It is read again when it changes. Without "
        "it everybody who reaches a door may do everything.", default_text="none")
    http_certificate: str = setting("",
        "Certificate of a door as PEM, with those between it and the authority. {id} is the node's id. With it all doors speak "
        "https.", default_text="none")
    http_key: str = setting("",
        "Key of that certificate as PEM, without a password. {id} is the node's id.", default_text="none")
    http_plain: bool = setting(False,
        "Whether a door may listen on another address than loopback without TLS or without users, because a proxy or a private "
        "network keeps others out.")
    http_origins: str = setting("",
        "Origins of pages that may change something and read answers besides those of the door's own address, as "
        "https://brokerha.example.org, with commas between several: for a proxy through which browsers reach the doors by another "
        "name, and for pages of other sites (CORS). A door without users also answers to the names of their hosts.", default_text="none")
    http_prefix: str = setting("",
        "All paths are served below this one too, as /rdf4j-server: for clients that can only be given the address of an RDF4J "
        "server.", default_text="none")

    # ---- queues and streams in the broker

    app_queues: str = word("auto", ("auto", CLASSIC, QUORUM),
        "Type of the queues of writes and reads in the broker. quorum: replicated, so that they outlive a node of a cluster of "
        "brokers; each message then waits for its disks. classic: on one node. auto: quorum where broker names several addresses. "
        "RabbitMQ cannot change a queue that is there: drain it and delete it first.")
    log_stream: bool = at_run_time(True,
        "Whether each master publishes its log to the stream brokerha.NODE.log. Not with embedded://.")
    publish_changes: bool = at_run_time(False,
        "Whether the changes of applied transactions are published to the exchange brokerha.changes, by the first master of each "
        "broker. Needs log-stream. Not with embedded://.")

    # ---- not settings
    # fmt: on

    path: Path = Path("cluster.toml")
    """Path of the file itself."""
    masters: tuple[MasterEntry, ...] = ()
    backups: tuple[BackupEntry, ...] = ()
    workers: tuple[WorkerEntry, ...] = ()

    # ---- nodes

    @property
    def nodes(self) -> tuple[NodeEntry, ...]:
        """All nodes: masters, backups, workers."""
        return (*self.masters, *self.backups, *self.workers)

    @property
    def masters_to_ask(self) -> tuple[MasterEntry, ...]:
        """Masters in the order in which clients try them: those with workers first, because the others neither read nor apply."""
        return tuple(sorted(self.masters, key=lambda master: not self.workers_of(master.id)))

    @property
    def roles(self) -> dict[NodeId, str]:
        """Role of each node: ``master``, ``backup`` or ``worker``."""
        return {node.id: node.role for node in self.nodes}

    @property
    def is_embedded(self) -> bool:
        """Whether the whole cluster runs in one process."""
        return is_embedded(self.broker)

    def node(self, node_id: NodeId) -> NodeEntry:
        """Return the entry of a node. Raises ConfigurationError when the file has no node with this id."""
        found = {node.id: node for node in self.nodes}.get(node_id)
        if found is None:
            ids = [node.id for node in self.nodes]
            raise ConfigurationError(f'{self.path}: there is no node "{node_id}": write {nearest(node_id, ids)}')
        return found

    def master_of(self, node_id: NodeId) -> NodeId:
        """Return the master of a node; a master belongs to itself."""
        node = self.node(node_id)
        return node.id if isinstance(node, MasterEntry) else node.master

    def workers_of(self, master_id: NodeId) -> tuple[NodeId, ...]:
        """Return the workers of a master, in the order of the file."""
        return tuple(worker.id for worker in self.workers if worker.master == master_id)

    def processes_of(self, master_id: NodeId) -> tuple[NodeId, ...]:
        """Return the processes that can be primary of a master: its own, then its backups in the order of the file."""
        return (master_id, *(backup.id for backup in self.backups if backup.master == master_id))

    def sync_n_of(self, master_id: NodeId) -> int:
        """Return the number of backups of a master that must hold a write."""
        backups = len(self.processes_of(master_id)) - 1
        return min(1, backups) if self.sync_n < 0 else self.sync_n

    # ---- places

    def data_directory(self, node_id: NodeId) -> Path:
        """Return the folder of a node's data, which possibly does not exist yet."""
        return self.data / self.node(node_id).id

    @property
    def backups_directory(self) -> Path:
        """Folder of backups, which possibly does not exist yet."""
        return self.path.parent / self.backup_folder if self.backup_folder.parts else self.data / "backups"

    def broker_of(self, node_id: NodeId) -> str:
        """Return the URL of the broker with the inbox of a node: its master's, or else the cluster's."""
        master = next(each for each in self.masters if each.id == self.master_of(node_id))
        return master.broker or self.broker

    def http_urls(self) -> dict[NodeId, str]:
        """Return the URL of each node with an HTTP door, masters first (`masters_to_ask`); a wildcard address becomes loopback."""
        scheme = "https" if self.http_certificate else "http"
        nodes: tuple[NodeEntry, ...] = (*self.masters_to_ask, *self.backups, *self.workers)
        return {node.id: _url(scheme, node.http) for node in nodes if node.http}

    # ---- settings of the parts

    def queue_type_at(self, broker: str) -> str:
        """Return the type of the queues of apps at a broker."""
        if self.app_queues == "auto":
            return QUORUM if not is_embedded(broker) and len(parse_addresses(broker)) > 1 else CLASSIC
        return self.app_queues

    def shares_broker(self, master_id: NodeId) -> bool:
        """Tell whether another master takes writes from the same queues."""
        broker = self.broker_of(master_id)
        return any(self.broker_of(master.id) == broker for master in self.masters if master.id != master_id)

    def leaves_writes(self, master_id: NodeId) -> bool:
        """Tell whether a master without workers leaves the shared queues of writes to a master that has workers."""
        broker = self.broker_of(master_id)
        others = (master.id for master in self.masters if self.broker_of(master.id) == broker)
        return not self.workers_of(master_id) and any(self.workers_of(other) for other in others)

    def publishes_changes(self, master_id: NodeId) -> bool:
        """Tell whether a master publishes changes: only the first one at its broker does."""
        broker = self.broker_of(master_id)
        first = next(master.id for master in self.masters_to_ask if self.broker_of(master.id) == broker)
        return self.publish_changes and self.log_stream and master_id == first

    def sync_config(self, master_id: NodeId) -> SyncConfig:
        """Return the configuration of a master for the sync protocol."""
        # Where a backup can take over, it has twice its waiting time for that.
        fails_over_ms = 2 * self.fail_over_after_ms if self.backups and self.fail_over == "automatic" else 0
        return SyncConfig(
            node=master_id,
            members=tuple(master.id for master in self.masters),
            acknowledge=self.acknowledge,
            split_recovery=self.split_recovery,
            round_timeout_ms=self.round_timeout_ms,
            idle_round_ms=self.idle_round_ms,
            max_peer_lag_ms=round(self.max_peer_lag_s * 1000),
            suspect_after_ms=max(self.suspect_after_ms, fails_over_ms),
            post_gap_ms=self.post_gap_ms,
            retransmit_ms=self.retransmit_ms,
            fetch_after_ms=self.fetch_after_ms,
            post_window=self.post_window,
            queue_window=self.queue_window,
        )

    def feed_config(self, master_id: NodeId) -> FeedConfig:
        """Return the configuration of a master for its workers."""
        master = next(each for each in self.masters if each.id == master_id)
        return FeedConfig(
            workers=self.workers_of(master_id),
            unreadable=tuple(worker.id for worker in self.workers if not worker.readable),
            dead_after_ms=self.dead_after_ms,
            probe=master.probe,
            probe_turn=self.probe_turn,
            min_in_sync=self.min_in_sync,
            replay_factor=self.full_replication_factor,
            replay_s=self.min_replay_s,
            others=tuple(
                w.id
                for w in self.workers
                if w.master != master_id and self.broker_of(w.id) == self.broker_of(master_id)
            ),
        )

    def master_config(self, master_id: NodeId) -> MasterConfig:
        """Return the configuration of a master's core."""
        retention = RetentionConfig(
            self.tx_log_max_size, round(self.tx_log_max_depth_h * HOUR_US), self.tx_log_hard_limit
        )
        return MasterConfig(
            self.sync_config(master_id),
            self.feed_config(master_id),
            self.accept_limit,
            self.apply_limit,
            retention=retention,
            tx=TxConfig(
                open_limit=self.tx_open_limit,
                timeout_ms=round(self.tx_timeout_s * 1000),
                timeout_max_ms=round(self.tx_timeout_max_s * 1000),
                lost_backup=self.lost_backup,
                sync_n=self.sync_n_of(master_id),
            ),
        )

    def worker_config(self, worker_id: NodeId) -> WorkerConfig:
        """Return the configuration of a worker."""
        return WorkerConfig(node=worker_id, master=self.master_of(worker_id), heartbeat_ms=self.heartbeat_ms)

    def read_limits(self, place: int) -> ReadLimits:
        """Return the bounds of a worker's reads, by its place among those of its master.

        Reads are spread evenly, so with equal bounds all workers of a site would reach them at the same moment.
        """
        stuck = self.read_stuck_limit or 2 * self.read_threads
        return ReadLimits(
            threads=self.read_threads,
            queue=self.read_queue,
            result_bytes=self.read_limit_mb * MIB,
            stuck=stuck + place * self.read_threads,
        )

    def routing_limits(self, dead_after_ms: int) -> RoutingLimits:
        """Return the bounds of a master's reads. A third of the time after which a worker is dead is more than a heartbeat."""
        return RoutingLimits(patience_ms=self.read_patience_ms, silent_ms=max(1, dead_after_ms // 3))

    def guard_limits(self, workers: int, machine_bytes: int) -> GuardLimits:
        """Return the limits of one of so many workers of a master, on a machine with so much memory (0 for unknown)."""
        share_bytes = int(machine_bytes * MACHINE_SHARE) // max(workers, 1)
        memory_bytes = share_bytes if self.memory_limit_mb < 0 else self.memory_limit_mb * MIB
        return GuardLimits(memory_bytes, self.store_patience_s)


SECTIONS: dict[str, type] = {
    "cluster": ClusterConfig,
    "master": MasterEntry,
    "backup": BackupEntry,
    "worker": WorkerEntry,
}
"""Dataclass of each section."""


def sections() -> dict[str, dict[str, Setting]]:
    """Return the table of settings of each section."""
    return {name: settings_of(section) for name, section in SECTIONS.items()}


def load_config(path: Path, environ: Mapping[str, str]) -> ClusterConfig:
    """Read the cluster file and apply the environment.

    Raises ConfigurationError: one text with file, line and remedy.
    """
    document = read_document(path, sections())
    lay_over(document, environ)
    check_required(document)
    check_rules(document)
    nodes = {name: tuple(SECTIONS[name](**_fields(table)) for table in document.of(name)) for name in NODE_SECTIONS}
    values = _fields(document.cluster)
    folder = Path(values.pop("data", Path("var") / values["name"])).expanduser()
    values["backup_folder"] = Path(values.get("backup_folder", "")).expanduser()
    return ClusterConfig(
        **values,
        data=document.path.parent / folder,
        path=document.path,
        masters=nodes["master"],
        backups=nodes["backup"],
        workers=nodes["worker"],
    )


def with_worker(config: ClusterConfig, node_id: str, master: str, http: str = "") -> ClusterConfig:
    """Return the configuration with one more worker, added while the cluster runs (``brokerha worker add``).

    Only the process of the new worker needs its entry: its master has it in its journal, and the file stays unchanged. When the
    file already has the worker at this master, the configuration stays unchanged. Raises ConfigurationError for an impossible
    entry.
    """
    if not is_node_id(node_id):
        raise ConfigurationError(f"{node_id!r} is no node id: write 1 to 32 of a-z, 0-9 and -")
    known = {node.id: node for node in config.nodes}.get(node_id)
    if known is not None and (known.role != "worker" or config.master_of(node_id) != master):
        raise ConfigurationError(
            f"{config.path}: {node_id} is a {known.role} of {config.master_of(node_id)} there already"
        )
    if known is not None:
        return config
    if not any(each.id == master for each in config.masters):
        masters = ", ".join(each.id for each in config.masters)
        raise ConfigurationError(f"{config.path}: there is no master {master!r}: write --master with one of {masters}")
    try:
        address = http_address(http) if http else None
    except ValueError as error:
        raise ConfigurationError(f"--http {error}: write for instance 127.0.0.1:7309") from None
    taken = [node.id for node in config.nodes if http and node.http and http_address(node.http) == address]
    if taken:
        raise ConfigurationError(f"--http {http} is the address of {taken[0]}: write another port")
    return replace(config, workers=(*config.workers, WorkerEntry(node_id, master, http)))


def _fields(table: Table) -> dict[str, Any]:
    return {table.known[name].field: written.value for name, written in table.written.items()}


def _url(scheme: str, address: str) -> str:
    """Return the URL that reaches an address from this machine; wildcard addresses become loopback."""
    host, _, port = address.rpartition(":")
    return f"{scheme}://{'127.0.0.1' if host in {'', '0.0.0.0', '[::]'} else host}:{port}"  # noqa: S104  (compared only)
