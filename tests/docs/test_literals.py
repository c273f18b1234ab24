"""docs/guarantees.md, "What a store keeps of a literal": its table is what the engine does, in memory and on disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyoxigraph import NamedNode, Quad, RdfFormat, Store, parse

from tests.docs.pages import text_of

XSD = "http://www.w3.org/2001/XMLSchema#"
SPELLINGS = {
    "integer": ("5", "01", "+1", "-0", "99999999999999999999", "007x", "x"),
    "decimal": ("1.5", "1.50", "1.0", ".5", "1.1234567890123456789012", "x"),
    "double": ("1", "1.5E0", "1e400", "INF", "NaN", "x"),
    "float": ("1", "0.1", "1.50", "x"),
    "boolean": ("true", "1", "0", "TRUE"),
    **dict.fromkeys(("int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger"), ("5", "05", "x")),
    **dict.fromkeys(("unsignedInt", "unsignedLong", "unsignedShort", "unsignedByte"), ("5", "05", "x")),
    **dict.fromkeys(("negativeInteger", "nonPositiveInteger"), ("-5", "x")),
    "date": ("2020-01-01", "2020-01-01Z", "2020-01-01+00:00", "2020-01-01+02:00", "2020-13-01"),
    "dateTime": (
        "2020-01-01T00:00:00Z", "2020-01-01T00:00:00.50Z", "2020-01-01T00:00:00+00:00", "2020-01-01T00:00:00+02:00",
        "2020-01-01T24:00:00Z", "2020-01-01T00:00:00", "yesterday",
    ),
    "dateTimeStamp": ("2020-01-01T00:00:00Z", "yesterday"),
    "time": ("10:00:00", "10:00:00.00", "24:00:00", "noon"),
    "gYear": ("2020", "2020Z", "2020+00:00"),
    "gYearMonth": ("2020-01",),
    "gMonthDay": ("--01-01",),
    "gDay": ("---01",),
    "gMonth": ("--01",),
    "duration": ("P1Y2M", "P1Y12M", "PT60S", "PT0S", "P0Y"),
    "yearMonthDuration": ("P1Y", "P12M", "P0Y", "P0M"),
    "dayTimeDuration": ("PT1H", "PT3600S", "PT0S"),
    **dict.fromkeys(("string", "normalizedString", "token", "anyURI", "language", "Name"), ("a  b", "A")),
    "hexBinary": ("0aFF",),
    "base64Binary": ("YQ==",),
}  # fmt: skip
TAGS = ("en", "EN", "en-gb", "EN-gb", "en-GB", "zh-Hant-TW", "ar--ltr")
LONG, XSD_TYPE = re.compile(r"xsd:(.*)"), rf"<{XSD}\1>"
SHORT = re.compile(rf"<{re.escape(XSD)}(.*)>")
ROW = re.compile(r"^\| `(.+?)` \| `(.+?)` \|$", re.MULTILINE)


def written() -> list[str]:
    """Literals as a user writes them, datatypes short."""
    typed = [f'"{value}"^^xsd:{name}' for name, values in SPELLINGS.items() for value in values]
    return typed + [f'"x"@{tag}' for tag in TAGS] + ['"x"^^<urn:own:Type>', '"05"^^<urn:own:Type>']


def kept(store: Store, texts: list[str]) -> dict[str, str]:
    """Each literal as it comes back from a store."""
    for number, text in enumerate(texts):
        line = f"<urn:s:{number}> <urn:p> {LONG.sub(XSD_TYPE, text)} ."
        store.extend(Quad(*quad.triple) for quad in parse(line.encode(), format=RdfFormat.N_TRIPLES))
    found = {}
    for number, text in enumerate(texts):
        (quad,) = store.quads_for_pattern(NamedNode(f"urn:s:{number}"), None, None)
        short = SHORT.sub(r"xsd:\1", str(quad.object))
        found[text] = short if "^^" in short or "@" in short else f"{short}^^xsd:string"
    return found


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_the_page_lists_what_a_store_changes_and_nothing_else(place: str, tmp_path: Path) -> None:
    store = Store() if place == "memory" else Store(str(tmp_path))
    changed = {text: found for text, found in kept(store, written()).items() if text != found}
    section = text_of("docs/guarantees.md").partition("## What a store keeps of a literal")[2].partition("\n## ")[0]
    told = dict(ROW.findall(section))
    assert told == changed, "\n".join(f"| `{text}` | `{found}` |" for text, found in changed.items())
