"""As who a client speaks: from the environment or from files named there."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.client.http_identity import identity_headers
from brokerha.model.errors import ConfigurationError


def test_a_token_goes_before_a_password() -> None:
    given = {"BROKERHA_TOKEN": "t", "BROKERHA_USER": "u", "BROKERHA_PASSWORD": "p"}

    assert identity_headers(given) == {"Authorization": "Bearer t"}
    assert identity_headers({**given, "BROKERHA_TOKEN": ""}) == {"Authorization": "Basic dTpw"}
    assert identity_headers({}) == {}


def test_secrets_may_stand_in_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("p\n")

    assert identity_headers({"BROKERHA_TOKEN_FILE": str(secret)}) == {"Authorization": "Bearer p"}
    assert identity_headers({"BROKERHA_USER": "u", "BROKERHA_PASSWORD_FILE": str(secret)}) == {
        "Authorization": "Basic dTpw"
    }


def test_a_file_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="BROKERHA_TOKEN_FILE"):
        identity_headers({"BROKERHA_TOKEN_FILE": str(tmp_path / "none")})
