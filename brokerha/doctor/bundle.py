"""The file of a support bundle: texts without secrets, each cut to its share, in one compressed archive only for its owner.

    redactor = Redactor(known={"s3cret"})
    redactor.text("amqp://app:other@h, password=abc, s3cret")   # -> "amqp://app:***@h, password=***, ***"

    bundle = Bundle(redactor, limit_bytes=20_000_000)
    bundle.add("status.json", text)                 # cut at its end when it is too long
    bundle.add("logs/m1.log", text, keep_end=True)  # cut at its beginning
    bundle.write(path, now_s)

Known secrets are found everywhere, in their plain form, in URLs, and in HTTP's Basic. In doubt the redactor removes too much.
Invariants: all texts go through the redactor; all members together have at most ``limit_bytes`` before compression; an existing
file is not overwritten.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote, urlsplit

LIMIT_BYTES: Final = 20_000_000
MEMBER_BYTES: Final = 2_000_000
MANIFEST: Final = "manifest.json"
_FOR_MANIFEST: Final = 200_000


class Bundle:
    """The members of a bundle, in order of addition."""

    def __init__(self, redactor: Redactor, limit_bytes: int = LIMIT_BYTES, member_bytes: int = MEMBER_BYTES) -> None:
        self._redactor = redactor
        self._left = limit_bytes - min(_FOR_MANIFEST, limit_bytes // 4)
        self._member_bytes = member_bytes
        self._members: dict[str, bytes] = {}
        self._rows: list[dict[str, Any]] = []

    def add(self, name: str, text: str, *, keep_end: bool = False) -> None:
        """Add a text; one that does not fit any more is in the manifest with 0 bytes."""
        content = self._redactor.text(text).encode("utf-8", "replace")
        limit = min(self._member_bytes, self._left)
        kept = content
        if len(content) > limit:
            kept = content[len(content) - limit :] if keep_end else content[:limit]
        self._left -= len(kept)
        self._rows.append({"name": name, "bytes": len(kept), "cut": len(kept) < len(content)})
        if kept:
            self._members[name] = kept

    def add_json(self, name: str, data: object) -> None:
        """Add plain data."""
        self.add(name, json.dumps(data, indent=1, ensure_ascii=False) + "\n")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Name, size and whether it was cut, for each member."""
        return self._rows

    def write(self, path: Path, now_s: float, about: dict[str, Any]) -> int:
        """Write the archive with its manifest; return its size in bytes. Raises OSError, including FileExistsError."""
        manifest = self._redactor.text(json.dumps({**about, "files": self._rows}, indent=1, ensure_ascii=False)) + "\n"
        members = {MANIFEST: manifest.encode("utf-8", "replace"), **self._members}
        folder = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:  # noqa: PTH123  (a descriptor)
            for name, content in members.items():
                info = tarfile.TarInfo(f"{folder}/{name}")
                info.size, info.mtime, info.mode = len(content), int(now_s), 0o600
                archive.addfile(info, io.BytesIO(content))
        return path.stat().st_size


def last_lines(path: Path, lines: int, limit_bytes: int = MEMBER_BYTES) -> str:
    """Return the end of a file, without reading more than the limit; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit_bytes))
            content = file.read(limit_bytes)
    except OSError as error:
        return f"(cannot be read: {error.strerror})\n"
    found = content.decode("utf-8", "replace").splitlines()
    if size > limit_bytes:
        # The first line can lack its beginning, and with it the name that marks a secret.
        found = found[1:]
    return "".join(f"{line}\n" for line in found[-lines:]) if lines else ""


# ---- removing secrets from text: known ones, and text that looks like one

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
    """Removes the known secrets, and text that looks like one."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {form for secret in known if is_secret(secret) for form in _forms(secret)}
        # The longest first, because one can contain another.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = _OF_PEM.sub(MASK, text)
        text = _OF_URL.sub(rf"\g<before>{MASK}\g<after>", text)
        text = _OF_HEADER.sub(rf"\g<before>{MASK}", text)
        text = _OF_HASH.sub(MASK, text)
        return _OF_NAME.sub(_masked, text)


def is_secret(text: str) -> bool:
    """Tell whether a text is worth removing."""
    return len(text) >= SHORTEST and text.lower() not in _HARMLESS


def secrets_of_url(url: str) -> set[str]:
    """Return the passwords of a URL, or of several separated by ``;``."""
    found = set()
    for each in url.split(";"):
        try:
            password = urlsplit(each.strip()).password or ""
        except ValueError:
            continue
        found |= {password, unquote(password)}
    return {each for each in found if is_secret(each)}


def secrets_of_environment(environ: Mapping[str, str]) -> set[str]:
    """Return values of variables with the name of a secret, and passwords of those that are URLs."""
    found = set()
    for name, value in environ.items():
        if IS_SECRET_NAME.search(name) and not name.endswith("_FILE"):
            found.add(value)
        if "://" in value:
            found |= secrets_of_url(value)
    return {each for each in found if is_secret(each)}


def secrets_of_file(text: str) -> set[str]:
    """Return the secrets in a secret file: passwords of URLs, else each line."""
    found = set()
    for line in text.splitlines():
        line = line.strip()  # noqa: PLW2901  (as it counts)
        found |= secrets_of_url(line) if "://" in line else {line}
        found |= {match["value"].strip("\"'") for match in _OF_NAME.finditer(line)}
        found |= {each["secret"] for each in _OF_URL.finditer(line)}
    return {each for each in found if is_secret(each)}


def _forms(secret: str) -> set[str]:
    """Return the encodings of a secret."""
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
