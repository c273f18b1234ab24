"""docs/tutorial.md as a newcomer follows it: every command in its order, over a RabbitMQ; only addresses and installing are this machine's.

Somebody else may follow it on this machine at the same time: `pkill` ends what this test has started.
"""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.docs.pages import blocks_of, shell_of, the_block
from tests.support.broker_source import BrokerSource
from tests.support.free_ports import free_ports
from tests.support.waiting import until

PAGE = "docs/tutorial.md"
PKILL = """#!/bin/sh
for pattern; do :; done
for pid in $(pgrep -f "$pattern"); do
    if [ "$pid" != $$ ] && grep -qs '%s' "/proc/$pid/environ"; then kill $([ "$1" = -9 ] && echo -9) "$pid"; fi
done
"""
SITES = ("paris", "lyon", "nice")
PATIENCE_S = 90.0
NOT_OURS = ("sudo ", "python3 -m venv", ".venv/bin/pip", ". .venv")
"""The broker and the installation are here already; what runs for long has a shell of its own."""
STEPS = ("put prices sku-1", "pkill -9", "brokerha node nice ", "delete_vhost")


def lines_of(text: str) -> list[str]:
    """What is typed in the second shell."""
    return [line for line in text.splitlines() if not line.startswith(NOT_OURS) and line != "brokerha up"]


def test_no_command_is_left_out() -> None:
    for block in blocks_of(PAGE, "sh"):
        assert not lines_of(block.text) or any(step in block.text for step in STEPS), block.place


@pytest.mark.broker
def test_three_sites_one_of_which_dies_and_heals(broker: BrokerSource, tmp_path: Path) -> None:
    first = free_ports(len(SITES))

    def placed(text: str) -> str:
        for place in range(len(SITES)):
            text = text.replace(f"127.0.0.1:{7201 + place}", f"127.0.0.1:{first + place}")
        return text

    vhost = f"tutorial-{secrets.token_hex(3)}"
    url = broker.create_vhost(vhost)
    written = "amqp://guest:guest@127.0.0.1:5672/orders"
    (tmp_path / "cluster.toml").write_text(placed(the_block(PAGE, "toml", "[cluster]")).replace(written, url), "utf-8")
    programs = tmp_path / "bin"
    environment = shell_of(tmp_path, {"pkill": PKILL % programs})

    def type_in(step: str) -> str:
        """All of a block, in a shell that ends with the first command that fails."""
        # In a file: the pattern of pkill would fit a shell that has it among its arguments.
        (tmp_path / "typed").write_text("\n".join(lines_of(placed(the_block(PAGE, "sh", step)))), "utf-8")
        done = subprocess.run(
            ["/bin/bash", "-e", "typed"],
            cwd=tmp_path, env=environment, start_new_session=True, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "up.log").read_text("utf-8", "replace")[-3000:]
        return done.stdout + done.stderr

    with (tmp_path / "up.log").open("wb") as log:
        up = subprocess.Popen(
            [sys.executable, "-m", "brokerha", "up"], cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
    try:
        until(partial(_says_ready, tmp_path / "up.log", up), (tmp_path / "up.log").read_text, PATIENCE_S)
        said = type_in(STEPS[0])
        assert "applied: LSN 1" in said
        assert "9.90" in said
        assert "urn:sku-1" in said
        assert "6 copies are equal at LSN 2" in said
        said = type_in(STEPS[1])
        assert "applied: LSN 4" in said
        assert "8.50" in said
        assert "of lyon, paris without nice" in said
        assert "unreachable" in said
        said = type_in(STEPS[2])
        assert "LSN 4 is applied on 6 of 6 copies" in said
        assert "8.50" in said
        assert "9 of 9 nodes ok" in said
        assert "6 copies are equal at LSN 4" in said
        assert said.count("applied ") >= 4
        up.send_signal(signal.SIGINT)
        assert up.wait(PATIENCE_S) == 0
        type_in(STEPS[3])
        assert not (tmp_path / "var").exists()
    finally:
        up.kill()
        subprocess.run([programs / "pkill", "-9", "-f", "brokerha node (paris|lyon|nice)"], check=False)
        broker.delete_vhost(vhost)


def _says_ready(file: Path, process: subprocess.Popen[bytes]) -> bool:
    """Whether all nodes are: the line that says which are not has the word, too."""
    said = file.read_text("utf-8", "replace")
    assert process.poll() is None, said
    return any("ready" in line and "not" not in line for line in said.splitlines())
