"""The file of a support bundle: texts without secrets, each cut to its share, in one compressed archive that its owner alone reads.

    bundle = Bundle(Redactor(known), limit_bytes=20_000_000)
    bundle.add("status.json", text)                 # cut at its end when it is too long
    bundle.add("logs/m1.log", text, keep_end=True)  # cut at its beginning
    bundle.write(path, now_s)

Invariants: everything goes through the redactor; all members together are at most ``limit_bytes`` before compression; a file that is there is not
overwritten.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any, Final

from brokerha.doctor.redaction import Redactor

LIMIT_BYTES: Final = 20_000_000
MEMBER_BYTES: Final = 2_000_000
MANIFEST: Final = "manifest.json"
_FOR_MANIFEST: Final = 200_000


class Bundle:
    """Members in the order in which they came."""

    def __init__(self, redactor: Redactor, limit_bytes: int = LIMIT_BYTES, member_bytes: int = MEMBER_BYTES) -> None:
        self._redactor = redactor
        self._left = limit_bytes - min(_FOR_MANIFEST, limit_bytes // 4)
        self._member_bytes = member_bytes
        self._members: dict[str, bytes] = {}
        self._rows: list[dict[str, Any]] = []

    def add(self, name: str, text: str, *, keep_end: bool = False) -> None:
        """Put a text in; what does not fit any more is named in the manifest with 0 bytes."""
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
        """Put plain data in."""
        self.add(name, json.dumps(data, indent=1, ensure_ascii=False) + "\n")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Name, bytes and whether it was cut, of each member."""
        return self._rows

    def write(self, path: Path, now_s: float, about: dict[str, Any]) -> int:
        """Write the archive with its manifest; returns its bytes. Raises OSError, FileExistsError among them."""
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
    """The end of a file. Reads no more than the limit, whatever the file is; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit_bytes))
            content = file.read(limit_bytes)
    except OSError as error:
        return f"(cannot be read: {error.strerror})\n"
    found = content.decode("utf-8", "replace").splitlines()
    if size > limit_bytes:
        # The first line may have lost its beginning, and with it what told a secret in it.
        found = found[1:]
    return "".join(f"{line}\n" for line in found[-lines:]) if lines else ""
