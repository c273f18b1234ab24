"""A certificate is taken anew when its files were replaced, and never while they do not fit together."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from brokerha.deploying.certificates import Server, certificates_plan
from brokerha.deploying.files import write
from brokerha.http.app import create_app
from brokerha.http.door.server import HttpServer
from brokerha.http.replaced import LOOK_EVERY_S, Certificate
from tests.unit.http.fake_front import FakeFront


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def make(folder: Path, name: str) -> None:
    """A certificate with its key, of the one authority."""
    one = Server(name, ("127.0.0.1",), folder / f"{name}.pem", folder / f"{name}.key")
    write(certificates_plan("orders", [one], folder, datetime.now(UTC), 30), folder, force=False)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[tuple[HttpServer, Clock, Path]]:
    for name in ("old", "new"):
        make(tmp_path, name)
    for kind in ("pem", "key"):
        shutil.copy(tmp_path / f"old.{kind}", tmp_path / f"door.{kind}")
    clock = Clock()
    server = HttpServer(
        create_app(FakeFront(threaded=True)), "127.0.0.1", 0, Certificate(tmp_path / "door.pem", tmp_path / "door.key", clock)
    )
    server.start()
    yield server, clock, tmp_path
    server.stop(5.0)


def given(server: HttpServer, folder: Path) -> str:
    """Which certificate a client is shown."""
    shown = ssl.get_server_certificate(("127.0.0.1", server.port), ca_certs=str(folder / "ca.pem"))
    return next(name for name in ("old", "new") if shown.strip() == (folder / f"{name}.pem").read_text().strip())


def replace(folder: Path, kind: str) -> None:
    shutil.copy(folder / f"new.{kind}", folder / f"beside.{kind}")
    (folder / f"beside.{kind}").replace(folder / f"door.{kind}")


def test_the_next_connection_gets_the_new_one_once_both_files_are_there(door: tuple[HttpServer, Clock, Path]) -> None:
    server, clock, folder = door
    assert given(server, folder) == "old"
    replace(folder, "pem")
    clock.now_s += LOOK_EVERY_S
    assert given(server, folder) == "old"
    replace(folder, "key")
    assert given(server, folder) == "old"
    clock.now_s += LOOK_EVERY_S
    assert given(server, folder) == "new"
    assert given(server, folder) == "new"


def test_files_that_are_gone_change_nothing(door: tuple[HttpServer, Clock, Path]) -> None:
    server, clock, folder = door
    for kind in ("pem", "key"):
        (folder / f"door.{kind}").unlink()
    clock.now_s += LOOK_EVERY_S
    assert given(server, folder) == "old"
    for kind in ("pem", "key"):
        replace(folder, kind)
    clock.now_s += LOOK_EVERY_S
    assert given(server, folder) == "new"
