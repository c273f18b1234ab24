"""The JSON of commands is a contract: real outputs hold it, its files are up to date, and no field has gone.

Given a small cluster in this process, when each command of COMMANDS runs, then what it writes has exactly the fields of its schema: none is
missing, none is undocumented.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from brokerha.cli.cluster import quarantine
from brokerha.cli.main import main
from brokerha.master.split_report import listed, shown
from brokerha.transports.tools.quarantine import Quarantined
from tests.docs.json_outputs import COMMANDS, Here, small_cluster
from tests.reference.json_outputs import OUTPUTS, lines_of, schema_of
from tests.support.logs import memory_log
from tests.unit.master.test_split_report import facts, go_on, went_back

FIELDS = Path(__file__).with_name("json_fields.txt")
NOT_SHOWN = {"splits-show", "quarantine-list", "quarantine-show", "quarantine-change"}
"""Need a broker, or a split: shown by the last two tests."""


def closed(schema: Any) -> Any:
    """The same schema, which allows no field that it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(each) for name, each in schema.items()}
    if "properties" in found and "required" in found:
        found["additionalProperties"] = False
    return found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with small_cluster(tmp_path_factory.mktemp("json")) as here:
        yield here


def test_what_commands_write_has_the_fields_of_its_schema_and_no_others(here: Here) -> None:
    for name, line in COMMANDS:
        code, told, said = here.run(shlex.split(line))
        assert code in {0, 1, 2}, f"{line}: {said}"
        documents = told if OUTPUTS[name].is_lines and isinstance(told, list) else [told]
        assert documents, line
        for document in documents:
            jsonschema.validate(document, closed(schema_of(name)))


def test_every_form_is_shown_by_a_real_command() -> None:
    assert {name for name, _ in COMMANDS} | NOT_SHOWN == OUTPUTS.keys()


@pytest.mark.parametrize("name", OUTPUTS)
def test_each_schema_is_a_schema_and_allows_more_fields(name: str) -> None:
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema.get("additionalProperties", True)


def test_a_document_without_a_field_or_with_another_type_is_refused() -> None:
    good = {"transactions": 1, "statements": 1, "lsn": 5}
    jsonschema.validate({**good, "later": 1}, schema_of("load"))
    for bad in ({"transactions": 1, "lsn": 5}, {**good, "lsn": "5"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema_of("load"))


def test_no_field_was_taken_away() -> None:
    """json_fields.txt only grows: append what is new, and take nothing away before the next major version."""
    promised = set(FIELDS.read_text(encoding="utf-8").splitlines())
    now = {line for name in OUTPUTS for line in lines_of(name)}
    assert not promised - now, "fields that were promised are gone"
    assert not now - promised, "new fields: append them to tests/docs/json_fields.txt"


def test_messages_in_quarantine_have_the_fields_of_their_schemas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = Quarantined("ab12", "m1", "no msgpack", "brokerha.writes", "any", 0, b"\x00x", {"content_type": "text/plain"}, 1)
    monkeypatch.setattr(quarantine, "_messages", lambda *_: iter([(None, message)]))
    for name, line in (("quarantine-list", "list"), ("quarantine-show", "show ab12")):
        assert main(["quarantine", *line.split(), "-o", "json"]) in {0, 1}
        jsonschema.validate(json.loads(capsys.readouterr().out), closed(schema_of(name)))


def test_messages_that_leave_quarantine_are_counted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    message = Quarantined("ab12", "m1", "no msgpack", "brokerha.writes", "any", 0, b"x", {}, 1)
    place = SimpleNamespace(retry=lambda *_: None, drop=lambda *_: None)
    monkeypatch.setattr(quarantine, "_messages", lambda *_: iter([(place, message)]))
    for line in ("retry ab12", "drop ab12", "drop --all --yes"):
        assert main(["quarantine", *line.split(), "-o", "json"]) == 0
        told = json.loads(capsys.readouterr().out)
        jsonschema.validate(told, closed(schema_of("quarantine-change")))
        assert told == {"done": 1, "failed": 0}


def test_reports_of_splits_have_the_fields_of_their_schemas() -> None:
    journal = memory_log("m1", "journal-of-m1")
    number = went_back(journal)
    go_on(journal, "cefdkjh", "ARRAAA")
    jsonschema.validate(listed(journal, facts(journal)), closed(schema_of("splits-list")))
    jsonschema.validate(shown(journal, facts(journal), {"number": number}), closed(schema_of("splits-show")))
    journal.close()
