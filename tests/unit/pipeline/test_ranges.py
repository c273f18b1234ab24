"""What is read of a log, and in which parts: bounds, lost beginnings, pieces, the ends of batches."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from brokerha.model.errors import ConfigurationError
from brokerha.model.reserved.staging import TABLE as STAGED_TABLE
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.ranges import PIECE_ENTRIES, ReadOptions, batches, pieces, planned, reach
from brokerha.pipeline.rows import SCHEMA, table_of
from brokerha.pipeline.sources import OpenSource, SourceSpec, open_source
from brokerha.stores.backup.lines import LinesMissing
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.random_log import random_entries


class Held(OpenSource):
    """A log of which the beginning may be gone."""

    def __init__(self, entries: list[LogEntry], first_lsn: int = 1) -> None:
        super().__init__(SourceSpec(journal="held"))
        self.entries = entries
        self.first = first_lsn

    def range(self) -> tuple[int, int]:
        return self.first, self.entries[-1].lsn

    def _entries(self, first_lsn: int, last_lsn: int) -> Iterator[LogEntry]:
        return iter(self.entries[max(first_lsn, self.first) - 1 : last_lsn])


ENTRIES = random_entries(1, 100)
"""Stamped 1 ms apart."""
LOSSY = ReadOptions(fail_on_data_loss=False)


def test_without_options_everything_that_is_there_is_read():
    assert planned(Held(ENTRIES, 7), ReadOptions()) == (7, 100)


def test_a_beginning_that_is_gone_is_an_error_that_names_the_first_one_and_what_to_do():
    with pytest.raises(LinesMissing, match="the first one that there is has LSN 30; with the option failOnDataLoss=false"):
        planned(Held(ENTRIES, 30), ReadOptions(starting_lsn=5))
    assert planned(Held(ENTRIES, 30), ReadOptions(starting_lsn=5, fail_on_data_loss=False)) == (30, 100)


def test_an_end_behind_the_last_entry_is_an_error_unless_data_may_be_lost():
    with pytest.raises(LinesMissing, match="ends with LSN 100, before endingLsn 120"):
        planned(Held(ENTRIES), ReadOptions(ending_lsn=120))
    assert planned(Held(ENTRIES), ReadOptions(ending_lsn=120, fail_on_data_loss=False)) == (1, 100)


@pytest.mark.parametrize("fails", [True, False])
def test_a_range_that_ends_before_it_begins_is_an_error_because_it_would_be_empty(fails: bool) -> None:
    with pytest.raises(ConfigurationError, match="startingLsn 10 is above endingLsn 9"):
        planned(Held(ENTRIES), ReadOptions(starting_lsn=10, ending_lsn=9, fail_on_data_loss=fails))
    assert planned(Held(ENTRIES), ReadOptions(starting_lsn=9, ending_lsn=9, fail_on_data_loss=fails)) == (9, 9)


@pytest.mark.parametrize(("count", "partitions"), [(1, None), (10, 3), (10, 20), (7_000, None), (1_000_003, None), (0, 4)])
def test_pieces_are_the_range_without_gap_or_overlap(count, partitions):
    found = pieces(5, 4 + count, partitions)
    assert [lsn for first, last in found for lsn in range(first, last + 1)] == list(range(5, 5 + count))
    assert all(last - first < PIECE_ENTRIES for first, last in found)
    if partitions and count:
        assert len(found) == min(partitions, count)


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_the_same_rows_come_however_the_range_is_cut(partitions):
    found = [
        batch
        for first, last in pieces(1, 100, partitions)
        for batch in batches(Held(ENTRIES), first, last, ReadOptions(), SCHEMA.names)
    ]
    assert pa.Table.from_batches(found).combine_chunks() == table_of(ENTRIES).combine_chunks()


def test_rows_of_some_stores_and_columns_are_those_of_all_without_the_others():
    columns = ["name", "lsn", "item_low", "tombstone"]
    found = batches(Held(ENTRIES), 1, 100, ReadOptions(stores=frozenset({"queue", "table"})), columns)
    everything = table_of(ENTRIES).to_pylist()
    kept = [row for row in everything if row["store"] in {"queue", "table", "staged"}]
    assert pa.Table.from_batches(found).to_pylist() == [{name: row[name] for name in columns} for row in kept]


def test_large_transactions_come_with_rows_of_any_store_because_they_can_change_it(tmp_path):
    entries = random_entries(5, 400)
    sources = (Held(entries), open_source(SourceSpec(archive=archive_of(tmp_path / "archive", entries).where)))
    kept = [row for row in table_of(entries).to_pylist() if row["store"] in {"graph", "staged"} or row["name"] == STAGED_TABLE]
    assert {"graph", "table", "staged"} == {row["store"] for row in kept}
    for source in sources:
        found = batches(source, 1, 400, ReadOptions(stores=frozenset({"graph"})), SCHEMA.names)
        assert pa.Table.from_batches(found).to_pylist() == kept


def test_what_was_trimmed_since_it_was_planned_is_an_error_unless_data_may_be_lost():
    trimmed = Held(ENTRIES, 20)
    with pytest.raises(LinesMissing):
        list(batches(trimmed, 10, 30, ReadOptions(), ["lsn"]))
    lsns = pa.Table.from_batches(batches(trimmed, 10, 30, LOSSY, ["lsn"]))["lsn"].to_pylist()
    assert sorted(set(lsns)) == list(range(20, 31))
    assert list(batches(trimmed, 10, 15, LOSSY, ["lsn"])) == []


def test_a_batch_of_a_stream_holds_as_many_entries_as_it_may():
    source = Held(ENTRIES)
    assert reach(source, 0, 100, None, None) == 100
    assert reach(source, 0, 100, 30, None) == 30
    assert reach(source, 90, 100, 30, None) == 100
    assert reach(source, 100, 100, 30, 50) == 100
    assert reach(source, 100, 90, None, None) == 100


@pytest.mark.parametrize("max_bytes", [1, 300, 5_000, 10**9])
def test_a_batch_of_a_stream_holds_as_many_bytes_as_it_may_and_at_least_one_entry(max_bytes):
    start = ends = 0
    while start < 100:
        end = reach(Held(ENTRIES), start, 100, None, max_bytes)
        size_bytes = [len(entry.effect) for entry in ENTRIES[start:end]]
        assert len(size_bytes) == 1 or sum(size_bytes) <= max_bytes
        assert end == 100 or sum(size_bytes) + len(ENTRIES[end].effect) > max_bytes
        start, ends = end, ends + 1
    assert ends > 1 or max_bytes == 10**9


def test_options_are_read_in_any_case():
    options = {
        "STARTINGLSN": "5",
        "failondataloss": "False",
        "columns": "lsn, txid",
        "maxEntriesPerTrigger": "10",
        "stores": "table, queue",
    }
    stores = frozenset({"table", "queue"})
    assert ReadOptions.from_options(options) == ReadOptions(5, None, False, None, ("lsn", "txid"), stores, True, 10)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"startingLsn": "0"}, "startingLsn is a number from 1 on"),
        ({"url": "x", "endLsn": "5"}, "there is no option 'endlsn' for reading; there are url, .*, endingLsn, "),
        ({"partitions": "many"}, "partitions is a number"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is true or false"),
        ({"columns": "lsn,when"}, "there is no column 'when'; there are lsn, "),
        ({"columns": "lsn, lsn"}, "column 'lsn' is named twice"),
        ({"view": "state"}, "view is log or pieces, not 'state'; a state is made by"),
        ({"stores": "keys"}, "there is no store 'keys'; there are graph, table, queue, control"),
        ({"pinForSeconds": "a week"}, "pinForSeconds is a number"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, problem):
    with pytest.raises(ConfigurationError, match=problem):
        ReadOptions.from_options(options)
