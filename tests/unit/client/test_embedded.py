"""A whole cluster in a program: from the path of a cluster file, and while nothing of it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from brokerha.embedded import EmbeddedCluster
from brokerha.model import errors

FILE = """\
[cluster]
name = "orders"
broker = "embedded://by-path"

[[master]]
id = "m1"

[[worker]]
id = "w1"
master = "m1"
"""


@pytest.mark.parametrize("form", [str, Path])
def test_it_is_opened_by_the_path_of_its_file(tmp_path: Path, form: type) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)

    with EmbeddedCluster(form(path)) as cluster:
        db = cluster.client()
        db.put("prices", "sku-1", b"9.90")
        assert db.get("prices", "sku-1", min_lsn="latest") == b"9.90"


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"cluster\.toml"):
        EmbeddedCluster(tmp_path / "cluster.toml")


def test_a_write_that_no_master_ever_had_is_not_unknown(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(FILE)

    with pytest.raises(errors.NotReady, match="none of m1 is running"):
        EmbeddedCluster(path).client().put("prices", "sku-1", b"9.90", timeout=0.2)


def test_what_nodes_say_does_not_land_in_the_output_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('[cluster]\nname = "x"\nbroker = "embedded://x"\n[[master]]\nid = "m1"\n')
    program = "import structlog; from brokerha.embedded import EmbeddedCluster; EmbeddedCluster('cluster.toml'); structlog.get_logger().info('role')"
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (ran.stdout, "role" in ran.stderr) == ("", True)
