"""``brokerha completion SHELL``: a script by which a shell completes commands, options, ids of nodes and words of options.

    eval "$(brokerha completion bash)"

The script is made from the commands themselves, so that pressing the tabulator starts no Python: commands and options are a table in it.
One walk over the parser gives rows; each shell has its own way to write them.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from brokerha.cli.common import exits

BASH, ZSH, FISH = "bash", "zsh", "fish"
SHELLS = (BASH, ZSH, FISH)
FILES = "@files"
"""Stands for the names of files, in place of words."""

_BASH = """\
# Completion of {program} for bash. Made by `{program} completion bash`; make it again after an update.
_{program}() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" previous="" at="{program}" each next
    if ((COMP_CWORD > 0)); then previous="${{COMP_WORDS[COMP_CWORD-1]}}"; fi
    # --option=value comes as three words.
    if [[ "$word" == "=" ]]; then word=""; elif [[ "$previous" == "=" ]]; then previous="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
    for ((each = 1; each < COMP_CWORD; each++)); do
        next="$at ${{COMP_WORDS[each]}}"
        if [[ -n "${{_{program}_words[$next]+x}}" ]]; then at="$next"; fi
    done
    local values="${{_{program}_values["$at $previous"]-}}"
    COMPREPLY=()
    if [[ "$values" == "{files}" ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        compopt -o filenames 2>/dev/null
    elif [[ -n "$values" ]]; then
        if [[ "$values" != "-" ]]; then mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word"); fi
    elif [[ "$word" == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "${{_{program}_options[$at]-}}" -- "$word")
    else
        mapfile -t COMPREPLY < <(compgen -W "${{_{program}_words[$at]-}}" -- "$word")
        if ((${{#COMPREPLY[@]}} == 0)); then
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            compopt -o filenames 2>/dev/null
        fi
    fi
}}
declare -gA _{program}_words _{program}_options _{program}_values
{tables}
complete -F _{program} {program}
"""
_ZSH = """\
#compdef {program}
# Completion of {program} for zsh. Made by `{program} completion zsh`; make it again after an update.
typeset -gA _{program}_words _{program}_options _{program}_values
{tables}
_{program}() {{
    local word="${{words[CURRENT]}}" previous="${{words[CURRENT-1]}}" at="{program}" next="" each
    for ((each = 2; each < CURRENT; each++)); do
        next="$at ${{words[each]}}"
        if (( ${{+_{program}_words[$next]}} )); then at="$next"; fi
    done
    local values="${{_{program}_values[$at $previous]}}"
    if [[ "$values" == "{files}" ]]; then
        _files
    elif [[ -n "$values" ]]; then
        [[ "$values" != "-" ]] && compadd -- ${{=values}}
    elif [[ "$word" == -* ]]; then
        compadd -- ${{=_{program}_options[$at]}}
    elif [[ -n "${{_{program}_words[$at]}}" ]]; then
        compadd -- ${{=_{program}_words[$at]}}
    else
        _files
    fi
}}
if (( ${{+functions[compdef]}} )); then compdef _{program} {program}; fi
"""
_FISH_HEAD = """\
# Completion of {program} for fish. Made by `{program} completion fish`; make it again after an update.
function __{program}_at
    set -l words (commandline -opc)
    set -l path
    for word in $words[2..-1]
        if string match -q -- '-*' $word
            continue
        end
        if contains -- (string join ' ' $path $word) $__{program}_paths
            set path $path $word
        end
    end
    test (string join ' ' $path) = (string join ' ' $argv)
end
"""


@dataclass(frozen=True, slots=True)
class Option:
    """One option, with what may follow it."""

    names: tuple[str, ...]
    values: str
    """Words, `FILES`, ``-`` for anything, empty for a flag."""
    help: str


@dataclass(frozen=True, slots=True)
class Row:
    """One command, or a group of them."""

    path: str
    """Without the program, which is the empty path itself: ``backup make``."""
    words: tuple[str, ...]
    """Commands of a group, words of a first argument."""
    options: tuple[Option, ...]
    help: str


def completion(
    context: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="|".join(SHELLS), help="The shell.", show_choices=True)],
) -> int:
    """Print a script by which a shell completes commands and options: eval "$(brokerha completion bash)".

    bash: put that line into ~/.bashrc. zsh: into ~/.zshrc, after compinit. fish: brokerha completion fish >
    ~/.config/fish/completions/brokerha.fish.
    """
    if shell not in SHELLS:
        raise typer.BadParameter(f"{shell!r}: write {', '.join(SHELLS)}")
    sys.stdout.write(script(shell, context.find_root().command))
    return exits.DONE


def script(shell: str, program: Any) -> str:
    """The script for one of `SHELLS`; ``program`` is the click group of all commands."""
    rows = list(rows_of(program, ""))
    if shell == FISH:
        return _fish(program.name, rows)
    form = _BASH if shell == BASH else _ZSH
    return form.format(program=program.name, files=FILES, tables="\n".join(_tables(program.name, rows, shell)))


def rows_of(command: Any, path: str) -> Iterator[Row]:
    """A command, then all below it."""
    groups = getattr(command, "commands", {})
    options = [each for each in command.params if each.param_type_name == "option"]
    found = [Option(tuple(each.opts + each.secondary_opts), _values(each), _line(each.help)) for each in options]
    found.append(Option(("--help", "-h"), "", "Show help."))
    words = tuple(groups) or _choices(command)
    yield Row(path, words, tuple(found), _line(command.help))
    for name, each in groups.items():
        yield from rows_of(each, f"{path} {name}".strip())


def _choices(command: Any) -> tuple[str, ...]:
    """Words of the first argument, where its name lists them."""
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    metavar = str(arguments[0].metavar or "") if arguments else ""
    return tuple(metavar.split("|")) if "|" in metavar else ()


def _values(option: Any) -> str:
    if option.is_flag or option.count:
        return ""
    metavar = str(option.metavar or "")
    kind = option.type_descriptor
    if kind.is_choice:
        return " ".join(str(getattr(each, "value", each)) for each in kind.choices or ())
    if "|" in metavar and metavar.replace("|", "").replace("-", "").islower():
        return " ".join(metavar.split("|"))
    return FILES if metavar in {"FILE", "DIR", "PATH"} or kind.is_path else "-"


def _line(text: str | None) -> str:
    """The first sentence of a help."""
    return " ".join((text or "").split("\n\n")[0].split()).split(". ")[0].rstrip(".")


def _tables(program: str, rows: list[Row], shell: str) -> Iterator[str]:
    """Three arrays: words and options of each path, values of each option of a path. Paths begin with the program: bash has no empty keys."""
    arrays: dict[str, dict[str, str]] = {"words": {}, "options": {}, "values": {}}
    for row in rows:
        path = f"{program} {row.path}".strip()
        arrays["words"][path] = " ".join(row.words)
        arrays["options"][path] = " ".join(name for option in row.options for name in option.names)
        for option in row.options:
            if option.values:
                arrays["values"] |= {f"{path} {name}": option.values for name in option.names}
    for name, array in arrays.items():
        # Zsh takes quotes inside of brackets for a part of the key.
        form = "[{}]={}" if shell == BASH else "{} {}"
        lines = (form.format(shlex.quote(key), shlex.quote(value)) for key, value in array.items())
        yield "\n".join([f"_{program}_{name}=(", *lines, ")"])


def _fish(program: str, rows: list[Row]) -> str:
    paths = " ".join(shlex.quote(row.path) for row in rows if row.path)
    by_path = {row.path: row for row in rows}
    lines = [_FISH_HEAD.format(program=program), f"set -g __{program}_paths {paths}", f"complete -c {program} -f"]
    for row in rows:
        at = f"-n '__{program}_at{' ' + row.path if row.path else ''}'"
        for word in row.words:
            below = by_path.get(f"{row.path} {word}".strip())
            told = f" -d {_fish_quoted(below.help)}" if below and below.help else ""
            lines.append(f"complete -c {program} {at} -a {shlex.quote(word)}{told}")
        for option in row.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            wants = {"": "", FILES: " -r -F", "-": " -x"}.get(option.values, f" -x -a {shlex.quote(option.values)}")
            lines.append(f"complete -c {program} {at} {names}{wants} -d {_fish_quoted(option.help)}")
        if row.path and not row.words:
            lines.append(f"complete -c {program} {at} -F")
    return "\n".join(lines) + "\n"


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
