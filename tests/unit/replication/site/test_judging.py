"""Judging: a copy against the log at its own LSN, copies against each other, and sites against each other."""

from __future__ import annotations

import pytest

from brokerha.model.fingerprints import EMPTY, UNKNOWN, text_of
from brokerha.model.records import Rebased
from brokerha.replication.site.judging import Ruling, SiteComparison, Verdict, Votes, verdict
from tests.unit.replication.benches import SiteBench, content, text


@pytest.mark.parametrize(
    ("applied", "says", "expected"),
    [
        (11, text(11), Verdict.BEYOND),
        (10, text(10), Verdict.AHEAD),
        (8, text(3), Verdict.AHEAD),
        (7, text(7), Verdict.FOUND),
        (0, text_of(EMPTY), Verdict.FOUND),
        (7, text(6), Verdict.DIFFERENT),
        (0, text(1), Verdict.DIFFERENT),
        (5, "", Verdict.FOUND),
        (5, "2:00000000000000000000000000000000", Verdict.FOUND),
    ],
)
def test_a_copy_is_compared_with_the_log_at_its_own_lsn(applied: int, says: str, expected: Verdict) -> None:
    bench = SiteBench(lsn=10, executed=7)
    found, reason = verdict(bench.journal, 10, 7, applied, says)
    assert found is expected
    assert bool(reason) is (expected in (Verdict.BEYOND, Verdict.DIFFERENT))


def test_reasons_name_what_is_compared() -> None:
    bench = SiteBench(lsn=10, executed=7)
    assert verdict(bench.journal, 10, 7, 11, text(11))[1] == "it is at LSN 11, the log ends at 10"
    assert verdict(bench.journal, 10, 7, 7, text(6))[1] == f"at LSN 7 it holds {text(6)}, the log says {text(7)}"


def test_a_copy_from_before_the_log_begins_is_not_found_in_it() -> None:
    bench = SiteBench(lsn=10, executed=7)
    bench.journal.append([Rebased(5, content(5), 5, "as if everything before had been trimmed")])
    assert verdict(bench.journal, 10, 5, 4, text(4)) == (Verdict.NOT_IN_LOG, "it is at LSN 4, the log begins after 5")
    assert verdict(bench.journal, 10, 5, 5, text(5))[0] is Verdict.FOUND


# ---- votes

A, B, C = content(101), content(102), content(103)


def votes(**came_to: bytes) -> Votes:
    found = Votes(7)
    for node, fingerprint in came_to.items():
        found.add(node, fingerprint)
    return found


@pytest.mark.parametrize(
    ("came_to", "for_the_log", "ruling", "wrong"),
    [
        ({"w2": A}, 2, Ruling.LOG, {"w2"}),
        ({"w2": A}, 1, Ruling.LOG, {"w2"}),
        ({"w2": A, "w3": A}, 1, Ruling.OTHERS, set()),
        ({"w2": A, "w3": A}, 2, Ruling.LOG, {"w2", "w3"}),
        ({"w2": A, "w3": B}, 1, Ruling.LOG, {"w2", "w3"}),
        ({"w2": A, "w3": A, "w4": B}, 1, Ruling.OTHERS, {"w4"}),
        ({"w2": A, "w3": A, "w4": B}, 0, Ruling.OTHERS, {"w4"}),
        ({"w2": A, "w3": B}, 0, Ruling.NOBODY, set()),
        ({"w2": A, "w3": A, "w4": B, "w5": B}, 0, Ruling.NOBODY, set()),
        ({"w2": A, "w3": A, "w4": B, "w5": B}, 1, Ruling.NOBODY, set()),
        ({"w2": A, "w3": B, "w4": C}, 0, Ruling.NOBODY, set()),
        ({"w2": A, "w3": A}, 0, Ruling.OTHERS, set()),
        # One worker alone never overrules the log, not even when nobody lives who came to the same.
        ({"w2": A}, 0, Ruling.LOG, {"w2"}),
    ],
)
def test_the_majority_is_right_and_the_log_breaks_a_tie(
    came_to: dict[str, bytes], for_the_log: int, ruling: Ruling, wrong: set[str]
) -> None:
    assert votes(**came_to).ruling(for_the_log) == (ruling, frozenset(wrong))


def test_a_worker_that_says_the_same_again_has_one_vote() -> None:
    found = votes(w2=A)
    found.add("w2", A)
    assert found.ruling(1)[0] is Ruling.LOG


# ---- sites


def test_sites_are_compared_once_this_one_is_there_too() -> None:
    bench = SiteBench(lsn=10, executed=5)
    sites = SiteComparison()
    sites.on_row("m2", 7, content(99))
    sites.compare(bench.journal, 5)
    assert sites.differing == {}
    bench.log(7)
    sites.compare(bench.journal, 7)
    assert sites.differing == {"m2": (7, text(7), text(99))}
    assert sites.reason() == f"at LSN 7 this site holds {text(7)}, that of m2 {text(99)}"


def test_a_site_that_is_always_ahead_is_compared_all_the_same() -> None:
    bench = SiteBench(lsn=10, executed=5)
    sites = SiteComparison()
    sites.on_row("m2", 6, content(99))
    sites.on_row("m2", 9, content(9))
    bench.log(6)
    sites.compare(bench.journal, 6)
    assert "m2" in sites.differing


def test_a_site_that_is_equal_again_differs_no_more() -> None:
    bench = SiteBench(lsn=10, executed=7)
    sites = SiteComparison()
    for peer in ("m3", "m2"):
        sites.on_row(peer, 7, content(99))
    sites.compare(bench.journal, 7)
    assert [part.split(" of ")[1][:2] for part in sites.reason().split("; ")] == ["m2", "m3"]
    sites.on_row("m2", 6, content(6))
    sites.compare(bench.journal, 7)
    assert list(sites.differing) == ["m3"]


def test_what_is_not_known_differs_from_nothing() -> None:
    bench = SiteBench(lsn=10, executed=7)
    sites = SiteComparison()
    sites.on_row("m2", 7, content(99))
    sites.compare(bench.journal, 7)
    sites.on_row("m2", 7, UNKNOWN)
    sites.compare(bench.journal, 7)
    # An LSN that the log here does not reach back to says nothing, in one way or the other.
    bench.journal.append([Rebased(7, content(7), 7, "as if everything before had been trimmed")])
    sites.on_row("m2", 3, content(3))
    sites.compare(bench.journal, 7)
    assert list(sites.differing) == ["m2"]
