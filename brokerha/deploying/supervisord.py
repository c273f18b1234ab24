"""Two files for supervisord: its own configuration, and the group of programs, which may stand in another supervisord too.

    supervisord.conf        unix socket for the same user only, bounded log, no network door
    brokerha-NAME.conf      one program for each node, together a group

A node waits for a broker that is away and never ends for it. Should a program end all the same again and again, supervisord tries
for years: between two tries it waits one second more each time (`RETRIES` of them are never reached), so nothing becomes FATAL.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from brokerha.deploying.files import File, Plan
from brokerha.deploying.machine import KILL_AFTER_S, LONGEST_STOP_S, OPEN_FILES, ORDER, STEADY_S, Program

CONFIGURATION: Final = Path("supervisord.conf")
LOGS: Final = Path("log")
SOCKET_FOLDER: Final = Path("run")
RETRIES: Final = 1_000_000
LOG_BYTES: Final = "20MB"
LOG_FILES: Final = 5

_HEAD = """\
; Made by `brokerha init supervisord`; change the cluster file, then make it again.
"""
_OWN = """\
; The door is a socket that only this user opens; there is none in the network. Commands: supervisorctl -c {file} status
[unix_http_server]
file = %(here)s/{run}/supervisor.sock
chmod = 0700

[supervisord]
user = {user}
umask = 077
directory = %(here)s
pidfile = %(here)s/{run}/supervisord.pid
logfile = %(here)s/{logs}/supervisord.log
logfile_maxbytes = 10MB
logfile_backups = 3
loglevel = info
minfds = {files}

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface

[supervisorctl]
serverurl = unix://%(here)s/{run}/supervisor.sock

[include]
files = {programs}
"""
_PROGRAM = """\
[program:{name}]
command = {command}
user = {user}
directory = {directory}
umask = 077
environment = {environment}
priority = {priority}
autostart = true
; Ended in any way but by supervisorctl: again, for ever.
autorestart = true
startsecs = {steady_s}
startretries = {retries}
; A node ends in order within {longest_s:.0f} s of SIGTERM; kill -9 is as safe.
stopsignal = TERM
stopwaitsecs = {kill_s}
stopasgroup = false
killasgroup = true
redirect_stderr = true
stdout_logfile = {log}
stdout_logfile_maxbytes = {log_bytes}
stdout_logfile_backups = {log_files}
"""


def plan(cluster: str, programs: Sequence[Program], user: str, folder: Path, directory: Path) -> Plan:
    """Both files, for programs that run as ``user`` in ``directory``; logs and socket go below ``folder``."""
    own = _HEAD + _OWN.format(
        file=CONFIGURATION, run=SOCKET_FOLDER, logs=LOGS, user=user, files=OPEN_FILES, programs=programs_file(cluster)
    )
    parts = [
        _PROGRAM.format(
            name=program.node,
            command=escaped(shlex.join(program.command)),
            user=user,
            directory=escaped(str(directory)),
            environment=environment_text(program.environment),
            priority=ORDER[program.role],
            steady_s=STEADY_S,
            retries=RETRIES,
            longest_s=LONGEST_STOP_S,
            kill_s=KILL_AFTER_S,
            log=f"{escaped(str(folder.absolute() / LOGS / program.node))}.log",
            log_bytes=LOG_BYTES,
            log_files=LOG_FILES,
        )
        for program in programs
    ]
    group = f"[group:{cluster}]\nprograms = {','.join(program.node for program in programs)}\npriority = 500\n"
    files = (File(CONFIGURATION, own), File(Path(programs_file(cluster)), "\n".join([_HEAD, group, *parts])))
    configuration = shlex.quote(str(folder / CONFIGURATION))
    steps = (
        f"supervisord -c {configuration}",
        f"supervisorctl -c {configuration} status",
        f"supervisorctl -c {configuration} stop all",
        f"in a supervisord that runs already: put {programs_file(cluster)} into its folder conf.d, then: supervisorctl update",
    )
    return Plan(files, (LOGS, SOCKET_FOLDER), steps)


def programs_file(cluster: str) -> str:
    """Name of the file with the programs."""
    return f"brokerha-{cluster}.conf"


def escaped(text: str) -> str:
    """Text as supervisord reads it: a percent sign begins an expansion, and `` ;`` a comment.

    >>> escaped("100%")
    '100%%'
    """
    return text.replace("%", "%%").replace(" ;", " \\;")


def environment_text(environment: dict[str, str]) -> str:
    """Variables in supervisord's form.

    >>> environment_text({"A": "x y"})
    'PYTHONUNBUFFERED="1",A="x y"'
    """
    variables = {"PYTHONUNBUFFERED": "1", **environment}
    return ",".join(f'{name}="{escaped(value)}"' for name, value in variables.items())
