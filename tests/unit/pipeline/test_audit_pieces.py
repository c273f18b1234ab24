"""What an audit computes column by column is what the fold of all entries comes to, however the log is cut into pieces."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.pipeline import audit_pieces
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.audit_engine import ItemRow, item_row
from brokerha.pipeline.audit_pieces import EngineOfPieces, TasksHere
from brokerha.pipeline.state import State, buckets_of, state_at
from brokerha.stores.items import CONTROL, GRAPH, bucket_of
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(7, 600)


class ManyTasks(TasksHere):
    """Cuts as an engine with several tasks does."""

    parallel = 3


def engine(archive: Archive, tasks: TasksHere | None = None) -> EngineOfPieces:
    return EngineOfPieces(archive, archive.state(), tasks or TasksHere())


def items_of(state: State, bits: int) -> list[ItemRow]:
    found = []
    for item, held in state.items.items():
        if held.store == GRAPH and not held.key:
            continue
        is_check = held.store == CONTROL
        place = held.store, "" if is_check else held.name, bucket_of(item, bits)
        text = held.name.encode() if is_check else held.key
        found.append(item_row(place, item, held.digest.to_bytes(DIGEST_BYTES, "big"), text, held.value, held.lsn))
    return sorted(found)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    archived=st.integers(1, 90),
    behind=st.integers(0, 40),
    each=st.integers(1, 50),
    cut=st.integers(0, 130),
    bits=st.integers(1, 16),
)
def test_summary_and_items_at_any_lsn_are_those_of_the_fold(
    seed: int, archived: int, behind: int, each: int, cut: int, bits: int
) -> None:
    entries = random_entries(seed, archived + behind)
    lsn = min(cut, len(entries))
    with tempfile.TemporaryDirectory() as folder:
        archive = archive_of(Path(folder) / "archive", entries[:archived], each)
        expected = state_at(entries, lsn)
        for tasks in (TasksHere(), ManyTasks()):
            found = engine(archive, tasks).summary(lsn, bits, entries[archived:])
            assert found.fingerprint == expected.fingerprint
            assert found.buckets == buckets_of(expected.items.items(), bits)
            assert found.counters == expected.counts
            assert list(found.repositories) == expected.repositories()
        items = items_of(expected, bits)
        wanted = {row[:3] for row in items[::2]}
        shown = engine(archive).items(lsn, bits, wanted, 10_000, entries[archived:])
        assert shown == [row for row in items if row[:3] in wanted]


def test_of_more_items_than_the_limit_one_more_is_told(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "archive", ENTRIES)
    items = items_of(state_at(ENTRIES, 600), 4)
    assert engine(archive).items(600, 4, {row[:3] for row in items}, 20, ()) == items[:21]


def test_large_logs_are_merged_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []

    class Counting(TasksHere):
        def exchange(self, cut, things, merge, groups_number):
            groups.append(groups_number)
            return super().exchange(cut, things, merge, groups_number)

    archive = archive_of(tmp_path / "archive", ENTRIES)
    monkeypatch.setattr(audit_pieces, "GROUP_ROWS", 100)
    found = engine(archive, Counting()).summary(600, 8, ())
    assert groups[0] >= 8
    assert found.fingerprint == ENTRIES[-1].fingerprint


def test_ids_are_found_in_archive_and_tail(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "archive", ENTRIES[:400])
    found = engine(archive).transactions(["t1", "t399", "t400", "t401", "lost"], ENTRIES[400:])
    assert [(each.txid, each.lsn) for each in found] == [("t1", 1), ("t399", 399), ("t400", 400), ("t401", 401)]
    assert [each.is_applied for each in found] == [ENTRIES[each.lsn - 1].outcome == "applied" for each in found]
