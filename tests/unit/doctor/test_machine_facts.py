"""What the doctor reads from files of this machine, by their formats and not by their looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.doctor.machine_facts import secret_facts
from brokerha.nodes.config.cluster import load_config

FILE = """\
[cluster]
name = "orders"
broker = {url}
# With a user of its own: broker = "amqp://orders:PASSWORD@rabbit.example.org/orders"
[[master]]
id = "m1"
"""


@pytest.mark.parametrize(
    ("url", "has_secret"),
    [
        ('"amqp://guest:guest@127.0.0.1/orders"', False),
        ('"amqp://127.0.0.1/orders"', False),
        ('"embedded://orders"', False),
        ("'amqp://guest:guest@127.0.0.1/orders;amqps://orders:pa%22ss@10.0.0.2/orders'", True),
        ('"amqp\\u003a//orders:secret@127.0.0.1/orders"', True),
    ],
)
def test_a_cluster_file_is_secret_by_the_passwords_of_its_brokers(tmp_path: Path, url: str, has_secret: bool) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(FILE.format(url=url))
    # The password of the environment is not in the file
    found = secret_facts(load_config(file, {"BROKERHA_BROKER": "amqp://orders:secret@127.0.0.1/orders"}), {}, None)
    assert [each.path for each in found] == [str(file)] * has_secret
