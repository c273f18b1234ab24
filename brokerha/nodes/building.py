"""Builds a node from the cluster file: opens its data, connects its transport, puts its core together.

The only place where a core meets the adapters; programs and the embedded cluster call it and add their front doors.
"""

from __future__ import annotations

import time
from functools import partial

from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.nodes.change_log import ChangeLog
from brokerha.nodes.clock import SystemClock
from brokerha.nodes.config import ClusterConfig
from brokerha.nodes.guarding import machine_memory_bytes
from brokerha.nodes.master_node import MasterNode
from brokerha.nodes.scrubbing import Scrubbing, ScrubLimits
from brokerha.nodes.tasks import WorkerTasks, backup_kind, scrub_kind
from brokerha.nodes.worker_node import WorkerNode
from brokerha.stores.rdf import RdfRepository
from brokerha.stores.worker_copy import WorkerCopy
from brokerha.transports.addresses import is_embedded
from brokerha.transports.kombu_transport import KombuTransport
from brokerha.transports.log_stream import LogStream


def open_master(config: ClusterConfig, node_id: str) -> MasterNode:
    """Return a master, not started. Raises JournalError and its kinds, ConfigurationError."""
    journal = LmdbJournal(config.data_directory(node_id), config.name, node_id)
    incarnation = journal.state().incarnation + 1
    transport = KombuTransport(config.broker_of(node_id), config.name, node_id, incarnation, "master")
    followers = None
    broker = config.broker_of(node_id)
    if config.log_stream and not is_embedded(broker):
        committed = ChangeLog(journal, with_changes=config.publishes_changes(node_id))
        followers = LogStream(broker, config.name, node_id, committed)
    return MasterNode(
        config.master_config(node_id),
        config.name,
        journal,
        transport,
        SystemClock(),
        followers,
        config.routing_limits(config.dead_after_ms),
        protect_single_worker=config.protect_single_worker,
    )


def open_worker(config: ClusterConfig, node_id: str) -> WorkerNode:
    """Return a worker, not started. Raises StoreError, ConfigurationError."""
    site = config.workers_of(config.master_of(node_id))
    limits = config.read_limits(site.index(node_id))
    copy = WorkerCopy(
        config.data_directory(node_id),
        cluster=config.name,
        node=node_id,
        open_engine=partial(RdfRepository, result_limit_bytes=limits.result_bytes),
    )
    transport = KombuTransport(config.broker_of(node_id), config.name, node_id, int(time.time()), "worker")
    clock = SystemClock()
    scrub_limits = ScrubLimits(config.scrub_every_s, config.scrub_items_per_s)
    scrubbing = Scrubbing(copy, node_id, scrub_limits, copy.lives)
    masters = tuple(master.id for master in config.masters)
    backup = backup_kind(copy, config.backups_directory, config.name, node_id, masters, lambda: clock.now().wall_us)
    tasks = WorkerTasks({"backup": backup, "scrub": scrub_kind(scrubbing)}, node_id, transport.wake)
    return WorkerNode(
        config.worker_config(node_id),
        config.name,
        copy,
        transport,
        clock,
        masters,
        limits,
        scrubbing=scrubbing,
        tasks=tasks,
        guard=config.guard_limits(len(site), machine_memory_bytes()),
    )
