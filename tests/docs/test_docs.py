"""What the documentation says of the code is so: cluster files load, Python compiles, no path, state or word is left out.

Links are checked by tests/tidy, the examples are run by test_examples.py. A page that describes a part of the code is held
against the one table in the code that the part is made from, in both directions where it is complete.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from brokerha.http.app import PATHS
from brokerha.http.door.answer import STATUS_OF
from brokerha.model import errors, operations, requests, states
from brokerha.model.wire import client_wire
from brokerha.nodes.config.cluster import load_config
from brokerha.nodes.observing.status import FIELDS
from brokerha.transports import topology
from tests.docs.pages import ROOT, Block, blocks, pages, rows_of, table_under, text_of

GLOSSARY = "docs/glossary.md"
GLOSSARY_WORDS = 60
"""More than that nobody learns."""
WORDS_OF_PARTS = {
    "brokerha/sync/PROTOCOL.md": ("stream", "held", "row", "parked", "majority", "proposer", "frozen", "base", "tail", "head", "path", "incarnation"),
    "brokerha/replication/PROTOCOL.md": ("chunk", "condemned", "load", "replay", "effects log", "process", "gate", "guard", "tracker"),
    "brokerha/transactions/PROTOCOL.md": ("skip set", "lock", "branch", "xid", "heuristic", "transaction manager"),
    "docs/architecture.md": ("turn", "Ready", "History", "front"),
}  # fmt: skip
"""Page -> words that it explains in a table."""
FAMILIES = ("Healthy", "On its way", "Apart", "Something is missing", "You decide")
"""Headings of operating.md, each with the states of one family."""


def words(cell: str) -> str:
    return cell.replace("`", "").replace("*", "")


# ------------------------------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize("block", [b for b in blocks("toml") if "[cluster]" in b.text], ids=lambda b: b.place)
def test_every_cluster_file_in_the_documentation_loads(block: Block, tmp_path: Path):
    file = tmp_path / "cluster.toml"
    file.write_text(block.text, encoding="utf-8")
    config = load_config(file, {})
    assert config.masters


@pytest.mark.parametrize("block", blocks("python"), ids=lambda b: b.place)
def test_every_python_block_compiles(block: Block):
    compile(block.text, block.place, "exec")


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {found for page in pages() for found in re.findall(r"(?:^|`)make ([a-z-]+)", text_of(page), re.MULTILINE)}
    assert {"demo", "test"} <= named
    assert not named - targets


# --------------------------------------------------------------------------------------------------------- words


def glossary() -> dict[str, list[str]]:
    """Each word with the words that are not used for it."""
    rows = [row for row in rows_of(GLOSSARY) if row[0] != "word"]
    return {word: [other.strip() for other in others.split(",") if other.strip()] for word, _, _, others in rows}


def test_the_glossary_is_short_and_each_of_its_words_stands_in_it_once_and_is_used():
    found = [row[0] for row in rows_of(GLOSSARY) if row[0] != "word"]
    assert 40 < len(found) == len(set(found)) <= GLOSSARY_WORDS
    used = " ".join(text_of(page) for page in pages() if page != GLOSSARY)
    assert not [word for word in found if not re.search(rf"\b{re.escape(word)}", used, re.IGNORECASE)]


def test_a_thing_of_one_part_has_its_word_on_the_page_of_that_part():
    for page, words in WORDS_OF_PARTS.items():
        told = {word.strip() for row in rows_of(page) for word in row[0].replace("`", "").split(",")}
        assert not set(words) - told, page


def test_a_thing_has_one_word_everywhere():
    unwanted = {other: word for word, others in glossary().items() for other in others}
    assert len(unwanted) > 20
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, unwanted))})s?\b", re.IGNORECASE)
    spelled = {other.lower(): word for other, word in unwanted.items()}
    sources = [
        str(path.relative_to(ROOT)) for folder in ("brokerha", "consumers", "producers") for path in (ROOT / folder).rglob("*.py")
    ]
    problems = [
        f"{name}:{number}: {found[0]!r}: write {spelled[found[1].lower()]!r}"
        for name in [*pages(), *sources]
        # The papers have words of their own.
        if name not in (GLOSSARY, "docs/reference/sentences.md")
        for number, line in enumerate(text_of(name).splitlines(), 1)
        for found in pattern.finditer(line)
    ]
    assert not problems


def test_every_state_says_what_to_do():
    rows = [row for family in FAMILIES for row in table_under("docs/operating.md", family)]
    told = {words(row[0]): row for row in rows}
    assert len(told) == len(rows)
    assert told.keys() == states.ACTIONS.keys()
    passing = {word for word, row in told.items() if row[3] in {"yes", "by command"}}
    assert passing == states.DEGRADED
    assert {words(row[0]) for row in table_under("docs/operating.md", "Healthy")} == states.HEALTHY


def test_the_words_of_workers_are_those_of_the_code():
    page = text_of("docs/operating.md")
    sentence = page.split("Workers have the words ")[1].split(".")[0]
    of_workers = {
        states.UNINITIALISED, states.ON, states.OFF, states.OUT_OF_SYNC, states.WAITING_WRITE, states.WRITING,
        states.WRITING_COPY, states.REPLICATION_SERVER, states.REPLICATION_CLIENT, states.UNKNOWN,
    }  # fmt: skip
    assert set(re.findall(r"`([a-z-]+)`", sentence)) == of_workers
    in_sync = page.split("Five of them mean *in sync*: ")[1].split(".")[0]
    assert set(re.findall(r"`([a-z-]+)`", in_sync)) == states.SERVING


def test_every_metric_about_workers_is_described():
    page = text_of("docs/reference/metrics.md")
    told = {name for row in rows_of("docs/reference/metrics.md") for name in re.findall(r"`([a-z_]+)`", row[0])}
    nodes = ROOT / "brokerha" / "nodes" / "observing"
    source = "".join((nodes / name).read_text(encoding="utf-8") for name in ("master_view.py", "watching.py", "worker_view.py"))
    family = r"(?:workers?|probe|read_only|scrub|sites|tasks|journal|pins)(?:_[a-z]+)*"
    named = set(re.findall(rf'"({family}_(?:total|lsn|sync|needed|differing|running|dropped))"', source))
    named |= set(re.findall(rf'\["({family})", node\]', source))
    assert {"workers_in_sync", "worker_load_done_bytes", "probe_losses_total", "scrub_damage_total"} <= named
    assert not named - told
    assert "brokerha_" in page


def test_every_metric_about_epochs_is_described():
    told = {name for row in rows_of("docs/reference/metrics.md") for name in re.findall(r"`([a-z_]+)`", row[0])}
    nodes = ROOT / "brokerha" / "nodes" / "observing"
    source = "".join((nodes / name).read_text(encoding="utf-8") for name in ("master_view.py", "watching.py"))
    named = set(re.findall(r"""["']((?:epoch|frozen)(?:_[a-z]+)*)(?:["']:|["'], node\])""", source))
    assert {"epoch", "epoch_excluded", "epoch_member", "epoch_changes_total", "frozen_seconds_total"} <= named
    assert not named - told


def test_every_line_about_epochs_in_the_log_is_described():
    page = text_of("docs/operating.md").split("## The log of a node")[1]
    source = (ROOT / "brokerha" / "nodes" / "observing" / "watching.py").read_text(encoding="utf-8").partition("_TOLD = ")[2]
    named = set(re.findall(r'log\.info\("([a-z ]+)"|^            "([a-z ]+)",$|states\.[A-Z_]+: "([a-z ]+)"', source, re.MULTILINE))
    lines = {line for found in named for line in found if line}
    assert {"epoch begins", "epoch change begins", "agrees again", "is left behind"} <= lines
    assert not [line for line in lines if f"`{line}`" not in page]


# ------------------------------------------------------------------------------------------------------- the doors


def test_every_path_of_the_http_door_is_described_and_no_other():
    described = {
        (method, path)
        for row in rows_of("docs/http.md")
        for method, path in re.findall(r"^`(GET|PUT|POST|DELETE) ([^`?\s]+)`", row[0])
    }
    there = {(method, re.sub(r":path}", "}", path)) for path, methods in PATHS.items() for method in methods}
    assert described == there


def test_every_error_has_its_status_in_the_table():
    told: dict[str, set[int]] = {}
    for row in table_under("docs/http.md", "Errors"):
        for name in re.findall(r"`(\w+)`", row[1]):
            told.setdefault(name, set()).add(int(row[0]))
    known = {kind.__name__: status for kind, status in STATUS_OF.items()}
    for name, statuses in told.items():
        kind = getattr(errors, name)
        # With a condition in the headers it is 412, as RFC 9110 wants it.
        assert statuses - ({412} if name == "Conflict" else set()) == {
            next(known[base.__name__] for base in kind.__mro__ if base.__name__ in known)
        }, name
    for_the_outside = set(known) - {"BrokerhaError", "JournalError", "StoreError", "Aborted"}
    assert not for_the_outside - set(told)


def test_every_operation_and_every_status_field_is_described():
    page = text_of("docs/http.md")
    for name in [*operations._SHAPES, *FIELDS]:
        assert f"`{name}`" in page, name


def test_every_name_in_the_broker_that_apps_may_use_is_described():
    page = text_of("docs/amqp.md")
    names = [
        topology.WRITES_EXCHANGE, topology.READS_EXCHANGE, topology.CHANGES_EXCHANGE, topology.rejected_queue(),
        topology.any_writes_queue(), topology.any_reads_queue(), topology.writes_queue("<node>"), topology.reads_queue("<node>"),
        topology.ANY_MASTER, topology.REASON_HEADER,
        client_wire.WRITES_TYPE, client_wire.REPLIES_TYPE, client_wire.READ_TYPE, client_wire.READ_ANSWER_TYPE,
        *requests.LEVELS, requests.REJECTED_STATUS, requests.REFUSED, requests.UNKNOWN,
    ]  # fmt: skip
    assert not [name for name in names if f"`{name}`" not in page]


def test_a_message_without_headers_asks_for_what_the_page_says():
    assert client_wire.terms({}) == ("applied", 1, client_wire.DEFAULT_TIMEOUT_MS)
    assert client_wire.terms({"ack": "applied=2"})[:2] == ("applied", 2)
    assert client_wire.terms({"ack": "applied", "copies": 2})[:2] == ("applied", 2)


# ------------------------------------------------------------------------------------------------------- decisions


def test_every_decision_is_listed_and_says_why_not_the_others():
    folder = ROOT / "docs" / "decisions"
    files = sorted(path.name for path in folder.glob("[0-9]*.md"))
    listed = [
        (name, title)
        for row in rows_of("docs/decisions/README.md")
        for name in re.findall(r"\(([^)]+)\)", row[0])
        for title in row[1:]
    ]
    assert [name for name, _ in listed] == files
    for name, title in listed:
        page = (folder / name).read_text(encoding="utf-8")
        assert page.startswith(f"# {name[:4]}: {title}\n")
        for heading in ("Context", "Choice", "Why not the others", "What would make us change it"):
            assert f"\n## {heading}\n" in page, f"{name}: {heading}"
