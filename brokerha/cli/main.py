"""The command ``brokerha``: all subcommands, and the only place where an error becomes a line and an exit code.

Commands are functions that return an exit code (None is 0). Only the module of the command that runs is loaded, and slow imports
(client, broker library, tables) are inside the commands that need them: ``brokerha get`` must not wait for the imports of all.
"""

from __future__ import annotations

import codecs
import errno
import functools
import io
import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from brokerha.cli.common import exits
from brokerha.cli.common.command import Group, LazyCommands
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

COMMANDS: dict[str, str] = {
    "demo": "brokerha.cli.machine.up:demo",
    "up": "brokerha.cli.machine.up:up",
    "status": "brokerha.cli.cluster.status:status",
    "doctor": "brokerha.cli.machine.doctor:doctor",
    "support-bundle": "brokerha.cli.machine.doctor:support_bundle",
    "update": "brokerha.cli.data.read_write:update",
    "query": "brokerha.cli.data.read_write:query",
    "load": "brokerha.cli.data.load:load",
    "get": "brokerha.cli.data.read_write:get",
    "put": "brokerha.cli.data.read_write:put",
    "delete": "brokerha.cli.data.read_write:delete",
    "publish": "brokerha.cli.data.read_write:publish",
    "consume": "brokerha.cli.data.read_write:consume",
    "wait": "brokerha.cli.cluster.agreement:wait",
    "verify": "brokerha.cli.cluster.agreement:verify",
    "promote": "brokerha.cli.cluster.peer:promote",
    "split-recovery": "brokerha.cli.cluster.splits:split_recovery",
    "restore": "brokerha.cli.backup.restore:restore",
    "replay": "brokerha.cli.backup.replay:replay",
    "init": "brokerha.cli.machine.init:app",
    "log": "brokerha.cli.cluster.log:app",
    "backup": "brokerha.cli.backup.command:app",
    "node": "brokerha.cli.machine.node:app",
    "worker": "brokerha.cli.cluster.worker:app",
    "peer": "brokerha.cli.cluster.peer:app",
    "settings": "brokerha.cli.cluster.settings:app",
    "splits": "brokerha.cli.cluster.splits:app",
    "quarantine": "brokerha.cli.cluster.quarantine:app",
    "user": "brokerha.cli.cluster.user:app",
    "repository": "brokerha.cli.data.stores:repository_app",
    "table": "brokerha.cli.data.stores:table_app",
    "queue": "brokerha.cli.data.stores:queue_app",
    "snapshot": "brokerha.cli.data.stores:snapshot_app",
    "control": "brokerha.cli.data.stores:control_app",
    "tx": "brokerha.cli.data.tx:app",
    "pipeline": "brokerha.cli.pipeline.command:app",
    "pipeline archive": "brokerha.cli.pipeline.archive:archive",
    "pipeline archive-info": "brokerha.cli.pipeline.archive:archive_info",
    "pipeline audit": "brokerha.cli.pipeline.audit:audit",
    "pipeline export": "brokerha.cli.pipeline.rebuild:export",
    "pipeline load": "brokerha.cli.pipeline.load:load",
    "pipeline rebuild": "brokerha.cli.pipeline.rebuild:rebuild",
    "pipeline report": "brokerha.cli.pipeline.report:report",
}
"""Where each command is: a module, and its function or group in it. The help lists them in this order."""
DEFAULTS: dict[str, dict[str, Any]] = {"status": {"timeout_s": 5.0}, "pipeline audit": {"timeout_s": 60.0}}
"""Options whose default differs for these commands."""
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Errors of a write when the output goes to a full disk."""
NO_RIGHT = {errno.EACCES, errno.EPERM, errno.EROFS}
"""Errors of a file that this user may not use."""
_AS_JSON = "as JSON"


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


def main(arguments: Sequence[str] | None = None, command: Any = None) -> int:
    """Run ``brokerha``, or another command, and return the exit code. Never raises for errors of the outside world."""
    # With closed outputs, text must not land in the first file or socket that is opened.
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    # The data are the user's, the encoding is the terminal's: what it cannot hold is escaped, and JSON stays JSON.
    codecs.register_error(_AS_JSON, lambda error: (json.dumps(error.object[error.start : error.end])[1:-1], error.end))  # type: ignore[attr-defined]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_AS_JSON)
    try:
        chosen = command or program()
        code = chosen(args=arguments, prog_name=chosen.name, standalone_mode=False)
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
        if isinstance(error, OSError) and error.errno in NO_RIGHT and error.filename is not None:
            exits.say(f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}; run this as the user whom it belongs to")
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
def program() -> Any:
    """Return the command ``brokerha``, which loads its subcommands when they are asked for."""
    made: Any = typer.main.get_command(app)
    made.commands = LazyCommands(COMMANDS, DEFAULTS)
    return made


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
