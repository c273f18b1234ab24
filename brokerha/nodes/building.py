"""Builds a node from the cluster file: opens its data, connects its transport, composes its core.

Only this module connects a core to the adapters; programs and the embedded cluster call it and add their front doors.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from brokerha.ingress.suspects import Suspects
from brokerha.local_reads.asking import AskingThread, LocalReads
from brokerha.log.copies import LogCopy
from brokerha.log.disks import FileDisk
from brokerha.log.log import Log
from brokerha.master.config import MasterConfig
from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import Instant, NodeId
from brokerha.nodes.config.cluster import ClusterConfig
from brokerha.nodes.loop import NodeLoop
from brokerha.nodes.master.address_book import AddressBook, AddressedTransport
from brokerha.nodes.master.journal_lines import ChangeLog
from brokerha.nodes.master.node import MasterNode
from brokerha.nodes.master.orders import Orders
from brokerha.nodes.master.process_node import ProcessNode
from brokerha.nodes.master.process_runner import ProcessConfig
from brokerha.nodes.master.runner import MasterRunner
from brokerha.nodes.settings import NodeSettings
from brokerha.nodes.worker.guarding import machine_memory_bytes
from brokerha.nodes.worker.node import WorkerNode
from brokerha.nodes.worker.tasks import Scrubbing, ScrubLimits, WorkerTasks, backup_kind, scrub_kind
from brokerha.ports.journal import Journal
from brokerha.ports.transport import Transport
from brokerha.replication.role.config import RoleConfig, place_of
from brokerha.stores.copies.worker_copy import WorkerCopy
from brokerha.stores.rdf.repository import RdfRepository
from brokerha.transports.config import TransportConfig
from brokerha.transports.kombu_transport import KombuTransport
from brokerha.transports.log_stream.stream import LogStream
from brokerha.transports.rabbitmq.addresses import is_embedded, parse_addresses

PATIENCE_S = 10.0
"""Time after which a worker that hears its master only with a lower incarnation accepts it as one with a new journal."""


class SystemClock:
    """The clocks of this machine, monotonic and wall; the only real clock of a node."""

    def now(self) -> Instant:
        """Return the present instant."""
        return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1000)


def _wire(
    config: ClusterConfig, node_id: NodeId, incarnation: int, role: str, times: TransportConfig | None = None
) -> KombuTransport:
    broker, master = config.broker_of(node_id), config.master_of(node_id)
    processes = {each.id: config.processes_of(each.id) for each in config.masters}
    processes |= {each.id: (each.id,) for each in config.workers}
    of_master = master if role == "backup" else ""
    times = replace(times or TransportConfig(), queue_type=config.queue_type_at(broker))
    if not is_embedded(broker):
        times = times.for_nodes(len(parse_addresses(broker)))
    return KombuTransport(broker, config.name, node_id, incarnation, role, times, of_master, processes)


def open_master(config: ClusterConfig, node_id: str) -> MasterNode:
    """Return a master, not started. Raises JournalError and its kinds, ConfigurationError."""
    settings = NodeSettings(config, node_id, config.data_directory(node_id))
    config = settings.started
    journal = Log(FileDisk(config.data_directory(node_id)), config.name, node_id)
    state = journal.state()
    view = max(state.promised_view, state.views[-1][0] if state.views else 0)
    if place_of(view):
        journal.close()
        raise ConfigurationError(
            f"{config.path}: {node_id} had backups, and another process was primary last (view {view}), so its own journal may lack "
            f"what was acknowledged: put the [[backup]] sections back, brokerha promote {node_id}, then take them out"
        )
    transport = addressed(config, _wire(config, node_id, state.next_incarnation, "master"))
    return _master_maker(config, node_id, config.master_config(node_id), transport, settings)(journal)


def _master_maker(
    config: ClusterConfig, node_id: NodeId, of_core: MasterConfig, transport: AddressedTransport, settings: NodeSettings
) -> Callable[..., MasterNode]:
    """Return a function that makes the master of a process, from its journal and the parts that both share."""
    master_id, folder = config.master_of(node_id), config.data_directory(node_id)
    suspects, broker = Suspects(folder), config.broker_of(node_id)
    of_reads = config.routing_limits(config.dead_after_ms)
    settings.govern(of_core, lambda running: running.master_config(master_id))
    settings.govern(of_reads, lambda running: running.routing_limits(running.dead_after_ms))

    def make(
        journal: Journal, runner: MasterRunner | None = None, loop: NodeLoop | None = None, orders: Orders | None = None
    ) -> MasterNode:
        followers = None
        if config.log_stream and not is_embedded(broker):
            committed = ChangeLog(journal, with_changes=config.publishes_changes(master_id))
            followers = LogStream(broker, config.name, master_id, committed)
        return MasterNode(
            of_core,
            config.name,
            journal,
            transport,
            SystemClock(),
            settings,
            followers,
            of_reads,
            protect_single_worker=config.protect_single_worker,
            shares_broker=config.shares_broker(master_id),
            leaves_writes=config.leaves_writes(master_id),
            suspects=suspects,
            near=near_workers(config, node_id),
            runner=runner,
            loop=loop,
            orders=orders,
        )

    return make


def near_workers(config: ClusterConfig, node_id: str) -> AskingThread | None:
    """Return the thread that asks workers of this machine, for reads over AMQP; None with ``embedded://``: there is no broker."""
    if is_embedded(config.broker_of(node_id)):
        return None
    return AskingThread(LocalReads(config.name, config.data), f"{node_id} near reads")


def open_process(config: ClusterConfig, node_id: str) -> MasterNode | ProcessNode:
    """Return a process of a master, not started: its own or a backup. A master without backups is a plain `MasterNode`.

    Raises JournalError and its kinds, ConfigurationError.
    """
    master_id = config.master_of(node_id)
    processes = config.processes_of(master_id)
    if len(processes) == 1:
        return open_master(config, master_id)
    settings = NodeSettings(config, node_id, config.data_directory(node_id))
    config = settings.started
    copy = LogCopy(FileDisk(config.data_directory(node_id)), config.name, master_id)
    # As the master, this process uses the incarnation of its journal (AddressedTransport.speak_for).
    # When heartbeats stop, a broker gives the app messages that a frozen primary took to another process.
    heartbeats = TransportConfig(heartbeat_s=max(2, config.fail_over_after_ms // 1000))
    wire = _wire(config, node_id, int(time.time()), "backup", heartbeats)
    transport = addressed(config, wire)
    of_process = process_config(config, node_id, config.master_config(master_id))
    make = _master_maker(config, node_id, of_process.master, transport, settings)
    return ProcessNode(of_process, config.name, copy, transport, SystemClock(), make, settings, config.on_role_change)


def addressed(config: ClusterConfig, transport: Transport, patience_s: float = 0) -> AddressedTransport:
    """Return a transport that reaches whichever process acts for a master."""
    names = [master.id for master in config.masters]
    book = AddressBook(names, {name: config.processes_of(name) for name in names})
    return AddressedTransport(transport, book, patience_s)


def process_config(config: ClusterConfig, node_id: str, of_core: MasterConfig) -> ProcessConfig:
    """Return the configuration of one process of a master; ``of_core`` is that of its core while it is primary."""
    master_id = config.master_of(node_id)
    return ProcessConfig(
        of_core,
        RoleConfig(
            node_id,
            master_id,
            config.processes_of(master_id),
            config.sync_n_of(master_id),
            config.fail_over_after_ms,
            is_automatic=config.fail_over == "automatic",
        ),
        sync_timeout_ms=config.sync_timeout_ms,
        goes_idle=config.sync_lost == "idle",
    )


def open_worker(config: ClusterConfig, node_id: str) -> WorkerNode:
    """Return a worker, not started. Raises StoreError, ConfigurationError."""
    settings = NodeSettings(config, node_id, config.data_directory(node_id))
    config = settings.started
    site = config.workers_of(config.master_of(node_id))
    place, memory_bytes = site.index(node_id), machine_memory_bytes()
    limits = config.read_limits(place)
    copy = WorkerCopy(
        config.data_directory(node_id),
        cluster=config.name,
        node=node_id,
        open_engine=partial(RdfRepository, result_limit_bytes=limits.result_bytes),
    )
    wire = _wire(config, node_id, int(time.time()), "worker")
    transport = addressed(config, wire, PATIENCE_S)
    clock = SystemClock()
    worker_config, guard = config.worker_config(node_id), config.guard_limits(len(site), memory_bytes)
    scrub_limits = ScrubLimits(config.scrub_every_s, config.scrub_items_per_s)
    settings.govern(limits, lambda running: running.read_limits(place))
    settings.govern(worker_config, lambda running: running.worker_config(node_id))
    settings.govern(guard, lambda running: running.guard_limits(len(site), memory_bytes))
    settings.govern(scrub_limits, lambda running: ScrubLimits(running.scrub_every_s, running.scrub_items_per_s))
    scrubbing = Scrubbing(copy, node_id, scrub_limits, copy.lives)
    masters = tuple(master.id for master in config.masters)
    backup = backup_kind(copy, config.backups_directory, config.name, node_id, masters, lambda: clock.now().wall_us)
    tasks = WorkerTasks({"backup": backup, "scrub": scrub_kind(scrubbing)}, node_id, transport.wake)
    return WorkerNode(
        worker_config,
        config.name,
        copy,
        transport,
        clock,
        masters,
        settings,
        limits,
        scrubbing=scrubbing,
        tasks=tasks,
        guard=guard,
        folder=None if is_embedded(config.broker_of(node_id)) else config.data_directory(node_id),
    )
