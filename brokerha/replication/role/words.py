"""What a role tells people: why nobody is primary and what to do, and what is lost when one is made by force."""

from __future__ import annotations

from collections.abc import Mapping

from brokerha.model.ids import NodeId
from brokerha.replication.role.config import RoleConfig


def nobody_text(config: RoleConfig, votes_needed: int, refusals: Mapping[NodeId, str]) -> str:
    """Why there is no primary, and how an operator makes this process one."""
    needs = f"{config.process} needs {votes_needed} votes of {len(config.processes)} processes"
    by_hand = f"brokerha promote {config.process}"
    if config.sync_n == 0:
        text = f"with sync-n 0 nobody takes over by itself, because it may lack what was accepted; {needs}, or {by_hand} --force"
    elif not config.is_automatic:
        text = f"fail-over is by hand: {by_hand}"
    else:
        text = f"{needs}, or {by_hand} --force"
    said = "; ".join(f"{process}: {why}" for process, why in sorted(refusals.items()))
    return f"no primary: {text}" + (f" ({said})" if said else "")


def forced_text(config: RoleConfig, last: tuple[int, int]) -> str:
    """What may be lost when this process becomes primary without votes."""
    since = f"after record {last[1]} of view {last[0]}" if last[1] else "so far"
    return f"by hand, without votes: what only {', '.join(config.others)} wrote {since} is lost"
