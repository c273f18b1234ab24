"""Secrets are found in every form in which they may stand; what is none stays readable."""

from __future__ import annotations

import base64
import json

import pytest

from brokerha.doctor.bundle import Redactor, secrets_of_environment, secrets_of_file, secrets_of_url

CANARY = 'Kanari/+ "7&x'


@pytest.mark.parametrize(
    "text",
    [
        CANARY,
        f"a log line with {CANARY} in it",
        json.dumps({"x": CANARY}),
        "amqp://u:Kanari%2F%2B%20%227%26x@h",
        "password=Kanari%2F%2B+%227%26x",
        f"Basic {base64.b64encode(CANARY.encode()).decode()}",
    ],
)
def test_a_known_secret_is_taken_out_in_each_form(text: str):
    found = Redactor({CANARY}).text(text)
    assert "Kanari" not in found
    assert base64.b64encode(CANARY.encode()).decode() not in found
    assert "***" in found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("amqp://app:unknown1@h:5672/v", "amqp://app:***@h:5672/v"),
        ("amqp://a:unknown1@b/v;amqp://a:unknown1@c/v", "amqp://a:***@c/v"),
        ("Authorization: Bearer unknown1unknown1", "***"),
        ("GET / Bearer unknown1unknown1 200", "GET / Bearer *** 200"),
        ('{"password": "unknown1", "name": "m1"}', '{"password": "***", "name": "m1"}'),
        ("broker-token = 'unknown1'", "broker-token = '***'"),
        ("BROKERHA_USER_PASSWORD=unknown1 next", "BROKERHA_USER_PASSWORD=*** next"),
        ("-----BEGIN PRIVATE KEY-----\nunknown1\n-----END PRIVATE KEY-----", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nunknown1 and cut", "***"),
        ("app scrypt$16384$8$1$unknown1$unknown1", "app ***"),
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str, wanted: str):
    found = Redactor().text(text)
    assert "unknown1" not in found
    assert wanted in found


def test_what_is_no_secret_stays():
    text = "2026-11-23 m1 caught up lsn=12 url=http://127.0.0.1:7201/sparql m1@h reason='no worker'"
    assert Redactor({"guest", "ab"}).text(text) == text


def test_secrets_are_found_where_they_are_kept():
    assert secrets_of_url("amqp://a:first%2F1@h/v;amqp://a:second1@h/v") == {"first%2F1", "first/1", "second1"}
    assert secrets_of_url("amqp://guest:guest@h/v") == set()
    environ = {"APP_TOKEN": "third11", "X_URL": "http://a:fourth1@h", "A_PASSWORD_FILE": "/run/x", "HOME": "/home/me"}
    assert secrets_of_environment(environ) == {"third11", "fourth1"}
    assert {"fifth11", "amqp://x"} & secrets_of_file('password = "fifth11"\n') == {"fifth11"}
    assert "sixth11" in secrets_of_file("sixth11\n")
    assert secrets_of_file("amqp://a:seventh@h/v\n") >= {"seventh"}
