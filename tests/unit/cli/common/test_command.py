"""How commands are declared: options in place of a type, an answer in four forms, a word that may be left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from brokerha.cli.common.command import Answer, Group, Options

closed: list[str] = []


@dataclass
class Dish(Options):
    """What is served."""

    name: Annotated[str, typer.Option("--dish")] = "soup"
    plates: Annotated[int, typer.Option("--plates")] = 1

    def __exit__(self, *_: object) -> None:
        closed.append(self.name)


app = Group("A kitchen.", default="serve")


@app.command(defaults={"plates": 2})
def serve(dish: Dish, guest: Annotated[str, typer.Argument()]) -> Answer:
    """Serve a dish."""
    rows = [{"guest": guest, "plates": dish.plates}]
    shown = [{"guest": guest.title(), "plates": dish.plates}]
    return Answer({"dish": dish.name, "rows": rows}, rows, {"guest": "GUEST"}, shown, remarks=["enjoy"], code=1)


@app.command()
def taste(dish: Dish) -> Answer:
    """Say how it is."""
    if dish.name == "poison":
        raise typer.BadParameter("no")
    return Answer({"dish": dish.name}, text=f"{dish.name} is good")


@app.command()
def wash() -> None:
    """Say nothing."""


program = typer.main.get_command(app)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    def command(*words: str) -> tuple[int, str, str]:
        code = program(args=list(words), prog_name="kitchen", standalone_mode=False)
        return (code, *capsys.readouterr())

    return command


@pytest.mark.parametrize(
    ("form", "out"),
    [
        ("table", "GUEST\nAda\n"),
        ("json", '{"dish": "soup", "rows": [{"guest": "ada", "plates": 2}]}\n'),
        ("yaml", "dish: soup\nrows:\n  - guest: ada\n    plates: 2\n"),
        ("tsv", "guest\tplates\nada\t2\n"),
    ],
)
def test_an_answer_is_written_in_the_form_that_is_wanted_and_its_remarks_beside_it(run, form, out):
    code, told, said = run("serve", "ada", "-o", form)
    assert (code, said) == (1, "brokerha: enjoy\n")
    assert "\n".join(line.rstrip() for line in told.splitlines()) + "\n" == out


def test_options_of_a_type_are_options_of_the_command_and_the_name_of_the_default_one_is_left_out(run):
    assert run("ada", "--dish", "pie", "--plates", "3", "-o", "json")[1].startswith('{"dish": "pie"')
    assert run("taste", "--dish", "pie") == (0, "pie is good\n", "")
    assert run("taste", "-o", "json") == (0, '{"dish": "soup"}\n', "")


def test_what_was_opened_for_a_command_is_closed_also_when_it_fails(run):
    closed.clear()
    run("taste")
    with pytest.raises(typer.BadParameter):
        run("taste", "--dish", "poison")
    assert closed == ["soup", "poison"]


def test_a_command_without_a_word_is_done(run):
    assert run("wash") == (0, "", "")
