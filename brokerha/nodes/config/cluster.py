"""The cluster file: one TOML file that says who takes part, the same for every node and every command.

    [cluster]                              [[master]]                    [[worker]]
    name = "orders"                        id = "m1"                     id = "w1"
    broker = "amqp://guest:guest@h/orders" http = "127.0.0.1:7201"       master = "m1"

`load_config` reads it, lays the environment over it and checks it; whatever is wrong is one ConfigurationError that says
where and what to write instead. `ClusterConfig` is frozen, knows all defaults, and makes the settings of each part of a
node from them. The dataclasses below are the only table of keys: ``docs/reference/configuration.md`` is made from them.

    keys.py         what a key is            environment.py   BROKERHA_… variables and secrets
    file.py         text, values, places     rules.py         what must hold between values
    page.py         the reference page                       nodes.py         keys of nodes
    site.py         keys of sites and their workers          reads.py         keys of reads
    process.py      keys of backups and transactions

Invariants: a relative ``data`` counts from the folder of the file, so that every command finds the same data wherever it
is started; the broker's URL is never shown (``repr``, errors), as it may hold a password.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from brokerha.master.core import MasterConfig
from brokerha.master.retention import HOUR_US, RetentionConfig
from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import NodeId
from brokerha.nodes.config.environment import lay_over
from brokerha.nodes.config.file import NODE_SECTIONS, Document, Table, check_required, nearest, read_document
from brokerha.nodes.config.keys import Key, KeyRow, keys_of
from brokerha.nodes.config.nodes import BackupEntry, MasterEntry, NodeEntry, WorkerEntry
from brokerha.nodes.config.rules import check_rules
from brokerha.nodes.config.site import SiteKeys
from brokerha.replication.site.config import FeedConfig
from brokerha.replication.worker.config import WorkerConfig
from brokerha.sync.config import ACKNOWLEDGE, SPLIT_RECOVERY, SyncConfig
from brokerha.transactions.config import TxConfig
from brokerha.transports.rabbitmq.addresses import is_embedded, parse_addresses
from brokerha.transports.topology import CLASSIC, QUORUM


def _defaults_of(config: type) -> dict[str, Any]:
    return {each.name: each.default for each in dataclasses.fields(config)}


_SYNC = _defaults_of(SyncConfig)
_FEED = _defaults_of(FeedConfig)
_WORKER = _defaults_of(WorkerConfig)
_MASTER = _defaults_of(MasterConfig)

MILLISECONDS = "milliseconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig(SiteKeys):
    """The section ``[cluster]``, and all nodes in the order of the file."""

    name: Annotated[str, Key("Name of the cluster. 1 to 32 of a-z, 0-9 and -.", example='"orders"')]
    broker: Annotated[
        str,
        Key(
            "amqp://, amqps:// (several, separated by ;, are tried in turn), or embedded:// for one process without a broker.",
            example='"amqp://guest:guest@127.0.0.1:5672/orders"',
        ),
    ] = field(repr=False)
    data: Annotated[
        Path,
        Key(
            "Folder of all data; each node takes a folder with its id below it. Relative to the folder of this file.",
            default_text="var/NAME",
        ),
    ] = Path("var")
    split_recovery: Annotated[
        str,
        Key(
            "What the masters do when they lose sight of each other. quorum: a majority goes on. smart, simple, none: every side goes on, and "
            "what they promise is less (docs/splits.md); they need acknowledge = all. Alike at all masters; between the last three it is "
            "changed by a command (brokerha split-recovery), which goes before this.",
            choices=SPLIT_RECOVERY,
        ),
    ] = _SYNC["split_recovery"]
    acknowledge: Annotated[
        str,
        Key(
            "Which masters must hold a transaction before it is ordered: all, those that are heard (present), or a majority.",
            choices=ACKNOWLEDGE,
        ),
    ] = _SYNC["acknowledge"]
    max_peer_lag_s: Annotated[
        float,
        Key(
            "The masters that hear each other go on without one of which nothing was heard, or which held up the order, for this long, and "
            "take it back when it is heard again. With split-recovery = quorum if they are a majority of three or more; with simple and smart "
            "in any case; none does not wait so long. With quorum a master whose inbox is gone is missed after two round-timeout-ms: its process has "
            "ended. At least two idle-round-ms and a round-timeout-ms.",
            unit="seconds",
            low=0.1,
            high=3600,
        ),
    ] = _SYNC["max_peer_lag_ms"] / 1000
    round_timeout_ms: Annotated[
        int,
        Key(
            "A master that is silent for this long is late: rounds complete with its last known counter.",
            unit=MILLISECONDS,
            low=1,
            high=600_000,
        ),
    ] = _SYNC["round_timeout_ms"]
    idle_round_ms: Annotated[
        int, Key("Time between posts while there is nothing to agree on.", unit=MILLISECONDS, low=1, high=600_000)
    ] = _SYNC["idle_round_ms"]
    heartbeat_ms: Annotated[
        int,
        Key(
            "How often a worker tells its master that it lives and how far it is.",
            unit=MILLISECONDS,
            low=1,
            high=600_000,
        ),
    ] = _WORKER["heartbeat_ms"]
    dead_after_ms: Annotated[
        int,
        Key(
            "A worker that is silent for this long is dead, and another one executes. At least two heartbeats.",
            unit=MILLISECONDS,
            low=2,
            high=600_000,
        ),
    ] = _FEED["dead_after_ms"]
    post_gap_ms: Annotated[
        int,
        Key(
            "Least time between two posts to one master; a turn gathers what came in meanwhile anyway.",
            unit=MILLISECONDS,
            low=0,
            high=10_000,
        ),
    ] = _SYNC["post_gap_ms"]
    retransmit_ms: Annotated[
        int,
        Key(
            "Entries that a master has not confirmed are sent again after this long.",
            unit=MILLISECONDS,
            low=1,
            high=600_000,
        ),
    ] = _SYNC["retransmit_ms"]
    fetch_after_ms: Annotated[
        int,
        Key(
            "Bodies that did not come are asked for after this long, then ever less often.",
            unit=MILLISECONDS,
            low=1,
            high=600_000,
        ),
    ] = _SYNC["fetch_after_ms"]
    post_window: Annotated[int, Key("Entries of one master in one post.", unit="transactions", low=1, high=100_000)] = (
        _SYNC["post_window"]
    )
    queue_window: Annotated[
        int,
        Key(
            "Own transactions that may be under way to an agreement; those beyond it wait.",
            unit="transactions",
            low=1,
            high=1_000_000,
        ),
    ] = _SYNC["queue_window"]
    accept_limit: Annotated[
        int,
        Key(
            "Accepted transactions that may wait to be synchronised; more are refused until there is room.",
            unit="transactions",
            low=1,
            high=10_000_000,
        ),
    ] = _MASTER["accept_limit"]
    app_queues: Annotated[
        str,
        Key(
            "Type of the queues of writes and reads in the broker. quorum: replicated, so that they outlive a node of a cluster of brokers; "
            "each message then waits for its disks. classic: on one node. auto: quorum where broker names several addresses. RabbitMQ "
            "cannot change a queue that is there: drain it and delete it first.",
            choices=("auto", CLASSIC, QUORUM),
        ),
    ] = "auto"
    log_stream: Annotated[
        bool, Key("Whether each master publishes its log to the stream brokerha.NODE.log. Not with embedded://.")
    ] = True
    publish_changes: Annotated[
        bool,
        Key(
            "Whether the changes of applied transactions are published to the exchange brokerha.changes, by the first master of each "
            "broker. Needs log-stream. Not with embedded://."
        ),
    ] = False
    path: Path = Path("cluster.toml")
    """The file itself."""
    masters: tuple[MasterEntry, ...] = ()
    backups: tuple[BackupEntry, ...] = ()
    workers: tuple[WorkerEntry, ...] = ()

    # ---- who takes part

    @property
    def nodes(self) -> tuple[NodeEntry, ...]:
        """All nodes: masters, backups, workers."""
        return (*self.masters, *self.backups, *self.workers)

    @property
    def masters_to_ask(self) -> tuple[MasterEntry, ...]:
        """Masters as clients try them: those first that have workers, because the others read and apply nothing."""
        return tuple(sorted(self.masters, key=lambda master: not self.workers_of(master.id)))

    @property
    def roles(self) -> dict[NodeId, str]:
        """``master``, ``backup`` or ``worker`` of each node."""
        return {node.id: node.role for node in self.nodes}

    @property
    def is_embedded(self) -> bool:
        """Whether the whole cluster runs in one process."""
        return is_embedded(self.broker)

    def node(self, node_id: NodeId) -> NodeEntry:
        """The entry of a node. Raises ConfigurationError when the file has none of this id."""
        found = {node.id: node for node in self.nodes}.get(node_id)
        if found is None:
            ids = [node.id for node in self.nodes]
            raise ConfigurationError(f'{self.path}: there is no node "{node_id}": write {nearest(node_id, ids)}')
        return found

    def master_of(self, node_id: NodeId) -> NodeId:
        """The master that a node belongs to; a master belongs to itself."""
        node = self.node(node_id)
        return node.id if isinstance(node, MasterEntry) else node.master

    def workers_of(self, master_id: NodeId) -> tuple[NodeId, ...]:
        """Workers of a master, in the order of the file."""
        return tuple(worker.id for worker in self.workers if worker.master == master_id)

    def processes_of(self, master_id: NodeId) -> tuple[NodeId, ...]:
        """Processes that may be primary of a master: its own, then its backups in the order of the file."""
        return (master_id, *(backup.id for backup in self.backups if backup.master == master_id))

    def sync_n_of(self, master_id: NodeId) -> int:
        """How many backups of a master must hold a write."""
        backups = len(self.processes_of(master_id)) - 1
        return min(1, backups) if self.sync_n < 0 else self.sync_n

    # ---- where things are

    def data_directory(self, node_id: NodeId) -> Path:
        """Folder of a node's data; it need not exist yet."""
        return self.data / self.node(node_id).id

    @property
    def backups_directory(self) -> Path:
        """Folder of backups; it need not exist yet."""
        return self.path.parent / self.backup_folder if self.backup_folder.parts else self.data / "backups"

    def broker_of(self, node_id: NodeId) -> str:
        """URL of the broker where the inbox of a node lives: its master's, else the cluster's."""
        master = next(each for each in self.masters if each.id == self.master_of(node_id))
        return master.broker or self.broker

    def http_urls(self) -> dict[NodeId, str]:
        """URL of each node that has a door for HTTP, masters first (`masters_to_ask`); a wildcard address becomes loopback."""
        scheme = "https" if self.http_certificate else "http"
        nodes: tuple[NodeEntry, ...] = (*self.masters_to_ask, *self.backups, *self.workers)
        return {node.id: _url(scheme, node.http) for node in nodes if node.http}

    # ---- settings of the parts

    def queue_type_at(self, broker: str) -> str:
        """Type of the queues of apps at a broker."""
        if self.app_queues == "auto":
            return QUORUM if not is_embedded(broker) and len(parse_addresses(broker)) > 1 else CLASSIC
        return self.app_queues

    def shares_broker(self, master_id: NodeId) -> bool:
        """Whether another master takes from the same queues of writes as this one."""
        broker = self.broker_of(master_id)
        return any(self.broker_of(master.id) == broker for master in self.masters if master.id != master_id)

    def leaves_writes(self, master_id: NodeId) -> bool:
        """Whether a master that can apply nothing leaves those queues to another one, which has workers."""
        broker = self.broker_of(master_id)
        others = (master.id for master in self.masters if self.broker_of(master.id) == broker)
        return not self.workers_of(master_id) and any(self.workers_of(other) for other in others)

    def publishes_changes(self, master_id: NodeId) -> bool:
        """Whether a master publishes changes: the first of those that share its broker does."""
        broker = self.broker_of(master_id)
        first = next(master.id for master in self.masters_to_ask if self.broker_of(master.id) == broker)
        return self.publish_changes and self.log_stream and master_id == first

    def sync_config(self, master_id: NodeId) -> SyncConfig:
        """How a master takes part in the sync protocol."""
        return SyncConfig(
            node=master_id,
            members=tuple(master.id for master in self.masters),
            acknowledge=self.acknowledge,
            split_recovery=self.split_recovery,
            round_timeout_ms=self.round_timeout_ms,
            idle_round_ms=self.idle_round_ms,
            max_peer_lag_ms=round(self.max_peer_lag_s * 1000),
            post_gap_ms=self.post_gap_ms,
            retransmit_ms=self.retransmit_ms,
            fetch_after_ms=self.fetch_after_ms,
            post_window=self.post_window,
            queue_window=self.queue_window,
        )

    def feed_config(self, master_id: NodeId) -> FeedConfig:
        """How a master brings its workers along."""
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
        """Everything a master's core is told."""
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
        """How a worker takes part."""
        return WorkerConfig(node=worker_id, master=self.master_of(worker_id), heartbeat_ms=self.heartbeat_ms)


ENTRIES: dict[str, type] = {
    "cluster": ClusterConfig,
    "master": MasterEntry,
    "backup": BackupEntry,
    "worker": WorkerEntry,
}
"""The dataclass of each section."""


def sections() -> dict[str, dict[str, KeyRow]]:
    """The table of keys of each section."""
    return {section: keys_of(entry) for section, entry in ENTRIES.items()}


def load_config(path: Path, environ: Mapping[str, str]) -> ClusterConfig:
    """Read the cluster file with the environment laid over it.

    Raises ConfigurationError: one text with file, line and what to write instead.
    """
    keys = sections()
    document = read_document(path, keys)
    lay_over(document, environ, keys)
    check_required(document, keys)
    numbers = {row.name: row.default for row in keys["cluster"].values() if row.type in {int, float}}
    check_rules(document, numbers)
    return _built(document, keys)


def _built(document: Document, keys: dict[str, dict[str, KeyRow]]) -> ClusterConfig:
    nodes: dict[str, list[Any]] = {section: [] for section in NODE_SECTIONS}
    for table in document.nodes:
        nodes[table.section].append(ENTRIES[table.section](**_fields(table, keys[table.section])))
    values = _fields(document.cluster, keys["cluster"])
    folder = Path(values.pop("data", Path("var") / values["name"])).expanduser()
    values["backup_folder"] = Path(values.get("backup_folder", "")).expanduser()
    return ClusterConfig(
        **values,
        data=document.path.parent / folder,
        path=document.path,
        masters=tuple(nodes["master"]),
        backups=tuple(nodes["backup"]),
        workers=tuple(nodes["worker"]),
    )


def _fields(table: Table, keys: Mapping[str, KeyRow]) -> dict[str, Any]:
    return {keys[name].field: setting.value for name, setting in table.settings.items()}


def _url(scheme: str, address: str) -> str:
    """The URL under which this machine reaches an address; the addresses that mean *all* become loopback."""
    host, _, port = address.rpartition(":")
    return f"{scheme}://{'127.0.0.1' if host in {'', '0.0.0.0', '[::]'} else host}:{port}"  # noqa: S104  (compared only)
