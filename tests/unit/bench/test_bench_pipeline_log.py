"""The synthetic log: each entry leads to the fingerprint that it has, and a backup of it is read as any other."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from brokerha.model.operations import REJECTED, unpack_effect
from brokerha.pipeline.sources import SourceSpec, open_source
from brokerha.stores.backup.directory import BackupDirectory
from tests.bench.pipeline_log import BEGIN_US, MASTERS, entries, write_backup
from tests.unit.pipeline.plain_state import State, state_at

ENTRIES = 21_000
"""So many that repositories and checks come and go."""


@pytest.fixture(scope="module")
def log():
    return list(entries(ENTRIES))


def test_every_entry_leads_to_the_fingerprint_that_it_has(log):
    state = State()
    for entry in log:
        state.take(entry)
    assert state.lsn == ENTRIES
    assert state.recomputed() == state.fingerprint


def test_an_effect_holds_only_what_really_changes(log):
    state = State()
    for entry in log[:3000]:
        before = dict(state.items)
        state.take(entry)
        for change in unpack_effect(entry.effect):
            if change[0] in {"delete", "accept"}:
                assert len(state.items) < len(before)
            if change[0] == "quads":
                assert len(state.items) == len(before) - len(change[2]) + len(change[3])
                assert list(change[3]) == sorted(change[3])


def test_all_kinds_of_changes_occur_from_all_masters(log):
    kinds = Counter(change[0] for entry in log for change in unpack_effect(entry.effect))
    assert set(kinds) == {
        "put", "delete", "quads", "publish", "accept", "create-repository", "remove-repository", "control-add", "control-remove",
    }  # fmt: skip
    assert {entry.origin for entry in log} == set(MASTERS)
    assert {entry.outcome == REJECTED for entry in log} == {True, False}
    assert len({entry.txid for entry in log}) == ENTRIES
    stamped = [entry.timestamp for entry in log]
    assert stamped[0] > BEGIN_US
    assert stamped == sorted(set(stamped))


def test_the_same_seed_gives_the_same_log_and_another_seed_another_one(log):
    assert list(entries(ENTRIES)) == log
    assert list(islice(entries(ENTRIES, seed=2), 10)) != log[:10]


def test_a_backup_of_it_is_sound_and_gives_the_same_entries_but_for_what_no_backup_knows(tmp_path):
    manifest = write_backup(tmp_path / "log", 2_500)
    assert list(BackupDirectory(tmp_path / "log").verify()) == []
    assert (manifest.log_first_lsn, manifest.last_lsn) == (1, 2_500)
    with open_source(SourceSpec(backup=str(tmp_path / "log"))) as source:
        read = list(source.read(1, 2_500))
    assert read == [entry._replace(origin="", epoch=0) for entry in entries(2_500)]
    assert state_at(read, 2_500).lsn == 2_500
