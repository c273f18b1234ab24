"""A PostgreSQL of its own for a test: Debian's package, data in a temporary folder, a Unix socket there and no port.

For example:

    with postgresql() as url: psycopg.connect(url)
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

USER = "postgres"
SETTINGS = "fsync = on\nsynchronous_commit = on\nmax_prepared_transactions = 100\nlisten_addresses = ''\n"


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """Start one, yield its URL, and stop it. Fails where the package is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.fail("this test needs PostgreSQL: apt-get install postgresql")
    programs = found[-1].parent
    # Not the folder of the test: PostgreSQL refuses to be root, others may not enter that one, and the path of a socket is short.
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        data = folder / "data"
        _run(programs / "initdb", "-D", data, "-A", "trust", "-U", USER)
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(f"{SETTINGS}unix_socket_directories = '{folder}'\n")
        _run(programs / "pg_ctl", "-D", data, "-l", data / "log", "-w", "start")
        try:
            yield f"postgresql:///postgres?host={folder}&user={USER}"
        finally:
            _run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")


def _run(*command: str | Path) -> None:
    options: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []} if os.getuid() == 0 else {}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd="/", **options)
    assert done.returncode == 0, done.stdout + done.stderr
