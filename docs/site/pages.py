"""The site has the layout of the repository, so that one relative link works in both.

Pages are all Markdown files of the repository. Whatever else a page links to (a source file, a folder, a file of tests) gets
a page too, so that no link needs the name of a host. Diagrams become pictures while the site is built: a reader loads no script
from elsewhere. mkdocs calls the functions ``on_...``.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mmdr
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs", "brokerha")
ASSETS = {".png", ".json", ".yml", ".css"}
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".sh": "sh", ".json": "json"}
_LINK = re.compile(r"\]\(<?([^)#\s>]+)[^)]*\)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class SourcePage(File):
    """A file or folder that is no page, shown as one under its own name."""

    def is_documentation_page(self) -> bool:
        """It is one, whatever its ending is."""
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All pages, pictures and linked sources, by their paths in the repository."""
    pages = [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *(page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("*.md"))),
    ]
    assets = [path for path in sorted((ROOT / "docs").rglob("*")) if path.suffix in ASSETS]
    found = [File(_name(path), str(ROOT), config.site_dir, use_directory_urls=False) for path in pages + assets]
    known = {file.src_uri for file in found}
    for page in pages:
        for target in _linked(page):
            if target not in known and (ROOT / target).exists():
                known.add(target)
                found.append(_source_page(target, config))
    of_the_theme = [file for file in files if file.src_dir != config.docs_dir]
    return Files(of_the_theme + found)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts the picture of each diagram in its place; one that is wrong ends the build."""
    return _DIAGRAM.sub(lambda found: f'<div class="diagram">{mmdr.render(found[1]).svg()}</div>\n', markdown)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _linked(page: Path) -> Iterator[str]:
    """What a page links to in the repository, by its path there."""
    for target in _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8"))):
        if not re.match(r"[a-z][a-z0-9+.-]*:", target):
            yield posixpath.normpath(posixpath.join(posixpath.dirname(_name(page)), target))


def _source_page(target: str, config: MkDocsConfig) -> File:
    path = ROOT / target
    page = SourcePage(target, None, config.site_dir, use_directory_urls=False, dest_uri=f"{target}.html")
    page.content_string = f"---\ntitle: {target}\nsearch:\n  exclude: true\n---\n\n# `{target}`\n\n{_shown(path)}\n"
    page.inclusion = InclusionLevel.NOT_IN_NAV
    return page


def _shown(path: Path) -> str:
    """A file as it is; a folder by its map, the docstring of its package, or by its entries."""
    if path.is_file():
        return _fenced(path.read_text(encoding="utf-8"), LANGUAGES.get(path.suffix, "text"))
    init = path / "__init__.py"
    words = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) if init.is_file() else None
    return _fenced(words or "\n".join(sorted(each.name for each in path.iterdir() if each.name[0] not in "_.")), "text")


def _fenced(text: str, language: str) -> str:
    return f"`````{language}\n{text}\n`````"
