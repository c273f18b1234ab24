"""`brokerha user`: what stands in the users file afterwards, and what is refused."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from brokerha.cli.cluster import user
from brokerha.cli.cluster.user import UsersFile, add, app, remove
from brokerha.cli.main import main
from brokerha.http.users import User, Users, parse_users
from brokerha.model.errors import ConfigurationError, NotReady
from brokerha.model.operation_checks import GRAPH, QUEUE, TABLE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users.toml"


def run(file: Path, *words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(app, [*words, "--file", str(file)], input=given, standalone_mode=False)


BOOKS = (GRAPH, "books")


def users(file: Path) -> Users:
    return Users(parse_users(file.read_text("utf-8"), str(file)))


def token_of(result: Result) -> str:
    assert result.return_value == 0, result.exception
    return result.stdout.strip().splitlines()[-1]


def test_a_program_reads_the_token_and_what_changed(file: Path) -> None:
    made = run(file, "add", "app", "--role", "write", "--repository", "books=admin", "--token", "-o", "json")
    told = json.loads(made.stdout)
    assert users(file).by_token(told.pop("token"), 0.0) is not None
    assert told.pop("expires")
    assert told == {
        "name": "app", "role": "write", "password": False, "tokens": 1, "repositories": {"books": "admin"}, "tables": {}, "queues": {},
        "graphs": {}, "file": str(file), "ended": [],
    }  # fmt: skip
    changed = json.loads(run(file, "add", "app", "--role", "read", "-o", "json", given="a long password\n").stdout)
    assert (changed["role"], changed["token"], changed["password"], changed["tokens"]) == ("read", None, True, 1)
    assert any("books" in each for each in changed["ended"])


def test_a_token_lets_in_with_the_role_for_all_and_those_in_single_repositories(file: Path) -> None:
    stores = ["--repository", "books=write", "--repository", "drafts=none", "--table", 'a=b "c"=write', "--queue", "jobs=none"]
    token = token_of(run(file, "add", "app", "--role", "read", *stores, "--token"))
    user = users(file).by_token(token, 0.0)
    assert user is not None
    assert (user.may("read"), user.may("write")) == (True, False)
    assert (user.may("write", BOOKS), user.may("admin", BOOKS)) == (True, False)
    assert (user.may("read", (GRAPH, "drafts")), user.may("read", (GRAPH, "main"))) == (False, True)
    assert (user.may("write", (TABLE, 'a=b "c"')), user.may("write", (TABLE, "books")), user.may("read", (QUEUE, "jobs"))) == (
        True,
        False,
        False,
    )


def test_roles_are_those_of_the_last_command_and_tokens_stay(file: Path) -> None:
    token = token_of(run(file, "add", "app", "--role", "none", "--repository", "books=write", "--token"))
    assert run(file, "add", "app", "--role", "read", given="a long password\n").return_value == 0
    user = users(file).by_token(token, 0.0)
    assert user is not None
    assert user is users(file).by_password("app", "a long password") or user.stores == {}
    assert (user.may("read"), user.may("write", BOOKS)) == (True, False)


def test_another_password_or_token_leaves_all_rights_as_they_are(file: Path) -> None:
    rights = ["--role", "read", "--table", "salaries=none", "--graph", "books:urn:a=write"]
    assert run(file, "add", "lim", *rights, given="a long password\n").return_value == 0
    before = users(file).by_password("lim", "a long password")
    assert before is not None
    assert run(file, "add", "lim", given="another password\n").return_value == 0
    token = token_of(run(file, "add", "lim", "--token"))
    for after in (users(file).by_password("lim", "another password"), users(file).by_token(token, 0.0)):
        assert after is not None
        assert (after.role, after.stores, after.graphs) == (before.role, before.stores, before.graphs)
    assert users(file).by_password("lim", "a long password") is None


def test_rights_that_a_command_ends_are_named(file: Path) -> None:
    rights = ["--role", "read", "--table", "salaries=none", "--queue", "jobs=write"]
    assert run(file, "add", "lim", *rights, "--token").return_value == 0
    told = run(file, "add", "lim", "--role", "write", "--queue", "jobs=write", "--token").stderr
    assert "lim no longer has: table salaries=none, the role read\n" in told
    assert "no longer" not in run(file, "add", "lim", "--role", "write", "--queue", "jobs=write", "--token").stderr


@pytest.mark.parametrize(
    ("words", "says"), [([], "only a user that is there already"), (["--table", "a=read"], "replace all earlier")]
)
def test_rights_need_a_role(file: Path, words: list[str], says: str) -> None:
    result = run(file, "add", "lim", *words, "--token")
    assert says in str(result.exception)
    assert not file.exists()


def test_a_token_lets_in_to_single_graphs_whose_iris_hold_colons_and_equals_signs(file: Path) -> None:
    iri = "http://example.org:8080/?a=b&c='d'#e=f"
    graphs = ["--graph", f"books:{iri}=write", "--graph", "books:default=read", "--graph", "drafts:urn:a=read"]
    token = token_of(run(file, "add", "app", "--role", "none", *graphs, "--token"))
    user = users(file).by_token(token, 0.0)
    assert user is not None
    assert user.graphs_in("books") == {iri: "write", "default": "read"}
    assert (user.graphs_in("books", "write"), user.graphs_in("drafts"), user.graphs_in("main")) == (
        {iri: "write"},
        {"urn:a": "read"},
        {},
    )
    assert (user.may("read", BOOKS), user.may_enter("write", BOOKS), user.may_enter("admin", BOOKS)) == (False, True, False)
    assert (user.may_enter("write", (GRAPH, "drafts")), user.may_enter("read", (TABLE, "books")), user.may_somewhere("write")) == (
        False,
        False,
        True,
    )
    (row,) = json.loads(run(file, "list", "-o", "json").stdout)["users"]
    assert row["graphs"] == {"books": {iri: "write", "default": "read"}, "drafts": {"urn:a": "read"}}
    assert "graph drafts:urn:a=read" in run(file, "list").stdout
    assert run(file, "add", "app", "--role", "read", "--token").return_value == 0
    assert "graphs" not in file.read_text("utf-8")


def test_the_list_shows_where_each_may_what_and_no_secret(file: Path) -> None:
    token = token_of(run(file, "add", "app", "--role", "none", "--repository", "books=write", "--table", "prices=read", "--token"))
    (row,) = json.loads(run(file, "list", "-o", "json").stdout)["users"]
    assert (row["name"], row["role"], row["repositories"]) == ("app", "none", {"books": "write"})
    shown = run(file, "list").stdout
    assert (row["tables"], row["queues"]) == ({"prices": "read"}, {})
    assert "repository books=write" in shown
    assert token not in shown + file.read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--role", "owner"], "write one of none, read, write, admin"),
        (["--role", "none"], "name what this user may"),
        (["--role", "read", "--repository", "books"], "write NAME=ROLE"),
        (["--role", "read", "--repository", "books=owner"], "write NAME=ROLE"),
        (["--role", "read", "--repository", "b/c=read"], "write NAME=ROLE"),
        (["--role", "read", "--table", "=read"], "write NAME=ROLE"),
        (["--role", "read", "--queue", "jobs"], "write NAME=ROLE"),
        *(
            (["--role", "none", "--graph", graph], "write REPOSITORY:IRI=read or write, or REPOSITORY:default=read or write")
            for graph in (
                "books",
                "books=read",
                "books:urn:a",
                "books:urn:a=admin",
                "books:urn:a=none",
                "books:a=read",
                "b/c:urn:a=read",
                "books:urn:brokerha:a=read",
            )
        ),
    ],
)
def test_wrong_roles_are_refused_and_nothing_is_written(file: Path, words: list[str], says: str) -> None:
    result = run(file, "add", "app", *words, "--token")
    assert says in str(result.exception)
    assert not file.exists()
    result = run(file, "add", "a:b", "--role", "read", "--token")
    assert (result.stdout, "without quotes" in str(result.exception), file.exists()) == ("", True, False)


def test_a_token_that_cannot_be_written_is_not_made(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code = main(["user", "add", "app", "--role", "read", "--token", "--file", str(file)])
    monkeypatch.undo()
    assert (code, capsys.readouterr().err) == (2, "brokerha: the output cannot be written: No space left on device\n")
    assert not file.exists()


def test_a_file_that_cannot_be_written_is_told_with_its_path(tmp_path: Path) -> None:
    result = run(tmp_path / "none" / "users.toml", "add", "app", "--role", "read", "--token")
    assert isinstance(result.exception, ConfigurationError)
    assert "none/users.toml cannot be written: No such file or directory" in str(result.exception)


def test_commands_at_once_undo_nothing_of_each_other(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gone", "stays"):
        run(file, "add", name, "--role", "admin", "--token")
    read, has_read = UsersFile.read, threading.Barrier(5)

    def read_together(users_file: UsersFile) -> dict[str, User]:
        found = read(users_file)
        with contextlib.suppress(threading.BrokenBarrierError):
            has_read.wait(0.2)
        return found

    # When one command takes a user out, and others that began at the same time add some
    monkeypatch.setattr(UsersFile, "read", read_together)
    commands: list[Callable[[], object]] = [partial(remove, UsersFile(file), "gone")]
    commands += [partial(add, UsersFile(file), f"u{n}", role="read", token=True) for n in range(4)]
    with ThreadPoolExecutor(len(commands)) as pool:
        for done in [pool.submit(command) for command in commands]:
            done.result()
    # Then each took effect
    assert sorted(parse_users(file.read_text("utf-8"), "")) == ["stays", "u0", "u1", "u2", "u3"]


def test_a_command_that_holds_the_users_for_long_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user, "LOCKED_S", 0.1)
    first, second = UsersFile(tmp_path / "users.toml"), UsersFile(tmp_path / "users.toml")
    with first.alone(), pytest.raises(NotReady, match="another command has been changing users"), second.alone():
        pass
    with second.alone():
        pass
