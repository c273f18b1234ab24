"""A PostgreSQL of its own for a test: Debian's package, data in a folder, a Unix socket there and no port.

    with postgresql(folder) as url: psycopg.connect(url)
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
def postgresql(folder: Path) -> Iterator[str]:
    """Start one, yield its URL, and stop it. Fails where the package is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.fail("this test needs PostgreSQL: apt-get install postgresql")
    programs, data = found[-1].parent, folder / "postgresql"
    data.mkdir()
    if os.getuid() == 0:
        # It refuses to be root.
        _own_path(folder)
        data.chmod(0o777)
        data = data / "data"
    _run(programs / "initdb", "-D", data, "-A", "trust", "-U", USER)
    # The path of a socket may have about 100 characters; the folder of a test has more.
    with contextlib.ExitStack() as stack:
        sockets = Path(stack.enter_context(_short_folder()))
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(f"{SETTINGS}unix_socket_directories = '{sockets}'\n")
        _run(programs / "pg_ctl", "-D", data, "-l", data / "log", "-w", "start")
        try:
            yield f"postgresql:///postgres?host={sockets}&user={USER}"
        finally:
            _run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")


def _own_path(folder: Path) -> None:
    """Let another user pass through the folders of a test of root."""
    for place in (folder, *folder.parents):
        if place.stat().st_uid == os.getuid() and not place.stat().st_mode & 0o001:
            place.chmod(place.stat().st_mode | 0o011)


@contextlib.contextmanager
def _short_folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        Path(name).chmod(0o777)
        yield name


def _run(*command: str | Path) -> None:
    options: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []} if os.getuid() == 0 else {}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd="/", **options)
    assert done.returncode == 0, done.stdout + done.stderr
