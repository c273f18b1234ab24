"""Takes secrets out of text: those that are known, wherever they stand, and what looks like one.

    redactor = Redactor(known={"s3cret"})
    redactor.text("amqp://app:other@h, password=abc, s3cret")   # -> "amqp://app:***@h, password=***, ***"

Known secrets are found as they are, as a URL has them, and as HTTP's Basic carries them. Pure; takes out rather too much than too little.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

MASK: Final = "***"
SHORTEST: Final = 5
"""Shorter texts are no secrets, and would be found everywhere."""
_HARMLESS: Final = frozenset({"guest", "admin", "true", "false", "brokerha"})
_WORDS: Final = "pass(?:word|wd|phrase)?|secret|token|api[-_]?key|private[-_]?key|authorization|cookie|credential"
IS_SECRET_NAME: Final = re.compile(_WORDS, re.IGNORECASE)
_OF_URL = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^/\s:@\"']*:)(?P<secret>[^\s\"'<>]*)(?P<after>@)", re.IGNORECASE)
_OF_HEADER = re.compile(r"\b(?P<before>(?:Bearer|Basic|Digest|GDB)\s+)[A-Za-z0-9._~+/=-]{6,}")
_OF_NAME = re.compile(
    rf"(?P<before>[\"']?\b[A-Za-z0-9_.-]*(?:{_WORDS})[A-Za-z0-9_.-]*[\"']?\s*[=:]\s*)"
    r"(?P<value>\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^\s,;&)}\]]+)",
    re.IGNORECASE,
)
_OF_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_OF_HASH = re.compile(r"\b(?:scrypt|argon2(?:id|i)?|bcrypt|sha256|pbkdf2[a-z0-9-]*)[$:][A-Za-z0-9+/=$.,:_-]{8,}")


class Redactor:
    """Takes out these secrets, and what looks like others."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {form for secret in known if is_secret(secret) for form in _forms(secret)}
        # The longest first: one may stand in another.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """The text without secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = _OF_PEM.sub(MASK, text)
        text = _OF_URL.sub(rf"\g<before>{MASK}\g<after>", text)
        text = _OF_HEADER.sub(rf"\g<before>{MASK}", text)
        text = _OF_HASH.sub(MASK, text)
        return _OF_NAME.sub(_masked, text)


def is_secret(text: str) -> bool:
    """Whether a text is worth looking for."""
    return len(text) >= SHORTEST and text.lower() not in _HARMLESS


def secrets_of_url(url: str) -> set[str]:
    """Passwords of a URL, or of several separated by ``;``."""
    found = set()
    for each in url.split(";"):
        try:
            password = urlsplit(each.strip()).password or ""
        except ValueError:
            continue
        found |= {password, unquote(password)}
    return {each for each in found if is_secret(each)}


def secrets_of_environment(environ: Mapping[str, str]) -> set[str]:
    """Values of variables that are named like a secret, and passwords of those that are URLs."""
    found = set()
    for name, value in environ.items():
        if IS_SECRET_NAME.search(name) and not name.endswith("_FILE"):
            found.add(value)
        if "://" in value:
            found |= secrets_of_url(value)
    return {each for each in found if is_secret(each)}


def secrets_of_file(text: str) -> set[str]:
    """What a file that holds secrets has in it: passwords of URLs, else each line."""
    found = set()
    for line in text.splitlines():
        line = line.strip()  # noqa: PLW2901  (as it counts)
        found |= secrets_of_url(line) if "://" in line else {line}
        found |= {match["value"].strip("\"'") for match in _OF_NAME.finditer(line)}
        found |= {each["secret"] for each in _OF_URL.finditer(line)}
    return {each for each in found if is_secret(each)}


def _forms(secret: str) -> set[str]:
    """How a secret may be written."""
    return {
        secret,
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        secret.replace("\\", "\\\\").replace('"', '\\"'),
        base64.b64encode(secret.encode()).decode(),
        base64.b64encode(secret.encode()).decode().rstrip("="),
    }


def _masked(found: re.Match[str]) -> str:
    value = found["value"]
    quoted = value[0] if value[0] in "\"'" else ""
    return f"{found['before']}{quoted}{MASK}{quoted}"
