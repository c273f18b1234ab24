"""A load as a whole: what it sends, what a second run sends, rejects with the line numbers of the file, and what is refused before."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from brokerha.model.errors import ConfigurationError, InvalidRequest, NotReady, UnknownRepository
from brokerha.model.requests import REFUSED, REJECTED_STATUS, Reply
from brokerha.pipeline import loading_split
from brokerha.pipeline.loading import LoadJob, LoadOptions, LoadReport, Split, SplitResult, prefix_of
from brokerha.pipeline.loading_job import default_state, run_load
from brokerha.pipeline.loading_ledger import Ledger
from brokerha.pipeline.loading_rdf import batch_of
from brokerha.pipeline.loading_split import MARK_EVERY, run_split
from tests.unit.pipeline.loading_cluster import LoadCluster

LINE = "<urn:s:{}> <urn:p> _:b{} .\n"


class Killed(BaseException):
    """Stands for the end of the process."""


def write(path: Path, lines: int, bad: dict[int, str] | None = None) -> Path:
    """N-Triples; some lines, by number, are something else."""
    bad = bad or {}
    path.write_text("".join(f"{bad[n]}\n" if n in bad else LINE.format(n, n % 7) for n in range(1, lines + 1)))
    return path


class Loader:
    """Runs loads in this process, one split after the other."""

    def __init__(self, folder: Path) -> None:
        self.cluster = LoadCluster()
        self.folder = folder
        self.told: list[tuple[int, int]] = []

    def options(self, *files: Path, **options: Any) -> LoadOptions:
        defaults = {"address": "x", "state": str(self.folder / "state"), "split_bytes": 20_000, "patience_s": 0.0}
        return LoadOptions(tuple(map(str, files)), **{**defaults, **options})

    def load(self, *files: Path, **options: Any) -> LoadReport:
        return self.run(self.options(*files, **options))

    def run(self, options: LoadOptions) -> LoadReport:
        connect = self.cluster.connect

        def run(job: LoadJob, splits: list[Split], progress: Callable[[], None]) -> list[SplitResult]:
            results = []
            for split in splits:
                results.append(run_split(job, split, connect))
                progress()
            return results

        return run_load(options, run, lambda done, total: self.told.append((done, total)), connect)


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    return Loader(tmp_path)


def rejects_in(path: str | None) -> list[dict[str, Any]]:
    assert path is not None
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_every_line_is_sent_once_under_ids_that_name_file_split_and_batch(loader, tmp_path):
    one, two = write(tmp_path / "one.nt", 3000), write(tmp_path / "two.nt", 10)
    report = loader.load(one, two)
    prefixes = [prefix_of(report.key, number) for number in (1, 2)]
    assert loader.cluster.lines() == [
        *(LINE.format(n, n % 7).strip().replace("_:", f"_:{prefixes[0]}") for n in range(1, 3001)),
        *(LINE.format(n, n % 7).strip().replace("_:", f"_:{prefixes[1]}") for n in range(1, 11)),
    ]
    assert (report.files, report.statements, report.lines, report.rejects) == (2, 3010, 3010, 0)
    assert (report.is_complete, report.is_good, report.rejects_file) == (True, True, None)
    assert report.transactions == len(loader.cluster.bodies) == report.lsn
    assert next(iter(loader.cluster.bodies)) == f"{report.key}.1.1.1"
    assert list(loader.cluster.bodies)[-1] == f"{report.key}.2.1.1"
    size = one.stat().st_size + two.stat().st_size
    assert loader.told[0] == (0, size)
    assert loader.told[-1] == (size, size)
    assert [done for done, _ in loader.told] == sorted(done for done, _ in loader.told)


def test_a_second_run_sends_nothing_and_reports_the_same(loader, tmp_path):
    path = write(tmp_path / "one.nt", 3000)
    first = loader.load(path)
    sent = len(loader.cluster.sent)
    second = loader.load(path)
    assert len(loader.cluster.sent) == sent
    assert second == replace(first, splits_before=first.splits, seconds=second.seconds)


@pytest.mark.parametrize("last", [1, 21, 45])
def test_a_load_that_was_killed_goes_on_and_sends_little_twice(loader, tmp_path, monkeypatch, last):
    path = write(tmp_path / "one.nt", 60_000)
    count = itertools.count(1)

    def kill(*arguments: Any) -> Any:
        if next(count) > last:
            raise Killed
        return batch_of(*arguments)

    monkeypatch.setattr(loading_split, "batch_of", kill)
    with pytest.raises(Killed):
        loader.load(path, split_bytes=1_000_000)
    monkeypatch.undo()
    assert 0 < len(loader.cluster.bodies) < 60
    report = loader.load(path, split_bytes=1_000_000)
    assert report.splits_before == (last > 30)
    assert len(loader.cluster.lines()) == len(set(loader.cluster.lines())) == 60_000
    assert len(loader.cluster.sent) <= len(loader.cluster.bodies) + MARK_EVERY
    assert report.statements == 60_000


def test_bad_lines_go_to_the_reject_file_with_the_lines_of_the_file(loader, tmp_path):
    path = write(tmp_path / "one.nt", 5000, {1: "bad one", 2500: "bad two", 4999: "<urn:a> <urn:b> <urn:c> <urn:d> ."})
    report = loader.load(path, max_rejects=3)
    assert (report.rejects, report.statements, report.is_good) == (3, 4997, True)
    found = rejects_in(report.rejects_file)
    assert [(one["file"], one["line"], one["text"]) for one in found] == [
        (str(path), 1, "bad one"), (str(path), 2500, "bad two"), (str(path), 4999, "<urn:a> <urn:b> <urn:c> <urn:d> ."),
    ]  # fmt: skip
    assert "may be a quad" in found[2]["reason"]
    assert [one.line for one in report.first_rejects] == [1, 2500, 4999]


def test_too_many_bad_lines_stop_the_load_and_the_same_command_goes_on_when_they_are_allowed(loader, tmp_path):
    path = write(tmp_path / "one.nt", 5000, {2500: "bad", 4000: "bad"})
    report = loader.load(path)
    assert (report.is_complete, report.is_good, report.rejects) == (False, False, 1)
    assert [one["line"] for one in rejects_in(report.rejects_file)] == [2500]
    assert len(loader.cluster.lines()) < 2500
    report = loader.load(path, max_rejects=2)
    assert (report.is_good, report.rejects) == (True, 2)
    assert [one["line"] for one in rejects_in(report.rejects_file)] == [2500, 4000]
    assert len(set(loader.cluster.lines())) == 4998
    assert len(loader.cluster.sent) == len(loader.cluster.bodies)


def test_lines_before_a_reject_are_counted_in_the_file_where_no_task_has(loader, tmp_path):
    path = write(tmp_path / "one.nt", 5000, {4000: "bad"})
    options = loader.options(path)
    connect = loader.cluster.connect
    report = run_load(
        options, lambda job, splits, _: [run_split(job, split, connect) for split in reversed(splits)],
        lambda *_: None, connect,
    )  # fmt: skip
    assert [one["line"] for one in rejects_in(report.rejects_file)] == [4000]
    assert not report.is_complete


def test_a_dry_run_checks_every_line_and_sends_nothing(loader, tmp_path):
    path = write(tmp_path / "one.nt", 5000, {10: "bad", 4000: "bad"})
    report = loader.load(path, is_dry_run=True)
    assert (loader.cluster.connections, loader.cluster.sent) == (0, [])
    assert (report.rejects, report.statements, report.is_complete, report.is_good) == (2, 4998, True, False)
    assert [one.line for one in report.first_rejects] == [10, 4000]
    assert (report.key, report.rejects_file) == ("", None)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["one.nt"]
    report = loader.load(path, is_dry_run=True, rejects=str(tmp_path / "bad.jsonl"), max_rejects=2)
    assert report.is_good
    assert [one["line"] for one in rejects_in(str(tmp_path / "bad.jsonl"))] == [10, 4000]


def test_a_rejected_transaction_is_a_reject_of_all_its_lines_again_in_each_run(loader, tmp_path):
    path = write(tmp_path / "one.nt", 1500)

    def reject_second(txid: str) -> None:
        loader.cluster.faults = (
            [Reply(0, txid, REJECTED_STATUS, 9, "Rejected", "check c")] if txid.endswith(".2") else []
        )

    loader.cluster.before = reject_second
    report = loader.load(path, max_rejects=5, split_bytes=1_000_000)
    assert (report.rejects, report.statements, report.is_good) == (500, 1000, False)
    [reject] = rejects_in(report.rejects_file)
    assert (reject["line"], reject["last_line"], reject["statements"], reject["text"]) == (1001, 1500, 500, "")
    assert "rejected transaction" in reject["reason"]
    assert "check c" in reject["reason"]


def test_a_failure_says_how_to_go_on_and_stops_the_other_splits(loader, tmp_path):
    path = write(tmp_path / "one.nt", 5000)
    good = LoadCluster()
    loader.cluster.faults = [None] * 2 + [Reply(0, "", REFUSED, 0, "NotReady", "the journal is full")] * 9
    with pytest.raises(
        NotReady, match=r"the journal is full \([0-9,]+ statements are known to be loaded; the same command"
    ):
        loader.load(path, window=1)
    assert len(loader.cluster.bodies) == 2
    good.bodies = loader.cluster.bodies
    loader.cluster = good
    assert loader.load(path).statements == 5000
    assert len(set(good.lines())) == 5000


def test_a_changed_file_or_other_options_do_not_go_on_with_the_same_state(loader, tmp_path):
    path = write(tmp_path / "one.nt", 100)
    loader.load(path)
    loader.cluster.connect = _with_repository(loader.cluster, b'["other"]')
    with pytest.raises(InvalidRequest, match="repository is 'main' there and 'other' here"):
        loader.load(path, repository="other")
    loader.cluster = LoadCluster("another")
    with pytest.raises(InvalidRequest, match="cluster is 'orders' there and 'another' here"):
        loader.load(path)
    loader.cluster = LoadCluster()
    write(path, 101)
    with pytest.raises(InvalidRequest, match=r"one\.nt has changed since"):
        loader.load(path)
    assert not loader.cluster.sent


def _with_repository(cluster: LoadCluster, names: bytes) -> Any:
    def connect(_address: str) -> Any:
        client: Any = LoadCluster.connect(cluster)
        client.wire.read_answer = client.wire.read_answer._replace(body=names)
        return client

    return connect


def test_a_state_folder_is_used_by_one_program_at_a_time(loader, tmp_path):
    path = write(tmp_path / "one.nt", 10)
    with Ledger(str(tmp_path / "state")).held(), pytest.raises(InvalidRequest, match="another program"):
        loader.load(path)
    assert loader.load(path).is_good


def test_a_state_folder_that_cannot_be_used_is_named(loader, tmp_path):
    path = write(tmp_path / "one.nt", 10)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file/state"):
        loader.load(path, state=str(tmp_path / "file" / "state"))
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "load.json").write_text("{")
    with pytest.raises(ConfigurationError, match="damaged"):
        loader.load(path)


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("a.nt", {"repository": "none"}, UnknownRepository, "no repository 'none'"),
        ("a.nq", {"graph": "urn:g"}, InvalidRequest, "names its graphs itself"),
        ("a.csv", {}, InvalidRequest, "--mapping"),
        ("a.nt", {"mapping": "MAPPING"}, InvalidRequest, "none of the files is one"),
        ("a.csv", {"mapping": "MAPPING", "graph": "urn:g"}, InvalidRequest, "leave out --graph"),
    ],
)
def test_what_does_not_go_together_is_said_before_anything_is_sent(loader, tmp_path, name, options, error, words):
    (tmp_path / name).write_text("id\n")
    if "mapping" in options:
        options = {**options, "mapping": str(tmp_path / "m.toml")}
        (tmp_path / "m.toml").write_text('[keys]\ntable = "t"\nkey = "{id}"\nvalue = "id"\n')
    with pytest.raises(error, match=words):
        loader.load(tmp_path / name, **options)
    assert not loader.cluster.sent


def test_keys_are_loaded_too(loader, tmp_path):
    (tmp_path / "a.csv").write_text("id,v\n" + "".join(f"{n},{n * n}\n" for n in range(2500)))
    (tmp_path / "m.toml").write_text('[keys]\ntable = "t"\nkey = "k{id}"\nvalue = "v"\n')
    report = loader.load(tmp_path / "a.csv", mapping=str(tmp_path / "m.toml"), repository="none")
    assert (report.statements, report.unit) == (2500, "key")
    assert sorted(loader.cluster.operations()) == sorted(("put", "t", b"k%d" % n, b"%d" % (n * n)) for n in range(2500))


def test_an_empty_file_is_loaded_with_nothing(loader, tmp_path):
    (tmp_path / "a.nt").write_text("")
    report = loader.load(tmp_path / "a.nt")
    assert (report.is_good, report.lines, report.transactions) == (True, 0, 0)


def test_a_file_that_ends_too_early_is_an_error_that_names_it(loader, tmp_path):
    import gzip

    packed = gzip.compress(b"".join(LINE.format(n, n).encode() for n in range(50_000)))
    (tmp_path / "a.nt.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InvalidRequest, match=r"a\.nt\.gz is damaged"):
        loader.load(tmp_path / "a.nt.gz")


def test_a_task_that_runs_twice_gives_what_the_ledger_has(loader, tmp_path):
    path = write(tmp_path / "one.nt", 100)
    seen: list[Any] = []

    def twice(job: Any, splits: list[Split], _progress: Any) -> list[Any]:
        seen.extend(run_split(job, splits[0], loader.cluster.connect) for _ in range(2))
        return seen[:1]

    run_load(loader.options(path), twice, lambda *_: None, loader.cluster.connect)
    assert seen[0] == seen[1]
    assert len(loader.cluster.sent) == 1


def test_a_task_of_a_run_that_was_killed_does_not_stop_the_next_run(loader, tmp_path):
    path = write(tmp_path / "one.nt", 5000)
    jobs: list[LoadJob] = []

    def killed(job: LoadJob, _splits: list[Split], _progress: Any) -> list[SplitResult]:
        jobs.append(job)
        (tmp_path / "state" / "splits" / "00001-000001.json.abc.new").write_text("{")
        raise Killed

    def next_run(job: LoadJob, splits: list[Split], _progress: Any) -> list[SplitResult]:
        assert job.key == jobs[0].key
        Ledger(jobs[0].state, jobs[0].run).stop()
        return [run_split(job, split, loader.cluster.connect) for split in splits]

    with pytest.raises(Killed):
        run_load(loader.options(path), killed, lambda *_: None, loader.cluster.connect)
    report = run_load(loader.options(path), next_run, lambda *_: None, loader.cluster.connect)
    assert report.is_good
    assert not list((tmp_path / "state" / "splits").glob("*.new"))


def test_a_dry_run_leaves_no_folder_behind(loader, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "one.nt", 10)
    assert loader.load(path, is_dry_run=True, state=default_state((str(path),))).is_good
    assert sorted(one.name for one in tmp_path.iterdir()) == ["one.nt"]


def test_the_state_folder_follows_from_files_and_options():
    assert default_state(("a.nt",), "main") == default_state(("./a.nt",), "main") != default_state(("a.nt",), "other")
