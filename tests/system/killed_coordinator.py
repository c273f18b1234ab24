"""Runs the coordinator in a process that is killed at one of its calls: ``python -m tests.system.killed_coordinator``, spoken to in lines.

A line that comes in: {"words": arguments of the coordinator, "lines": its input, "call": which call, "before": whether it is not made any more}, a line
that goes out: {"code": exit code or minus the signal, "call": name of that call, "out", "errors"}. Calls are what it asks of databases and of its log, in
their order; with no number nothing is killed. Each run is a fork of this process, which has loaded everything and has no thread.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producers import coordinator

CALLS = ("tpc_recover", "tpc_begin", "execute", "put", "update", "tpc_prepare", "tpc_commit", "tpc_rollback")


def armed(thing: Any, names: tuple[str, ...], struck: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Any:
    """An object some of whose methods are in the way of a kill."""
    for name in names:
        if hasattr(thing, name):
            setattr(thing, name, struck(name, getattr(thing, name)))
    return thing


def child(asked: dict[str, Any], report: Path) -> int:
    """The coordinator, with a kill in its way."""
    counter = itertools.count(1)

    def struck(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if (number := next(counter)) != asked["call"]:
                return method(*arguments)
            report.write_text(f"{number} {name}")
            if not asked["before"]:
                method(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
            return None

        return call

    connected, opened = coordinator.connected, coordinator.Log
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(coordinator, "connected", lambda url: armed(connected(url), CALLS, struck))
        patched.setattr(coordinator, "Log", lambda path: armed(opened(path), ("add",), struck))
        patched.setattr(sys, "argv", ["coordinator", *asked["words"]])
        patched.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in asked["lines"])))
        return coordinator.main()


def main() -> None:
    """Serve until the input ends."""
    with tempfile.TemporaryDirectory() as folder:
        report, out, errors = (Path(folder) / name for name in ("report", "out", "errors"))
        for line in sys.stdin:
            report.write_text("")
            if (pid := os.fork()) == 0:
                for number, path in ((1, out), (2, errors)):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
                code = 70
                try:
                    code = child(json.loads(line), report)
                except SystemExit as error:
                    code = int(error.code or 0)
                except Exception:  # noqa: BLE001 - whatever it is, the parent tells it.
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            print(
                json.dumps({"code": code, "call": report.read_text(), "out": out.read_text(), "errors": errors.read_text()}),
                flush=True,
            )


if __name__ == "__main__":
    main()
