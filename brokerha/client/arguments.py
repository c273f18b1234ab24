"""Check of argument types: public methods of the client name a wrong argument instead of failing deep inside.

    @checked
    class Reads:
        def get(self, table: str, key_name: str | bytes) -> bytes | None: ...

    reads.get(None, "k")          InvalidRequest: get: table is text, not None

Annotations are the only list of allowed types. They are checked after a call has failed, so a successful call costs nothing. A
generator starts later, so its arguments are checked first.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, ParamSpec, TypeVar

from brokerha.model.errors import InvalidRequest

Kind = TypeVar("Kind")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _is_whole(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


_TEXT: Final = ("text", lambda value: isinstance(value, str))
_WHOLE: Final = ("a whole number", _is_whole)
_LIST: Final = ("a list", lambda value: isinstance(value, Iterable) and not isinstance(value, (str, bytes)))
_FITS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "str": _TEXT,
    "TxId": _TEXT,
    "NodeId": _TEXT,
    "bytes": ("bytes", lambda value: isinstance(value, (bytes, bytearray, memoryview))),
    "int": _WHOLE,
    "Lsn": _WHOLE,
    "float": ("a number", lambda value: hasattr(value, "__float__") and not isinstance(value, bool)),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "None": ("None", lambda value: value is None),
    "Least": ("a whole number, 'latest' or None", lambda value: value is None or value == "latest" or _is_whole(value)),
    "Readable": ("a binary file", lambda value: hasattr(value, "read")),
    "Sequence": _LIST,
    "Iterable": _LIST,
    "dict": ("a dict", lambda value: isinstance(value, Mapping)),
    "Callable": ("a function", callable),
}
"""By the name in an annotation: its word for people, and a test of a value. Types that are not listed always fit."""


def checked(kind: type[Kind]) -> type[Kind]:
    """Return the same class, whose public methods name an argument of a wrong type."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, naming(method))
    return kind


def naming(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return the same function; it raises InvalidRequest with the name of an argument of a wrong type."""
    is_late = inspect.isgeneratorfunction(function)

    @functools.wraps(function)
    def call(*given: Arguments.args, **named: Arguments.kwargs) -> Result:
        if is_late and (problem := _misfit(function, given, named)):
            raise InvalidRequest(problem)
        try:
            return function(*given, **named)
        except (TypeError, AttributeError, InvalidRequest):
            if problem := _misfit(function, given, named):
                raise InvalidRequest(problem) from None
            raise

    return call


def _misfit(function: Callable[..., Any], given: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """Describe the first argument that does not fit its annotation; empty when all fit."""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*given, **named)
    except TypeError:
        # Python itself names a missing argument, or one too many.
        return ""
    for name, value in bound.arguments.items():
        parameter = signature.parameters[name]
        alternatives = [each.partition("[")[0] for each in str(parameter.annotation).split(" | ")]
        if not all(each in _FITS for each in alternatives):
            continue
        words, fits = zip(*(_FITS[each] for each in alternatives), strict=True)
        for one in value if parameter.kind is parameter.VAR_POSITIONAL else (value,):
            if not any(fit(one) for fit in fits):
                listed = f"{', '.join(words[:-1])} or {words[-1]}" if words[1:] else words[0]
                return f"{_name(function)}: {name} is {listed}, not {'None' if one is None else type(one).__name__}"
    return ""


def _name(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class that it makes."""
    path = function.__qualname__.split(".")
    return path[-2] if path[-1] == "__init__" else path[-1]
