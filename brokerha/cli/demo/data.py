"""Real data for the demonstration: a file of yours, or the Unicode character database that every Python carries.

Each piece is one transaction: N-Triples or N-Quads lines that belong together. The built-in data are four statements about
each named character outside the ideographs, from `unicodedata`.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

from brokerha.model.errors import InvalidRequest
from brokerha.stores.rdf.change import check_nquads

CHARACTERS = 6_000
"""Characters of the built-in data: about 24,000 statements, a few seconds of work for six copies."""
LINES = 40
"""Statements in one transaction."""
BASE = "urn:unicode:"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"


def built_in_lines(characters: int = CHARACTERS) -> Iterator[str]:
    """N-Triples lines about the first named characters."""
    named = (c for c in map(chr, range(0x10FFFF)) if unicodedata.name(c, ""))
    for character in itertools.islice(named, characters):
        subject = f"<{BASE}U{ord(character):04X}>"
        yield f'{subject} <{LABEL}> "{unicodedata.name(character)}" .'
        yield f'{subject} <{BASE}category> "{unicodedata.category(character)}" .'
        yield f'{subject} <{BASE}direction> "{unicodedata.bidirectional(character)}" .'
        yield f'{subject} <{BASE}combining> "{unicodedata.combining(character)}" .'


def file_lines(path: Path) -> Iterator[str]:
    """Lines of a file of yours. Raises InvalidRequest, naming the file."""
    try:
        with path.open(encoding="utf-8") as file:
            for line in file:
                text = line.strip()
                if text and not text.startswith("#"):
                    yield text
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not UTF-8: byte {error.start}") from None


def pieces(lines: Iterable[str], size: int = LINES) -> list[str]:
    """Texts of ``size`` lines each, checked. Raises InvalidRequest with the place of the first bad line."""
    listed = list(lines)
    texts = ["\n".join(listed[at : at + size]) + "\n" for at in range(0, len(listed), size)]
    for number, text in enumerate(texts):
        try:
            check_nquads(text)
        except InvalidRequest as error:
            raise InvalidRequest(f"statements {number * size + 1} to {number * size + size}: {error}") from None
    return texts
