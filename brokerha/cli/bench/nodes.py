"""Nodes that a bench runs: each a process of its own, whose output goes to a file in the folder of the bench."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

END_S = 20.0
"""How long a node may take to stop in order."""


def free_port() -> int:
    """A port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start_node(node: str, config: Path) -> subprocess.Popen[bytes]:
    """Start a node of a cluster file on what is in its folder; what it says is added to ``<node>.log`` beside the file."""
    command = [sys.executable, "-m", "brokerha", "node", node, "-c", str(config)]
    with (config.parent / f"{node}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)  # noqa: S603


def end_node(process: subprocess.Popen[bytes]) -> None:
    """Stop it in order, and by force when it takes too long. Idempotent."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)
