"""The audit without Spark: copies of workers, beside what archive and log lead to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from brokerha.model.errors import BrokerhaError, NotReady, Unreachable
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.audit_copies import Difference
from brokerha.stores.key_range import row_key_of
from brokerha.stores.memory import MemoryStore
from brokerha.stores.queue_change import Counts, Message
from tests.unit.pipeline.audit_place import ENTRIES, Copy, Log, audit, copied, image_of
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.random_log import random_store


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return archive_of(tmp_path / "archive", ENTRIES)


def test_a_copy_that_holds_what_the_log_leads_to_is_equal_wherever_it_stands(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "archive", ENTRIES[:400])
    behind, _ = random_store(7, 250)
    log = Log(ENTRIES)
    report = audit(archive, log, {"w1": copied(), "w2": copied(behind)})
    assert [(each.node, each.result, each.lsn) for each in report.copies] == [
        ("w1", "equal", 600),
        ("w2", "equal", 250),
    ]
    assert report.result == "equal"
    assert (401, 600) in log.reads


def test_a_changed_value_is_named_with_node_store_key_and_both_values(archive: Archive) -> None:
    copy = copied()
    row_key, value = max(image_of(copy.store).keys.items())
    table, _, key = row_key.partition(b"\0")
    image_of(copy.store).keys[row_key] = b"changed"
    report = audit(archive, Log(ENTRIES), {"w1": copied(), "w2": copy})
    assert report.result == "differs"
    assert [each.result for each in report.copies] == ["equal", "differs"]
    (difference,) = report.copies[1].differences
    assert (difference.store, difference.name, difference.key) == ("table", table.decode(), key.decode())
    assert (difference.kind, difference.found) == ("changed", "changed")
    assert difference.archived == (value.decode() if value.isascii() else f"0x{value.hex()}"[: 2 + 512])
    assert 0 < difference.lsn <= 600


def test_a_changed_quad_is_one_that_is_missing_and_one_too_many(archive: Archive) -> None:
    copy = copied()
    lines = next(lines for lines in image_of(copy.store).repositories.values() if lines)
    gone = min(lines)
    lines.remove(gone)
    lines.add("<urn:x> <urn:p> <urn:y>")
    report = audit(archive, Log(ENTRIES), {"w1": copy})
    assert {(each.kind, each.key) for each in report.copies[0].differences} == {
        ("missing", gone),
        ("surplus", "<urn:x> <urn:p> <urn:y>"),
    }


def test_messages_counters_repositories_and_checks_are_compared(archive: Archive) -> None:
    copy = copied()
    image = image_of(copy.store)
    queue = image.queues["p"]
    place, message = next(iter(queue.messages.values()))
    queue.messages[message.id] = place, Message(message.id, message.content_type, b"changed")
    queue.counts = Counts(queue.counts.published + 1, queue.counts.accepted)
    image.repositories["surplus"] = set()
    image.suite = image.suite.changed(("control-add", "new", "key", "t", "k", "absent"))
    found = audit(archive, Log(ENTRIES), {"w1": copy}).copies[0].differences
    assert {(each.store, each.name, each.key, each.kind) for each in found} == {
        ("queue", "p", message.id, "changed"),
        ("queue", "p", "", "changed"),
        ("graph", "surplus", "", "surplus"),
        ("control", "", "new", "surplus"),
    }
    check = next(each for each in found if each.store == "control")
    assert json.loads(check.found) == ["key", "t", "k", "absent"]


def test_only_buckets_that_differ_are_asked_for(archive: Archive) -> None:
    copy = copied()
    image_of(copy.store).keys[row_key_of("t", b"new")] = b""
    (difference,) = audit(archive, Log(ENTRIES), {"w1": copy}).copies[0].differences
    assert difference == Difference("table", "t", "new", "surplus", "", "", 0)
    assert [len(buckets) for buckets in copy.asked] == [1]


def test_a_copy_that_goes_on_meanwhile_is_compared_where_it_stands_then(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "archive", ENTRIES[:400])
    store, _ = random_store(7, 500)
    copy = Copy(MemoryStore.from_image(store.image()), ENTRIES[500:])
    image_of(copy.store).keys[row_key_of("never", b"new")] = b"x"
    found = audit(archive, Log(ENTRIES), {"w1": copy}).copies[0]
    assert (found.lsn, [each.name for each in found.differences]) == (500, ["never"])


def test_differences_are_named_up_to_a_limit_and_the_report_says_that_there_are_more(archive: Archive) -> None:
    copy = copied()
    image_of(copy.store).keys.update({row_key_of("new", b"%d" % number): b"" for number in range(300)})
    found = audit(archive, Log(ENTRIES), {"w1": copy}).copies[0]
    assert found.has_more
    assert found.buckets > 200
    assert 1 <= len(found.differences) <= 100


@pytest.mark.parametrize("error", [Unreachable("nobody answers"), NotReady("it loads")])
def test_a_copy_that_cannot_be_asked_is_not_compared_and_says_why(archive: Archive, error: BrokerhaError) -> None:
    report = audit(archive, Log(ENTRIES), {"w1": error, "w2": copied()})
    assert [(each.node, each.result, each.reason) for each in report.copies] == [
        ("w1", "not compared", str(error)),
        ("w2", "equal", ""),
    ]
    assert report.result == "not compared"


def test_a_copy_far_ahead_of_the_archive_asks_for_archiving_first(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("brokerha.pipeline.audit_copies.TAIL_LIMIT", 100)
    short = archive_of(tmp_path / "short", ENTRIES[:400])
    (copy,) = audit(short, Log(ENTRIES), {"w1": copied()}).copies
    assert copy.reason == "it is at LSN 600, and the archive ends with 400: archive first (brokerha pipeline archive)"
