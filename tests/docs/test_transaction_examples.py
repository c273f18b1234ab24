"""The examples of the page about transactions and queues print what the page says they print."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.http import HttpServer, create_app
from tests.docs.pages import output_of, text_of, the_block
from tests.docs.test_examples import running

PAGE = "docs/transactions.md"
URL = "http://127.0.0.1:7201"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The first master of a running cluster."""
    with running("embedded://transaction-examples", tmp_path_factory.mktemp("site")) as masters, contextlib.ExitStack() as stack:
        server = HttpServer(create_app(masters[0]), "127.0.0.1", 0)
        server.start()
        stack.callback(server.stop, 1.0)
        yield server.url


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("outbox", ["inside: b'9.90' outside: None", "committed: True b'9.90'"]),
        (
            "db.consume",
            [
                "[b'0', b'1', b'2']",
                "taken for good: b'0'",
                "done: [(b'1', b''), (b'2', b'')] {'depth': 0, 'published': 3, 'accepted': 3}",
            ],
        ),
        ("expect_key", ["aborted: conflict: key 'lamp' of table 'stock': expected no such key, "]),
        ("run_transaction", ["['done', 'done', 'done', 'refused'] [(b'alice', b'10'), (b'bob', b'190')]"]),
        ("tpc_begin", ["recovered b'order-4711' True", "b'paid'"]),
    ],
)
def test_an_example_in_python_prints_what_the_page_says(address: str, tmp_path: Path, text: str, printed: list[str]):
    code = the_block(PAGE, "python", text)
    assert URL in code

    output = output_of([sys.executable, "-c", code.replace(URL, address)], tmp_path, dict(os.environ))

    lines = [line for line in output.splitlines() if line]
    assert len(lines) == len(printed), output
    for line, wanted in zip(lines, printed, strict=True):
        assert line.startswith(wanted)
        assert wanted.removesuffix(", ") in text_of(PAGE)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_example_commits_and_takes(address: str, tmp_path: Path):
    script = the_block(PAGE, "sh", "/operations?first=0").replace("localhost:7201", address.removeprefix("http://"))

    done = subprocess.run(["bash", "-e"], input=script, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    for part in ('"count": 1', '"state": "committed"', '"body": "hello"'):
        assert part in done.stdout
