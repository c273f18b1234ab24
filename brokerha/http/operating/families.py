"""Every metric of a node: its type, its labels, and its meaning; for Prometheus, and for docs/reference/metrics.md.

A number of a node that is missing here is still shown, as a gauge without a meaning; the tests refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from brokerha.model.numbers import Numbers

PREFIX: Final = "brokerha_"


class Family(NamedTuple):
    """One metric, for people and for Prometheus."""

    labels: tuple[str, ...]
    meaning: str
    alarm: str = ""
    """Values that need a person's attention; empty for none."""
    type: str = "gauge"


def _counter(labels: str, meaning: str, alarm: str = "") -> Family:
    return Family(tuple(labels.split()), meaning, alarm, "counter")


def _gauge(labels: str, meaning: str, alarm: str = "") -> Family:
    return Family(tuple(labels.split()), meaning, alarm)


def _seconds(meaning: str, alarm: str = "") -> Family:
    return Family((), meaning, alarm, "histogram")


_EVERY: Final = {
    "state_info": _gauge("state", "1 for the state word that the node has; the other words are not there", "see the alerts"),
    "node_info": _gauge("node role version", "1; says which node this is, and which version of brokerha it runs"),
    "http_requests_total": _counter("method status", "requests that its door has answered", "status 500"),
    "http_requests_under_way": _gauge("", "requests at its door that are not answered yet"),
    "parsers_ended_total": _counter(
        "",
        "parser processes of this process that ended of a body, which was refused",
        "growing: somebody sends bodies that end parsers",
    ),
    "outbox_messages": _gauge("", "messages that wait to be sent to the broker", "growing"),
    "rejected_messages_total": _counter(
        "reason",
        "messages that were moved aside because they can never succeed, or because their sender may not send them",
        "growing",
    ),
    "transport_total": _counter(
        "what", "what the connection to the broker has done: sent, received, reconnects, faults, returned and so on"
    ),
    "turns_total": _counter("", "turns of the loop"),
    "cpu_seconds_total": _counter(
        "thread",
        "processor time of the process by what its threads are for; `other` is what they do not account for, such as threads of the storage engines",
    ),
    "running_reads": _gauge("", "reads under way"),
    "reads_total": _counter("", "reads that were asked for"),
    "reads_failed_total": _counter("", "reads that were answered with an error", "growing"),
    "lag_entries": _gauge(
        "node",
        "transactions of the order that a node has not applied yet; a master tells it of itself and of its workers",
        "growing",
    ),
}

_MASTER: Final = {
    "synchronised_lsn": _gauge("", "end of the order", "standing still while `incoming_transactions` is above 0"),
    "executed_lsn": _gauge("", "end of the results", "far behind `synchronised_lsn`"),
    "last_applied_entry": _gauge("node", "LSN that this master (by its best worker) and each of its workers has applied"),
    "lag_seconds": _gauge("node", "how old the first transaction is that it has not applied, of those that this master has; 0 when it has all, NaN when nobody knows. What the master itself lacks: `stale_seconds`", "above a minute"),
    "stale_seconds": _gauge("", "for how long this master has not been known to be up to date; 0 while it agrees with the others, NaN when nobody knows", "above a minute"),
    "backlog_entries": _gauge("peer", "transactions of the order that another master had not got when it was heard last", "growing"),
    "incoming_transactions": _gauge("", "transactions that were accepted here and have no place in the order yet", "not falling"),
    "commit_duration_seconds": _seconds("time from when a write was handed in here until it was answered as applied", "see the alerts"),
    "fsync_duration_seconds": _seconds("time that the journal took to make records durable; also of processes that stand by", "see the alerts"),
    "waiting_clients": _gauge("", "clients that wait until a write is applied"),
    "open_tickets": _gauge("", "writes that were handed in here and are not answered yet"),
    "posts_total": _counter("", "how often this master has told the others what it has"),
    "ignored_messages_total": _counter("reason", "messages of other nodes that were of no use, such as those of a former epoch", "growing fast"),
    "read_only": _gauge("", "1 while writes are refused for want of workers", "longer than a minute"),
    "read_only_total": _counter("", "how often that began"),
    "reads_near_total": _counter("", "those of them that a worker of the same machine answered, without the broker between"),
    "reads_retried_total": _counter("", "reads that were given to another worker, because the first one failed or was lost", "growing"),
    "reads_hedged_total": _counter("", "reads that a second worker was asked for, because the first one was slow"),
    "reads_hedges_won_total": _counter("", "how often the second one was faster"),
    "reads_late_total": _counter("", "answers of workers that came when nobody waited any more"),
    "benched_workers": _gauge("", "workers that are not asked for a while, because they failed", "above 0 for long"),
    "log_stream_lsn": _gauge("", "end of what was published to the log stream; only with such a stream", "far below `executed_lsn`"),
}  # fmt: skip

_WORKERS_OF: Final = {
    "workers_in_sync": _gauge(
        "", "workers of this master that are in sync", "equal to `workers_needed`, with more workers in the file"
    ),
    "workers_needed": _gauge("", "how many must be, for writes to be taken in"),
    "worker_in_sync": _gauge("worker", "1 or 0"),
    "worker_alive": _gauge("worker", "1 or 0: whether it is heard", "0"),
    "worker_probe": _gauge("worker", "1 for the worker that executes"),
    "worker_applied_lsn": _gauge("worker", "what it has applied"),
    "worker_load_done_bytes": _gauge("worker", "bytes that it has of the snapshot that it is loading; 0 when it loads none"),
    "worker_load_total_bytes": _gauge("worker", "bytes of that snapshot"),
    "worker_loads_total": _counter("worker", "how often it took a snapshot", "growing"),
    "worker_out_of_sync_total": _counter("worker", "how often it fell out of sync", "growing"),
    "probe_turns_total": _counter("", "how often another worker began to execute"),
    "probe_losses_total": _counter("", "how often that was because the one before was gone", "growing"),
    "sites_differing": _gauge("", "other sites that hold something else at the same LSN", "above 0"),
    "tasks_running": _gauge("", "backups and scrubs on demand"),
}

_EPOCHS: Final = {
    "epoch": _gauge("", "number of the epoch that this master is in", "different at two masters"),
    "epoch_masters": _gauge("", "masters of the cluster"),
    "epoch_members": _gauge("", "masters that are in this epoch"),
    "epoch_excluded": _gauge("", "masters that are not", "above 0"),
    "epoch_member": _gauge("master", "1 or 0 for each master, as this one sees it", "0"),
    "epoch_changes_total": _counter("", "how often another epoch began", "growing again and again"),
    "epoch_frozen": _gauge(
        "", "1 while it has promised an epoch that has not begun: nothing is synchronised meanwhile", "for a minute"
    ),
    "frozen_seconds_total": _counter("", "for how long that was, together"),
    "splits_total": _counter("", "how often the log of this master went back after a split", "growing"),
    "transactions_given_up_total": _counter("", "transactions that lost their place by that", "growing"),
    "split_back_lsn": _gauge("", "LSN to which a split may lead back; 0 while all masters are in one epoch"),
}

_LOG: Final = {
    "journal_first_lsn": _gauge("", "first transaction that is still held"),
    "journal_results_first_lsn": _gauge("", "first result that is still held"),
    "log_needed_entries": _gauge("", "transactions of the log that a worker, a backup, another master, a pin or a split still needs; the one that is furthest behind counts", "near `log_limit_entries`"),
    "log_limit_entries": _gauge("", "most that is held for them: `tx-log-hard-limit`"),
    "pins": _gauge("", "pins that are set by hand or by an archive"),
    "pinned_entries": _gauge("", "transactions that the one of them holds that is furthest behind", "near `log_limit_entries`"),
    "pins_dropped": _gauge("", "workers, masters and pins for which no more of the log is held, because they are too far behind", "above 0"),
    "pins_dropped_total": _counter("", "how often that began"),
}  # fmt: skip

_TRANSACTIONS: Final = {
    "in_doubt_transactions": _gauge(
        "",
        "what a person may have to decide: prepared for a coordinator outside, or decided by hand and not forgotten",
        "above 0 for long",
    ),
    "transactions_open": _gauge("", "transactions that take operations"),
    "transactions_prepared": _gauge("", "transactions that wait for their coordinator, or for backups"),
    "transactions_heuristic": _gauge("", "transactions that were decided by hand and wait to be forgotten"),
    "transactions_oldest_prepared_seconds": _gauge("", "for how long the oldest prepared one has been so", "above a minute"),
}

_BACKUPS: Final = {
    "is_primary": _gauge("", "1 for the process that acts, 0 for those that stand by"),
    "promised_view": _gauge("", "latest view that it takes part in"),
    "role_changes_total": _counter("", "how often it became primary or ceased to be", "when nobody asked for it"),
    "view": _gauge("", "view of the primary"),
    "sync_n": _gauge("", "how many backups must confirm"),
    "backups_ready": _gauge("", "how many backups could take over", "at `sync_n` or below"),
    "backup_ready": _gauge("backup", "1 or 0"),
    "backup_lag_records": _gauge("backup", "records of the journal that it has not confirmed", "growing"),
    "held_messages": _gauge("", "messages that wait for backups"),
    "held_replies": _gauge("", "answers that wait for backups"),
    "held_seconds": _gauge("", "for how long the oldest has waited", "above a second"),
    "held_dropped_total": _counter("", "messages that were dropped, because too many were held; they are sent again", "growing"),
    "journal_last_number": _gauge("", "number of the journal's last record"),
}

_WORKER: Final = {
    "applied_lsn": _gauge("", "what it has applied"),
    "items": _gauge("", "quads, keys and messages that its copy holds"),
    "queue_messages": _gauge("queue", "messages in a queue; of the hundred longest queues, and those that the caller can read"),
    "waiting_reads": _gauge("", "reads that wait for a thread"),
    "stuck_reads": _gauge("", "threads with a read whose time is over", "above 0 for long"),
    "memory_bytes": _gauge("", "what its process takes, without files; 0 without a limit", "near `memory-limit-mb`"),
    "loads_total": _counter("", "snapshots that it has opened", "many: look for why its copies are replaced"),
    "load_last_bytes": _gauge("", "size of the last one"),
    "load_last_seconds": _gauge("phase", "how long that one took: asking for it, fetching, opening"),
    "scrub_looks_total": _counter("", "finished looks at all of its data", "no look for long"),
    "scrub_last_lsn": _gauge("", "LSN of the last look"),
    "scrub_damage_total": _counter("", "looks that found damage", "above 0: look at the disk"),
}

SECTIONS: Final = {
    "Every node": _EVERY,
    "Masters": _MASTER,
    "Masters, of their workers": _WORKERS_OF,
    "Masters, of epochs and splits": _EPOCHS,
    "Masters, of the log": _LOG,
    "Masters, of transactions step by step": _TRANSACTIONS,
    "Masters with backups": _BACKUPS,
    "Workers": _WORKER,
}
FAMILIES: Final[dict[str, Family]] = {name: family for section in SECTIONS.values() for name, family in section.items()}
"""By name, without the prefix."""


class NodeCollector(Collector):
    """Numbers of a node for `prometheus_client`: each family once, with all its samples."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """Yield families by name, samples by their labels; the buckets of a histogram stay in the order of their bounds."""
        found: dict[str, Metric] = {}
        for key, value in self._numbers.items():
            sample, *values = (key,) if isinstance(key, str) else key
            name = _family_of(sample)
            family = FAMILIES.get(name) or Family(("label",), "")
            # The library adds _total to the name of a counter.
            metric = found.setdefault(name, Metric(PREFIX + name.removesuffix("_total"), family.meaning, family.type))
            labels = ("le",) if family.type == "histogram" else family.labels
            metric.add_sample(PREFIX + sample, dict(zip(labels, values, strict=False)), value)
        for _, metric in sorted(found.items()):
            if metric.type != "histogram":
                metric.samples.sort(key=lambda sample: sorted(sample.labels.items()))
            yield metric


def _family_of(sample: str) -> str:
    of, _, end = sample.rpartition("_")
    is_of = end in {"bucket", "sum", "count"} and of in FAMILIES and FAMILIES[of].type == "histogram"
    return of if is_of else sample


def exposition(numbers: Numbers) -> bytes:
    """Return the numbers in Prometheus' text format 0.0.4."""
    return generate_latest(NodeCollector(numbers))


def numbers_of(text: str) -> Numbers:
    """Parse a page of /metrics: the inverse of `exposition`. Raises ValueError for any other text."""
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    named = ((each.name.removeprefix(PREFIX), each) for each in samples)
    return {(name, *each.labels.values()) if each.labels else name: each.value for name, each in named}
