"""The audit: an archive that is whole, one that was changed, copies of workers, and lists of transaction ids."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgpack
import pyarrow.compute as pc
import pytest

import brokerha
from brokerha.model.errors import BrokerhaError, ConfigurationError, InvalidRequest, StoreError, Unreachable, WentBack
from brokerha.model.forgetting import forgetting_id
from brokerha.model.operations import ControlAdd, unpack_effect
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.rows import table_of
from brokerha.pipeline.sources import BackupSource
from brokerha.pipeline.table import LogTable
from brokerha.spark.audit import AuditOptions, AuditReport, read_txids, run
from brokerha.stores.tables.key_range import row_key_of
from brokerha.stores.tables.queue_change import Counts, Message
from tests.unit.pipeline.made_archives import Copy, Log, archive_of, lsn_with, overwrite, rewritten
from tests.unit.pipeline.random_log import random_store

STORE, ENTRIES = random_store(7, 600)


@pytest.fixture
def audited(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Audits an archive, with a log and copies if they are given."""

    def audit(
        archive: LogTable, source: Log | None = None, copies: dict[str, Copy | BrokerhaError] | None = None, **options: Any
    ) -> AuditReport:  # fmt: skip
        given = copies or {}

        @contextlib.contextmanager
        def connect(url: str, timeout: float) -> Any:
            assert timeout
            copy = given[url]
            if isinstance(copy, BrokerhaError):
                raise copy
            yield copy

        monkeypatch.setattr(brokerha, "connect", connect)
        chosen = AuditOptions(
            archive.where, source=None if source is None else source.spec, copies=tuple((name, name) for name in given), **options
        )
        return run(chosen, lambda: nullcontext(spark), lambda _done, _total: None)

    return audit


def named(report: AuditReport) -> set[tuple[str, int]]:
    return {(each.file, each.lsn) for each in report.problems}


def test_an_archive_that_is_whole_is_proved_at_any_lsn_and_by_every_row(audited: Any, tmp_path: Path) -> None:
    entries = [*ENTRIES, *empty_entries(601, 2_400, ENTRIES[-1])]
    archive = archive_of(tmp_path / "archive", entries, 700)
    report = audited(archive, is_deep=True)
    assert (report.result, report.is_proved, report.lsn, report.problems) == ("equal", True, 2_400, ())
    assert report.fingerprint == STORE.applied().fingerprint
    assert audited(archive, lsn=57).result == "equal"
    with pytest.raises(InvalidRequest, match="holds LSN 1 to 2,400, not LSN 2,401"):
        audited(archive, lsn=2_401)


def empty_entries(first: int, last: int, before: LogEntry) -> list[LogEntry]:
    """Transactions that change nothing."""
    return [
        before._replace(lsn=lsn, txid=f"e{lsn}", timestamp=before.timestamp + lsn, effect=b"") for lsn in range(first, last + 1)
    ]


def test_what_was_changed_in_files_is_named_by_file_and_lsn(audited: Any, tmp_path: Path) -> None:
    entries = random_store(7, 900)[1]
    archive = archive_of(tmp_path / "archive", entries, 50)
    files = archive.state().files
    changes: list[tuple[str, str, dict[str, Any]]] = [
        ("put", "put", {"value": b"changed"}),
        ("put", "put", {"txid": "another"}),
        ("quads", "", {"object": "<urn:changed>"}),
        ("publish", "publish", {"value": b"changed"}),
        ("accept", "accept", {"key": b"t1.1"}),
        ("control-add", "check", {"value": msgpack.packb(["key", "t", "k", "present"])}),
        ("put", "put", {"digest_low": 5}),
        ("put", "put", {"entry_hash": bytes(32)}),
    ]
    expected: set[tuple[str, int]] = set()
    behind = 50
    for kind, row_kind, change in changes:
        lsn = lsn_with(entries, kind, behind)
        file, _ = rewritten(archive, lsn, change, row_kind)
        expected |= {(file, 0), (file, lsn)}
        behind = (lsn - 1) // 50 * 50 + 50
    # The origin of a whole entry follows from nothing, so only the bytes tell of it.
    single = next(entry.lsn for entry in entries[:50] if table_of([entry]).num_rows == 1)
    file, _ = rewritten(archive, single, {"origin": "m9"})
    expected.add((file, 0))
    Path(archive.path(files[-1])).unlink()
    cut = Path(archive.path(files[-2]))
    cut.write_bytes(cut.read_bytes()[:-100])
    expected |= {(files[-1].path, 0), (files[-2].path, 0)}
    report = audited(archive, Log(tmp_path / "log", entries), {"w1": Copy(STORE)})
    assert report.result == "differs"
    assert named(report) == expected
    said = {(each.file, each.lsn): each.what for each in report.problems}
    assert said[files[-1].path, 0] == "is missing: it held LSN 851 to 900"
    assert "cannot be read" in said[files[-2].path, 0]
    first = lsn_with(entries, "put", 50)
    assert "value is 'changed', and" in next(what for (_, lsn), what in said.items() if lsn == first)
    assert report.copies[0].reason == "the archive is not what was archived"


def test_entries_that_are_gone_stand_twice_or_are_not_those_of_the_chain_are_named(audited: Any, tmp_path: Path) -> None:
    gone = archive_of(tmp_path / "gone", ENTRIES, 200)
    file = gone.state().files[1]
    overwrite(gone, file, gone.read(file).filter(pc.not_equal(gone.read(file)["lsn"], 250)))
    # As if the bytes were right: another program has named the file.
    rename(gone, file.path)
    report = audited(gone)
    assert [(each.lsn, each.what) for each in report.problems] == [(250, "is missing")]
    replaced = archive_of(tmp_path / "replaced", ENTRIES, 200)
    file = replaced.state().files[1]
    overwrite(replaced, file, table_of([entry._replace(reason="changed") for entry in ENTRIES[200:400]]))
    rename(replaced, file.path)
    assert "were replaced together with their hashes" in audited(replaced).problems[0].what


def rename(archive: LogTable, path: str) -> None:
    """Give a file a name that says nothing of its bytes, in the log of the table too."""
    new = f"part-00000-{path[:8]}.parquet"
    (Path(archive.where) / path).rename(Path(archive.where) / new)
    for commit in (Path(archive.where) / "_delta_log").glob("*.json"):
        text = commit.read_text()
        size = (Path(archive.where) / new).stat().st_size
        lines = [json.loads(line) for line in text.splitlines()]
        for line in lines:
            if line.get("add", {}).get("path") == path:
                line["add"] |= {"path": new, "size": size}
        commit.write_text("\n".join(json.dumps(line) for line in lines))


def test_an_entry_that_was_replaced_before_it_was_archived_breaks_the_proof_at_its_lsn(audited: Any, tmp_path: Path) -> None:
    lsn = lsn_with(ENTRIES, "put", 10)
    changes = [(*each[:3], b"changed") if each[0] == "put" else each for each in unpack_effect(ENTRIES[lsn - 1].effect)]
    entries = list(ENTRIES[: lsn + 20])
    entries[lsn - 1] = entries[lsn - 1]._replace(effect=msgpack.packb(changes))
    report = audited(archive_of(tmp_path / "archive", entries), lsn=lsn + 1)
    assert [each.lsn for each in report.problems] == [lsn]
    assert "does not fit what is before it" in report.problems[0].what


def test_an_archive_that_begins_late_proves_no_content_and_says_so(audited: Any, tmp_path: Path) -> None:
    late = archive_of(tmp_path / "late", ENTRIES[100:])
    report = audited(late, None, {"w1": Copy(STORE)})
    assert (report.result, report.problems) == ("not compared", ())
    assert "begins with LSN 101" in report.notes[0]
    assert report.copies[0].reason == "no content can be computed from the archive"


# ---- copies and ids


def test_copies_are_compared_where_they_stand_and_what_differs_is_named(audited: Any, tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "archive", ENTRIES[:400])
    behind, _ = random_store(7, 250)
    changed = Copy(STORE)
    row_key, value = max(item for item in changed.image.keys.items() if item[0].startswith(b"u\0"))
    changed.image.keys[row_key] = b"changed"
    lines = next(lines for lines in changed.image.repositories.values() if lines)
    gone = min(lines)
    lines.remove(gone)
    lines.add("<urn:x> <urn:p> <urn:y>")
    queue = changed.image.queues["p"]
    number, message = next(iter(queue.messages.values()))
    queue.messages[message.id] = number, Message(message.id, message.content_type, b"changed")
    queue.counts = Counts(queue.counts.published + 1, queue.counts.accepted)
    changed.image.repositories["surplus"] = set()
    changed.image.suite = changed.image.suite.changed(ControlAdd("control-add", "new", "key", "t", "k", "absent"))
    ids = tmp_path / "txids"
    ids.write_text("t1\nt2\nt2\n\n t599 \nlost-1\nlost-2\n")
    copies = {"w1": Copy(STORE), "w2": Copy(behind), "w3": changed, "w4": Unreachable("nobody answers")}
    report = audited(archive, Log(tmp_path / "log", ENTRIES), copies, txids=ids)
    assert [(each.node, each.result, each.lsn) for each in report.copies] == [
        ("w1", "equal", 600), ("w2", "equal", 250), ("w3", "differs", 600), ("w4", "not compared", 0)
    ]  # fmt: skip
    assert report.copies[3].reason == "nobody answers"
    found = report.copies[2].differences
    table, _, key = row_key.partition(b"\0")
    assert {(each.store, each.name, each.key, each.kind) for each in found} == {
        ("table", table.decode(), key.decode(), "changed"),
        ("graph", "main", gone, "missing"),
        ("graph", "main", "<urn:x> <urn:p> <urn:y>", "surplus"),
        ("queue", "p", message.id, "changed"),
        ("queue", "p", "", "changed"),
        ("graph", "surplus", "", "surplus"),
        ("control", "", "new", "surplus"),
    }
    key_row = next(each for each in found if each.store == "table")
    assert (key_row.found, 0 < key_row.lsn <= 600) == ("changed", True)
    assert key_row.archived == (value.decode() if value.isascii() else f"0x{value.hex()}"[: 2 + 512])
    assert json.loads(next(each for each in found if each.store == "control").found) == ["key", "t", "k", "absent"]
    told = report.txids
    assert told is not None
    assert (told.given, told.found, told.missing, told.missing_number) == (5, 3, ("lost-1", "lost-2"), 2)


def test_a_copy_that_goes_on_and_one_with_many_differences(audited: Any, tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "archive", ENTRIES)
    store, _ = random_store(7, 500)
    going = Copy(store, ENTRIES[500:])
    going.image.keys[row_key_of("never", b"new")] = b"x"
    many = Copy(STORE)
    many.image.keys.update({row_key_of("new", b"%d" % number): b"" for number in range(300)})
    ahead = Copy(STORE, [])
    report = audited(archive, None, {"w1": going, "w2": many})
    first, second = report.copies
    assert (first.lsn, [each.name for each in first.differences]) == (500, ["never"])
    assert [len(buckets) for buckets in going.asked] == [1]
    assert second.has_more
    assert second.buckets > 200
    assert 1 <= len(second.differences) <= 100
    short = archive_of(tmp_path / "short", ENTRIES[:400])
    (copy,) = audited(short, None, {"w1": ahead}).copies
    assert copy.reason == "it is at LSN 600, and the archive ends with 400: archive first (brokerha pipeline archive)"


def test_an_id_that_stands_in_the_log_twice_is_named_with_its_lsns(audited: Any, tmp_path: Path) -> None:
    entries: Sequence[LogEntry] = [*ENTRIES[:100], *empty_entries(101, 120, ENTRIES[99])]
    archive = archive_of(tmp_path / "archive", [*entries[:-1], entries[-1]._replace(txid="t7")])
    (tmp_path / "txids").write_text("t6\nt7\n")
    report = audited(archive, txids=tmp_path / "txids")
    assert report.txids is not None
    assert (report.result, report.txids.repeated) == ("differs", (("t7", (7, 120)),))


def test_an_id_that_came_again_after_it_was_forgotten_is_not_repeated(audited: Any, tmp_path: Path) -> None:
    entries: list[LogEntry] = [*ENTRIES[:100], *empty_entries(101, 120, ENTRIES[99])]
    for lsn, txid in ((110, forgetting_id(8)), (118, "t8"), (119, "t7")):
        entries[lsn - 1] = entries[lsn - 1]._replace(txid=txid)
    archive = archive_of(tmp_path / "archive", entries)
    (tmp_path / "txids").write_text("t7\nt8\n")
    report = audited(archive, txids=tmp_path / "txids")
    assert report.txids is not None
    assert (report.txids.found, report.txids.repeated) == (2, (("t8", (8, 118)),))


# ---- what is refused before Spark starts


def test_another_cluster_or_history_is_refused(audited: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = archive_of(tmp_path / "archive", ENTRIES)
    with pytest.raises(ConfigurationError, match=r"is that of cluster orders, and the backup in .* is of shop"):
        audited(archive, Log(tmp_path / "shop", ENTRIES, "shop"))
    other = [entry._replace(txid=f"other-{entry.lsn}") for entry in ENTRIES]
    with pytest.raises(StoreError, match="two histories: LSN 600 is another entry there"):
        audited(archive, Log(tmp_path / "other", other))
    monkeypatch.setattr(BackupSource, "rewinds", lambda _self: ((5, 599),))
    with pytest.raises(WentBack, match="cannot be compared with the log of now"):
        audited(archive, Log(tmp_path / "log", ENTRIES))
    empty = archive_of(tmp_path / "empty", [])
    with pytest.raises(InvalidRequest, match="holds nothing yet, not LSN 5"):
        audited(empty, lsn=5)


def test_a_file_of_ids_that_is_not_there_is_named_with_the_reason_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as told:
        read_txids(tmp_path / "none")
    assert str(told.value) == f"cannot read transaction ids from {tmp_path / 'none'}: No such file or directory"
