"""Where tests of RabbitMQ and slow tests lie, and in which order they begin when whole files are handed out to workers of a run.

To collect all tests costs each worker more than ten seconds, so the parts ``broker`` and ``slow`` (all_parts) look into these places only. A test
elsewhere that asks for a broker, or is slow, would be left out without a word; that ends each run that collects it, as the part ``adapters`` does.

Left to itself the scheduler begins with the files that have the most tests; those that take longest have one or two, and would be left for the
end, one worker alone with the last of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("tests/contracts", "tests/docs", "tests/support", "tests/system", "tests/unit/cli/pipeline/test_pipeline_load.py")
"""Folders and files, relative to the root."""
OF_THE_PIPELINE = (
    "tests/system/test_pipeline_archive.py",
    "tests/system/test_pipeline_audit.py",
    "tests/system/test_pipeline_history.py",
    "tests/system/test_pipeline_load.py",
    "tests/unit/cli/pipeline/test_pipeline_load.py",
)
"""Those that start Spark, a part of their own."""
OF_SLOW = ("tests/docs", "tests/simulation", "tests/system", "tests/unit/bench", "tests/unit/deploying", "tests/unit/log")
"""Folders of slow tests that need no broker."""
ONE_SITE = "tests/system/clients"
"""Its files share a running site, which only one worker of a run must start."""
LONGEST = (
    "tests/system/test_supervisord.py",
    "tests/system/test_large_transactions.py",
    "tests/system/test_split_modes.py",
    "tests/system/test_settings.py",
    "tests/system/test_log_stream.py",
    "tests/system/clients/test_curl.py",
    "tests/system/test_pausing.py",
    "tests/system/test_online_restore.py",
    "tests/system/test_prepare_binds.py",
    "tests/system/test_namespaces.py",
    "tests/system/test_hostile_bodies.py",
    "tests/system/test_site_backup.py",
    "tests/contracts/test_rabbitmq_faults.py",
    "tests/system/test_no_secret_is_shown.py",
    "tests/system/test_large_effects.py",
    "tests/system/test_workers_heal.py",
    "tests/system/test_workers_restart.py",
    "tests/system/test_splits.py",
    "tests/system/test_coordinator.py",
    "tests/system/test_forged_messages.py",
    "tests/system/test_epochs.py",
    "tests/system/test_master_without_workers.py",
    "tests/support/test_private_broker.py",
    "tests/system/test_tx_two_phase.py",
    "tests/system/test_members.py",
    "tests/docs/test_deploying.py",
    "tests/system/test_backups_fenced.py",
)
"""Longest first. Nothing depends on it but time; a file that is not named comes after these, as it was collected."""


def check_places(items: Iterable[pytest.Item]) -> None:
    """Raise pytest.UsageError for a test that lies where the part for it does not look."""
    for item in items:
        is_of_broker = item.get_closest_marker("broker") is not None
        if not is_of_broker and (item.get_closest_marker("slow") is None or item.get_closest_marker("spark") is not None):
            continue
        places = PLACES if is_of_broker else OF_SLOW
        if not any(item.path.is_relative_to(ROOT / place) for place in places):
            what = "asks for a broker" if is_of_broker else "is slow"
            raise pytest.UsageError(
                f"{item.path} {what}, and is not in one of {', '.join(places)}: move it, or add its place to {__name__}"
            )


class ByRoom(LoadFileScheduling):  # type: ignore[misc]
    """Hands out whole files, and those of ``ONE_SITE`` together."""

    def _split_scope(self, nodeid: str) -> str:
        return ONE_SITE if nodeid.startswith(ONE_SITE) else str(super()._split_scope(nodeid))


def longest_first(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort what a worker collected, because its order is that of the run. All workers must come to the same one."""
    if hasattr(config, "workerinput"):
        ranks = {ROOT / name: rank for rank, name in enumerate(LONGEST)}
        items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
