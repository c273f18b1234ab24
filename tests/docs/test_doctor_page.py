"""Every command of docs/doctor.md runs, in its order, in one shell, beside a cluster that is in use; and its table names all that is checked."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.docs.json_outputs import small_cluster
from tests.docs.pages import blocks_of, shell_of

PAGE = "docs/doctor.md"
WITHIN_S = 300


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    lines = [line for block in blocks_of(PAGE, "sh") for line in block.text.splitlines() if line]
    assert sum("doctor" in line for line in lines) >= 4
    assert sum("support-bundle" in line for line in lines) == 2
    with small_cluster(tmp_path):
        # A doctor may find something on the machine of the test: its code says so, and is no failure of the page.
        script = "\n".join(f"{line}\ncode=$?; ((code <= 2)) || exit $code" for line in lines)
        (tmp_path / "var" / "log").mkdir(parents=True, exist_ok=True)
        (tmp_path / "deploy" / "secrets").mkdir(parents=True)
        (tmp_path / "deploy" / "secrets" / "management.url").write_text("http://guest:guest@127.0.0.1:1\n")
        done = subprocess.run(
            ["bash", "--norc", "-c", script],
            cwd=tmp_path,
            env=shell_of(tmp_path),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    bundles = list(tmp_path.glob("*.tar.gz"))
    assert len(bundles) == 2
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        assert "bundle/status.json" in archive.getnames()
