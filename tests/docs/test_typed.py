"""The package is typed for programs that use it: a type checker knows its names, and no others."""

from __future__ import annotations

import pytest
from mypy import api


@pytest.mark.slow
def test_a_type_checker_sees_types_and_finds_names_that_are_not_there(tmp_path) -> None:
    file = tmp_path / "program.py"
    file.write_text(
        "import brokerha\n"
        "def work(tx: brokerha.Transaction) -> bytes | None:\n"
        "    return tx.get('t', 'k')\n"
        "brokerha.conect('http://127.0.0.1:7201')\n"
    )

    said, _, status = api.run(
        ["--strict", "--follow-imports=silent", "--explicit-package-bases", "--cache-dir", str(tmp_path), str(file)]
    )

    assert status == 1
    assert [line.partition("program.py:")[2].partition(":")[0] for line in said.splitlines()[:-1]] == ["4"], said
