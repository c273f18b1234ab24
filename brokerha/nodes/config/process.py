"""Keys of the section ``[cluster]`` about the processes of a master: backups, fail-over, transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from brokerha.nodes.config.keys import Key
from brokerha.nodes.config.reads import ReadKeys

MILLISECONDS = "milliseconds"
FAIL_OVER = ("automatic", "manual")
SYNC_LOST = ("read-only", "idle")
LOST_BACKUP = ("continue", "abort")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessKeys(ReadKeys):
    """Part of `ClusterConfig`."""

    sync_n: Annotated[
        int,
        Key(
            "Backups of a master that must hold a write before anybody hears of it. -1: one where the master has a backup, else "
            "none. With 0 a backup may lack what was acknowledged, so that fail-over is by hand.",
            unit="backups",
            low=-1,
            high=9,
        ),
    ] = -1
    sync_timeout_ms: Annotated[
        int,
        Key(
            "Writes that not enough backups have confirmed after this long are answered with an unknown outcome, and no new "
            "ones are taken until backups are back.",
            unit=MILLISECONDS,
            low=10,
            high=600_000,
        ),
    ] = 5000
    sync_lost: Annotated[
        str,
        Key(
            "What a primary without enough backups does: stay readable and keep trying (read-only), or wait for a primary to be "
            "declared (idle).",
            choices=SYNC_LOST,
        ),
    ] = "read-only"
    fail_over: Annotated[
        str, Key("Whether a backup takes over by itself, or by hand (brokerha promote).", choices=FAIL_OVER)
    ] = "automatic"
    fail_over_after_ms: Annotated[
        int,
        Key(
            "A primary that its backups have not heard for this long is replaced. Heartbeats go out four times as often.",
            unit=MILLISECONDS,
            low=100,
            high=600_000,
        ),
    ] = 3000
    on_role_change: Annotated[
        str,
        Key(
            "Program that each process of a master starts when it becomes primary or stops being it, with four arguments: "
            "node, master, role (primary, backup or idle), view. Its exit code is logged, and nothing waits for it.",
            default_text="none",
            example='"/usr/local/bin/role-changed"',
        ),
    ] = ""
    tx_timeout_s: Annotated[
        float,
        Key(
            "An open transaction in which nothing happens for this long is rolled back. Prepared ones with an xid never are.",
            unit="seconds",
            low=0.1,
            high=3600,
        ),
    ] = 60
    tx_timeout_max_s: Annotated[
        float, Key("Longest time-out that a client may ask for.", unit="seconds", low=0.1, high=86_400)
    ] = 3600
    tx_open_limit: Annotated[
        int, Key("Open transactions of one master; more are refused.", unit="transactions", low=1, high=2000)
    ] = 1000
    lost_backup: Annotated[
        str,
        Key(
            "When a backup is lost while a transaction is prepared: go on with the others if they are enough for sync-n "
            "(continue), or roll back (abort).",
            choices=LOST_BACKUP,
        ),
    ] = "continue"
