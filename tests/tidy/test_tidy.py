"""The house rules that no linter knows, checked on all files that git tracks.

Sizes (a file under 600 lines, a function under 80), a docstring in each module, links that lead somewhere, no traces of
the machine that something was written on, no dead modules, and a protocol page for each message. Exceptions stand in
one dictionary here with their present size; they may only shrink.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80
PACKAGES = ("brokerha", "consumers", "producers")

LONGER: dict[str, int] = {}
"""``path`` or ``path:function`` -> its number of lines today. To be emptied; a new entry needs a reason beside it."""

UNREACHED: dict[str, str] = {
    "brokerha.aio": "programs of users import it",
    **dict.fromkeys(
        (
            "consumers.changes",
            "consumers.queue_worker",
            "producers.bridge",
            "producers.coordinator",
            "producers.load_generator",
            "producers.publisher",
        ),
        "a program that users run and copy: docs/programs.md",
    ),
}
"""Module that no program imports -> why it stays."""

PROTOCOL_PAGES = tuple(f"brokerha/{core}/PROTOCOL.md" for core in ("sync", "replication", "following", "transactions"))

# Put together from pieces, so that this file does not contain what it forbids.
TRACES = {
    re.compile("/wo" + "rk/"): "a path of one machine: make it relative to the repository",
    re.compile("/opt/(py" + "pi|whe" + "els)"): "a package mirror of one machine: leave the choice to pip",
    re.compile("/ro" + "ot/"): "a path of one machine: make it relative to the repository",
    re.compile(r"/ho" + r"me/[a-z]\w*/"): "a path of one machine: make it relative to the repository",
    re.compile(r"[a-z0-9]\.(?<!docker\.)inter" + r"nal\b"): "a host name that only one network knows",
}
ONLY_IN_TESTS = {re.compile(r"(?<![\w-])sha" + "red/"): "the project stands by itself: bring what is needed into it"}


@functools.cache
def tracked() -> tuple[str, ...]:
    """Paths of all files that git tracks and that still exist, relative to the repository."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip(f"not a git checkout: {listing.stderr.strip()}")
    return tuple(name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file())


def python_files() -> list[str]:
    return [name for name in tracked() if name.endswith(".py")]


@functools.cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(text_of(name), filename=name)


def too_long(sizes: dict[str, int], limit: int) -> list[str]:
    """Complaints about sizes over the limit, and about exceptions that are no longer needed or too generous."""
    complaints = []
    for name, lines in sizes.items():
        allowed = LONGER.get(name, limit)
        if lines > allowed:
            complaints.append(f"{name}: {lines} lines, at most {allowed}")
        elif name in LONGER and (lines < allowed or lines <= limit):
            complaints.append(f"{name}: has only {lines} lines now; lower or remove its exception of {allowed}")
    return complaints


def functions_of(name: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree_of(name)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{name}:{node.name}", (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_file_is_longer_than_is_read_together():
    sizes = {name: text_of(name).count("\n") for name in python_files()}
    assert not too_long(sizes, FILE_LINES_MAX)


def test_no_function_is_longer_than_a_screen_and_a_half():
    sizes: dict[str, int] = {}
    for name in python_files():
        for function, lines in functions_of(name):
            sizes[function] = max(lines, sizes.get(function, 0))
    assert not too_long(sizes, FUNCTION_LINES_MAX)


def test_every_exception_names_something_that_exists():
    files = set(python_files())
    known = files | {function for each in LONGER if (name := each.partition(":")[0]) in files for function, _ in functions_of(name)}
    assert not LONGER.keys() - known
    assert not UNREACHED.keys() - set(modules())


def test_docstrings_say_what_a_function_does_instead_of_asking():
    questions = {"How", "What", "Where", "Who", "Whoever", "Whose", "Why"}
    library = [name for name in python_files() if name.partition("/")[0] in {"brokerha", "consumers", "producers"}]
    functions = [
        (name, node.name, words)
        for name in library
        for node in ast.walk(tree_of(name))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (words := ast.get_docstring(node))
    ]
    assert len(functions) > 4000
    assert not [function for function in functions if function[2].split(maxsplit=1)[0] in questions]


def test_every_module_has_a_docstring():
    assert not [name for name in python_files() if not ast.get_docstring(tree_of(name))]


LINK = re.compile(r"\[[^\]\n]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        base = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        anchor, number = base, 0
        while anchor in anchors:
            number += 1
            anchor = f"{base}-{number}"
        anchors.add(anchor)
    return anchors


def broken_links(name: str) -> Iterator[str]:
    for target in LINK.findall(INLINE_CODE.sub("", FENCE.sub("", text_of(name)))):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = target.partition("#")
        page = (ROOT / name).parent / path if path else ROOT / name
        if not page.exists():
            yield f"{name}: {target} does not exist"
        elif anchor and page.suffix == ".md" and anchor not in anchors_of(page):
            yield f"{name}: {target} has no such heading"


def test_every_relative_link_in_the_documentation_leads_somewhere():
    assert not [problem for name in tracked() if name.endswith(".md") for problem in broken_links(name)]


def traces_in(name: str) -> Iterator[str]:
    try:
        lines = text_of(name).splitlines()
    except UnicodeDecodeError:  # Not a text.
        return
    rules = TRACES if name.startswith("tests/") else TRACES | ONLY_IN_TESTS
    for number, line in enumerate(lines, start=1):
        for pattern, reason in rules.items():
            if found := pattern.search(line):
                yield f"{name}:{number}: {found.group()!r}: {reason}"


def test_no_file_shows_on_which_machine_it_was_written():
    assert not [problem for name in tracked() for problem in traces_in(name)]


@functools.cache
def modules() -> dict[str, str]:
    """Dotted name -> path of each module of the packages that are installed."""
    found = {}
    for name in python_files():
        parts = Path(name).with_suffix("").parts
        if parts[0] in PACKAGES:
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = name
    return found


def mentioned_in(name: str) -> Iterator[str]:
    """Dotted names that a file imports, or gives as a text such as ``"package.module:Class"``."""
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(":")[0]


def entry_points() -> set[str]:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    groups = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    # The name of a program in an installation; in the repository it lies beside the library.
    return {target.partition(":")[0].removeprefix("brokerha.programs.") for group in groups for target in group.values()}


def test_every_entry_point_exists_and_every_module_is_reached_by_a_program():
    programs = entry_points()
    reached = set(programs)
    for module, name in modules().items():
        reached |= {mentioned for mentioned in mentioned_in(name) if mentioned != module}
    own_right = {module for module, name in modules().items() if name.endswith(("__init__.py", "__main__.py"))}
    assert not [module for module in modules() if module not in reached | own_right | UNREACHED.keys()]
    assert not [module for module in programs if module not in modules()]


def test_programs_are_called_by_the_name_that_they_have_in_an_installation():
    targets = tomllib.loads(text_of("pyproject.toml"))["project"]["entry-points"].values()
    assert all(target.startswith("brokerha.programs.") for group in targets for target in group.values())
    asked = re.compile(r"python3? -m (consumers|producers)\b")
    assert not [name for name in tracked() if name.endswith((".md", ".py")) and asked.search(text_of(name))]


def test_every_message_stands_in_a_protocol_page():
    source = "brokerha/model/wire/messages.py"
    pages = [page for page in PROTOCOL_PAGES if page in tracked()]
    if source not in tracked() or not pages:
        pytest.skip("no messages or no protocol page yet")
    messages = [
        node.name
        for node in tree_of(source).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(part, ast.AnnAssign) and ast.unparse(part.target) == "CHANNEL" for part in node.body)
    ]
    assert messages, "no class with a CHANNEL: has messages.py changed its shape?"
    words = set(re.findall(r"\w+", " ".join(text_of(page) for page in pages)))
    assert not [message for message in messages if message not in words]
