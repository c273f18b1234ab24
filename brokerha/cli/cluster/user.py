"""``brokerha user``: users of the HTTP doors, and their roles.

The users file is that of the cluster file (``http-users``), or that of --file. It is replaced atomically, by one command at a time,
and other users cannot read it. It holds only hashes of passwords and tokens: a token is shown once.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerha.cli.common import exits, output
from brokerha.cli.common.command import Answer, ConfigFileOption, FormatOption, Group, Options, cluster_file, columns
from brokerha.cli.common.output import Format
from brokerha.model.errors import ConfigurationError, NotFound, NotReady

if TYPE_CHECKING:
    from brokerha.http.users import Store, User

COLUMNS = columns("name=USER", "role", "password", "tokens", "expires=LAST TOKEN ENDS", "in=IN SINGLE STORES")
LOCKED_S = 20.0
"""Longest wait for another command that changes the users."""
TOKEN_BYTES = 32
PASSWORD_LEAST = 12
DEFAULT_HOURS = 12.0
YEAR_HOURS = 24.0 * 366

app = Group("Users of the HTTP doors: add, list, remove.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]


@dataclass(slots=True)
class UsersFile(Options):
    """The users file."""

    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Users file; without it the one that the cluster file names.")
    ] = None
    config: ConfigFileOption = None

    @property
    def path(self) -> Path:
        """Its path. Raises ConfigurationError, typer.BadParameter."""
        if self.file is not None:
            return self.file
        cluster = cluster_file(self.config)
        if not cluster.http_users:
            raise ConfigurationError(f'{cluster.path}: no users file is named: write http-users = "users.toml", or --file FILE')
        return cluster.path.parent / cluster.http_users

    def read(self) -> dict[str, User]:
        """Return all users; none without a file. Raises ConfigurationError."""
        from brokerha.http.users import parse_users

        path = self.path
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
        return parse_users(text, str(path))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other commands from changing the file between `read` and `write`; afterwards its name is durable.

        Raises NotReady when another command holds it for `LOCKED_S`.
        """
        from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

        with self._folder_errors():
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Some network file systems lock no folders.
            tries = Retrying(
                retry=retry_if_exception_type(BlockingIOError), wait=wait_fixed(0.05), stop=stop_after_delay(LOCKED_S), reraise=True
            )
            try:
                tries(fcntl.flock, folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise NotReady(f"another command has been changing users in {self.path.parent} for {LOCKED_S:g} s") from None
            except OSError:
                pass
            yield
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextmanager
    def _folder_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigurationError(
                f"{self.path} cannot be written: {error.strerror}: name a file in a folder of yours with --file"
            ) from None

    def write(self, users: dict[str, User]) -> None:
        """Replace the file atomically; other users cannot read it."""
        path = self.path
        with self._folder_errors():
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        new = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write("".join(_table(user) for _, user in sorted(users.items())))
                file.flush()
                os.fsync(file.fileno())
            if path.exists():
                # The user that runs the nodes must still be able to read it.
                found = path.stat()
                new.chmod(found.st_mode & 0o660)
                if os.geteuid() == 0:
                    os.chown(new, found.st_uid, found.st_gid)
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


@app.command()
def add(
    users_file: UsersFile,
    name: NameArgument,
    role: Annotated[
        str,
        typer.Option(
            "--role",
            metavar="none|read|write|admin",
            help="Each role includes the ones before it; none: only what is said of single stores. Without it a user keeps all rights.",
        ),
    ] = "",
    repository: Annotated[
        list[str] | None,
        typer.Option("--repository", metavar="NAME=ROLE", help="The role in one repository instead; again for each."),
    ] = None,
    table: Annotated[list[str] | None, typer.Option("--table", metavar="NAME=ROLE", help="The same of a key-value table.")] = None,
    queue: Annotated[list[str] | None, typer.Option("--queue", metavar="NAME=ROLE", help="The same of a queue.")] = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(
            "--graph",
            metavar="NAME:IRI=ROLE",
            help="read or write in one graph of a repository too, beside the role in it; default: its default graph. Again for each.",
        ),
    ] = None,
    token: Annotated[bool, typer.Option("--token", help="Make a token, and print it; without it: read a password.")] = False,
    expires_h: Annotated[
        float, typer.Option("--expires-h", metavar="HOURS", min=0.01, max=YEAR_HOURS, help="With --token: how long it is good for.")
    ] = DEFAULT_HOURS,
    chosen: FormatOption = Format.TABLE,
) -> None:
    """Add a user; or give an existing one another password or one more token, or other roles.

    An existing user keeps all rights without --role. With it, the roles of this command replace all earlier ones, also those for single
    repositories, tables, queues and graphs, and it says which rights ended or changed.
    The password is read from standard input; at a terminal it is asked for. The token is written to standard output, this once; with -o json as token, null without one.
    """
    from brokerha.http.users import Token, User, hash_password, hash_token
    from brokerha.model.operation_checks import GRAPH, QUEUE, TABLE

    given = {"--repository": (GRAPH, repository), "--table": (TABLE, table), "--queue": (QUEUE, queue)}
    stores = dict(_right(option, kind, each) for option, (kind, named) in given.items() for each in named or [])
    graphs = dict(map(_right_in_graph, graph or []))
    _quoted(name)
    if role or stores or graphs or name not in users_file.read():
        _check_role(role, is_for_stores=bool(stores or graphs))
    # Others need not wait for somebody who thinks about a password.
    password = "" if token else hash_password(_password())
    with users_file.alone():
        users = users_file.read()
        before = users.get(name)
        if not role and before is not None:
            role, stores, graphs = before.role, before.stores, before.graphs
        _check_role(role, is_for_stores=bool(stores or graphs))
        known = before or User(name, role)
        now_s = time.time()
        live = tuple(each for each in known.tokens if each.expires_s > now_s)
        made = secrets.token_urlsafe(TOKEN_BYTES) if token else None
        if made is not None:
            live = (*live, Token(hash_token(made), now_s + expires_h * 3600))
        user = users[name] = User(name, role, password or known.password, live, stores, graphs)
        ended = sorted({*_rights(before)} - {*_rights(user)}) if before is not None else []
        told = {**_row(user, now_s), "file": str(users_file.path), "token": made, "ended": ended}
        if made is not None:
            # Print first: a full disk under the output must not leave a token that nobody knows.
            _show(told, chosen)
        users_file.write(users)
    if made is None:
        _show(told, chosen)
    more = _listed(user)
    exits.say(f"{name} has the role {role} in {users_file.path}" + (f", and {more}" if more else ""))
    if ended:
        exits.say(f"{name} no longer has: {', '.join(ended)}")


def _show(told: Mapping[str, Any], chosen: Format) -> None:
    """Write the answer: for people only the token, if there is one."""
    if chosen is not Format.TABLE:
        output.write(told, [told], chosen, {})
    elif told["token"] is not None:
        print(told["token"])
    sys.stdout.flush()


def _check_role(role: str, *, is_for_stores: bool) -> None:
    from brokerha.http.users import NONE, ROLES

    if not role:
        raise typer.BadParameter(
            "write --role, because the rights of this command replace all earlier ones"
            if is_for_stores
            else "write --role: only a user that is there already keeps its rights without it"
        )
    if role not in ROLES:
        raise typer.BadParameter(f"--role {role}: write one of {', '.join(ROLES)}")
    if role == NONE and not is_for_stores:
        raise typer.BadParameter(
            "--role none: name what this user may, with --repository, --table or --queue NAME=ROLE, or --graph NAME:IRI=ROLE"
        )


@app.command("list")
def list_(users_file: UsersFile) -> Answer:
    """List users with their roles; no secret is shown, as none is kept."""
    now_s = time.time()
    users = [user for _, user in sorted(users_file.read().items())]
    rows = [_row(user, now_s) for user in users]
    shown = [{**row, "in": _listed(user)} for row, user in zip(rows, users, strict=True)]
    return Answer({"users": rows}, shown, COLUMNS)


@app.command()
def remove(users_file: UsersFile, name: NameArgument) -> Answer:
    """Remove a user: doors refuse password and tokens within a second."""
    path = users_file.path
    with users_file.alone():
        users = users_file.read()
        if users.pop(name, None) is None:
            raise NotFound(f"{path} has no user {name}")
        if not users:
            raise ConfigurationError(
                f"{path}: {name} is the last user, and a file without users is refused: add another one first, or take http-users out of the cluster file"
            )
        users_file.write(users)
    return Answer({"name": name, "file": str(path)}, text="", remarks=[f"{name} is removed from {path}"])


def _row(user: User, now_s: float) -> dict[str, Any]:
    live = [each.expires_s for each in user.tokens if each.expires_s > now_s]
    last = datetime.fromtimestamp(max(live), UTC).isoformat(timespec="seconds") if live else None
    return {
        "name": user.name,
        "role": user.role,
        "password": bool(user.password),
        "tokens": len(live),
        "expires": last,
        **_by_kind(user),
        "graphs": _by_repository(user),
    }


def _by_kind(user: User) -> dict[str, dict[str, str]]:
    from brokerha.http.users import STORES

    return {word: {name: role for (of, name), role in sorted(user.stores.items()) if of == kind} for word, kind in STORES.items()}


def _right(option: str, kind: str, given: str) -> tuple[Store, str]:
    from brokerha.http.users import ROLES, is_right

    name, _, role = given.rpartition("=")
    if not is_right(kind, name, role) or not name.isprintable():
        raise typer.BadParameter(f"{option} {given}: write NAME=ROLE, with one of {', '.join(ROLES)}")
    return (kind, name), role


def _right_in_graph(given: str) -> tuple[tuple[str, str], str]:
    from brokerha.http.users import ROLES_OF_GRAPHS, is_right_in_graph

    # A repository's name has no colon, and a role no equals sign; an IRI can have both.
    named, _, role = given.rpartition("=")
    repository, _, graph = named.partition(":")
    if not is_right_in_graph(repository, graph, role):
        roles = " or ".join(ROLES_OF_GRAPHS)
        raise typer.BadParameter(f"--graph {given}: write REPOSITORY:IRI={roles}, or REPOSITORY:default={roles}")
    return (repository, graph), role


def _by_repository(user: User) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for (repository, graph), role in sorted(user.graphs.items()):
        found.setdefault(repository, {})[graph] = role
    return found


def _rights(user: User) -> list[str]:
    return [f"the role {user.role}", *_single_rights(user)]


def _listed(user: User) -> str:
    return ", ".join(_single_rights(user))


def _single_rights(user: User) -> list[str]:
    from brokerha.model.operation_checks import GRAPH

    stores = [f"{'repository' if kind == GRAPH else kind} {name}={role}" for (kind, name), role in sorted(user.stores.items())]
    return [*stores, *(f"graph {of}:{graph}={role}" for (of, graph), role in sorted(user.graphs.items()))]


def _table(user: User) -> str:
    lines = [f"[users.{_quoted(user.name)}]", f'role = "{user.role}"']
    for word, rights in _by_kind(user).items():
        if rights:
            lines.append(f"{word} = {_toml_rights(rights)}")
    if graphs := _by_repository(user):
        lines.append(
            f"graphs = {{ {', '.join(f'{_toml_text(name)} = {_toml_rights(rights)}' for name, rights in graphs.items())} }}"
        )
    if user.password:
        lines.append(f'password = "{user.password}"')
    if user.tokens:
        listed = ", ".join(f'{{ sha256 = "{each.sha256}", expires = {int(each.expires_s)} }}' for each in user.tokens)
        lines.append(f"tokens = [{listed}]")
    return "\n".join([*lines, "", ""])


def _toml_rights(rights: dict[str, str]) -> str:
    return f"{{ {', '.join(f'{_toml_text(name)} = {_toml_text(role)}' for name, role in rights.items())} }}"


def _toml_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _quoted(name: str) -> str:
    if not name or any(sign in name for sign in '"\\:') or not name.isprintable():
        raise typer.BadParameter(f"NAME {name!r}: printable signs without quotes, backslashes and colons")
    return f'"{name}"'


def _password() -> str:
    if sys.stdin.isatty():
        password = str(typer.prompt("password", hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < PASSWORD_LEAST:
        raise typer.BadParameter(f"a password has at least {PASSWORD_LEAST} characters")
    return password
