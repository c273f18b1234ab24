"""Options that a seed draws before a run: the shape of the cluster, its settings, its faults, and the workload.

Swarm testing: each seed switches every kind of fault on or off and draws its strength. A run with all faults at once mostly
explores the one state in which nothing works; leaving kinds out reaches other states.

Options are data without behaviour, so that a scenario can write its own and a failing seed can print them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from brokerha.following.asking import AskConfig
from brokerha.following.loading import LoadConfig
from brokerha.following.offering import OfferConfig
from brokerha.master.config import RetentionConfig

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
KEEP_RESULTS = 100_000


@dataclass(frozen=True, slots=True)
class Wire:
    """Behaviour of the wire without faults."""

    delay_us: tuple[int, int] = (300, 1_500)
    loss: float = 0.0
    duplication: float = 0.0
    spike: float = 0.0
    """Share of messages that take far longer, and so are overtaken."""
    spike_us: int = 300_000
    is_ordered: bool = True
    """Whether messages of one link keep their order, as with one queue and one consumer."""
    is_encoded: bool = False
    """Whether messages are encoded and decoded, as in production, which costs time."""
    bad_chunk: float = 0.0
    """Share of snapshot chunks that arrive with a flipped bit."""
    keeps_for_dead: bool = False
    """Whether messages for a dead node wait for its return, as in a queue of the broker."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Durations of an fsync, and sizes."""

    write_us: tuple[int, int] = (100, 500)
    slow_us: tuple[int, int] = (100_000, 2_000_000)
    """While the disk is slow."""
    chunk_bytes: int = 16_384
    """Size of the chunks of a snapshot."""
    journal_chunk_bytes: int = 4_096
    """Size of the chunks of a journal's snapshot."""
    keep_results: int = KEEP_RESULTS
    """Log lines that a worker keeps."""
    sync_fails: float = 0.0
    """Chance that a sync of a journal fails."""


@dataclass(frozen=True, slots=True)
class Load:
    """Workload of the clients."""

    writes: int = 30
    burst: int = 1
    gap_us: int = 50_000
    """Mean time between two bursts."""
    twice: float = 0.0
    """Share of the writes that are given to two masters under one id."""
    conflict: float = 0.0
    """Share of the writes whose id another client uses for other operations."""
    timeout_ms: tuple[int, int] = (500, 5_000)
    keys: int = 5
    large: int = 0
    """Number of large transactions."""
    again: float = 0.0
    """Share of the writes that are handed in again much later, when their ids may be forgotten."""


@dataclass(frozen=True, slots=True)
class TxLoad:
    """Workload of the clients of transactions; shares are of all transactions."""

    runs: int = 0
    gap_us: int = 200_000
    """Mean time between two beginnings."""
    tokens: int = 5
    """Number of tokens in the bank."""
    two_phase: float = 0.3
    """Share that a coordinator prepares and decides."""
    rolled_back: float = 0.15
    abandoned: float = 0.1
    again: float = 0.2
    """Share of the steps that are sent twice."""
    coordinator_dies: float = 0.4
    """Share of the coordinators that die between prepare and decision, and recover."""
    by_hand: float = 0.1
    """Share of the prepared ones that an operator also decides."""
    timeout_ms: int = 2_000
    """Idle time after which an open transaction is rolled back."""


@dataclass(frozen=True, slots=True)
class Options:
    """All options of a world."""

    seed: int = 0
    workers: tuple[int, ...] = (1, 1, 1)
    """Number of workers of each master; its length is the number of masters."""
    spares: tuple[int, ...] = ()
    """Number of workers of each node that can become a master later."""
    backups: tuple[int, ...] = ()
    """Number of backups of each master; empty: none."""
    sync_n: tuple[int, ...] = ()
    """How many of them must hold a write before it is told."""
    journal_feed: dict[str, Any] = field(default_factory=dict)
    """Settings of `JournalFeedConfig` that differ from the defaults."""
    journal_follower: dict[str, Any] = field(default_factory=dict)
    """Settings of `JournalFollowerConfig` that differ from the defaults."""
    fail_over_ms: int = 1_000
    sync_timeout_ms: int = 2_000
    tx_config: dict[str, Any] = field(default_factory=dict)
    """Settings of `TxConfig` that differ from the defaults."""
    tx: TxLoad = field(default_factory=TxLoad)
    sync: dict[str, Any] = field(default_factory=dict)
    """Settings of `SyncConfig` that differ from the defaults."""
    feed: dict[str, Any] = field(default_factory=dict)
    worker: dict[str, Any] = field(default_factory=dict)
    late: bool = False
    """Whether the workers of the last master are added during the run; it begins without any."""
    dedicated_probe: bool = False
    """Whether the first worker of each site is its dedicated probe."""
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    """For all masters except that of the anchor, whose log must reach back to its start."""
    forgets: bool = False
    """Whether all masters forget ids within seconds, and so that of the anchor trims its log, too."""
    accept_limit: int = 100_000
    apply_limit: int = 1_000_000
    wire: Wire = field(default_factory=Wire)
    disk: Disk = field(default_factory=Disk)
    load: Load = field(default_factory=Load)
    skew_us: int = 0
    """Largest difference of wall clocks from the true time."""
    drift: float = 0.0
    """Largest drift of wall clocks, as a fraction."""
    faults: dict[str, int] = field(default_factory=dict)
    """Kinds of spontaneous faults, with the mean time between two of each in microseconds."""
    safety_us: int = 10 * SECOND_US
    safety_steps: int = 1_000
    liveness_us: int = 60 * SECOND_US
    scrub_us: int = 2 * SECOND_US
    """Interval at which workers scrub all their data; 0 for never."""
    broken_link: bool = False
    """Whether one link of the masters stays cut for ever, also in the liveness phase: the others must pass messages on."""
    modes: tuple[str, ...] = ()
    """Strategies of split recovery that operators choose in turn; empty: that of the files stays."""
    looks_on: bool = False
    """Whether the run continues for a few idle rounds at the end, to check that idle masters are quiet."""

    @property
    def wipes(self) -> bool:
        """Whether a data directory gets lost; its node then only must do no harm."""
        return "wipe" in self.faults

    def words(self) -> str:
        """Return one line with the differences from the defaults."""
        usual = Options()
        parts = [f"masters={len(self.workers)}", f"workers={','.join(map(str, self.workers))}"]
        if self.spares:
            parts.append(f"spares={','.join(map(str, self.spares))}")
        if any(self.backups):
            parts.append(f"backups={','.join(map(str, self.backups))} sync_n={','.join(map(str, self.sync_n))}")
        for name in ("sync", "feed", "worker", "tx_config", "journal_feed", "journal_follower"):
            parts += [f"{name}.{key}={value}" for key, value in getattr(self, name).items()]
        for name in ("wire", "disk", "load", "tx"):
            ours, theirs = getattr(self, name), getattr(usual, name)
            parts += [
                f"{name}.{key}={getattr(ours, key)}"
                for key in type(ours).__dataclass_fields__
                if getattr(ours, key) != getattr(theirs, key)
            ]
        for name in ("late", "dedicated_probe", "retention", "forgets", *_SINGLE):
            if getattr(self, name) != getattr(usual, name):
                parts.append(f"{name}={getattr(self, name)}")
        return " ".join(parts) + " faults=" + ",".join(sorted(self.faults))


_SINGLE = (
    "fail_over_ms",
    "sync_timeout_ms",
    "accept_limit",
    "apply_limit",
    "skew_us",
    "drift",
    "scrub_us",
    "broken_link",
    "modes",
    "looks_on",
    "wipes",
)

FAULTS = {
    "crash master": 4 * SECOND_US,
    "crash worker": 4 * SECOND_US,
    "aimed crash": SECOND_US,
    "crash all": 6 * SECOND_US,
    "cut one way": 2 * SECOND_US,
    "cut link": 2 * SECOND_US,
    "isolate": 3 * SECOND_US,
    "partition": 4 * SECOND_US,
    "bridge": 4 * SECOND_US,
    "clog": 3 * SECOND_US,
    "clock jump": 2 * SECOND_US,
    "slow disk": 3 * SECOND_US,
    "full disk": 4 * SECOND_US,
    "store failure": 3 * SECOND_US,
    "empty worker": 5 * SECOND_US,
    "trim": 2 * SECOND_US,
    "damage worker": 3 * SECOND_US,
    "spoil worker": 5 * SECOND_US,
    "freeze worker": 4 * SECOND_US,
    "switch worker": 3 * SECOND_US,
    "copy worker": 2 * SECOND_US,
    "remove worker": 5 * SECOND_US,
    "cut workers": 2 * SECOND_US,
}
"""Faults at single moments, with the usual mean time between two of a kind."""


RETENTIONS: tuple[dict[str, int], ...] = ({}, {}, {"max_size": 4, "slack": 1}, {"max_size": 2, "hard_limit": 6})
"""Choices for the retention of the log."""


def draw_plain(seed: int) -> Options:
    """Return options of a world of masters without backups and of single writes."""
    rng = Random(seed)
    masters = rng.choices((1, 2, 3, 5), (4, 11, 75, 10))[0]
    most = rng.choice((1, 2, 2, 3)) if masters <= 3 else 1
    feed, worker = feed_settings(rng), worker_settings(rng)
    # A worker with a smaller backlog drops the rest each time, which is correct but takes for ever.
    feed["window"] = min(feed["window"], worker["backlog"])
    options = Options(
        seed=seed,
        workers=tuple(rng.randint(0, most) for _ in range(masters)),
        sync=sync_settings(rng),
        feed=feed,
        worker=worker,
        dedicated_probe=rng.random() < 0.2,
        retention=RetentionConfig(**rng.choice(RETENTIONS)),
        accept_limit=rng.choice((100_000, 100_000, 100_000, 4)),
        wire=wire_of(rng),
        disk=disk_of(rng, feed["window"], seed),
        load=load_of(rng),
        skew_us=rng.choice((0, 1_000, SECOND_US, HOUR_US)),
        drift=rng.choice((0.0, 0.0, 0.001, 0.1)),
        faults={**faults_of(rng), **settings_of(seed)},
        safety_us=rng.randint(2, 8) * SECOND_US,
        scrub_us=rng.choice((500_000, 2 * SECOND_US)),
        broken_link=masters >= 3 and rng.random() < 0.1,
        looks_on=rng.random() < 0.2,
        apply_limit=rng.choice((1_000_000, 1_000_000, 1_000_000, 6)),
    )
    if masters > 1 and rng.random() < 0.06:
        options = replace(options, faults={**options.faults, "wipe": 3 * SECOND_US})
    if masters > 1 and Random(11 * seed + 3).random() < 0.4:
        # Drawn separately, so that the other options of a seed do not change.
        options = replace(options, faults={**options.faults, "lose power": SECOND_US // 2})
    # The first worker of the world is the anchor, and belongs to its site from the beginning.
    if sum(options.workers[:-1]) and options.workers[-1] and rng.random() < 0.15:
        options = replace(options, late=True, faults={**options.faults, "late worker": SECOND_US})
    return options


def sync_settings(rng: Random) -> dict[str, Any]:
    """Draw settings of `SyncConfig`."""
    return {
        "acknowledge": rng.choice(("all", "all", "majority", "present")),
        "round_timeout_ms": rng.choice((100, 500)),
        "idle_round_ms": rng.choice((300, 1_000)),
        "post_gap_ms": rng.choice((0, 0, 0, 5, 30)),
        "retransmit_ms": rng.choice((50, 250)),
        "fetch_after_ms": rng.choice((5, 50, 100)),
        "post_window": rng.choice((1, 2, 5, 4_000, 4_000)),
        "queue_window": rng.choice((1, 3, 20_000, 20_000)),
        "body_message_bytes": rng.choice((1, 300, 1_048_576)),
        "clock_reserve_us": rng.choice((4, 10_000, 2_000_000, 2_000_000)),
    }


def feed_settings(rng: Random) -> dict[str, Any]:
    """Draw settings of `FeedConfig`."""
    return {
        "window": rng.choice((1, 3, 10, 4_000)),
        "message_items": rng.choice((1, 2, 1_000)),
        "message_bytes": rng.choice((1, 500, 1_048_576)),
        "retransmit_ms": rng.choice((200, 1_000)),
        "dead_after_ms": rng.choice((1_500, 5_000)),
        "order_ms": rng.choice((200, 1_000)),
        "probe_turn": rng.choice((1, 5, 10_000)),
        "min_in_sync": rng.choice((0, 0, -1)),
    }


def worker_settings(rng: Random) -> dict[str, Any]:
    """Draw settings of `WorkerConfig`."""
    window = rng.choice((1, 4, 16))
    return {
        "heartbeat_ms": rng.choice((300, 1_000)),
        "backlog": rng.choice((1, 4, 8_000)),
        "decision_items": rng.choice((1, 3, 1_000)),
        "decision_bytes": rng.choice((1, 4_194_304)),
        "retry_ms": rng.choice((200, 2_000)),
        "ask": AskConfig(rng.choice((20, 100)), rng.choice((200, 3_000))),
        "load": LoadConfig(
            window=window,
            ask_ms=rng.choice((100, 1_000)),
            chunk_wait_ms=rng.choice((100, 1_000)),
            patience_ms=rng.choice((1_500, 4_000)),
            bad_chunks=rng.choice((3, 20)),
        ),
        "offer": OfferConfig(
            # A source that drops requests is correct, but slow.
            snapshots=rng.choice((1, 2)),
            reading=rng.choice((window, 64)),
            keep_ms=rng.choice((2_000, 6_000)),
        ),
    }


def disk_of(rng: Random, window: int, seed: int) -> Disk:
    """Draw the behaviour of disks."""
    return Disk(
        write_us=rng.choice(((50, 100), (100, 1_000), (2_000, 20_000))),
        chunk_bytes=rng.choice((8_192, 16_384, 65_536)),
        # Unconfirmed results must be answered again, so no worker keeps fewer.
        keep_results=rng.choice((4 * window, KEEP_RESULTS)),
        # Drawn separately, so that the other options of a seed do not change.
        sync_fails=Random(seed * 11 + 3).choice((0.0, 0.0, 0.002, 0.01)),
    )


def wire_of(rng: Random) -> Wire:
    """Draw the behaviour of the wire."""
    slow = rng.choice((300, 300, 2_000, 20_000))
    return Wire(
        delay_us=(slow, slow * rng.choice((1, 2, 10))),
        loss=rng.choice((0.0, 0.0, 0.02, 0.2)),
        duplication=rng.choice((0.0, 0.0, 0.05, 0.3)),
        spike=rng.choice((0.0, 0.0, 0.02, 0.2)),
        spike_us=rng.choice((20_000, 300_000, 3_000_000)),
        is_ordered=rng.random() < 0.5,
        is_encoded=rng.random() < 0.1,
        bad_chunk=rng.choice((0.0, 0.0, 0.1, 0.4)),
        keeps_for_dead=rng.random() < 0.5,
    )


def load_of(rng: Random) -> Load:
    """Draw the workload of clients."""
    burst = rng.choice((1, 1, 3, 12))
    return Load(
        writes=rng.choice((8, 20, 40)),
        burst=burst,
        gap_us=burst * rng.choice((5_000, 50_000, 200_000)),
        twice=rng.choice((0.0, 0.1, 0.5)),
        conflict=rng.choice((0.0, 0.0, 0.1)),
        timeout_ms=rng.choice(((20, 200), (500, 3_000), (3_000, 8_000))),
        keys=rng.choice((1, 5, 50)),
    )


def settings_of(seed: int) -> dict[str, int]:
    """Draw how often an operator changes a setting; separately, so that the other options of a seed do not change."""
    return {"change setting": SECOND_US // 2} if Random(seed * 13 + 5).random() < 0.2 else {}


def faults_of(rng: Random) -> dict[str, int]:
    """Draw the kinds of faults, and how often each strikes."""
    part = rng.choice((0.1, 0.3, 0.6))
    strength = rng.choice((0.3, 1.0, 3.0))
    return {kind: int(mean_us * strength) for kind, mean_us in FAULTS.items() if rng.random() < part}
