"""Keys of the section ``[cluster]`` about sites: workers and how they are trusted, copies, backups, how long the log is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from brokerha.nodes.config.keys import Key
from brokerha.nodes.config.process import ProcessKeys
from brokerha.nodes.worker.guarding import MACHINE_SHARE, MIB, GuardLimits

_GUARD = GuardLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteKeys(ProcessKeys):
    """Part of `ClusterConfig`."""

    min_in_sync: Annotated[
        int,
        Key(
            "A master with fewer workers in sync than this takes no writes until they are back. -1: two where the site has two "
            "or more, else one. 0: it always takes them.",
            unit="workers",
            low=-1,
            high=100,
        ),
    ] = -1
    apply_limit: Annotated[
        int,
        Key(
            "Synchronised transactions that may wait for the workers of a site; while there are more, further writes of its clients are "
            "refused, so that who does not wait for `applied` is not ahead of the site without a bound.",
            unit="transactions",
            low=1,
            high=1_000_000_000,
        ),
    ] = 1_000_000
    probe_turn: Annotated[
        int,
        Key(
            "The workers in sync of a site take turns in executing transactions; a turn has so many.",
            unit="transactions",
            low=1,
            high=10_000_000,
        ),
    ] = 10_000
    protect_single_worker: Annotated[
        bool,
        Key(
            "Whether the last worker in sync of a site is never switched off or removed, and answers reads while it makes a backup."
        ),
    ] = True
    full_replication_factor: Annotated[
        float,
        Key(
            "A worker that is behind takes a snapshot instead of replaying only if the replay would take this many times longer",
            unit="times",
            low=1,
            high=1000,
        ),
    ] = 1.3
    min_replay_s: Annotated[float, Key("... and longer than this.", unit="seconds", low=0, high=86_400)] = 600
    scrub_every_s: Annotated[
        float,
        Key(
            "Pause between two looks of a worker at all of its data, which find silent damage. 0: never.",
            unit="seconds",
            low=0,
            high=31_536_000,
        ),
    ] = 600
    scrub_items_per_s: Annotated[
        int, Key("Most quads and keys that such a look reads in a second.", unit="items", low=1, high=100_000_000)
    ] = 20_000
    memory_limit_mb: Annotated[
        int,
        Key(
            "A worker whose process takes more memory than this ends, to be started again; 0: never. -1: three quarters of the "
            "memory of its machine, divided by the workers of its master. Nodes that are embedded in a program refuse reads "
            "instead.",
            unit="MiB",
            low=-1,
            high=100_000_000,
        ),
    ] = -1
    store_patience_s: Annotated[
        float,
        Key(
            "A worker whose store has not come back from a write after this time ends, to be started again, if its copy is "
            "damaged, it takes more than half of its memory, or it only waits.",
            unit="seconds",
            low=1,
            high=86_400,
        ),
    ] = _GUARD.store_patience_s
    tx_log_max_size: Annotated[
        int,
        Key(
            "Transactions that a journal keeps; older ones are forgotten when nobody needs them any more.",
            unit="transactions",
            low=1000,
        ),
    ] = 100_000
    tx_log_max_depth_h: Annotated[
        float,
        Key("Transactions older than this are forgotten too; ids stay known for this long.", unit="hours", low=0.01),
    ] = 168
    tx_log_hard_limit: Annotated[
        int,
        Key(
            "With more transactions than this a journal forgets what a slow worker still needs; the worker takes a snapshot. "
            "0: four times tx-log-max-size.",
            unit="transactions",
            low=0,
        ),
    ] = 0
    backup_folder: Annotated[
        Path,
        Key(
            "Folder of backups, on the machine of the worker that makes one. Relative to the folder of this file.",
            default_text="backups in the folder of all data",
        ),
    ] = Path()

    def guard_limits(self, workers: int, machine_bytes: int) -> GuardLimits:
        """What one of so many workers of a master may take on a machine with so much memory (0 for unknown)."""
        share_bytes = int(machine_bytes * MACHINE_SHARE) // max(workers, 1)
        memory_bytes = share_bytes if self.memory_limit_mb < 0 else self.memory_limit_mb * MIB
        return GuardLimits(memory_bytes, self.store_patience_s)
