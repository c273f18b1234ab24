"""The first minute by hand, as the README has it: every command in its order, then the program; only addresses are replaced."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import output_of, shell_of, the_block
from tests.support.free_ports import free_ports
from tests.support.waiting import until

PATIENCE_S = 30.0
SITES = (1, 2, 3)


@pytest.mark.slow
def test_the_first_minute_of_the_readme(tmp_path: Path):
    first = free_ports(len(SITES))

    def placed(text: str) -> str:
        for n in SITES:
            text = text.replace(f"127.0.0.1:{7200 + n}", f"127.0.0.1:{first + n - 1}")
        return text

    (tmp_path / "cluster.toml").write_text(placed(the_block("README.md", "toml", "embedded://")), encoding="utf-8")
    commands = placed(the_block("README.md", "sh", "brokerha put"))
    program = placed(the_block("README.md", "python", "brokerha.connect"))
    environment = shell_of(tmp_path)
    with (tmp_path / "up.log").open("wb") as log:
        up = subprocess.Popen(
            [sys.executable, "-m", "brokerha", "up"], cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
    try:
        log_file = tmp_path / "up.log"
        until(lambda: up.poll() is not None or f":{first}" in log_file.read_text(), log_file.read_text, PATIENCE_S)
        assert up.poll() is None, log_file.read_text()
        said = ""
        for line in commands.splitlines():
            if line.startswith("brokerha "):
                said += output_of([sys.executable, "-m", *shlex.split(line)], tmp_path, environment)
        said += output_of([sys.executable, "-c", program], tmp_path, environment)
    finally:
        up.send_signal(signal.SIGINT)
        code = up.wait(PATIENCE_S)
    assert code == 0
    assert "9.90" in said
    assert "urn:sku-1" in said
    assert "3 copies are equal" in said
    assert "b'9.90'" in said
    assert (tmp_path / "var" / "orders" / "m1").is_dir()
