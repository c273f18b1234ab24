"""Two files for supervisord: its own configuration, and the group of programs, which may stand in another supervisord too.

    supervisord.conf        unix socket for the same user only, bounded log, no network door
    brokerha-NAME.conf      one program for each node, together a group

A node waits for a broker that is away and never ends for it. Should a program end all the same again and again, supervisord tries
for years: between two tries it waits one second more each time (the million of templates/program.conf is never reached), so nothing
becomes FATAL.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from brokerha.deploying.files import File, Plan, filled
from brokerha.deploying.machine import KILL_AFTER_S, LONGEST_STOP_S, OPEN_FILES, ORDER, Program

CONFIGURATION: Final = Path("supervisord.conf")
LOGS: Final = Path("log")
SOCKET_FOLDER: Final = Path("run")
_GROUP: Final = """\
; Made by `brokerha init supervisord`; change the cluster file, then make it again.

[group:{cluster}]
programs = {names}
priority = 500
"""


def plan(cluster: str, programs: Sequence[Program], user: str, folder: Path, directory: Path) -> Plan:
    """Both files, for programs that run as ``user`` in ``directory``; logs and socket go below ``folder``."""
    programs_file = f"brokerha-{cluster}.conf"
    parts = [
        filled(
            "program.conf",
            name=program.node,
            command=escaped(shlex.join(program.command)),
            user=user,
            directory=escaped(str(directory)),
            environment=environment_text(program.environment),
            priority=ORDER[program.role],
            longest_s=round(LONGEST_STOP_S),
            kill_s=KILL_AFTER_S,
            log=f"{escaped(str(folder.absolute() / LOGS / program.node))}.log",
        )
        for program in programs
    ]
    group = _GROUP.format(cluster=cluster, names=",".join(program.node for program in programs))
    own = filled("supervisord.conf", user=user, files=OPEN_FILES, programs=programs_file)
    configuration = shlex.quote(str(folder / CONFIGURATION))
    steps = (
        f"supervisord -c {configuration}",
        f"supervisorctl -c {configuration} status",
        f"supervisorctl -c {configuration} stop all",
        f"in a supervisord that runs already: put {programs_file} into its folder conf.d, then: supervisorctl update",
    )
    files = (File(CONFIGURATION, own), File(Path(programs_file), "\n".join([group, *parts])))
    return Plan(files, (LOGS, SOCKET_FOLDER), steps)


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
