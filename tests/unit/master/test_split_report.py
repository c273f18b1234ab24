"""The split book joined with the log of now: for each transaction that was given up, what has become of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brokerha.master import split_report
from brokerha.master.command_arguments import check_command
from brokerha.master.split_report import EFFECTS, Facts, listed, shown
from brokerha.model.errors import InvalidRequest, NotFound
from brokerha.model.forgetting import forgetting_id
from brokerha.model.records import Added, Outcomes, Rewound
from brokerha.ports.journal import Journal
from tests.support.logs import memory_log
from tests.unit.log.turns import Author, fingerprint_after

NAMES = tuple("abcdefghijk")


@pytest.fixture
def journal() -> Journal:
    return memory_log("m1", "journal-of-m1")


def went_back(journal: Journal, *, keeps_content: bool = False) -> int:
    """Eleven transactions, of which the fifth and the tenth are rejected and the last is not executed, go back to the second; returns the split."""
    author = Author("m1")
    journal.append([*author.synchronised(*NAMES), author.execute(10)])
    journal.append([Rewound(2, 1, 2, keeps_content=keeps_content)])
    return journal.splits()[-1].number


def go_on(journal: Journal, places: str, outcomes: str) -> None:
    """Transactions get places behind the second; the first of them are applied (A) or rejected (R)."""
    first = journal.state().lsn + 1
    entries = tuple((1000 + n, txid, "m1") for n, txid in enumerate(places))
    results = tuple(
        ("applied", "", b"e", fingerprint_after(n)) if word == "A" else ("rejected", "too late", b"", fingerprint_after(n))
        for n, word in enumerate(outcomes)
    )
    journal.append([Added(first, entries, {}, 2)])
    journal.append([Outcomes(first, results, 7)])


def facts(journal: Journal) -> Facts:
    state = journal.state()
    return Facts("m1", state.lsn, state.executed_lsn)


def told(answer: dict[str, Any]) -> dict[str, str]:
    return {row["txid"]: row["effect"] for row in answer["entries"]}


def test_each_transaction_has_the_word_for_what_became_of_it(journal: Journal) -> None:
    # Given a split, after which some have places, and some of these are executed
    number = went_back(journal)
    go_on(journal, "cefdkjh", "ARRAAA")
    # When it is shown
    answer = shown(journal, facts(journal), {"number": number})
    # Then each says what it was and what it is
    assert told(answer) == {
        "c": "same place", "d": "executed again", "e": "re-ordered", "f": "rejected now", "g": "waits", "h": "waits", "i": "waits",
        "j": "applied now", "k": "re-ordered",
    }  # fmt: skip
    rows = {row["txid"]: row for row in answer["entries"]}
    assert rows["f"] == {
        "lsn": 6, "txid": "f", "origin": "m1", "outcome": "applied", "new_lsn": 5, "new_outcome": "rejected", "reason": "too late",
        "effect": "rejected now",
    }  # fmt: skip
    assert (rows["k"]["outcome"], rows["k"]["new_outcome"]) == (None, "applied")
    assert (rows["h"]["new_lsn"], rows["h"]["new_outcome"]) == (9, None)
    assert (rows["g"]["new_lsn"], rows["g"]["new_outcome"]) == (None, None)
    # And the numbers of all of them are in both answers
    assert answer["effects"] == {
        "same place": 1, "re-ordered": 2, "executed again": 1, "not executed again": 0, "rejected now": 1, "applied now": 1, "waits": 3, "forgotten": 0,
    }  # fmt: skip
    (head,) = listed(journal, facts(journal))["splits"]
    assert head["effects"] == answer["effects"]
    assert {name: head[name] for name in ("number", "epoch", "lineage", "lsn", "total", "held", "keeps_content")} == {
        "number": number, "epoch": 1, "lineage": 2, "lsn": 2, "total": 9, "held": 9, "keeps_content": False,
    }  # fmt: skip
    assert head["last_write"] == 110


def test_where_the_content_stayed_what_was_applied_is_not_executed_again(journal: Journal) -> None:
    number = went_back(journal, keeps_content=True)
    go_on(journal, "cefdkjh", "ARRAAA")
    assert told(shown(journal, facts(journal), {"number": number})) == {
        "c": "not executed again", "d": "not executed again", "e": "re-ordered", "f": "rejected now", "g": "waits", "h": "waits", "i": "waits",
        "j": "applied now", "k": "re-ordered",
    }  # fmt: skip


def test_what_backups_may_not_hold_yet_is_not_told(journal: Journal) -> None:
    number = went_back(journal)
    go_on(journal, "cefdkjh", "ARRAAA")
    rows = shown(journal, replace(facts(journal), shown=4, executed=3), {"number": number})["entries"]
    assert {row["txid"]: row["new_lsn"] for row in rows if row["new_lsn"]} == {"c": 3, "e": 4}
    assert {row["txid"]: row["effect"] for row in rows if row["effect"] != "waits"} == {"c": "same place"}


def test_of_a_master_without_a_site_the_place_is_all_there_is(journal: Journal) -> None:
    author = Author("m1")
    journal.append(author.synchronised("a", "b", "c"))
    journal.append([Rewound(1, 1, 2)])
    journal.append([Added(2, ((1000, "b", "m1"),), {}, 2)])
    number = journal.splits()[-1].number
    assert told(shown(journal, Facts("m1", 2, 0, is_executing=False), {"number": number})) == {"b": "same place", "c": "waits"}


def test_a_split_of_which_nothing_was_given_up_is_listed_with_nothing(journal: Journal) -> None:
    author = Author("m1")
    journal.append(author.whole("a"))
    journal.append([Rewound(1, 1, 2)])
    (head,) = listed(journal, facts(journal))["splits"]
    assert (head["total"], head["held"], head["last_write"]) == (0, 0, None)
    assert head["effects"] == dict.fromkeys(EFFECTS, 0)
    answer = shown(journal, facts(journal), {"number": head["number"]})
    assert (answer["entries"], answer["next"]) == ([], None)


def test_pages_go_on_where_the_one_before_ended_and_only_the_first_counts(journal: Journal) -> None:
    number = went_back(journal)
    arguments: dict[str, Any] = {"number": number, "limit": 3}
    pages = [shown(journal, facts(journal), arguments)]
    while pages[-1]["next"] is not None:
        pages.append(shown(journal, facts(journal), {**arguments, "from": pages[-1]["next"]}))
    assert [[row["lsn"] for row in page["entries"]] for page in pages] == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert [page["effects"] is None for page in pages] == [False, True, True]


def test_effects_are_counted_within_bounds_and_it_is_told_of_how_many(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    old = went_back(journal)
    go_on(journal, "cefdkjh", "ARRAAA")
    journal.append([Rewound(5, 2, 3)])
    monkeypatch.setattr(split_report, "COUNTED_ENTRIES", 7)
    new, before = listed(journal, facts(journal))["splits"]
    assert (new["held"], new["counted"], before["held"], before["counted"]) == (4, 4, 9, 3)
    assert [sum(split["effects"].values()) for split in (new, before)] == [4, 3]
    assert shown(journal, facts(journal), {"number": old})["counted"] == 7


def test_the_newest_split_comes_first(journal: Journal) -> None:
    went_back(journal)
    journal.append([Rewound(1, 2, 3)])
    assert [split["lineage"] for split in listed(journal, facts(journal))["splits"]] == [3, 2]


def test_what_is_not_there_and_what_makes_no_sense_is_refused(journal: Journal) -> None:
    with pytest.raises(NotFound, match=r"m1 knows no split 7 \(any more\); its splits are none"):
        shown(journal, facts(journal), {"number": 7})
    number = went_back(journal)
    with pytest.raises(NotFound, match=f"its splits are {number}$"):
        shown(journal, facts(journal), {"number": number + 1})
    for wrong in ({"number": "7"}, {"number": number, "from": -1}, {"number": number, "limit": 0}, {"number": True}):
        with pytest.raises(InvalidRequest, match="is a whole number"):
            check_command("split", wrong)


def test_what_had_a_place_again_and_is_forgotten_says_so(journal: Journal) -> None:
    # Given a split, after which all have places again
    number = went_back(journal)
    go_on(journal, "cdefghijk", "A" * 9)
    # When the oldest of these are forgotten, and trimmed
    journal.append([Added(12, ((2000, forgetting_id(8), "m1"),), {}, 2)])
    assert told(shown(journal, facts(journal), {"number": number}))["c"] == "same place"
    journal.append([Outcomes(12, (("applied", "", b"", fingerprint_after(12)),), 7)])
    while journal.trim(13):
        pass
    # Then only the younger ones still say where they are
    effects = told(shown(journal, facts(journal), {"number": number}))
    assert {txid for txid, effect in effects.items() if effect == "forgotten"} == set("cdefg")
    assert effects["h"] == "same place"
