"""The command ``brokerha``: all subcommands, and the only place where an error becomes a line and an exit code.

Commands are functions that return an exit code (None is 0). Slow imports (client, broker library, tables) are inside the commands
that need them, so that ``brokerha --help`` and tab completion stay fast.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from brokerha.cli.backup import command as backup
from brokerha.cli.backup import replay, restore
from brokerha.cli.bench import command as bench
from brokerha.cli.cluster import agreement, log, peer, promote, quarantine, settings, splits, status, user, worker
from brokerha.cli.common import exits
from brokerha.cli.common.command import Group
from brokerha.cli.data import control, load, queues, repository, snapshot, table, tx
from brokerha.cli.data import read_write as data
from brokerha.cli.demo import command as demo
from brokerha.cli.machine import doctor, init, node, simulate, support_bundle, up
from brokerha.cli.pipeline import archive as pipeline_archive
from brokerha.cli.pipeline import audit as pipeline_audit
from brokerha.cli.pipeline import command as pipeline
from brokerha.cli.pipeline import export as pipeline_export
from brokerha.cli.pipeline import load as pipeline_load
from brokerha.cli.pipeline import rebuild as pipeline_rebuild
from brokerha.cli.pipeline import report as pipeline_report
from brokerha.model import VERSION
from brokerha.model.errors import BrokerhaError

PROGRAM = "brokerha"

app = Group(
    "The same data on many nodes, writable everywhere, over RabbitMQ.",
    name=PROGRAM,
    epilog="Exit codes: 0 done or healthy, 1 degraded, 2 failed or action needed, 3 unreachable, 64 usage, 78 configuration.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

COMMANDS = (
    demo.demo,
    up.up,
    status.status,
    doctor.doctor,
    support_bundle.support_bundle,
    data.update,
    data.query,
    load.load,
    data.get,
    data.put,
    data.delete,
    queues.publish,
    queues.consume,
    agreement.wait,
    agreement.verify,
    promote.promote,
    splits.split_recovery,
    restore.restore,
    replay.replay,
    simulate.simulate,
    bench.bench,
)
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Errors of a write when the output goes to a full disk."""
DEFAULTS: dict[Callable[..., Any], dict[str, Any]] = {
    status.status: {"timeout_s": 5.0},
    pipeline_audit.audit: {"timeout_s": 60.0},
}
"""Options whose default differs for these commands."""
GROUPS = {
    "init": init.app,
    "log": log.app,
    "backup": backup.app,
    "node": node.app,
    "worker": worker.app,
    "peer": peer.app,
    "settings": settings.app,
    "splits": splits.app,
    "quarantine": quarantine.app,
    "user": user.app,
    "repository": repository.app,
    "table": table.app,
    "snapshot": snapshot.app,
    "control": control.app,
    "tx": tx.app,
    "pipeline": pipeline.app,
}
PIPELINE: dict[str, Callable[..., Any]] = {
    "archive": pipeline_archive.archive,
    "archive-info": pipeline_archive.archive_info,
    "audit": pipeline_audit.audit,
    "export": pipeline_export.export,
    "load": pipeline_load.load,
    "rebuild": pipeline_rebuild.rebuild,
    "report": pipeline_report.report,
}
for _command in COMMANDS:
    app.command(defaults=DEFAULTS.get(_command))(_command)
for _name, _group in GROUPS.items():
    app.add_typer(_group, name=_name)
for _name, _command in PIPELINE.items():
    pipeline.app.command(_name, defaults=DEFAULTS.get(_command))(_command)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"{PROGRAM} {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Never raises for errors of the outside world."""
    # With closed outputs, text must not land in the first file or socket that is opened.
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    try:
        code = _made()(args=arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        return _usage(error)
    except BrokerhaError as error:
        if _is_of_interrupt(error):
            return exits.INTERRUPTED
        exits.say(exits.error_line(error))
        return exits.exit_code_of(error)
    except (typer.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except (exits.ReaderGone, BrokenPipeError):
        _drop_output()
        return exits.PIPE_CLOSED
    except Exception as error:  # noqa: BLE001  (a fault of brokerha: shown in full, with an exit code that no other thing has by chance)
        if _is_of_interrupt(error):
            return exits.INTERRUPTED
        if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
            _drop_output()
            exits.say(f"the output cannot be written: {error.strerror}")
            return exits.FAILED
        traceback.print_exc()
        exits.say("this is a fault of brokerha; please report it with the lines above")
        return exits.FAILED
    return code if isinstance(code, int) else exits.DONE


def _is_of_interrupt(error: BaseException | None) -> bool:
    """Tell whether Ctrl-C came first: an interrupted job, for example on Spark, can fail during its cleanup."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _drop_output() -> None:
    """Discard the output, so that the rest of the buffer does not raise again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@functools.cache
def _made() -> Any:
    """Return the command with its subcommands; cached, because building it takes time."""
    return typer.main.get_command(app)


def _usage(error: typer.TyperException) -> int:
    """Print one line about a wrong command line, or the help when the command line is empty."""
    text = error.format_message().strip()
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else PROGRAM
    if text.startswith("Usage:"):
        print(text, file=sys.stderr)
    else:
        exits.say(f"{text.rstrip('.')}; see {command} --help")
    return exits.USAGE


if __name__ == "__main__":
    sys.exit(main())
