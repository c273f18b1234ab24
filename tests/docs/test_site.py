"""The site builds without a warning: each link leads to a page of it, each page has a place in its navigation, and nothing comes from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

REMOTE = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built anew, as ``make docs`` does."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_page_outside_of_docs_and_a_source_file_have_their_place(site: Path):
    for page in ("index", "docs/tutorial", "brokerha/sync/PROTOCOL", "brokerha/sync/core.py", "brokerha/spark"):
        assert (site / f"{page}.html").is_file(), page
    assert (site / "docs/pictures/page-healthy.png").is_file()


def test_nothing_is_loaded_from_elsewhere(site: Path):
    assert not [
        (page.name, found[0]) for page in site.rglob("*.html") for found in REMOTE.finditer(page.read_text(encoding="utf-8"))
    ]


def test_each_diagram_is_a_picture(site: Path):
    shown = sum(page.read_text(encoding="utf-8").count('<div class="diagram"><svg') for page in site.rglob("*.html"))
    assert shown == len(blocks("mermaid")) > 0


def test_pages_are_found_and_sources_are_not(site: Path):
    found = {
        entry["location"].partition("#")[0]
        for entry in json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))["docs"]
    }
    assert {"docs/splits.html", "brokerha/sync/PROTOCOL.html"} <= found
    assert not [place for place in found if ".py" in place]
