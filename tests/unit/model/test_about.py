"""Which namespaces and settings of a repository a transaction may write."""

from __future__ import annotations

import pytest

from brokerha.model.errors import InvalidRequest
from brokerha.model.operations import check_operations
from brokerha.model.reserved.about import PREFIX_LIMIT_BYTES, TABLE, VALUE_LIMIT_BYTES, namespace_key, setting_key

GOOD = [
    (namespace_key("main", ""), b"http://example.org/"),
    (namespace_key("main", "é-1._x"), b"urn:x:"),
    (namespace_key("r" * 64, "p" * PREFIX_LIMIT_BYTES), b"urn:" + b"x" * (VALUE_LIMIT_BYTES - 4)),
    (setting_key("main", "title"), "Bücher für alle".encode()),
    (setting_key("main", "union"), b"true"),
]
BAD = [
    (b"main", b"x", "is <repository>/"),
    (b"ma in/namespace/a", b"urn:x:", "is <repository>/"),
    (b"main/other/a", b"urn:x:", "is <repository>/"),
    (b"main/namespace/\xff", b"urn:x:", "not UTF-8"),
    (namespace_key("main", "a:b"), b"urn:x:", "a prefix has"),
    (namespace_key("main", "a b"), b"urn:x:", "a prefix has"),
    (namespace_key("main", "a/b"), b"urn:x:", "a prefix has"),
    (namespace_key("main", "a\n"), b"urn:x:", "a prefix has"),
    (namespace_key("main", "p" * (PREFIX_LIMIT_BYTES + 1)), b"urn:x:", "a prefix has"),
    (namespace_key("main", "a"), b"relative", "absolute IRI"),
    (namespace_key("main", "a"), b"urn:x y", "absolute IRI"),
    (namespace_key("main", "a"), b"urn:x\n", "absolute IRI"),
    (namespace_key("main", "a"), b"", "absolute IRI"),
    (namespace_key("main", "a"), b"urn:" + b"x" * VALUE_LIMIT_BYTES, "absolute IRI"),
    (setting_key("main", "color"), b"red", "has the settings"),
    (setting_key("main", "union"), b"yes", "is true or not there"),
    (setting_key("main", "title"), b"", "in one line"),
    (setting_key("main", "title"), b"two\nlines", "in one line"),
]


@pytest.mark.parametrize(("key", "value"), GOOD)
def test_what_is_well_formed_is_taken(key: bytes, value: bytes) -> None:
    check_operations([("put", TABLE, key, value), ("delete", TABLE, key)])


@pytest.mark.parametrize(("key", "value", "problem"), BAD)
def test_what_is_not_is_refused(key: bytes, value: bytes, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        check_operations([("put", TABLE, key, value)])
    # Another table takes any bytes.
    check_operations([("put", "mine", key, value)])
