"""The rooms of the library: few entries in each folder, a complete map in each, and no imports in a circle.

A folder is a room for one capability. The docstring of its ``__init__.py`` is its map: a line for each module, page and
folder in it. Modules import each other in one direction; what is imported under TYPE_CHECKING or inside of a function counts,
because it is read as well. A folder that is too full stands here with its present size, which may only shrink.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.tidy.test_tidy import modules, tracked, tree_of

ENTRIES_MAX = 25
CROWDED: dict[str, int] = {
    # All floors stand in it, and what an installation asks for at this place: `programs` and `py.typed`.
    "brokerha": 27
}
"""Folder -> its number of entries today. To be emptied; a new one needs a reason beside it."""


def folders() -> dict[str, set[str]]:
    """Folder of the library -> its entries, folders with a slash."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in tracked():
        parts = name.split("/")
        if parts[0] == "brokerha":
            for depth in range(1, len(parts)):
                found["/".join(parts[:depth])].add(parts[depth] + ("/" if depth + 1 < len(parts) else ""))
    return found


def test_a_folder_has_few_entries():
    sizes = {folder: len(entries) for folder, entries in folders().items()}
    assert {folder: size for folder, size in sizes.items() if size > CROWDED.get(folder, ENTRIES_MAX)} == {}
    assert {folder: size for folder, size in CROWDED.items() if sizes.get(folder, 0) < max(size, ENTRIES_MAX + 1)} == {}


def test_the_map_of_a_folder_names_all_that_is_in_it():
    missing = []
    for folder, entries in folders().items():
        init = f"{folder}/__init__.py"
        if "__init__.py" not in entries:
            continue
        words = ast.get_docstring(tree_of(init)) or ""
        for entry in sorted(entries - {"__init__.py"}):
            known = {entry, f"`{entry.removesuffix('.py').removesuffix('/')}`"}
            if not any(re.search(rf"(?<![\w/.]){re.escape(word)}(?!\w)", words) for word in known):
                missing.append(f"{folder}/{entry}")
    assert missing == []


def test_the_map_of_a_folder_names_nothing_that_is_gone():
    gone = []
    for folder, entries in folders().items():
        words = (ast.get_docstring(tree_of(f"{folder}/__init__.py")) or "") if "__init__.py" in entries else ""
        # A line of the map begins with its entry.
        gone += [f"{folder}/{entry}" for entry in re.findall(r"^ *(\w+(?:\.py|/)) ", words, re.MULTILINE) if entry not in entries]
    assert gone == []


def imported_by(module: str) -> set[str]:
    """Modules of ours that a module imports: at its head, as types, inside of functions."""
    found: set[str] = set()
    for node in ast.walk(tree_of(modules()[module])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & modules().keys()) or {node.module}
    return (found & modules().keys()) - {module}


def circles(imports: dict[str, set[str]]) -> Iterator[frozenset[str]]:
    """Sets of more than one module of which each reaches each other one (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> Iterator[frozenset[str]]:
        number[module] = lowest[module] = len(number)
        path.append(module)
        for other in sorted(imports[module]):
            if other not in number:
                yield from visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in path:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            at = path.index(module)
            if len(path) - at > 1:
                yield frozenset(path[at:])
            del path[at:]

    for module in sorted(imports):
        if module not in number:
            yield from visit(module)


def test_modules_import_each_other_in_one_direction():
    found = circles({module: imported_by(module) for module in modules()})
    assert [sorted(circle) for circle in found] == [], "a part is given values or a narrow Protocol, never the whole"


@pytest.mark.parametrize(
    ("imports", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [{"a", "b"}]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}}, [{"d", "e"}, {"a", "b", "c"}]),
    ],
)
def test_a_circle_is_found_wherever_it_is(imports: dict[str, set[str]], found: list[set[str]]):
    assert list(circles(imports)) == found
