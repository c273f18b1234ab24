"""Every command in the documentation, in blocks and in sentences, is one that the command line takes: its name, its options, its values.

What it does is shown by other tests; here nothing is run.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer

from brokerha.cli.main import program
from tests.docs.pages import blocks, pages, text_of

RUNBOOKS = "docs/runbooks.md"
_END = {"|", "||", "&&", ";", ">", ">>", "<", "<<", "2>", "&", "2>&1"}
ROOT_COMMAND: Any = program()


def line_of(text: str) -> list[str] | None:
    """The words of one command line behind its program; None when it is none."""
    try:
        found = shlex.split(text, comments=True)
    except ValueError:
        return None
    while found and "=" in found[0] and not found[0].startswith("-"):
        found = found[1:]
    if not found or found[0].rpartition("/")[2] != "brokerha":
        return None
    end = next((place for place, word in enumerate(found) if word in _END or re.match(r"[<>]\S+\Z", word)), len(found))
    return found[1:end]


def in_blocks() -> list[tuple[str, list[str]]]:
    found = []
    for language in ("sh", "console", "bash"):
        for block in blocks(language):
            for text in re.sub(r"\\\n", " ", block.text).splitlines():
                words = line_of(text.removeprefix("$ "))
                if words:
                    found.append((block.place, words))
    return found


def in_sentences() -> list[tuple[str, list[str]]]:
    found = []
    for page in pages():
        for text in re.findall(r"`(brokerha [^`]+)`", re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)):
            words = line_of(text)
            if words and "…" not in text and not re.search(r"[\[\]|{}*,]", text):
                found.append((page, words))
    return found


def in_short() -> list[list[str]]:
    """Commands of the runbooks that stand there without ``brokerha``: whoever reads them at night types them as they are."""
    found = []
    for text in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text_of(RUNBOOKS), flags=re.DOTALL)):
        words = line_of(f"brokerha {text}") or []
        if len(words) > 1 and hasattr(ROOT_COMMAND.commands.get(words[0]), "resolve_command"):
            found.append(words)
    return found


def problem_of(words: list[str], *, is_part: bool) -> str:
    """Why the command line would refuse this; a part may lack arguments, and stand for several commands with its first words."""
    command, context = ROOT_COMMAND, None
    name, rest = "brokerha", words
    if any(word in each.opts for each in command.params for word in rest[:1]):
        return ""  # An option of the program itself; some of them would be carried out here.
    while True:
        is_group = hasattr(command, "resolve_command")
        if is_group and not rest:
            return "" if is_part else f"{name}: which of its commands?"
        try:
            context = command.make_context(name, list(rest), parent=context)
            if not is_group:
                return ""
            name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        except typer.Exit:
            return ""  # --help, --version
        except typer.TyperException as error:
            text = str(error)
            # Files of a page are not there, and a sentence leaves out what it is not about, or writes N for a number.
            is_fine = "does not exist" in text or (is_part and re.search("Missing|requires an argument|valid integer", text))
            return "" if is_fine else text


BLOCKS, SENTENCES, SHORT = in_blocks(), in_sentences(), in_short()


def test_there_are_many() -> None:
    assert len(BLOCKS) > 100
    assert len(SENTENCES) > 100
    assert ["peer", "remove", "--force"] in SHORT


@pytest.mark.parametrize(("place", "words"), BLOCKS, ids=lambda value: value if isinstance(value, str) else " ".join(value)[:60])
def test_a_command_of_a_block_is_one(place: str, words: list[str]) -> None:
    assert problem_of(words, is_part=False) == "", place


@pytest.mark.parametrize(("page", "words"), SENTENCES, ids=lambda value: value if isinstance(value, str) else " ".join(value)[:60])
def test_a_command_in_a_sentence_is_one(page: str, words: list[str]) -> None:
    assert problem_of(words, is_part=True) == "", page


@pytest.mark.parametrize("words", SHORT, ids=" ".join)
def test_a_command_of_a_runbook_without_the_name_of_the_program_is_one(words: list[str]) -> None:
    assert problem_of(words, is_part=True) == ""


def test_no_command_of_a_runbook_is_left_out() -> None:
    """A command with ``…`` or brackets in it is not parsed: a runbook writes commands that can be typed."""
    written = re.findall(r"`(brokerha [^`]+)`", re.sub(r"```.*?```", "", text_of(RUNBOOKS), flags=re.DOTALL))
    assert len(written) == sum(page == RUNBOOKS for page, _ in SENTENCES) > 0


@pytest.mark.parametrize(
    "text", ["brokerha stats", "brokerha peer remove m1 --forc", "brokerha worker", "brokerha wait", "brokerha log show --from x"]
)
def test_one_that_is_none_is_found(text: str) -> None:
    assert problem_of(line_of(text) or [], is_part=False)
