"""Runs the commands that write JSON against a small cluster in this process, and gives what each wrote.

with small_cluster(folder) as here:
    for name, arguments in COMMANDS: here.run(arguments)
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import structlog

from brokerha.cli.common import logs
from brokerha.cli.main import main
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.nodes.config.cluster import load_config
from brokerha.nodes.config.rules import http_address
from brokerha.ports.front import Front
from tests.support.free_ports import free_ports

_BROKER_FILE: Final = """\
[cluster]
name = "orders"
broker = "amqp://guest:guest@127.0.0.1/orders"
[[master]]
id = "m1"
http = "127.0.0.1:7201"
[[worker]]
id = "w1"
master = "m1"
"""
"""Deployment files are for clusters with a broker; nobody asks it."""

COMMANDS: Final[tuple[tuple[str, str], ...]] = (
    ("written", "put prices sku-1 9.90 --ack applied -o json"),
    ("written", "delete prices sku-2 -o json"),
    ("written", "publish jobs data.nt -o json"),
    ("written", "update 'INSERT DATA { <urn:a> <urn:b> 1 }' --key one -o json"),
    ("written", "control add there --key prices sku-1 present -o json"),
    ("written", "control remove there -o json"),
    ("written", "put stock sku-1 7 -o json"),
    ("written", "snapshot create tuesday stock -o json"),
    ("written", "snapshot drop tuesday -o json"),
    ("load", "load data.nt -o json"),
    ("consume", "consume jobs -o json"),
    ("wait", "wait one -o json"),
    ("status", "status -o json"),
    ("verify", "verify -o json"),
    ("log-show", "log show -o json"),
    ("log-pin", "log pin night --from 1 -o json"),
    ("log-pins", "log pins -o json"),
    ("log-pin", "log unpin night -o json"),
    ("control-list", "control list -o json"),
    ("get", "get prices --prefix sku -o json"),
    ("table-list", "table list -o json"),
    ("snapshot-list", "snapshot list -o json"),
    ("tx-staged", "tx staged -o json"),
    ("repository-list", "repository list -o json"),
    ("written", "repository add more -o json"),
    ("written", "repository add more -o json"),
    ("written", "repository remove more --yes -o json"),
    ("log-verify", "log verify -o json"),
    ("user-list", "user list --file users.toml -o json"),
    ("user-add", "user add more --role read --token --file users.toml -o json"),
    ("support-bundle", "support-bundle --file b.tar.gz -o json"),
    ("user-remove", "user remove spare --file users.toml -o json"),
    ("worker-list", "worker list -o json"),
    ("worker-change", "worker off w2 -o json"),
    ("worker-change", "worker on w2 -o json"),
    ("node-order", "node pause w2 --force -o json"),
    ("node-order", "node continue w2 -o json"),
    ("peer-list", "peer list -o json"),
    ("settings-set", "settings set scrub-items-per-s 20001 -o json"),
    ("settings-get", "settings get scrub-items-per-s -o json"),
    ("settings-list", "settings list -o json"),
    ("splits-list", "splits list -o json"),
    ("split-recovery", "split-recovery -o json"),
    ("tx-list", "tx list -o json"),
    ("tx-show", "tx show one -o json"),
    ("tx-show", "tx show PREPARED -o json"),
    ("backup-make", "backup make night -o json"),
    ("backup-list", "backup list -o json"),
    ("backup-verify", "backup verify night -o json"),
    ("restore", "restore night --into new/w9 --dry-run -o json"),
    ("restore-online", "restore night --online -o json"),
    ("replay", "replay --into new/w8 --dry-run -o json"),
    ("tx-change", "tx rollback PREPARED --yes -o json"),
    ("peer-change", "peer add m2 -o json"),
    ("doctor", "doctor -o json"),
    ("init", "init supervisord -c broker.toml -o json"),
    ("init", "init systemd -c broker.toml -o json --deploy units --check"),
    ("init", "init definitions -c broker.toml -o json"),
)
"""Name of the schema, and the command line."""


class Here:
    """A running cluster, and commands in its folder."""

    def __init__(self, cluster: EmbeddedCluster, named: dict[str, str]) -> None:
        self.cluster = cluster
        self._named = named

    def run(self, arguments: list[str]) -> tuple[int, Any, str]:
        """Exit code, what was written as JSON (a list where it is lines), and standard error."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([self._named.get(each, each) for each in arguments])
        return code, parsed(out.getvalue()), err.getvalue()


def parsed(text: str) -> Any:
    """JSON, or lines of JSON as a list."""
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


@contextlib.contextmanager
def small_cluster(folder: Path) -> Iterator[Here]:
    """Two masters with two workers each, all with a door, in this process; the present folder is theirs meanwhile."""
    port = free_ports(6)
    nodes = [("master", "m1", ""), ("master", "m2", ""), *(("worker", f"w{n}", "m1" if n < 3 else "m2") for n in range(1, 5))]
    parts = ['[cluster]\nname = "orders"\nbroker = "embedded://json"\n']
    for number, (role, node, master) in enumerate(nodes):
        of = f'master = "{master}"\n' if master else ""
        parts.append(f'[[{role}]]\nid = "{node}"\nhttp = "127.0.0.1:{port + number}"\n{of}')
    (folder / "cluster.toml").write_text("".join(parts))
    (folder / "broker.toml").write_text(_BROKER_FILE)
    (folder / "data.nt").write_text("<urn:x> <urn:y> <urn:z> .\n")
    (folder / "users.toml").write_text('[users.app]\nrole = "write"\n[users.spare]\nrole = "read"\n')
    before = Path.cwd()
    os.chdir(folder)
    logs.to_stderr(logging.CRITICAL)
    try:
        config = load_config(Path("cluster.toml"), {})
        with contextlib.ExitStack() as stack, EmbeddedCluster(config) as cluster:
            fronts: list[Front] = [*cluster.masters.values(), *cluster.workers.values()]
            for front in fronts:
                door = HttpServer(create_app(front), *http_address(config.node(front.node_id).http))
                door.start()
                stack.callback(door.stop)
            with cluster.client("m1") as client:
                client.put("prices", b"sku-2", b"1", ack="applied")
                client.snapshot("monday", "prices")
                client.control_add("some", "ask", "main", "ASK {}", "true")
                xid = client.xid(1, "order", "stock")
                client.tpc_begin(xid)
                client.put("prices", b"sku-3", b"3")
                client.tpc_prepare()
                prepared = client.open_transactions()[0]["txid"]
                yield Here(cluster, {"PREPARED": prepared})
    finally:
        structlog.reset_defaults()
        os.chdir(before)
