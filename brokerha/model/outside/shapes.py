"""Shapes of arguments, checked before a value from outside is used.

One table per request describes its arguments, and only `check_shapes` checks them:

>>> LINES = {"first_lsn": needed(number(0, 9)), "reverse": FLAG}
>>> check_shapes("the question log", LINES, {"first_lsn": 5, "reverse": None})
>>> check_shapes("the question log", LINES, {"first_lsn": "x"})
Traceback (most recent call last):
    ...
brokerha.model.errors.InvalidRequest: the question log: first_lsn is a whole number from 0 to 9, not 'x'

None stands for a missing argument. A bool is not a number, and a text can always be encoded as UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from reprlib import Repr
from typing import Any, Final, NamedTuple

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import is_tx_id

LSN_LIMIT: Final = 2**63 - 1
TIMEOUT_LIMIT_MS: Final = 3_600_000

_REPR = Repr()
_REPR.maxstring = _REPR.maxother = 80


class Shape(NamedTuple):
    """The shape of one argument."""

    words: str
    """Text after ``is``: ``a whole number from 1 to 9``."""
    fits: Callable[[Any], bool]
    is_needed: bool = False


Shapes = Mapping[str, Shape]


def check_shapes(what: str, shapes: Shapes, given: Mapping[Any, Any]) -> None:
    """Raise InvalidRequest, which begins with ``what``, for the first unknown, missing or malformed argument."""
    unknown = [name for name, value in given.items() if value is not None and name not in shapes]
    if unknown:
        raise InvalidRequest(f"{what} does not take {', '.join(sorted(map(_named, unknown)))}")
    for name, shape in shapes.items():
        value = given.get(name)
        if value is None:
            if shape.is_needed:
                raise InvalidRequest(f"{what} needs the argument {name!r}, {shape.words}")
        elif not shape.fits(value):
            raise InvalidRequest(f"{what}: {name} is {shape.words}, not {shown(value)}")


def shown(value: object) -> str:
    """Return a value from outside as short text, however large or deep it is."""
    return _REPR.repr(value)


def needed(shape: Shape) -> Shape:
    """Return the same shape as a required one."""
    return shape._replace(is_needed=True)


def number(least: int, most: int) -> Shape:
    """Return the shape of a whole number within these bounds."""
    return Shape(f"a whole number from {least} to {most}", lambda value: type(value) is int and least <= value <= most)


def text(limit: int | None = None) -> Shape:
    """Return the shape of a text of limited length in characters."""
    words = "text" if limit is None else f"a text of at most {limit} characters"
    return Shape(words, lambda value: is_text(value) and (limit is None or len(value) <= limit))


def data(limit: int) -> Shape:
    """Return the shape of limited bytes, or of text with as many bytes as UTF-8."""
    return Shape(
        f"bytes, or text: at most {limit} bytes",
        lambda value: (is_text(value) and len(value.encode()) <= limit) or (isinstance(value, bytes) and len(value) <= limit),
    )


def one_of(*words: str) -> Shape:
    """Return the shape of one of these words."""
    return Shape(f"{', '.join(words[:-1])} or {words[-1]}", lambda value: type(value) is str and value in words)


def either(*shapes: Shape) -> Shape:
    """Return the shape of any of these."""
    return Shape(", or ".join(shape.words for shape in shapes), lambda value: any(shape.fits(value) for shape in shapes))


def listed(of: Shape, least: int, most: int) -> Shape:
    """Return the shape of a list with a number of items in this range."""

    def fits(value: object) -> bool:
        return isinstance(value, (tuple, list)) and least <= len(value) <= most and all(map(of.fits, value))

    return Shape(f"a list of {least} to {most}, each {of.words}", fits)


def is_text(value: object) -> bool:
    """Tell whether it is text that UTF-8 can encode; half of a surrogate pair cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _named(name: object) -> str:
    return name if isinstance(name, str) and is_text(name) and len(name) <= _REPR.maxstring else shown(name)


TEXT: Final = text()
FLAG: Final = Shape("true or false", lambda value: isinstance(value, bool))
BYTES: Final = Shape("bytes", lambda value: isinstance(value, bytes))
MAP: Final = Shape("a map", lambda value: isinstance(value, dict))
LSN: Final = number(0, LSN_LIMIT)
LEAST_LSN: Final = number(-1, LSN_LIMIT)
"""-1 stands for the latest."""
TIMEOUT: Final = number(1, TIMEOUT_LIMIT_MS)
TXID: Final = Shape("a transaction id", lambda value: isinstance(value, str) and is_tx_id(value))
