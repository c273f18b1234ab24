"""Spark Connect has no `sparkContext` and no RDDs, so nothing of ours may use them."""

from __future__ import annotations

import ast

import pytest

from tests.tidy.test_tidy import ROOT

_GONE = {"sparkContext", "_sc", "rdd", "parallelize"}


@pytest.mark.parametrize("folder", ["brokerha/spark", "brokerha/pipeline", "consumers", "producers"])
def test_nothing_uses_what_spark_connect_does_not_have(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.attr}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in _GONE
    ]
    assert found == []
