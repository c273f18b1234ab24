"""How a command declares its options and its answer, and the behaviour that all commands share.

    app = Group("Tables: list.")

    @app.command("list")
    def list_tables(cluster: Cluster) -> Answer:
        names = cluster.client.tables()
        return Answer({"tables": names}, [{"table": name} for name in names], {"table": "TABLE"})

| declaration | meaning |
|---|---|
| a parameter of the type `Cluster` | ``--config``, ``--url``, ``--timeout-s``; closed when the command ends. The same for other `Options` |
| `Answer` as the result | ``--output``, and the output: data on standard output, remarks on standard error, exit code |

A command that writes during its work returns its exit code (None is 0), and takes a `FormatOption` when it needs one.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from brokerha.cli.common import exits, output
from brokerha.cli.common.output import Format
from brokerha.model.errors import InvalidRequest
from brokerha.model.outside.levels import LATEST, LATEST_LSN, parse_min_lsn
from brokerha.model.requests import APART, APPLIED_LEVEL, LEVELS

# ---- Shared options of commands, with the same meaning everywhere.

_ACK = re.compile(rf"({'|'.join(LEVELS)}|{APPLIED_LEVEL}=[1-9][0-9]{{0,2}})\Z")


def check_ack(text: str) -> str:
    """Check the level of ``--ack``. Raises typer.BadParameter for an unknown one."""
    if not _ACK.match(text):
        raise typer.BadParameter(f"{text!r}: write {', '.join(LEVELS)}, or applied=N with the number of workers")
    return text


def check_apart(text: str) -> str:
    """Check the word of ``--apart``. Raises typer.BadParameter for an unknown one."""
    if text not in APART:
        raise typer.BadParameter(f"{text!r}: write {' or '.join(APART)}")
    return text


def least_lsn(text: object) -> int | str:
    """Parse the value of ``--min-lsn``: a number, or ``latest``. Raises typer.BadParameter."""
    try:
        return LATEST if parse_min_lsn(str(text)) == LATEST_LSN else int(str(text))
    except InvalidRequest as error:
        raise typer.BadParameter(str(error)) from None


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Cluster file; without it and --url: cluster.toml, if it is here."),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="BROKERHA_URL", metavar="URL", help="Any node, such as http://127.0.0.1:7201."),
]
ConfigFileOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Cluster file; without it: cluster.toml, if it is here."),
]
ClusterFileOption = Annotated[
    Path, typer.Option("--config", "-c", metavar="FILE", help="Cluster file; see docs/reference/configuration.md.")
]
FormatOption = Annotated[Format, typer.Option("--output", "-o", metavar="|".join(Format), help="How to write the answer.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout-s", metavar="SECONDS", min=0.001, max=86400, help="How long to wait for the answer.")
]
RepositoryOption = Annotated[str, typer.Option("--repository", metavar="ID", help="RDF repository.")]
AckOption = Annotated[
    str,
    typer.Option(
        "--ack",
        metavar="LEVEL",
        callback=check_ack,
        help="What to wait for: accepted (durable at one master), synchronised (it has its place in the order), "
        "applied or applied=N (N workers of the site have applied it).",
    ),
]
ApartOption = Annotated[
    str,
    typer.Option(
        "--apart",
        metavar="|".join(APART),
        callback=check_apart,
        help="At a master that cannot agree with the others now: wait (taken in, and carried out once it agrees) or refuse.",
    ),
]
KeyOption = Annotated[
    str,
    typer.Option("--key", metavar="TXID", help="Idempotency key: the same key never takes effect twice. A new one without it."),
]
MinLsnOption = Annotated[
    Any,
    typer.Option(
        "--min-lsn",
        parser=least_lsn,
        metavar="LSN|latest",
        help="Read at this LSN or a later one; latest: at all that is ordered now, as the master that is asked knows it.",
    ),
]

DEFAULT_CONFIG = Path("cluster.toml")
DEFAULT_TIMEOUT_S = 30.0


class Options:
    """A group of options: a command with a parameter of this type has the options of its constructor, after its own.

    It is entered before the command, and left after it.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is nothing to close."""


Function = TypeVar("Function", bound=Callable[..., Any])
_CLAUSE = re.compile(r";|:| \(")
_NEGATIVE = re.compile(r"-[\d.]+(e[+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command, for programs and for people."""

    data: Mapping[str, Any]
    """The whole result, for JSON and YAML."""
    rows: Sequence[Mapping[str, Any]] | None = None
    """Rows of TSV and of the table; None: ``data`` is the only row."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Fields of the table and their headings."""
    shown: Sequence[Mapping[str, Any]] | None = None
    """Rows of the table if people get other ones than programs."""
    text: str | None = None
    """Text for people in place of a table; empty: nothing."""
    remarks: Sequence[str] = ()
    """Lines on standard error, in every format."""
    code: int = exits.DONE
    hints: Sequence[str] = ()
    """Lines on standard error for people; programs have them in ``data``, or do not need them."""

    def write(self, chosen: Format) -> int:
        """Write the answer; return the exit code."""
        rows = [self.data] if self.rows is None else self.rows
        if chosen is not Format.TABLE:
            output.write(self.data, rows, chosen, self.columns)
        elif self.text is None:
            output.write(self.data, rows if self.shown is None else self.shown, chosen, self.columns)
        elif self.text:
            print(self.text)
        for line in (*self.remarks, *(self.hints if chosen is Format.TABLE else ())):
            exits.say(line)
        return self.code


class Group(typer.Typer):
    """Commands below one word, or below the program itself."""

    def __init__(self, about: str, *, default: str = "", **settings: Any) -> None:
        """With ``default``, a first word that is no command becomes an argument of the default command."""
        super().__init__(
            help=about,
            cls=_with_default(default) if default else _Commands,
            # Plain help: the decorated one takes three times as long to start.
            rich_markup_mode=None,
            context_settings={"help_option_names": ["-h", "--help"]},
            **settings,
        )

    def command(
        self, name: str | None = None, *, defaults: Mapping[str, Any] | None = None, **settings: Any
    ) -> Callable[[Function], Function]:
        """Declare a command; ``defaults`` replace the defaults of shared options."""
        register = super().command(name, cls=_Command, **settings)

        def declare(function: Function) -> Function:
            register(_program_of(function, defaults or {}))
            return function

        return declare


class LazyCommands(Mapping[str, Any]):
    """Commands by name, each imported when it is asked for.

    ``places`` has the place of each command, ``module:member``; the member is a function or a `Group`. A name of two words is a
    command of the group that the first word names.
    """

    def __init__(self, places: Mapping[str, str], defaults: Mapping[str, Mapping[str, Any]], group: str = "") -> None:
        """``defaults`` replace the defaults of shared options, by the names of commands."""
        self._places = places
        self._defaults = defaults
        self._paths = {path.removeprefix(group): path for path in places if path.startswith(group)}

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._paths if " " not in name)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> Any:
        path = self._paths[name]
        module, _, member = self._places[path].partition(":")
        found = getattr(import_module(module), member)
        if isinstance(found, Group):
            made: Any = typer.main.get_group(found)
            if inner := LazyCommands(self._places, self._defaults, f"{path} "):
                made.commands = inner
            return made
        alone = Group("", add_completion=False)
        alone.command(name, defaults=self._defaults.get(path))(found)
        return typer.main.get_command(alone)


class _Short:
    """In a list of commands, cuts a first sentence that is too long at the end of a clause."""

    def get_short_help_str(self, limit: int = 45) -> str:
        told: str = super().get_short_help_str(limit)  # type: ignore[misc]
        if not told.endswith("..."):
            return told
        whole: str = super().get_short_help_str(sys.maxsize)  # type: ignore[misc]
        end = _CLAUSE.search(whole)
        return f"{whole[: end.start()]}." if end and end.start() < limit else told


class _Command(_Short, TyperCommand):
    """Accepts a negative number as a value: no option begins with a digit."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = any(_NEGATIVE.fullmatch(each) for each in args)
        return super().parse_args(ctx, args)


class _Commands(_Short, TyperGroup):
    pass


def _with_default(word: str) -> type[TyperGroup]:
    class Defaulting(_Commands):
        """Inserts the default command when it is left out."""

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            is_left_out = bool(args) and args[0] not in self.commands and args[0] not in ctx.help_option_names
            return super().parse_args(ctx, [word, *args] if is_left_out else args)

    return Defaulting


def _program_of(function: Callable[..., Any], defaults: Mapping[str, Any]) -> Callable[..., int]:
    """Wrap the function for typer: options replace `Options` and `Answer`, and it returns an exit code."""
    declared = inspect.signature(function, eval_str=True)
    groups = {name: each.annotation for name, each in declared.parameters.items() if _is_options(each.annotation)}
    options = {name: list(inspect.signature(group, eval_str=True).parameters.values()) for name, group in groups.items()}
    parameters = [each for name, each in declared.parameters.items() if name not in groups]
    parameters += [each for group in options.values() for each in group]
    has_answer = declared.return_annotation is Answer
    if has_answer:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter("chosen", kind, default=Format.TABLE, annotation=FormatOption))
    parameters = [each.replace(default=defaults.get(each.name, each.default)) for each in parameters]
    for each in parameters:
        _complete(each.annotation)

    @functools.wraps(function)
    def program(**given: Any) -> int:
        chosen = given.pop("chosen") if has_answer else Format.TABLE
        try:
            with ExitStack() as stack:
                for name, group in groups.items():
                    own = {each.name: given.pop(each.name) for each in options[name]}
                    given[name] = stack.enter_context(group(**own))
                answer = function(**given)
            code: int | None = answer.write(chosen) if isinstance(answer, Answer) else answer
        except BrokenPipeError as error:
            raise exits.ReaderGone from error
        return exits.DONE if code is None else code

    program.__signature__ = declared.replace(parameters=parameters)  # type: ignore[attr-defined]
    program.__annotations__ = {each.name: each.annotation for each in parameters}
    return program


def _complete(annotation: Any) -> None:
    """Let shells complete the words in the help: ``nt|nq|ttl``."""
    for said in getattr(annotation, "__metadata__", ()):
        words = [word for word in (getattr(said, "metavar", None) or "").split("|") if word.islower()]
        if len(words) > 1:
            said.autocompletion = _those_of(words)


def _those_of(words: Sequence[str]) -> Callable[[str], list[str]]:
    def beginning(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return beginning


def _is_options(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Options)
