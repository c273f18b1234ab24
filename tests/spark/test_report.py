"""The counts of a report are those of the entries, counted one by one in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from brokerha.model import unfolding
from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import Change, Cleared, Published, Put, QuadsChanged, Staged, unpack_effect
from brokerha.model.outside.authors import taken_author
from brokerha.model.reserved import staging
from brokerha.pipeline import observations
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.observations import Observation
from brokerha.pipeline.report import Bins, ReportFacts, ReportOptions, Series
from brokerha.spark.report import ITEMS, report
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.plain_state import state_at
from tests.unit.pipeline.random_log import random_entries

PART_US = 60_000_000
BEGIN_US = 1_700_000_000_000_000 // PART_US * PART_US


def changes_in(entry: LogEntry) -> list[Change]:
    """Without who wrote it."""
    changes = unpack_effect(entry.effect)
    taken_author(changes)
    return changes


def spread(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """The same entries over more time, so that there is more than one bin; some of them were rejected."""
    moved = (each._replace(timestamp=BEGIN_US + each.lsn * 25_000_000) for each in entries)
    return [
        each._replace(outcome="rejected", reason=f"check {each.lsn % 2} does not hold: {each.lsn}") if not changes_in(each) else each
        for each in moved
    ]  # fmt: skip


ENTRIES = spread(random_entries(3, 500))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return archive_of(tmp_path_factory.mktemp("archive"), ENTRIES).where


@pytest.fixture(scope="module")
def whole(spark: Any, folder: str) -> ReportFacts:
    return made(spark, folder)


def made(spark: Any, folder: str, **options: Any) -> ReportFacts:
    return report(spark, ReportOptions(folder, Path(folder) / "report.html", **options), lambda done, total: None)


def living(entries: Sequence[LogEntry], lsn: int) -> Counter[str]:
    """How many items of each kind there are, repositories themselves left out."""
    held = state_at(entries, lsn).items.values()
    return Counter(ITEMS[each.store] for each in held if each.store != "graph" or each.key)


def changed(entries: Sequence[LogEntry], bins: Bins) -> Counter[tuple[str, int]]:
    """Changes by (store, bin), from the effects."""
    stores = {
        "put": "table",
        "delete": "table",
        "publish": "queue",
        "accept": "queue",
        "control-add": "control",
        "control-remove": "control",
    }
    found: Counter[tuple[str, int]] = Counter()
    for entry in entries:
        place = bins.place_of(entry.timestamp)
        assert place is not None
        for change in changes_in(entry):
            if isinstance(change, Staged):
                found.update((store, place) for store, *_ in items_of(entries, change))
                continue
            rows = len(change[2]) + len(change[3]) if change[0] == "quads" else 1
            found[stores.get(change[0], "graph"), place] += rows
    return found


def items_of(entries: Sequence[LogEntry], large: Staged) -> set[tuple[str, str, object]]:
    """What a large transaction is about: each item once."""
    items: set[tuple[str, str, object]] = set()
    for lsn, published in large.parts:
        (row,) = [change for change in changes_in(entries[lsn - 1]) if isinstance(change, Put)]
        for change in unfolding.changes_in(large.name, row.value, published):
            if isinstance(change, QuadsChanged):
                items.update(("graph", change.repository, line) for line in (*change.removed, *change.added))
            elif isinstance(change, Cleared):
                items.add(("graph", change.repository, None))
            else:
                items.add(("queue" if isinstance(change, Published) else "table", change[1], change[2:3]))
    return items


def values(series: Sequence[Series]) -> dict[tuple[str, int], float]:
    return {(each.name, place): value for each in series for place, value in enumerate(each.values) if value}


def test_transactions_are_counted_by_origin_and_outcome(whole: ReportFacts):
    assert whole.transactions == len(ENTRIES)
    assert whole.bins.count > 50
    assert values(whole.by_origin) == Counter((each.origin, whole.bins.place_of(each.timestamp)) for each in ENTRIES)
    rejected = [each for each in ENTRIES if each.outcome == "rejected"]
    assert rejected
    assert whole.rejected == len(rejected)
    assert [each.lsn for each in whole.rejections] == [each.lsn for each in reversed(rejected)][: len(whole.rejections)]
    kinds = Counter((each.reason.split(":")[0], whole.bins.place_of(each.timestamp)) for each in rejected)
    assert values(whole.rejected_by_reason) == kinds


def test_changes_are_counted_by_store(whole: ReportFacts):
    expected = changed(ENTRIES, whole.bins)
    assert values(whole.by_store) == expected
    assert whole.changes == expected.total()


def test_items_at_the_end_of_each_bin_are_those_of_the_state(whole: ReportFacts):
    names = {each.name for each in whole.items}
    assert {"statements", "keys", "messages", "checks"} == names
    for place in range(whole.bins.count):
        last = max(each.lsn for each in ENTRIES if each.timestamp < whole.bins.begin_us(place) + whole.bins.width_us)
        counted = {each.name: each.values[place] for each in whole.items if each.values[place]}
        assert counted == dict(living(ENTRIES, last)), f"bin {place}, LSN {last}"


def test_each_store_has_the_items_that_it_has_in_the_state(whole: ReportFacts):
    held = state_at(ENTRIES, len(ENTRIES)).items.values()
    expected = Counter(
        (each.store, "" if each.store == "control" else each.name) for each in held if each.store != "graph" or each.key
    )
    found = {(each.store, each.name): each.items for each in whole.stores if each.items}
    assert found == dict(expected)


def test_the_busiest_keys_and_predicates_are_those_that_changed_most(whole: ReportFacts):
    keys: Counter[tuple[str, str]] = Counter()
    for entry in ENTRIES:
        for change in changes_in(entry):
            if change[0] in {"put", "delete"} and change[1] != staging.TABLE:
                keys[change[1], change[2].decode()] += 1
    found = {(each.name, each.text): each.count for each in whole.keys}
    assert all(keys[key] == count for key, count in found.items())
    assert sorted(found.values()) == sorted(count for _, count in keys.most_common(len(found)))
    assert [each.text for each in whole.predicates] == ["<urn:p>"]


def test_a_part_of_the_time_counts_its_own_and_begins_with_the_items_that_were_there(spark: Any, folder: str):
    since, until = ENTRIES[199].timestamp, ENTRIES[349].timestamp
    part = made(spark, folder, since_us=since, until_us=until)
    within = ENTRIES[199:350]
    assert (part.first_lsn, part.last_lsn, part.transactions) == (200, 350, len(within))
    assert values(part.by_store) == changed(within, part.bins)
    assert {each.name: each.last for each in part.items if each.last} == dict(living(ENTRIES, 350))


def test_a_time_without_entries_is_refused(spark: Any, folder: str):
    with pytest.raises(InvalidRequest, match="no entry within"):
        made(spark, folder, since_us=ENTRIES[9].timestamp + 1, until_us=ENTRIES[10].timestamp - 1)


def test_an_archive_that_begins_later_tells_no_items_and_says_so(spark: Any, tmp_path: Path):
    late = made(spark, archive_of(tmp_path / "late", ENTRIES[100:200]).where)
    assert late.items == ()
    assert {each.items for each in late.stores} == {None}
    assert "begins with LSN 101" in late.notes[0]
    assert late.transactions == 100


def test_lag_comes_from_what_was_observed(spark: Any, tmp_path: Path):
    folder = archive_of(tmp_path / "seen", ENTRIES[:20]).where
    observations.append(folder, [Observation(ENTRIES[5].timestamp, "w1", "worker", "m1", "on", 5, 2, 1.5, 9, None, None)])
    seen = made(spark, folder)
    assert [(each.name, each.highest) for each in seen.lag_s] == [("w1", 1.5)]
    assert [each.node for each in seen.nodes] == ["w1"]


def test_where_the_source_did_not_say_it_origin_and_epoch_are_unknown(spark: Any, tmp_path: Path):
    entries = [each._replace(origin="", epoch=0) for each in ENTRIES[:30]]
    found = made(spark, archive_of(tmp_path / "unknown", entries).where)
    assert [each.name for each in found.by_origin] == [""]
    assert [each.epoch for each in found.epochs] == [0]
    assert "unknown" in found.notes[0]
