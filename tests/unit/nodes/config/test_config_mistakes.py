"""The cluster file: each mistake has one text, with the place and with what to write instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from brokerha.model.errors import ConfigurationError
from brokerha.nodes.config.cluster import load_config
from tests.unit.nodes.config.test_config import GOOD, load


def complaint(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text, environ)
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        (
            {"BROKERHA_CLUSTER_BROKR": "x"},
            "environment variable BROKERHA_CLUSTER_BROKR: no key of the cluster file has this name: write BROKERHA_CLUSTER_BROKER",
        ),
        (
            {"BROKERHA_MASTER_M1_HTPP": "x"},
            "environment variable BROKERHA_MASTER_M1_HTPP: no key of the cluster file has this name: write BROKERHA_MASTER_M1_HTTP",
        ),
        ({"BROKERHA_BACKUP_X_HTTP": "x"}, "environment variable BROKERHA_BACKUP_X_HTTP: cluster.toml has no backup: unset it"),
        (
            {"BROKERHA_CLUSTER_SYNC_N": "two"},
            'environment variable BROKERHA_CLUSTER_SYNC_N: sync-n is "two", and must be a whole number of backups: write sync-n = -1',
        ),
        (
            {"BROKERHA_CLUSTER_BROKER": "amqp://h", "BROKERHA_CLUSTER_BROKER_FILE": "f"},
            "environment variable BROKERHA_CLUSTER_BROKER_FILE: BROKERHA_CLUSTER_BROKER sets the same key: set one of the two",
        ),
        (
            {"BROKERHA_CLUSTER_BROKER_FILE": "/nowhere/secret"},
            (
                "environment variable BROKERHA_CLUSTER_BROKER_FILE: /nowhere/secret cannot be read (No such file or directory): "
                "name a file that this user may read"
            ),
        ),
    ],
)
def test_a_wrong_variable_has_one_clear_text(tmp_path, environ, text):
    assert complaint(tmp_path, GOOD, environ) == text


BROKER = '"amqp://guest:guest@127.0.0.1:5672/orders"'
MISTAKES = {
    "unknown key": (
        'data = "var/orders"',
        "round-timeout = 5",
        "cluster.toml:4: unknown key 'round-timeout' in [cluster]: write round-timeout-ms",
    ),
    "unknown key of a node": (
        'http = "127.0.0.1:7201"',
        'htttp = "x"',
        "cluster.toml:8: unknown key 'htttp' in [[master]]: write http",
    ),
    "key that resembles nothing": (
        'http = "127.0.0.1:7201"',
        "zzz = 1",
        "cluster.toml:8: unknown key 'zzz' in [[master]]: write one of id, http, broker, probe",
    ),
    "unknown section": ("[[worker]]", "[[workers]]", "cluster.toml:15: unknown section 'workers': write [[worker]]"),
    "section that resembles nothing": (
        "[[worker]]",
        "[[x]]",
        "cluster.toml:15: unknown section 'x': write one of [cluster], [[master]], [[backup]], [[worker]]",
    ),
    "unknown word that resembles nothing": (
        'data = "var/orders"',
        'acknowledge = "7"',
        'cluster.toml:4: acknowledge = "7" is not known: write one of all, present, majority',
    ),
    "key outside of a section": (
        "[cluster]\n",
        "",
        "cluster.toml:1: key 'name' stands outside of a section: write it below [cluster]",
    ),
    "single brackets": (
        '[[master]]\nid = "m1"\nhttp = "127.0.0.1:7201"\n\n[[master]]\nid = "m2"\n',
        '[master]\nid = "m2"\n',
        "cluster.toml:6: [master] is a list of nodes: write [[master]], in double brackets",
    ),
    "duplicate id": (
        'id = "w2"',
        'id = "m1"',
        'cluster.toml:21: node id "m1" stands at cluster.toml:7 already: write an id that no other node of the cluster has',
    ),
    "bad id": (
        'id = "w2"',
        'id = "Worker 2"',
        'cluster.toml:21: "Worker 2" is no node id: write id = "worker-2" (1 to 32 of a-z, 0-9 and -)',
    ),
    "bad name": (
        'name = "orders"',
        'name = "Größe"',
        'cluster.toml:2: "Größe" is no cluster name: write name = "gr-e" (1 to 32 of a-z, 0-9 and -)',
    ),
    "reserved id": (
        'id = "w2"',
        'id = "any"',
        'cluster.toml:21: node id "any" has another meaning in the broker: write another one, such as "any-1"',
    ),
    "missing name": ('name = "orders"\n', "", 'cluster.toml:1: name is missing in [cluster]: write name = "orders"'),
    "missing id": ('id = "w2"\n', "", 'cluster.toml:20: id is missing in [worker]: write id = "m1"'),
    "bad URL": (
        BROKER,
        '"http://guest:geheim@127.0.0.1"',
        "cluster.toml:3: broker URL 'http://…@127.0.0.1': write amqp://user:password@host:5672/vhost, or embedded://",
    ),
    "bad port in the URL": (
        BROKER,
        '"amqp://h:99999/"',
        (
            "cluster.toml:3: broker URL 'amqp://h:99999/': the port is no number below 65536: "
            "write amqp://user:password@host:5672/vhost, or embedded://"
        ),
    ),
    "unknown master": (
        'master = "m2"',
        'master = "m3"',
        'cluster.toml:22: worker "w2" belongs to "m3", which is no master of this file: write master = "m2"',
    ),
    "round time-out above the lag": (
        'data = "var/orders"',
        "round-timeout-ms = 10000",
        (
            "cluster.toml:4: round-timeout-ms = 10000 is not below max-peer-lag-s = 10: "
            "write round-timeout-ms below 10000, or a longer max-peer-lag-s"
        ),
    ),
    "lag below the default of the round time-out": (
        'data = "var/orders"',
        "max-peer-lag-s = 0.5",
        (
            "cluster.toml:4: round-timeout-ms = 500 is not below max-peer-lag-s = 0.5: "
            "write round-timeout-ms below 500, or a longer max-peer-lag-s"
        ),
    ),
    "lag below two idle rounds and a round time-out": (
        'data = "var/orders"',
        "max-peer-lag-s = 2.4",
        (
            "cluster.toml:4: max-peer-lag-s = 2.4 is less than two idle rounds of 1000 ms and a round time-out of 500 ms: "
            "write max-peer-lag-s = 2.5 or more"
        ),
    ),
    "idle rounds too long for the default of the lag": (
        'data = "var/orders"',
        "idle-round-ms = 5000",
        (
            "cluster.toml:4: max-peer-lag-s = 10 is less than two idle rounds of 5000 ms and a round time-out of 500 ms: "
            "write max-peer-lag-s = 10.5 or more"
        ),
    ),
    "dead before the second heartbeat": (
        'data = "var/orders"',
        "heartbeat-ms = 3000",
        "cluster.toml:4: dead-after-ms = 5000 is less than two heartbeats of 3000 ms: write dead-after-ms = 15000",
    ),
    "same port": (
        'http = "127.0.0.1:7301"',
        'http = "0.0.0.0:7202"',
        'cluster.toml:18: "w1" and "m2" (cluster.toml:12) listen on the same address 0.0.0.0:7202: write another port',
    ),
    "address with a scheme": (
        'http = "127.0.0.1:7201"',
        'http = "http://127.0.0.1:7201/"',
        'cluster.toml:8: http = "http://127.0.0.1:7201/" is no address: write http = "127.0.0.1:7201"',
    ),
    "embedded cluster with a broker of a master": (
        BROKER,
        '"embedded://"',
        'cluster.toml:13: master "m2" has a broker of its own, but the cluster is embedded:// in one process: remove this line',
    ),
    "embedded master": (
        '"amqp://guest:guest@127.0.0.2:5672/orders"',
        '"embedded://"',
        (
            'cluster.toml:13: master "m2" cannot be embedded:// while the cluster is not: '
            "write amqp://… or amqps://…, or remove this line"
        ),
    ),
    "number in quotes": (
        'data = "var/orders"',
        'idle-round-ms = "500"',
        'cluster.toml:4: idle-round-ms is "500", and must be a whole number of milliseconds: write idle-round-ms = 500',
    ),
    "fraction": (
        'data = "var/orders"',
        "idle-round-ms = 1.5",
        "cluster.toml:4: idle-round-ms is 1.5, and must be a whole number of milliseconds: write idle-round-ms = 1000",
    ),
    "truth value": (
        'data = "var/orders"',
        "sync-n = true",
        "cluster.toml:4: sync-n is true, and must be a whole number of backups: write sync-n = -1",
    ),
    "number instead of a text": (
        'data = "var/orders"',
        "data = 7",
        'cluster.toml:4: data is 7, and must be a text: write data = "7"',
    ),
    "empty text": ('name = "orders"', 'name = ""', 'cluster.toml:2: name is empty: write name = "orders"'),
    "out of bounds": (
        'data = "var/orders"',
        "post-window = 0",
        "cluster.toml:4: post-window = 0 is out of bounds: write a whole number of transactions, 1 to 100000",
    ),
    "no number": (
        'data = "var/orders"',
        "max-peer-lag-s = nan",
        "cluster.toml:4: max-peer-lag-s = nan is out of bounds: write a number of seconds, 0.1 to 3600",
    ),
    "unknown word": (
        'data = "var/orders"',
        'split-recovery = "quorom"',
        'cluster.toml:4: split-recovery = "quorom" is not known: write split-recovery = "quorum"',
    ),
    "sync-n without backups": (
        'data = "var/orders"',
        "sync-n = 1",
        'cluster.toml:4: sync-n = 1 waits for more backups than master "m1" has (0): write sync-n = 0, or more [[backup]] sections',
    ),
    "a time-out above its maximum": (
        'data = "var/orders"',
        "tx-timeout-s = 60\ntx-timeout-max-s = 30",
        "cluster.toml:4: tx-timeout-s = 60 is above tx-timeout-max-s = 30: write tx-timeout-max-s = 60",
    ),
    "a loss that nobody meant": (
        'data = "var/orders"',
        'acknowledge = "present"\nsplit-recovery = "simple"',
        (
            'cluster.toml:4: acknowledge = "present" can lose transactions with split-recovery = "simple", where every side of a split goes on: '
            'write acknowledge = "all", or split-recovery = "quorum"'
        ),
    ),
    "the same with a majority, in whatever case": (
        'data = "var/orders"',
        'split-recovery = "None"\nacknowledge = "Majority"',
        (
            'cluster.toml:5: acknowledge = "majority" can lose transactions with split-recovery = "none", where every side of a split goes on: '
            'write acknowledge = "all", or split-recovery = "quorum"'
        ),
    ),
    "no value": (
        'name = "orders"',
        "name =",
        'cluster.toml:2: not TOML (Invalid value): write key = value, with texts in "quotes"',
    ),
    "key twice": (
        'data = "var/orders"',
        'name = "again"',
        'cluster.toml:4: not TOML (Cannot overwrite a value): write key = value, with texts in "quotes"',
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_one_text_with_place_and_remedy(tmp_path, name):
    right, wrong, text = MISTAKES[name]
    assert right in GOOD
    assert complaint(tmp_path, GOOD.replace(right, wrong, 1)) == text


@pytest.mark.parametrize(
    ("probe", "text"),
    [
        ("w11", 'cluster.toml:9: probe = "w11" is no worker of master "m1" in this file: write probe = "w1", or remove this line'),
        ("w2", 'cluster.toml:9: probe = "w2" is no worker of master "m1" in this file: write probe = "w1", or remove this line'),
        (
            "nope",
            'cluster.toml:9: probe = "nope" is no worker of master "m1" in this file: write probe = "w1", or remove this line',
        ),
    ],
)
def test_a_probe_is_a_worker_of_its_master(tmp_path, probe, text):
    head = 'http = "127.0.0.1:7201"\n'
    assert complaint(tmp_path, GOOD.replace(head, f'{head}probe = "{probe}"\n', 1)) == text
    assert load(tmp_path, GOOD.replace(head, f'{head}probe = "w1"\n', 1)).masters[0].probe == "w1"


def test_a_probe_of_a_master_without_workers_is_refused(tmp_path):
    text = GOOD.partition("[[worker]]")[0].replace('http = "127.0.0.1:7201"', 'probe = "w1"', 1)
    assert complaint(tmp_path, text) == (
        'cluster.toml:8: probe = "w1" is no worker of master "m1" in this file: '
        'remove this line, or write its [[worker]] with id = "w1" and master = "m1"'
    )


def test_a_file_without_a_master_is_refused(tmp_path):
    text = GOOD.partition("[[master]]")[0]
    assert complaint(tmp_path, text) == 'cluster.toml:1: the cluster has no master: write [[master]] and id = "m1"'


def test_a_file_without_a_cluster_is_refused(tmp_path):
    assert complaint(tmp_path, '[[master]]\nid = "m1"\n').startswith("cluster.toml:1: the section [cluster] is missing: write")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        load_config(tmp_path / "none.toml", {})
    assert str(caught.value) == (
        f"{tmp_path}/none.toml: the cluster file cannot be read (No such file or directory): write its path after -c"
    )


def test_a_file_that_is_not_utf8_is_refused_with_the_line(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_bytes(b'[cluster]\nname = "\xff"\n')
    with pytest.raises(ConfigurationError, match=re.escape("cluster.toml:2: byte 0xff is not UTF-8: save the file as UTF-8")):
        load_config(path, {})


def test_inline_tables_are_read_and_errors_name_a_line(tmp_path):
    start = GOOD.partition("\n[[master]]")[0]
    config = load(tmp_path, 'master = [{id = "m1"}]\n' + start)
    assert config.roles == {"m1": "master"}
    assert complaint(tmp_path, 'master = [{id = "M1"}]\n' + start).startswith('cluster.toml:1: "M1" is no node id: write')
