"""The reference page of all commands, from their help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brokerha.cli.main import PROGRAM, program

_COMMANDS_START = """\
# Commands

<!-- Made by `python -m tests.reference`; change the code, not this page. -->

Commands that talk to a cluster take `-c cluster.toml` or `--url http://host:port` (any node). Without either they look at the
environment variable `BROKERHA_URL`, then for a file `cluster.toml` in the present folder.

What programs read goes to standard output (`-o json`, `yaml` or `tsv`); everything else goes to standard error. Fields of the
JSON are never taken away within a major version. Progress is shown on a terminal only; `NO_COLOR` switches colours off.

| exit code | means |
|---|---|
| 0 | done; healthy |
| 1 | degraded: it passes by itself once its cause is gone |
| 2 | failed, or a person has to act |
| 3 | no node can be reached |
| 64 | the command line is wrong |
| 77 | the door does not know you, or you lack the right |
| 78 | the cluster file is wrong |

A name that the cluster does not know is 2. Only to take away what is not there is done already, 0: `log unpin`, `peer remove`, `worker remove`.

"""


def page() -> str:
    """Return the whole page as Markdown."""
    return _COMMANDS_START + "\n".join(_parts(program(), PROGRAM)).rstrip() + "\n"


def _parts(group: Any, path: str) -> Iterator[str]:
    """Yield one part for each command, those of a group at the place of the group."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _parts(command, f"{path} {name}")
        else:
            yield _part(command, f"{path} {name}")


def _part(command: Any, path: str) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and each.name != "help"]
    usage = " ".join([path, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)])
    lines = [f"## `{path}`", "", "```", usage, "```", "", _text(command.help), ""]
    rows = [(f"`{_metavar(each)}`", "", _text(each.help)) for each in arguments]
    rows += [(_names(each), _default(each), _text(each.help)) for each in options]
    if rows:
        lines += ["| argument or option | default | meaning |", "|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _text(text: str | None) -> str:
    """Return help text without the line breaks inside its paragraphs."""
    paragraphs = (text or "").strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _metavar(parameter: Any) -> str:
    """Return the name of the value; a bar is escaped, because it would end the cell of a table."""
    return str(parameter.metavar or parameter.name.upper()).replace("|", "\\|")


def _argument(parameter: Any) -> str:
    name = _metavar(parameter).replace("\\|", "|") + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _names(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len))
    if option.is_flag:
        return names
    return f"{names} {_metavar(option)}"


def _default(option: Any) -> str:
    default = getattr(option.default, "value", option.default)
    if option.is_flag or default is None or default == "":
        return ""
    return f"`{default}`"
