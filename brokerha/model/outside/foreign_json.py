r"""Foreign JSON: small input must not become large or deep in memory, and must hold only values that can be kept.

Depth and number of items are checked by counting brackets and commas before parsing. ``NaN``, ``Infinity``, numbers too large for
a float, and halves of surrogate pairs (``"\ud800"``) are refused, because later code cannot keep them.

>>> parse_foreign_json('[1, {"a": "b"}]')
[1, {'a': 'b'}]
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from brokerha.model.errors import InvalidRequest, TooLarge

ITEMS_LIMIT: Final = 100_000
"""Limit of items of lists and fields of objects, in total."""
DEPTH_LIMIT: Final = 32
_STRING: Final = re.compile(rb'"[^"]*"?')
_NO_BRACKETS: Final = bytes(sorted(set(range(256)) - set(b"[]{}")))
_MAY_BE_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")


def parse_foreign_json(text: str, items_limit: int = ITEMS_LIMIT) -> Any:
    """Return the value. Raises InvalidRequest, and TooLarge for too many items."""
    _check_size(text, items_limit)
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if _MAY_BE_HALF.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidRequest("the body is not JSON in UTF-8: a text holds half of a surrogate pair") from None
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    return value


def _check_size(text: str, items_limit: int) -> None:
    # Without escapes a text ends at the next quote; the parser handles broken JSON.
    coded = text.encode("utf-8", "replace").replace(b"\\\\", b"").replace(b'\\"', b"")
    # An item has at most two texts, each with two quotes.
    has_too_many = coded.count(b'"') > 4 * (items_limit + 1)
    bare = coded if has_too_many else _STRING.sub(b"", coded)
    depth = 0
    for bracket in bare.translate(None, _NO_BRACKETS)[: 2 * items_limit]:
        depth += 1 if bracket in b"[{" else -1
        if depth > DEPTH_LIMIT:
            raise InvalidRequest(f"the body is not JSON that is read here: it is deeper than {DEPTH_LIMIT} lists and objects")
    if has_too_many or sum(map(bare.count, (b"[", b"{", b","))) > items_limit:
        raise TooLarge(f"the body has more than {items_limit} items: split it")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value
