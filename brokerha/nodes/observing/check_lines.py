"""Lines of a probe: one for each check, ``[+]journal ok`` or ``[-]broker waiting: connection refused``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brokerha.ports.transport import TransportStatus

NO_WORKER = "this site has none: it orders writes, and serves no reads"
"""Line of `/readyz` of a master without workers: there is nothing to wait for."""
NO_WORKER_LINE = f"[-]worker {NO_WORKER}"


def check_lines(checks: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Return whether all is well, and the lines; ``checks`` has the problem of each check, or an empty string."""
    wrong = {name: " ".join(text.split()) for name, text in checks.items()}
    return not any(wrong.values()), [f"[-]{name} {text}" if text else f"[+]{name} ok" for name, text in wrong.items()]


def loop_check(is_running: bool) -> str:
    """Return the problem of the thread that does a node's work, or an empty string."""
    return "" if is_running else "has ended: restart the node"


def broker_check(status: TransportStatus) -> str:
    """Return the problem of the connection to the broker, or an empty string."""
    return "" if status.state == "connected" else ": ".join(filter(None, (status.state, status.reason)))


def lag_check(lag: int, lag_s: float | None, max_lag: int | None, max_lag_s: float | None) -> str:
    """Return the problem of a copy that lags by ``lag`` transactions and ``lag_s`` seconds (None: unknown), or an empty string."""
    if max_lag is not None and lag > max_lag:
        return f"{lag} transactions behind, more than {max_lag}"
    if max_lag_s is None or (lag_s is not None and lag_s <= max_lag_s):
        return ""
    return "nobody knows how old it is" if lag_s is None else f"{lag_s:g} s behind, more than {max_lag_s:g}"
