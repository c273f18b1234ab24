"""The page of the papers' sentences and their tests: docs/reference/sentences.md, from the docstrings of tests/unit/paper."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests/unit/paper"
HEAD = """# The papers, sentence by sentence

<!-- Made by `python -m tests.reference` from the docstrings of the tests; change these, not this page. -->

What brokerha is made from says what it should do, sentence by sentence. Each sentence has a test that quotes it, or names what it is about, and says where this system does more, or
does it another way.
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_section(path) for path in sorted(FOLDER.glob("test_*.py")))


def untold() -> list[str]:
    """Tests there that say no sentence."""
    return [f"{path.name}: {test.name}" for path in FOLDER.glob("test_*.py") for test in _tests(path) if not _said(test)]


def _section(path: Path) -> str:
    title = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem).partition("\n")[0].rstrip(".")
    link = f"[{path.name}](../../{path.relative_to(ROOT)})"
    rows = "".join(f"| {_said(test)} | `{test.name}` |\n" for test in _tests(path))
    return f"\n## {title}\n\n{link}\n\n| sentence | test |\n|---|---|\n{rows}"


def _tests(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def _said(test: ast.FunctionDef) -> str:
    first, _, _ = (ast.get_docstring(test) or "").partition("\n\n")
    return " ".join(first.split()).replace("|", "\\|").replace("<", "&lt;")
