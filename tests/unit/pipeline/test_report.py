"""Bins, series and the page of a report, without Spark."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerha.model.errors import InvalidRequest, StoreError
from brokerha.pipeline.observations import Observation, append
from brokerha.pipeline.report import (
    BINS_MOST,
    OTHERS,
    SERIES_MOST,
    Bins,
    Busy,
    Epoch,
    Rejection,
    ReportFacts,
    ReportOptions,
    Series,
    StoreFacts,
    observed,
    reason_kind,
    running,
    series_of,
    span,
    time_of,
)
from brokerha.pipeline.report_page import bars, check_place, page, steps, write
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.random_log import random_entries

MINUTE = 60_000_000
BINS = Bins(0, MINUTE, 4)
_NAMESPACES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
HOSTILE = "<script>alert('x')</script>&\"quoted\""


def facts(**changed: object) -> ReportFacts:
    whole = ReportFacts(
        cluster="orders",
        first_lsn=1,
        last_lsn=10,
        chain="ab" * 32,
        files=1,
        size_bytes=12_345,
        made_us=5 * MINUTE,
        bins=BINS,
        transactions=10,
        rejected=1,
        changes=30,
        by_origin=(Series("m1", (4, 0, 3, 1)), Series("m2", (0, 2, 0, 0))),
        by_store=(Series("graph", (10, 10, 5, 5)),),
        items=(Series("statements", (10, 20, 25, 30)),),
        rejected_by_reason=(Series("check stock does not hold", (0, 1, 0, 0)),),
        lag_s=(),
        keys=(Busy("prices", "sku-1", 9),),
        predicates=(Busy("", "<urn:p>", 7),),
        stores=(StoreFacts("graph", "main", 30, 30, 10),),
        rejections=(Rejection(4, MINUTE, "t4", "m1", "check stock does not hold: 1 row"),),
        epochs=(Epoch(1, 1, 10, 0, 10),),
        nodes=(),
        events=(),
    )
    return dataclasses.replace(whole, **changed)  # type: ignore[arg-type]


@given(st.integers(0, 2**50), st.integers(0, 2**50))
def test_bins_hold_both_ends_and_are_never_too_many(start_us: int, span_us: int):
    bins = Bins.of(start_us, start_us + span_us)
    assert 1 <= bins.count <= BINS_MOST
    assert bins.place_of(start_us) is not None
    assert bins.place_of(start_us + span_us) is not None
    assert bins.place_of(bins.end_us) is None


def test_bins_that_would_end_before_they_begin_are_refused():
    with pytest.raises(InvalidRequest, match="end before it begins"):
        Bins.of(10, 9)


def test_series_beyond_the_most_are_added_up():
    counts = {(f"n{number}", number % 4): number + 1.0 for number in range(SERIES_MOST + 3)}
    series = series_of(counts, BINS)
    assert len(series) == SERIES_MOST
    assert series[-1].name == OTHERS
    assert sum(each.total for each in series) == sum(counts.values())


def test_a_running_sum_begins_with_what_was_before():
    assert running({-1: 100, 1: 5, 3: -2}, 7, BINS) == (7, 12, 12, 10)


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_is_none_is_refused_with_an_example(text: str):
    with pytest.raises(InvalidRequest, match="write 2026-05-01"):
        time_of(text)


def test_a_time_is_utc_unless_it_says_otherwise():
    assert time_of("2026-05-01T12:00:00") == time_of("2026-05-01T14:00:00+02:00")


def test_a_reason_without_words_still_has_a_name():
    assert reason_kind(" : what") == "no reason given"


def test_bars_of_a_bin_stand_on_each_other():
    drawn = bars([Series("a", (1, 0, 0, 0)), Series("b", (3, 0, 0, 0))], BINS, "a minute")
    found = re.findall(r'<path d="M1,([0-9.]+)h159v([0-9.]+)h-159Z" fill="var\(--c(\d)\)"', drawn)
    (first, second), colours = [(float(top), float(height)) for top, height, _ in found], [each[2] for each in found]
    assert colours == ["0", "1"]
    assert second[1] == pytest.approx(3 * first[1])
    assert max(first[0], second[0]) == pytest.approx(min(sum(first), sum(second)))


def test_a_line_has_a_gap_where_nothing_is_known():
    drawn = steps([Series("a", (1, None, 2, 2))], BINS)
    (line,) = re.findall(r'<path d="([^"]+)" stroke="var\(--c0\)"', drawn)
    assert [each.split(",")[0] for each in line.split("M")[1:]] == ["0", "320"]


def test_an_epoch_begins_at_a_line_and_others_have_a_colour_of_their_own():
    drawn = bars([Series(OTHERS, (1, 0, 0, 0))], BINS, "a minute", marks=[(2 * MINUTE, "epoch 2")])
    assert "<title>epoch 2</title>" in drawn
    assert 'fill="var(--c7)"' in drawn


def test_what_a_bin_holds_is_told_where_the_pointer_rests():
    assert "<title>1970-01-01 00:01:00&#xA;m2: 2 a minute</title>" in bars(facts().by_origin, BINS, "a minute")


def test_the_page_loads_nothing_and_runs_nothing():
    found = page(facts())
    assert "default-src &#x27;none&#x27;" in found or "default-src 'none'" in found
    assert not re.search(r"<script|<link|<img|<iframe|\bon[a-z]+=|url\(|@import|https?://", found.replace(_NAMESPACES, ""))


def test_texts_of_data_are_escaped_wherever_they_stand():
    found = page(
        facts(
            cluster=HOSTILE,
            by_origin=(Series(HOSTILE, (1, 1, 1, 1)),),
            rejected_by_reason=(Series(HOSTILE, (1, 0, 0, 0)),),
            keys=(Busy(HOSTILE, HOSTILE, 1),),
            predicates=(Busy("", HOSTILE, 1),),
            stores=(StoreFacts(HOSTILE, HOSTILE, 1, 1, 1),),
            rejections=(Rejection(1, 1, HOSTILE, HOSTILE, HOSTILE),),
            notes=(HOSTILE,),
            lag_s=(Series(HOSTILE, (1.0, None, None, None)),),
        )
    )
    assert "<script" not in found
    assert found.count("&lt;script&gt;") >= 12


def test_a_part_with_nothing_to_show_says_why():
    found = page(facts(items=(), rejected=0, rejections=(), keys=(), predicates=(), stores=(), by_origin=(), by_store=()))
    for text in ("does not begin with LSN 1", "None.", "No key was changed", "No quad was changed", "Nobody observed"):
        assert text in found


def test_the_facts_are_json_as_they_are():
    assert json.loads(json.dumps(dataclasses.asdict(facts())))["bins"]["count"] == BINS.count


def observation(node: str, minute: float, lag_s: float | None, state: str = "on", epoch: int | None = None) -> Observation:
    return Observation(int(minute * MINUTE), node, "worker", "m1", state, 1, 0, lag_s, 1, epoch, None)


def test_the_highest_lag_of_each_bin_is_told_and_changes_of_nodes_are():
    seen = [
        observation("w1", 0.1, 0.5),
        observation("w1", 0.5, 3.0, "replication-client"),
        observation("w1", 2, None, "unknown"),
        observation("w1", 3.5, 0.1),
        observation("w1", 99, 50.0),
    ]
    found = observed(seen, BINS)
    assert found.lag_s == (Series("w1", (3.0, None, None, 0.1)),)
    assert [(each.before, each.after) for each in found.events] == [
        ("unknown", "on"), ("replication-client", "unknown"), ("on", "replication-client"),
    ]  # fmt: skip
    (node,) = found.nodes
    assert (node.lag_s, node.highest_lag_s, node.seen_us) == (0.1, 3.0, int(3.5 * MINUTE))


def test_nodes_with_the_highest_lag_are_shown_by_name_and_the_others_together():
    seen = [observation(f"w{number:02}", 1, number + 1.0) for number in range(SERIES_MOST + 2)]
    names = [each.name for each in observed(seen, BINS).lag_s]
    assert len(names) == SERIES_MOST
    assert names[-1] == OTHERS
    assert f"w{SERIES_MOST + 1:02}" in names
    assert "w00" not in names


def test_a_page_takes_the_place_of_an_earlier_one_and_leaves_nothing_beside_it(tmp_path: Path):
    out = tmp_path / "report.html"
    out.write_text("old", encoding="utf-8")
    size = write(facts(), out)
    assert out.stat().st_size == size
    assert list(tmp_path.iterdir()) == [out]


def test_a_place_that_cannot_be_written_is_named_before_the_work(tmp_path: Path):
    with pytest.raises(StoreError, match="there is no folder"):
        check_place(tmp_path / "absent" / "report.html")
    with pytest.raises(StoreError, match="it is a folder"):
        check_place(tmp_path)
    with pytest.raises(StoreError, match="File name too long"):
        check_place(tmp_path / f"{'x' * 300}.html")
    check_place(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_what_was_observed_after_the_last_entry_is_within_the_time(tmp_path: Path):
    archive = archive_of(tmp_path / "archive", random_entries(1, 20))
    state = archive.state()
    options = ReportOptions(archive.where, tmp_path / "report.html")
    last_us = state.head.last_us
    assert span(archive, state, options)[0].place_of(last_us + 5 * MINUTE) is None
    append(archive.where, [observation("w1", last_us / MINUTE + 5, 0.0)])
    bins, first_lsn, last_lsn = span(archive, state, options)
    assert bins.place_of(last_us + 5 * MINUTE) is not None
    assert (first_lsn, last_lsn) == (1, 20)
    until = ReportOptions(archive.where, tmp_path / "report.html", until_us=last_us)
    assert span(archive, state, until)[0].place_of(last_us + 5 * MINUTE) is None
