"""Reading a repository: formats and what a client prefers, limits, datasets, and the graph that nobody sees."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyoxigraph import QueryResultsFormat, QuerySolutions, RdfFormat, parse, parse_query_results

from brokerha.model.errors import InvalidRequest, NotAcceptable, TimedOut, TooLarge
from brokerha.stores.rdf import query as rdf_query
from brokerha.stores.rdf import stream as rdf_stream
from brokerha.stores.rdf.formats import BOOLEANS, SOLUTIONS, TRIPLES, choose
from brokerha.stores.rdf.repository import RdfRepository
from brokerha.stores.rdf.stream import PIECE_BYTES, stream
from brokerha.stores.sparql.request import read_query
from tests.unit.stores.rdf_site import Site

DATA = "INSERT DATA { <urn:a> <urn:p> 1 . GRAPH <urn:g> { <urn:a> <urn:p> 2 . _:b <urn:q> 'x'@en } GRAPH <urn:h> { <urn:a> <urn:p> 1 } }"
SELECT_O = "SELECT ?o { ?s <urn:p> ?o } ORDER BY ?o"
EVERYTHING = "SELECT ?s ?p ?o ?g { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"


@pytest.fixture
def repository() -> RdfRepository:
    site = Site()
    site.run(DATA)
    return site.repository


def read(answer: tuple[str, Iterator[bytes]]) -> str:
    return b"".join(answer[1]).decode()


@pytest.mark.parametrize(
    ("accept", "media_type", "begin"),
    [
        (None, "application/sparql-results+json", '{"head"'),
        ("*/*", "application/sparql-results+json", '{"head"'),
        ("application/sparql-results+xml", "application/sparql-results+xml", "<?xml"),
        ("application/xml;q=0.9, text/csv;q=0.95", "text/csv", "o\r\n1\r\n"),
        ("text/*", "text/csv", "o\r\n1\r\n"),
        ("text/*;q=0.2, text/csv;q=0, */*;q=0.1", "text/tab-separated-values", "?o\n1\n"),
        ("TEXT/TAB-SEPARATED-VALUES ; Q=0.5", "text/tab-separated-values", "?o\n1\n"),
        ("image/png, application/json", "application/json", '{"head"'),
    ],
)
def test_a_select_is_written_as_the_client_likes_best(
    repository: RdfRepository, accept: str | None, media_type: str, begin: str
) -> None:
    answer = repository.query(SELECT_O, accept)
    assert answer[0] == media_type
    assert read(answer).startswith(begin)


@pytest.mark.parametrize(
    ("accept", "body"), [("text/boolean", "true"), ("text/csv", "true"), ("application/json", '{"head":{},"boolean":true}')]
)
def test_an_ask_is_written_as_a_boolean(repository: RdfRepository, accept: str, body: str) -> None:
    assert read(repository.query("ASK { ?s ?p ?o }", accept)) == body


@pytest.mark.parametrize("offered", [each.media_type for each in TRIPLES])
def test_a_graph_and_statements_are_written_in_every_rdf_format(repository: RdfRepository, offered: str) -> None:
    engine = choose(TRIPLES, offered).engine
    assert isinstance(engine, RdfFormat)
    for answer in (
        repository.query("CONSTRUCT { ?s ?p ?o } WHERE { GRAPH <urn:g> { ?s ?p ?o } }", offered),
        repository.query("DESCRIBE <urn:a>", offered),
        repository.statements(accept=offered),
    ):
        assert answer[0] == offered
        assert list(parse(read(answer), format=engine))


def test_statements_keep_their_graphs_unless_the_format_has_none(repository: RdfRepository) -> None:
    assert sorted(read(repository.statements()).splitlines()) == [f"{line} ." for line in sorted(repository.lines())]
    for offered, graphs in (("application/trig", 3), ("application/ld+json", 3), ("text/turtle", 1), ("text/plain", 1)):
        engine = choose(TRIPLES, offered).engine
        assert isinstance(engine, RdfFormat)
        quads = parse(read(repository.statements(accept=offered)), format=engine)
        assert len({str(quad.graph_name) for quad in quads}) == graphs, offered


def test_what_json_ld_cannot_write_is_not_acceptable_in_it_and_says_what_is() -> None:
    repository = RdfRepository(None)
    repository.commit([], ["<urn:a> <urn:b> <<( <urn:a> <urn:b> <urn:c> )>>"], 1)

    for ask in (
        lambda: repository.statements(accept="application/ld+json"),
        lambda: repository.query("CONSTRUCT WHERE { ?s ?p ?o }", "application/ld+json"),
    ):
        with pytest.raises(NotAcceptable, match=r"triple terms .* ask for text/turtle"):
            ask()
    assert "<<(" in read(repository.statements(accept="text/turtle"))


@pytest.mark.parametrize("accept", ["image/png", "application/sparql-results+json;q=0", "text/csv;q=nonsense", "text/turtle"])
def test_no_acceptable_format_is_said_with_what_there_is(repository: RdfRepository, accept: str) -> None:
    with pytest.raises(NotAcceptable, match=r"there are application/sparql-results\+json"):
        repository.query(SELECT_O, accept)


def test_a_more_specific_range_overrules_a_wider_one() -> None:
    assert choose(SOLUTIONS, "*/*, application/*;q=0.1, text/csv;q=0.2").media_type == "text/tab-separated-values"
    assert choose(BOOLEANS, "text/boolean, */*;q=0.5").media_type == "text/boolean"
    assert choose(SOLUTIONS, "").media_type == SOLUTIONS[0].media_type


ABOUT_GRAPHS = (
    EVERYTHING,
    "SELECT ?g { GRAPH ?g { } }",
    "SELECT ?g { GRAPH?g{ } }",
    "SELECT (COUNT(*) AS ?n) { GRAPH ?g { ?s <urn:brokerha-position> ?o } }",
    "BASE <urn:x> SELECT * { GRAPH <./brokerha:system> { ?s ?p ?o } }",
    "BASE <urn:x> DESCRIBE <./brokerha:system>",
    "CONSTRUCT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } }",
)


def test_the_system_graph_is_invisible_to_every_query(tmp_path: Path) -> None:
    for union in (False, True):
        repository = RdfRepository(tmp_path / str(union))
        for lsn in range(1, 5):
            repository.commit([], [f'<urn:a> <urn:p> "{lsn}" <urn:g>'], lsn)
        answers = [
            *(read(repository.query(text, union=union)) for text in ABOUT_GRAPHS),
            read(repository.statements()),
            read(repository.statements(contexts=["<urn:brokerha:system>"])),
            read(repository.statements(subj="<urn:brokerha:system>")),
            "\n".join(repository.contexts()),
            "\n".join(repository.lines()),
        ]
        assert not [answer for answer in answers if "brokerha:" in answer]
        assert "urn:a" in answers[0]
        assert repository.size() == 4
        assert repository.size(["<urn:brokerha:system>"]) == 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * { GRAPH <urn:brokerha:system> { ?s ?p ?o } }",
        "SELECT * FROM <urn:brokerha:system> { ?s ?p ?o }",
        "SELECT * { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }",
        "SELECT * { ?s ?p",
        "INSERT DATA { <urn:a> <urn:b> 1 }",
        "SELECT (<urn:unknown>(DISTINCT 1) AS ?x) { }",
    ],
)
def test_a_query_that_cannot_be_answered_is_refused(repository: RdfRepository, text: str) -> None:
    with pytest.raises(InvalidRequest):
        repository.query(text)


def values(answer: tuple[str, Iterator[bytes]]) -> list[str]:
    return read(answer).split()[1:]


def test_the_dataset_comes_from_the_request_then_the_text_then_the_repository(repository: RdfRepository) -> None:
    assert values(repository.query(SELECT_O, "text/csv")) == ["1"]
    from_h = "SELECT ?o FROM <urn:g> { ?s <urn:p> ?o }"
    assert values(repository.query(from_h, "text/csv")) == ["2"]
    assert values(repository.query(from_h, "text/csv", ["urn:h"])) == ["1"]
    assert values(repository.query(SELECT_O, "text/csv", ["urn:g", "urn:h"])) == ["1", "2"]
    graphs = "SELECT ?g { GRAPH ?g { ?s <urn:p> ?o } } ORDER BY ?g"
    assert values(repository.query(graphs, "text/csv")) == ["urn:g", "urn:h"]
    assert values(repository.query(graphs, "text/csv", named_graphs=["urn:h"])) == ["urn:h"]
    assert values(repository.query(graphs, "text/csv", ["urn:h"])) == []
    for wrong in ("urn:brokerha:system", "no iri"):
        with pytest.raises(InvalidRequest):
            repository.query(SELECT_O, "text/csv", [wrong])


def test_the_default_graph_can_be_all_graphs_together(repository: RdfRepository) -> None:
    distinct = "SELECT DISTINCT ?o { ?s <urn:p> ?o } ORDER BY ?o"
    assert values(repository.query(distinct, "text/csv", union=True)) == ["1", "2"]
    assert values(repository.query("SELECT ?o FROM <urn:g> { ?s <urn:p> ?o }", "text/csv", union=True)) == ["2"]
    assert values(repository.query(distinct, "text/csv", ["urn:h"], union=True)) == ["1"]


def test_statements_match_their_pattern(repository: RdfRepository) -> None:
    def matching(**pattern: str | list[str]) -> int:
        return len(read(repository.statements(**pattern)).splitlines())  # type: ignore[arg-type]

    assert matching() == 4
    assert matching(subj="<urn:a>") == 3
    assert matching(pred="<urn:q>") == matching(obj='"x"@EN') == 1
    assert matching(obj='"01"^^<http://www.w3.org/2001/XMLSchema#integer>') == 2
    assert matching(contexts=["null"]) == matching(contexts=["<urn:h>"]) == 1
    assert matching(contexts=["<urn:g>", "null", "null"]) == repository.size(["<urn:g>", "null"]) == 3
    assert matching(subj="<urn:absent>") == matching(contexts=["<urn:absent>"]) == 0
    assert repository.contexts() == ["<urn:g>", "<urn:h>"]


def test_the_size_of_graphs_is_counted_by_the_engine(repository: RdfRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit([], ['<urn:a> <urn:p> "1" _:g', '<urn:a> <urn:p> "1" <urn:h>'], 9)
    graphs = ["null", "<urn:g>", "<urn:h>", "_:g", "<urn:absent>", "<urn:brokerha:system>"]
    sizes = [len(read(repository.statements(contexts=[graph])).splitlines()) for graph in graphs]
    # Taking 200,000 quads one by one lasts 11 to 40 s, a count by the engine 0.5 s.
    monkeypatch.delattr(rdf_query, "matching")
    assert [repository.size([graph]) for graph in graphs] == sizes == [1, 2, 2, 1, 0, 0]
    assert repository.size(graphs) == 6 == repository.size([*graphs, *graphs])


@pytest.mark.parametrize(
    "pattern",
    [
        {"subj": '"x"'},
        {"pred": "_:b"},
        {"obj": "<a"},
        {"obj": '"\ud800"'},
        {"obj": "<urn:a> . <urn:b>"},
        {"contexts": ["x"]},
        {"contexts": ['"x"']},
    ],
)
def test_a_term_that_is_none_or_may_not_stand_there_is_refused(repository: RdfRepository, pattern: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        repository.statements(**pattern)  # type: ignore[arg-type]


def large(tmp_path: Path, **options: int) -> RdfRepository:
    repository = RdfRepository(tmp_path / "r", **options)  # type: ignore[arg-type]
    repository.commit([], [f'<urn:s{n}> <urn:p> "{"v" * 1000}"' for n in range(3000)], 1)
    return repository


def test_a_result_over_the_limit_is_refused_before_the_first_piece(tmp_path: Path) -> None:
    repository = large(tmp_path, result_limit_bytes=1_000_000)
    for too_large in (
        lambda: repository.query("SELECT * { ?s ?p ?o }"),
        lambda: repository.query("CONSTRUCT WHERE { ?s ?p ?o }"),
        lambda: repository.statements(accept="text/turtle"),
    ):
        with pytest.raises(TooLarge, match="1000000 bytes"):
            too_large()
    assert read(repository.query("SELECT * { ?s ?p ?o } LIMIT 10", "text/csv")).count("\r\n") == 11


def test_pieces_are_of_limited_size_and_make_up_the_whole(tmp_path: Path) -> None:
    repository = large(tmp_path)
    for answer in (repository.query("SELECT * { ?s ?p ?o }"), repository.statements(), repository.statements(accept="text/turtle")):
        pieces = list(answer[1])
        assert len(pieces) == 3 + (len(b"".join(pieces)) > 3 * PIECE_BYTES)
        assert max(map(len, pieces)) <= PIECE_BYTES
    assert len(json.loads(read(repository.query("SELECT * { ?s ?p ?o }")))["results"]["bindings"]) == 3000


def test_a_query_ends_when_it_may_not_go_on(tmp_path: Path) -> None:
    repository = large(tmp_path)
    for timed_out in (
        lambda: repository.query("SELECT * { ?s ?p ?o }", may_go_on=lambda: False),
        lambda: repository.statements(accept="text/turtle", may_go_on=lambda: False),
        lambda: read(repository.statements(may_go_on=lambda: False)),
    ):
        with pytest.raises(TimedOut):
            timed_out()


def test_long_statements_may_be_taken_in_any_thread(tmp_path: Path) -> None:
    repository = large(tmp_path)
    _, pieces = repository.statements()
    taken: list[bytes] = [next(pieces)]
    other = threading.Thread(target=lambda: taken.extend(pieces))
    other.start()
    other.join()
    assert sorted(b"".join(taken).decode().splitlines()) == sorted(f"{line} ." for line in repository.lines())


def producers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "statements"]


def test_a_reader_that_goes_away_ends_its_producer(tmp_path: Path) -> None:
    _, pieces = large(tmp_path).statements()
    next(pieces)
    (producer,) = producers()
    pieces.close()  # type: ignore[attr-defined]
    producer.join(10)
    assert not producer.is_alive()


def test_a_reader_that_neither_reads_nor_goes_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdf_stream, "STALLED_S", 0.05)
    pieces = stream(lambda: ("x" * PIECE_BYTES for _ in range(100)), lambda: True)
    next(pieces)
    (producer,) = producers()
    producer.join(10)
    assert not producer.is_alive()


def test_what_goes_wrong_in_the_producer_reaches_the_reader() -> None:
    calls: list[int] = []

    def open_lines() -> Iterator[str]:
        calls.append(1)
        if len(calls) > 1:
            raise OSError("the disk is gone")
        return ("x" * 1000 for _ in range(5000))

    with pytest.raises(OSError, match="the disk is gone"):
        list(stream(open_lines, lambda: True))


@pytest.mark.parametrize("sizes", [[], [10], [PIECE_BYTES], [PIECE_BYTES * 3], [600_000] * 5, [10] * 5000, [400_000] * 3000][:6])
def test_a_stream_is_its_lines_whatever_their_sizes(sizes: list[int]) -> None:
    def lines() -> Iterator[str]:
        return (f"{number}{'x' * size}" for number, size in enumerate(sizes))

    pieces = list(stream(lines, lambda: True))
    assert b"".join(pieces).decode() == "".join(f"{line} .\n" for line in lines())
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)


def test_a_query_sees_one_commit_though_it_is_read_later(repository: RdfRepository) -> None:
    # The order of rows is the engine's, so they are compared sorted.
    def answers() -> list[tuple[str, Iterator[bytes]]]:
        return [repository.query(EVERYTHING, "text/csv"), repository.statements(), repository.statements(accept="text/plain")]

    before = [sorted(read(answer).splitlines()) for answer in answers()]
    opened = answers()
    repository.commit(list(repository.lines()), [], 2)
    assert [sorted(read(answer).splitlines()) for answer in opened] == before
    assert [sorted(read(answer).splitlines()) for answer in answers()] == [["s,p,o,g"], [], []]


@pytest.mark.parametrize(
    ("text", "more"),
    [(EVERYTHING, {}), ("SELECT ?s ?p ?o { ?s ?p ?o }", {"union": True}), (EVERYTHING, {"contexts": ["null", "<urn:new>"]})],
)
def test_a_commit_that_makes_a_graph_is_seen_as_a_whole(
    repository: RdfRepository, text: str, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def committed_meanwhile(text: str) -> Any:
        facts = read_query(text)
        repository.commit([], ['<urn:new> <urn:p> "1"', '<urn:new> <urn:p> "2" <urn:new>'], 2)
        return facts

    monkeypatch.setattr("brokerha.stores.rdf.query.read_query", committed_meanwhile)
    found = read(repository.query(text, "text/csv", **more))
    assert found.count("urn:new,urn:p") == 2


# ---- RDF/XML


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("<urn:a> <http://example.org/1> 1", "cannot name the predicate 'http://example.org/1'"),
        ("<urn:a> <http://example.org/> 1", "cannot name the predicate"),
        (r"<urn:a> <urn:p> 'bell \u0007'", "no XML may hold"),
        (r"<urn:a> <urn:p> <<( <urn:a> <urn:p> 'bell \u0007' )>>", "no XML may hold"),
        ("<urn:a> <urn:p> <<( <urn:a> <http://example.org/1> 1 )>>", "cannot name the predicate"),
        ("<urn:a> a <http://example.org/1>", "cannot name the class 'http://example.org/1'"),
        ("<urn:a> <http://www.w3.org/2000/xmlns/p> 1", "cannot name the predicate"),
        ("<urn:a> <http://www.w3.org/1999/02/22-rdf-syntax-ns#li> 1", "cannot name the predicate"),
        ("<urn:a> <http://www.w3.org/1999/02/22-rdf-syntax-ns#Description> 1", "cannot name the predicate"),
        ("<urn:a> <http://www.w3.org/1999/02/22-rdf-syntax-ns#bagID> 1", "cannot name the predicate"),
    ],
)
def test_what_no_xml_can_say_is_refused_and_can_be_had_otherwise(data: str, text: str) -> None:
    site = Site()
    site.run(f"INSERT DATA {{ {data} }}")
    construct = "CONSTRUCT { ?s ?p ?o } { ?s ?p ?o }"
    for answer in (
        lambda accept: site.repository.query(construct, accept),
        lambda accept: site.repository.statements(accept=accept),
    ):
        with pytest.raises(NotAcceptable, match=text):
            read(answer("application/rdf+xml"))
        assert read(answer("text/turtle"))


def test_what_xml_can_say_comes_back_from_it_as_it_was() -> None:
    site = Site()
    names = ["urn:p", "urn:x:1a", "http://example.org/a-1", "http://example.org/a.b", "http://example.org/\u00e9"]
    site.run("INSERT DATA { " + " . ".join(f"<urn:a> <{name}> 'a\\tb'" for name in names) + " }")
    document = read(site.repository.statements(accept="application/rdf+xml"))
    assert sorted(quad.predicate.value for quad in parse(document, format=RdfFormat.RDF_XML)) == sorted(names)


@pytest.mark.parametrize("character", ["\\u0000", "\\u001F", "\\uFFFE", "\\uFFFF"])
def test_results_in_xml_with_what_no_xml_holds_are_refused_and_can_be_had_otherwise(
    repository: RdfRepository, character: str
) -> None:
    select = f"SELECT ('{character}' AS ?o) {{}}"
    with pytest.raises(NotAcceptable, match="no XML may hold"):
        repository.query(select, "application/sparql-results+xml")
    assert repository.query(select, "application/sparql-results+json")
    # What XML holds as it is, or written as a number.
    around = parse_query_results(
        read(repository.query("SELECT ('\\t\\n\\r \\uFFFD\\uE000' AS ?o) {}", "application/xml")), format=QueryResultsFormat.XML
    )
    assert isinstance(around, QuerySolutions)
    assert [row["o"].value for row in around] == ["\t\n\r \ufffd\ue000"]
