"""`brokerha init`: what is written and said, exit codes, and that nothing is overwritten without being told to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.deploying.clusters import ONE_SITE

KINDS = ("supervisord", "systemd", "compose", "definitions")


@pytest.fixture(autouse=True)
def _cluster_file(nowhere):
    Path("cluster.toml").write_text(ONE_SITE, encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_written_once_and_checked_then(run, kind):
    assert run("init", kind, "--check").code == 2
    assert not Path("deploy").exists()
    ran = run("init", kind)
    assert ran.code == 0
    written = {line.split()[1] for line in ran.out.splitlines() if line.startswith("written ")}
    assert written
    assert all(Path(name).is_file() for name in written)
    assert "\nnext:\n" in ran.out
    checked = run("init", kind, "--check")
    assert (checked.code, "up-to-date" in checked.out) == (0, True)
    assert run("init", kind).code == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_cluster_file_makes_them_out_of_date_and_force_mends_it(run, kind):
    run("init", kind)
    more = f'{ONE_SITE}[[worker]]\nid = "w3"\nmaster = "m1"\nhttp = "10.0.0.3:7303"\n'
    Path("cluster.toml").write_text(more, encoding="utf-8")
    before = {path: path.read_bytes() for path in Path("deploy").rglob("*") if path.is_file()}
    assert run("init", kind, "--check").code == 2
    refused = run("init", kind)
    assert refused.code == 2
    assert "--force" in refused.err
    assert {path: path.read_bytes() for path in before} == before
    assert run("init", kind, "--force").code == 0
    assert run("init", kind, "--check").code == 0
    assert run("init", kind).code == 0


def test_json_says_the_same(run):
    answer = json.loads(run("init", "supervisord", "-o", "json").out)
    assert [(Path(row["path"]).name, row["found"], row["written"]) for row in answer["files"]] == [
        ("supervisord.conf", "new", True),
        ("brokerha-orders.conf", "new", True),
    ]
    assert answer["up_to_date"] is True
    assert answer["next"][0] == "supervisord -c deploy/supervisord.conf"
    Path("deploy/supervisord.conf").write_text("mine", encoding="utf-8")
    answer = json.loads(run("init", "supervisord", "-o", "json", "--check").out)
    assert ([row["found"] for row in answer["files"]], answer["up_to_date"]) == (["differs", "up-to-date"], False)


def test_nodes_of_this_machine_and_their_secrets(run):
    ran = run("init", "supervisord", "--host", "10.0.0.2", "--secrets", "s", "--user", "me", "--deploy", "x")
    assert "not in s: m1s.url; brokerha init definitions makes them" in ran.err
    text = Path("x/brokerha-orders.conf").read_text(encoding="utf-8")
    assert "[program:orders-m1s]\n" in text
    assert f'BROKERHA_CLUSTER_BROKER_FILE="{Path.cwd()}/s/m1s.url"' in text
    assert "user = me\n" in text


def test_nobody_is_root(run):
    for kind in ("supervisord", "systemd"):
        ran = run("init", kind, "--user", "root")
        assert (ran.code, "a node needs no rights" in ran.err) == (64, True)


def test_a_wrong_cluster_file_is_78(run):
    Path("cluster.toml").write_text("[cluster]\n", encoding="utf-8")
    assert run("init", "definitions").code == 78


def test_no_password_is_said(run):
    ran = run("init", "definitions")
    for file in Path("deploy/secrets").iterdir():
        assert file.read_text(encoding="utf-8").split("@")[0].rpartition(":")[2] not in ran.out + ran.err
