"""Finds and ends the operating system processes that belong to one folder of ours, and no others.

A private broker is a small family: a shell, the Erlang machine, its port helpers and the port mapper. All inherit
``HOME=<folder>/home``, so the folder names the family whatever the process numbers are. That is what makes it safe to
clean up after a test run that was itself killed: a stranger never carries our HOME.

Linux only (/proc). Never signals a process by its name.

    family = members(folder)          # [4711, 4712]
    kill_members(folder, keep={4711}) # SIGKILL to 4712, returns when it is gone
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

FOLDER_PREFIX = "brokerha-broker-"
OWNER_FILE = "owner"
_GONE_WITHIN_S = 10.0


def home_of(folder: Path) -> Path:
    """The HOME that every process of this folder is started with."""
    return folder / "home"


def members(folder: Path) -> list[int]:
    """Process ids, ascending, of all living processes that were started with this folder's HOME."""
    wanted = b"HOME=" + os.fsencode(home_of(folder))
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # It ended meanwhile, or belongs to another user.
            continue
        if wanted in variables:
            found.append(int(entry.name))
    return sorted(found)


def kill_members(folder: Path, keep: Collection[int] = ()) -> None:
    """SIGKILL to all processes of the folder but ``keep``; returns when they are gone, else raises TimeoutError."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while left := [pid for pid in members(folder) if pid not in keep]:
        for pid in left:
            _kill_if_alive(pid)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {left} of {folder} survive SIGKILL")
        time.sleep(0.02)  # Not our children: there is nothing to wait on.


def write_owner(folder: Path) -> None:
    """Notes who uses the folder, so that somebody later can tell whether it was left behind."""
    (folder / OWNER_FILE).write_text(f"{os.getpid()} {started_at(os.getpid())}\n", encoding="ascii")


def reap_left_behind() -> list[Path]:
    """Ends the brokers, and removes the folders, of owners that no longer live. Returns these folders."""
    reaped = []
    for folder in sorted(Path(tempfile.gettempdir()).glob(FOLDER_PREFIX + "*")):
        try:
            pid, started = (folder / OWNER_FILE).read_text(encoding="ascii").split()
        except (OSError, ValueError):  # Just being made or removed by somebody.
            continue
        if started_at(int(pid)) == started:
            continue
        kill_members(folder)
        shutil.rmtree(folder, ignore_errors=True)
        reaped.append(folder)
    return reaped


def _kill_if_alive(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def started_at(pid: int) -> str:
    """Start of a process in clock ticks since boot, which tells it from a later one of the same number; "" if dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    after_name = stat.rpartition(")")[2].split()
    return after_name[19]
