"""The audit of a running cluster over RabbitMQ: what was changed behind everybody's back is named exactly.

Given three workers, a mixed load and an archive that ends before it; when all is well, then the audit says so, and that each acknowledged id is
in the log once. When a quad of one worker and a value of another are changed on their disks, a row of the archive is changed, or one
of its files is gone, then the audit names node, store and key, or file and LSN, and ends with exit code 2.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyoxigraph
import pytest

import brokerha
from brokerha.pipeline.table import LogTable
from brokerha.stores.comparing.fingerprint import key_digest
from tests.support.commands_on_spark import answer, one_session
from tests.system.processes import ProcessCluster
from tests.system.test_workers_heal import opened

SETTINGS = "scrub-every-s = 0\n"
GONE, FOREIGN = "<urn:s5> <urn:p> <urn:o>", "<urn:nobody> <urn:wrote> <urn:this>"


def run(cluster: ProcessCluster, *words: str) -> tuple[int, Any]:
    """Exit code and answer of a command of the pipeline."""
    return answer("pipeline", *words, "-c", str(cluster.path))


def write(cluster: ProcessCluster, first: int, last: int) -> list[str]:
    """Keys, quads, messages and a repository that comes and goes; the ids that were acknowledged."""
    done = []
    with brokerha.connect(cluster.url("m1"), timeout=30) as client:
        for number in range(first, last):
            done.append(client.put("prices", f"sku-{number}", f"{number}.50".encode()))
            done.append(client.write([("add", "main", f"<urn:s{number}> <urn:p> <urn:o> .\n")]))
        done.append(client.create_repository("other"))
        done.append(client.write([("add", "other", "<urn:a> <urn:b> <urn:c> .\n")]))
        done.append(client.remove_repository("other"))
        done.append(client.delete("prices", f"sku-{first}"))
        done += [client.publish("orders", f"order {number}".encode()) for number in range(5)]
    return [each.txid for each in done]


def change_quad(folder: Path) -> None:
    """Put another quad in the place of one, straight into the engine."""
    (directory,) = folder.glob("copy.*/repositories/main.*")
    store = opened(directory)
    for line, do in ((GONE, store.remove), (FOREIGN, store.add)):
        (quad,) = pyoxigraph.parse(f"{line} .", format=pyoxigraph.RdfFormat.N_QUADS)
        do(quad)
    store.flush()


def change_key(folder: Path) -> None:
    """Put another value in the place of one, with the digest that belongs to it, so that no read notices."""
    (directory,) = folder.glob("copy.*/data")
    environment = lmdb.open(str(directory), max_dbs=16, map_size=1 << 30, subdir=directory.is_dir())
    row_key, value = b"prices\0sku-7", b"99.99"
    with environment.begin(write=True) as transaction:
        keys = environment.open_db(b"kv", txn=transaction, create=False)
        assert (transaction.get(row_key, db=keys) or b"")[16:] == b"7.50"
        transaction.put(row_key, key_digest(row_key, value) + value, db=keys)
    environment.close()


def change_row(archive: LogTable) -> tuple[str, int]:
    """Change a value in an archive; its path and the LSN."""
    for file in archive.state().files:
        table = archive.read(file)
        rows = table.to_pylist()
        for row in rows:
            if row["key"] == b"sku-9":
                row["value"] = b"0.01"
                pq.write_table(pa.Table.from_pylist(rows, table.schema), archive.path(file))
                return file.path, row["lsn"]
    raise AssertionError("nobody wrote it")


def shown(answer: dict[str, Any]) -> dict[str, Any]:
    """What is said of each worker."""
    names = ("store", "name", "key", "kind", "archived", "found")
    return {
        copy["node"]: (copy["result"], [tuple(each[name] for name in names) for each in copy["differences"]])
        for copy in answer["copies"]
    }


@pytest.mark.slow
def test_the_audit_names_what_was_changed_behind_everybodys_back(
    vhost_url: str, tmp_path: Path, covered: Callable[[str], None]
) -> None:
    directory, ids = tmp_path / "archive", tmp_path / "ids"
    with ProcessCluster(tmp_path, vhost_url, masters=1, workers_each=3, settings=SETTINGS) as cluster, one_session():
        first, second, third = cluster.workers
        acknowledged = write(cluster, 0, 10)
        code, answer = run(cluster, "archive", "--into", str(directory), "--batch-entries", "12", "--no-pin")
        assert (code, answer["last_lsn"]) == (0, len(acknowledged))
        acknowledged += write(cluster, 10, 20)
        ids.write_text("\n".join(acknowledged), encoding="utf-8")

        code, answer = run(cluster, "audit", "--archive", str(directory), "--txids", str(ids))
        assert code == 0, answer
        assert shown(answer) == {node: ("equal", []) for node in cluster.workers}
        assert (answer["txids"]["given"], answer["txids"]["found"]) == (len(acknowledged), len(acknowledged))
        ids.write_text("\n".join([*acknowledged, "never-written"]), encoding="utf-8")
        code, answer = run(cluster, "audit", "--archive", str(directory), "--txids", str(ids))
        assert (code, answer["txids"]["missing"]) == (2, ["never-written"])

        for node, change in ((first, change_quad), (second, change_key)):
            with cluster.down(node) as folder:
                change(folder)
        cluster.await_ready([first, second])
        expected = {
            first: ("differs", [("graph", "main", FOREIGN, "surplus", "", ""), ("graph", "main", GONE, "missing", "", "")]),
            second: ("differs", [("table", "prices", "sku-7", "changed", "7.50", "99.99")]),
            third: ("equal", []),
        }
        code, answer = run(cluster, "audit", "--archive", str(directory))
        assert (code, shown(answer)) == (2, expected)
        covered(f"one quad and one key that were changed on disk named by the audit in {answer['seconds']} s")

        changed = LogTable(str(tmp_path / "changed"))
        shutil.copytree(directory, changed.where)
        path, lsn = change_row(changed)
        gone = changed.state().files[-1]
        assert gone.path != path
        Path(changed.path(gone)).unlink()
        code, answer = run(cluster, "audit", "--archive", changed.where)
        found = {(each["file"], each["lsn"]): each["what"] for each in answer["problems"]}
        assert (code, set(found)) == (2, {(path, 0), (path, lsn), (gone.path, 0)})
        assert "value is '0.01', and '9.50' in the log of the cluster" in found[path, lsn]
