"""Checks of keys: does a value fulfil a condition?

    present    absent             there is such a key, or there is none
    = VALUE    != VALUE           the value, as UTF-8 text, is this one or another; a key that is not there fulfils !=
    >= NUMBER  <= NUMBER          the value is a number in plain decimal notation, compared exactly

>>> problem_of(">= 0", b"-1")
'expected >= 0, found -1'
>>> problem_of(">= 0", b"0.0")
''
"""

from __future__ import annotations

from brokerha.model.control import Condition, condition_of, number_of, shortened
from brokerha.model.invariants import invariant


def problem_of(expected: str, value: bytes | None) -> str:
    """Return an empty string when the value (None: no such key) is as expected, else the expected and the found value."""
    condition = condition_of(expected)
    invariant(condition is not None, "a check has a condition", expected=expected)
    if condition is None or _holds(condition, value):
        return ""
    return f"expected {shortened(expected)}, found {_shown(value)}"


def _holds(condition: Condition, value: bytes | None) -> bool:
    sign = condition.sign
    if value is None:
        return sign in {"absent", "!="}
    if sign in {"present", "absent"}:
        return sign == "present"
    if sign in {"=", "!="}:
        return (value == condition.value.encode()) is (sign == "=")
    found, bound = number_of(_text(value) or ""), number_of(condition.value)
    if found is None or bound is None:
        return False
    return found >= bound if sign == ">=" else found <= bound


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _shown(value: bytes | None) -> str:
    if value is None:
        return "no such key"
    text = _text(value)
    if text is None or not text.isprintable():
        return f"{len(value)} bytes that are no printable text"
    return shortened(text) or "an empty value"
