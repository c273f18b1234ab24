"""Users of an HTTP door: what a file may say, who is who, and who failed too often."""

from __future__ import annotations

import pytest

from brokerha.http import users as module
from brokerha.http.users import Failures, User, Users, hash_password, hash_token, parse_users
from brokerha.model.errors import ConfigurationError

TEXT = f"""
[users.app]
role = "write"
password = "{hash_password("right", b"s" * 16)}"
tokens = [{{ sha256 = "{hash_token("the-token")}", expires = 100 }}]

[users.eye]
role = "read"
"""


def test_a_role_may_what_those_before_it_may() -> None:
    may = {role: [wanted for wanted in module.ROLES if User("a", role).may(wanted)] for role in module.ROLES}

    assert may == {role: list(module.ROLES[: number + 1]) for number, role in enumerate(("none", "read", "write", "admin"))}


def test_a_token_is_its_users_until_it_expires() -> None:
    users = Users(parse_users(TEXT, "users.toml"))

    found = users.by_token("the-token", 99)

    assert found is not None
    assert found.name == "app"
    assert users.by_token("the-token", 100) is None
    assert users.by_token("another", 99) is None
    assert users.by_token(hash_token("the-token"), 99) is None


def test_a_password_is_verified_once_and_then_known() -> None:
    users = Users(parse_users(TEXT, "users.toml"))
    assert users.is_verified("app", "right") is None

    found = users.by_password("app", "right")

    assert found is not None
    assert found.role == "write"
    assert users.is_verified("app", "right") == found
    assert users.is_verified("app", "wrong") is None
    assert users.is_verified("eye", "right") is None


@pytest.mark.parametrize(("name", "password"), [("app", "wrong"), ("nobody", "right"), ("eye", ""), ("app", "x" * 2000)])
def test_a_wrong_password_is_nobody(name: str, password: str) -> None:
    users = Users(parse_users(TEXT, "users.toml"))

    assert users.by_password(name, password) is None
    assert users.is_verified(name, password) is None


@pytest.mark.parametrize(
    "text",
    [
        "canary = [",
        "",
        "[users]",
        "canary = 1\n[users.a]\nrole = 'read'",
        "[users.a]\nrole = 'canary'",
        "[users.a]\nrole = 'read'\npassword = 'canary'",
        "[users.a]\nrole = 'read'\ntokens = ['canary']",
        "[users.a]\nrole = 'read'\ntokens = [{sha256 = 'canary', expires = 1}]",
        "[users.'a:b']\nrole = 'read'",
        "[users.\"a\\nb\"]\nrole = 'read'",
        f"[users.{'a' * 256}]\nrole = 'read'",
    ],
)
def test_a_wrong_file_is_refused_without_telling_what_it_holds(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_users(text, "users.toml")

    assert "canary" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_address_that_failed_too_often_waits() -> None:
    failures = Failures()

    for _ in range(module.FAILURES_LIMIT):
        assert failures.wait_s("a", 10) == 0
        failures.failed("a", 10)

    assert failures.wait_s("a", 10) == module.FAILURES_WINDOW_S
    assert failures.wait_s("b", 10) == 0
    assert failures.wait_s("a", 10 + module.FAILURES_WINDOW_S) == 0


def test_failures_are_kept_of_a_bounded_number_of_addresses() -> None:
    failures = Failures()

    for number in range(module.ADDRESSES_LIMIT + 10):
        failures.failed(str(number), 0)

    assert len(failures._by_address) == module.ADDRESSES_LIMIT
