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

import difflib
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from brokerha.cli.common import exits, logs, output
from brokerha.cli.common.output import Format
from brokerha.model.errors import ConfigurationError, InvalidRequest, TimedOut, Unreachable
from brokerha.model.outside.levels import LATEST, LATEST_LSN, parse_min_lsn
from brokerha.model.requests import APART, APPLIED_LEVEL, LEVELS

if TYPE_CHECKING:
    from tenacity import Retrying

    from brokerha.client import Client
    from brokerha.nodes.config.cluster import ClusterConfig


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
    str | None, typer.Option("--url", envvar="BROKERHA_URL", metavar="URL", help="Any node, such as http://127.0.0.1:7201.")
]
ConfigFileOption = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="Cluster file; without it: cluster.toml, if it is here.")
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
    str, typer.Option("--key", metavar="TXID", help="Idempotency key: the same key never takes effect twice. A new one without it.")
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
_LEFT_OUT = "brokerha: the word of the default command was left out"
_NEGATIVE = re.compile(r"-[\d.]+(e[+-]?\d+)?")


def columns(*fields: str) -> dict[str, str]:
    """Map the fields of a table to their headings: ``field=HEAD``, or a field alone, whose heading is its name in capitals.

    >>> columns("id=WORKER", "stale_s")
    {'id': 'WORKER', 'stale_s': 'STALE S'}
    """
    named = (field.partition("=") for field in fields)
    return {field: head or field.upper().replace("_", " ") for field, _, head in named}


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
        return single(name, found, self._defaults.get(path))


def single(name: str, command: Callable[..., Any], defaults: Mapping[str, Any] | None = None) -> Any:
    """Return the command of one function."""
    alone = Group("", add_completion=False)
    alone.command(name, defaults=defaults)(command)
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
            ctx.meta[_LEFT_OUT] = is_left_out
            return super().parse_args(ctx, [word, *args] if is_left_out else args)

    return Defaulting


def no_misspelled_command(ctx: typer.Context, name: str) -> str:
    """Check the first argument of a default command that makes something: a misspelled word must not make it.

    Any name is right after the word of the command. Raises typer.BadParameter.
    """
    group = ctx.parent
    if group is None or not ctx.meta.get(_LEFT_OUT):
        return name
    commands: Mapping[str, Any] = group.command.commands  # type: ignore[attr-defined]
    if close := difflib.get_close_matches(name.lower()[:64], commands, n=1):
        path = group.command_path
        raise typer.BadParameter(
            f"{name!r}: did you mean {path} {close[0]}? for something of this name write {ctx.command_path} {name}"
        )
    return name


def _program_of(function: Callable[..., Any], defaults: Mapping[str, Any]) -> Callable[..., int]:
    """Wrap the function for typer: options replace `Options` and `Answer`, and it returns an exit code."""
    declared = inspect.signature(function, eval_str=True)
    groups = {
        name: each.annotation
        for name, each in declared.parameters.items()
        if isinstance(each.annotation, type) and issubclass(each.annotation, Options)
    }
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


# ---- The cluster of a command: as a whole, or one of its masters.
#
#     --url, or -c, or BROKERHA_URL, or ./cluster.toml: the first one given counts; --url and -c together are a mistake.
#
#     -c cluster.toml   every master of the file can be asked by its id; a worker's master is the one in the file or, for
#                       a worker that was added at run time, the master that lists it
#     --url URL         only the master at that address
#
# A master without an HTTP address is asked through its broker; so is a cluster whose masters have no HTTP addresses.

URL_VARIABLE = "BROKERHA_URL"
SURVEY_S = 5.0
"""Time in which one of several masters must answer; the others are asked after it."""
Row = dict[str, Any]


def cluster_file(config: Path | None) -> ClusterConfig:
    """Load the cluster file of ``-c``, or that of the current folder. Raises ConfigurationError, typer.BadParameter."""
    from brokerha.nodes.config.cluster import load_config

    if config is None and not DEFAULT_CONFIG.exists():
        raise typer.BadParameter(f"which cluster? write -c FILE; there is no {DEFAULT_CONFIG} in this folder")
    return load_config(config or DEFAULT_CONFIG, os.environ)


def master_urls(cluster: ClusterConfig) -> dict[str, str]:
    """Return the addresses of each master that has any, followed by those of its backups: one of them can be primary."""
    known = cluster.http_urls()
    urls: dict[str, str] = {}
    for master in cluster.masters_to_ask:
        own = [known[process] for process in cluster.processes_of(master.id) if process in known]
        if own:
            urls[master.id] = ",".join(own)
    return urls


def until_reached(timeout_s: float, pause_s: float) -> Retrying:
    """Return a retry policy for Unreachable, which is raised at the end: a restarting node is back in a moment."""
    from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

    again = retry_if_exception_type(Unreachable)
    return Retrying(retry=again, stop=stop_after_delay(timeout_s), wait=wait_fixed(pause_s), reraise=True)


class Cluster(Options):
    """Connects at the first question, and closes at the end of its block."""

    def __init__(self, config: ConfigOption = None, url: UrlOption = None, timeout_s: TimeoutOption = DEFAULT_TIMEOUT_S) -> None:
        self.config = config
        self.url = url
        self.timeout_s = timeout_s
        """Timeout of each answer."""
        self._stack = ExitStack()
        self._clients: dict[str, Client] = {}

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def file(self) -> ClusterConfig | None:
        """The cluster file; None with ``--url``.

        Raises typer.BadParameter when no option names a cluster, or two do; ConfigurationError.
        """
        if self.url is not None and self.config is None:
            return None
        if self.url is not None and self.url != os.environ.get(URL_VARIABLE):
            raise typer.BadParameter("--url and -c are two ways to say which cluster: write one of them")
        if self.config is None and not DEFAULT_CONFIG.exists():
            raise typer.BadParameter(
                f"which cluster? write -c FILE, --url URL, or set {URL_VARIABLE}; there is no {DEFAULT_CONFIG} in this folder"
            )
        return cluster_file(self.config)

    @cached_property
    def addresses(self) -> dict[str, str]:
        """Addresses of nodes by node id (or by address), masters first. Raises as `file` does."""
        if (file := self.file) is None:
            url = self.url or ""
            return {url: url}
        if urls := master_urls(file):
            return urls
        if file.is_embedded:
            raise ConfigurationError(
                f'{file.path}: no master has an http address, so nobody outside of its process can reach it: write http = "127.0.0.1:7201"'
            )
        return {file.name: file.broker}

    @cached_property
    def client(self) -> Client:
        """A client of all masters. Raises typer.BadParameter, ConfigurationError; unreachable nodes show at the first question."""
        urls = ",".join(self.addresses.values())
        if urls.startswith("amqp"):
            logs.to_stderr(logs.COMMAND)
        return self.connect(urls)

    def connect(self, urls: str) -> Client:
        """Return a client of the nodes at these addresses."""
        import brokerha

        return self._stack.enter_context(brokerha.connect(urls, timeout=self.timeout_s))

    @cached_property
    def _urls(self) -> dict[str, str]:
        addresses = self.addresses
        if (file := self.file) is None:
            return addresses
        found = master_urls(file)
        return {master.id: found.get(master.id) or file.broker_of(master.id) for master in file.masters}

    @property
    def masters(self) -> list[str]:
        """Ids of the masters; with ``--url`` the address instead of the id. Raises typer.BadParameter, ConfigurationError."""
        return list(self._urls)

    @property
    def masters_of_file(self) -> list[str]:
        """Ids of the masters that the cluster file names; empty with ``--url``."""
        return [] if self.file is None else self.masters

    def is_worker_of_file(self, worker: str) -> bool:
        """Tell whether the cluster file contains this worker."""
        return self.file is not None and self.file.roles.get(worker) == "worker"

    def at(self, master: str) -> Client:
        """Return a client of one master only. Raises typer.BadParameter when the file has no master of this id."""
        if master not in self._urls:
            if self.file is None and len(self._urls) == 1:
                return self.at(self.masters[0])
            raise typer.BadParameter(f"{master!r} is no master of this cluster; masters are {', '.join(self._urls)}")
        if master not in self._clients:
            address = self._urls[master]
            self._clients[master] = self._by_broker(master, address) if address.startswith("amqp") else self.connect(address)
        return self._clients[master]

    def _by_broker(self, master: str, url: str) -> Client:
        from brokerha.client.client import Client
        from brokerha.transports.client.wire import AmqpWire

        logs.to_stderr(logs.COMMAND)
        return self._stack.enter_context(Client(AmqpWire(url, to=master), self.timeout_s))

    def command(self, master: str, name: str, /, **arguments: Any) -> Row:
        """Run a command at one master."""
        return self.at(master).command(name, arguments)

    def ask(self, master: str, name: str, /, **arguments: Any) -> Row:
        """Run a command at one of several masters, with a short timeout, so that one that is away does not delay the others."""
        return self.at(master).command(name, arguments, timeout=min(SURVEY_S, self.timeout_s))

    def master_of(self, worker: str) -> str:
        """Return the master of a worker or process. Raises InvalidRequest when no master has it, Unreachable when one is silent."""
        if self.file is None:
            return self.masters[0]
        if worker in self.file.roles:
            return self.file.master_of(worker)
        answers, silent = self.worker_lists()
        known = []
        for master, answer in answers.items():
            known += [row["id"] for row in answer["workers"]]
            if worker in known:
                return master
        if silent:
            unknown = "; ".join(silent.values())
            raise Unreachable(f"{worker} is not in the cluster file, and these masters do not answer: {unknown}")
        raise InvalidRequest(f"no master has a worker {worker}; there are {', '.join(known) or 'none'}")

    def worker_lists(self) -> tuple[dict[str, Row], dict[str, str]]:
        """Return each master's list of workers, and why a master did not answer. Raises Unreachable when all fail."""
        answers, silent = {}, {}
        for master in self.masters:
            try:
                answers[master] = self.ask(master, "workers")
            except (Unreachable, TimedOut) as error:
                silent[master] = str(error)
        if not answers:
            raise Unreachable("; ".join(silent.values()))
        return answers, silent
