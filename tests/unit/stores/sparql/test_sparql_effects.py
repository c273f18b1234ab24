"""Updates as exact quad effects: every form of SPARQL Update, alone and one after the other in one request."""

from __future__ import annotations

import pytest

from brokerha.model.errors import Rejected
from brokerha.stores.rdf.change import PendingQuads, QuadChange
from tests.unit.stores.rdf_site import INTEGER, TIMESTAMP_US, Site, on_quads, short

DATA = """
INSERT DATA {
  <urn:a> <urn:p> 1 , 2 .
  <urn:b> <urn:p> 2 .
  GRAPH <urn:g> { <urn:a> <urn:p> 3 . <urn:c> <urn:q> <urn:a> }
  GRAPH <urn:h> { <urn:a> <urn:p> 3 }
}
"""


@pytest.fixture
def site() -> Site:
    found = Site()
    found.run(DATA)
    return found


# Text -> what goes and what comes, in short: "urn:" and xsd:integer left out, the graph last.
FORMS: list[tuple[str, list[str], list[str]]] = [
    ("INSERT DATA { <urn:a> <urn:p> 1 , 5 }", [], ["a p 5"]),
    ("INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:p> 03 , 04 } }", [], ["a p 4 g"]),
    ("DELETE DATA { <urn:a> <urn:p> 1 , 9 . GRAPH <urn:g> { <urn:a> <urn:p> 3 } }", ["a p 1", "a p 3 g"], []),
    ("DELETE WHERE { <urn:a> <urn:p> ?o }", ["a p 1", "a p 2"], []),
    ("DELETE WHERE { GRAPH ?g { <urn:a> ?p ?o } }", ["a p 3 g", "a p 3 h"], []),
    # One pattern without a subject, which needs no solutions.
    ("DELETE WHERE { ?s <urn:p> 02 . }", ["a p 2", "b p 2"], []),
    ("DELETE WHERE { GRAPH ?g { ?s ?p 3 } }", ["a p 3 g", "a p 3 h"], []),
    ("DELETE WHERE { ?s ?p ?s }", [], []),
    ("WITH <urn:g> DELETE { ?s <urn:p> ?o } WHERE { ?s <urn:p> ?o }", ["a p 3 g"], []),
    ("DELETE { ?s ?p ?o } USING <urn:g> WHERE { ?s ?p ?o }", [], []),
    ("INSERT DATA { <urn:d> <urn:q> 7 } ; DELETE WHERE { ?s ?p ?o }", ["a p 1", "a p 2", "b p 2"], []),
    ("DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:r> ?o } WHERE { ?s <urn:p> ?o FILTER(?o > 1) }", ["a p 2", "b p 2"], ["a r 2", "b r 2"]),
    # All removals come before all additions: 1 and 2 change places and nothing is lost.
    ("DELETE { <urn:a> <urn:p> ?o } INSERT { <urn:a> <urn:p> ?x } WHERE { <urn:a> <urn:p> ?o BIND(3 - ?o AS ?x) }", [], []),
    ("INSERT { <urn:n> <urn:count> ?n } WHERE { SELECT (COUNT(*) AS ?n) { ?s ?p ?o } }", [], ["n count 3"]),
    ("INSERT { GRAPH ?g { ?g <urn:is> <urn:graph> } } WHERE { GRAPH ?g { } }", [], ["g is graph g", "h is graph h"]),
    ("WITH <urn:g> DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:r> ?o . GRAPH <urn:h> { ?s <urn:r> ?o } } WHERE { ?s <urn:p> ?o }",
     ["a p 3 g"], ["a r 3 g", "a r 3 h"]),
    # USING takes the place of WITH in the clause, not in the templates.
    ("WITH <urn:g> INSERT { ?s <urn:r> ?o } USING <urn:h> WHERE { ?s <urn:p> ?o }", [], ["a r 3 g"]),
    ("INSERT { ?s <urn:r> ?o } USING <urn:g> USING <urn:h> WHERE { ?s ?p ?o }", [], ["a r 3", "c r a"]),
    ("INSERT { ?s <urn:r> ?g } USING NAMED <urn:h> WHERE { GRAPH ?g { ?s ?p ?o } }", [], ["a r h"]),
    ("INSERT { ?s <urn:r> ?o } USING NAMED <urn:h> WHERE { ?s ?p ?o }", [], []),
    ("INSERT { ?s <urn:r> ?o } USING <urn:absent> WHERE { ?s ?p ?o }", [], []),
    ("CLEAR DEFAULT", ["a p 1", "a p 2", "b p 2"], []),
    ("CLEAR GRAPH <urn:g>", ["a p 3 g", "c q a g"], []),
    ("DROP NAMED", ["a p 3 g", "a p 3 h", "c q a g"], []),
    ("DROP ALL", ["a p 1", "a p 2", "a p 3 g", "a p 3 h", "b p 2", "c q a g"], []),
    ("CLEAR GRAPH <urn:absent>", [], []),
    ("DROP GRAPH <urn:absent>", [], []),
    ("CREATE GRAPH <urn:absent>", [], []),
    ("CREATE SILENT GRAPH <urn:g>", [], []),
    ("ADD <urn:g> TO <urn:h>", [], ["c q a h"]),
    ("ADD GRAPH <urn:g> TO DEFAULT", [], ["a p 3", "c q a"]),
    ("COPY <urn:g> TO DEFAULT", ["a p 1", "a p 2", "b p 2"], ["a p 3", "c q a"]),
    ("COPY DEFAULT TO <urn:h>", ["a p 3 h"], ["a p 1 h", "a p 2 h", "b p 2 h"]),
    ("MOVE <urn:h> TO <urn:g>", ["a p 3 h", "c q a g"], []),
    ("MOVE <urn:g> TO <urn:new>", ["a p 3 g", "c q a g"], ["a p 3 new", "c q a new"]),
    ("COPY <urn:g> TO <urn:g>", [], []),
    ("MOVE DEFAULT TO DEFAULT", [], []),
    ("COPY SILENT <urn:absent> TO <urn:g>", [], []),
    ("MOVE SILENT <urn:absent> TO DEFAULT", [], []),
    ("", [], []),
    ("PREFIX x: <urn:>", [], []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "removed", "added"), FORMS)
def test_each_form_has_its_exact_effect(site: Site, text: str, removed: list[str], added: list[str]) -> None:
    before = site.lines()
    change = site.change(text)
    assert (short(change.removed), short(change.added)) == (sorted(removed), sorted(added))
    assert list(change.removed) == sorted(set(change.removed))
    assert list(change.added) == sorted(set(change.added))
    assert site.lines() == before, "evaluating leaves no trace"
    site.apply(change)
    assert site.lines() == sorted((set(before) - set(change.removed)) | set(change.added))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CREATE GRAPH <urn:g>", "the graph <urn:g> already exists"),
        ("ADD <urn:absent> TO DEFAULT", "the graph <urn:absent> does not exist"),
        ("COPY <urn:absent> TO <urn:g>", "the graph <urn:absent> does not exist"),
        ("MOVE <urn:absent> TO <urn:g>", "the graph <urn:absent> does not exist"),
        ("INSERT DATA { <urn:a> <urn:p> 7 } ; CREATE GRAPH <urn:g>", "the graph <urn:g> already exists"),
        ("INSERT DATA { <urn:a> }", "MALFORMED QUERY: line 1, column 23"),
        ("LOAD <http://127.0.0.1:1/>", "LOAD is refused"),
        ("INSERT { ?s ?p ?x } WHERE { SELECT (<urn:unknown>(DISTINCT ?o) AS ?x) { ?s ?p ?o } }", "no aggregate that an IRI"),
        ("INSERT { ?s ?p ?x } WHERE { ?s ?p ?o BIND(IRI('urn:brokerha:system') AS ?x) }", "brokerha's own"),
    ],
)
def test_an_update_that_fails_is_rejected_and_changes_nothing(site: Site, text: str, reason: str) -> None:
    before = site.lines()
    with pytest.raises(Rejected) as caught:
        site.run(text)
    assert reason in str(caught.value)
    assert site.lines() == before


def test_malformed_nquads_are_rejected(site: Site) -> None:
    with pytest.raises(Rejected, match="MALFORMED DATA"):
        site.run(("add", "main", "<urn:a> <urn:b>"))


def test_nquads_keep_the_labels_of_their_blank_nodes(site: Site) -> None:
    quads = f'_:x <urn:p> _:y.z <urn:g> .\n_:x <urn:p> "007"{INTEGER} .\n'
    assert short(site.run(("add", "main", quads)).added) == ["_:x p 7", "_:x p _:y.z g"]
    assert site.run(("add", "main", quads)) == QuadChange()
    assert short(site.run(("remove", "main", quads + "<urn:no> <urn:p> 'x' .".replace("'", '"'))).removed) == [
        "_:x p 7",
        "_:x p _:y.z g",
    ]


def test_quads_that_rdf_does_not_allow_are_left_out_one_by_one(site: Site) -> None:
    change = site.change("""
        INSERT {
          ?s <urn:ok> ?o .
          ?o <urn:literal-subject> ?s .
          ?s ?o <urn:literal-predicate> .
          ?s <urn:unbound> ?nothing .
          GRAPH ?o { ?s <urn:literal-graph> 1 }
          GRAPH ?nothing { ?s <urn:no-graph> 1 }
          GRAPH ?s { ?s <urn:fine-graph> 1 }
          ?s <urn:says> <<( ?o <urn:p> ?s )>> , <<( ?s <urn:p> ?o )>> .
        } WHERE { ?s <urn:p> ?o FILTER(?s = <urn:b>) OPTIONAL { ?s <urn:absent> ?nothing } }
    """)
    assert short(change.added) == ["b fine-graph 1 b", "b ok 2", "b says <<( b p 2 )"]


def test_later_operations_of_a_request_see_earlier_ones(site: Site) -> None:
    change = site.change("""
        PREFIX : <urn:>
        INSERT DATA { :a :p 10 . GRAPH :new { :x :y 1 } } ;
        DELETE { ?s :p ?o } INSERT { ?s :p ?more } WHERE { ?s :p ?o BIND(?o + 100 AS ?more) } ;
        CLEAR GRAPH :h ;
        INSERT { :names :has ?g } WHERE { GRAPH ?g { } } ;
        DELETE DATA { :b :p 102 } ;
        COPY :new TO :newer ;
        INSERT { :sum :is ?sum } WHERE { SELECT (SUM(?o) AS ?sum) { { ?s :p ?o } UNION { GRAPH ?g { ?s :y ?o } } } }
    """)
    assert short(change.removed) == ["a p 1", "a p 2", "a p 3 h", "b p 2"]
    assert short(change.added) == [
        "a p 101", "a p 102", "a p 110", "names has g", "names has new", "sum is 315", "x y 1 new", "x y 1 newer",
    ]  # fmt: skip


def test_a_graph_that_was_emptied_in_the_same_request_is_not_found_any_more(site: Site) -> None:
    text = "INSERT { GRAPH <urn:found> { ?g <urn:is> <urn:there> } } WHERE { GRAPH ?g { } }"
    change = site.change(f"DELETE WHERE {{ GRAPH <urn:g> {{ ?s ?p ?o }} }} ; {text}")
    assert short(change.added) == ["h is there found"]
    assert short(site.change("DELETE DATA { GRAPH <urn:h> { <urn:a> <urn:p> 3 } }", text).added) == ["g is there found"]


def test_declarations_hold_from_their_operation_on(site: Site) -> None:
    change = site.change("""
        PREFIX x: <urn:1:> INSERT DATA { x:a x:b x:c } ;
        PREFIX y: <urn:2:> INSERT { x:a y:b ?o } WHERE { x:a x:b ?o } ;
        PREFIX x: <urn:3:> BASE <http://example.org/> INSERT { <s> x:p y:o } WHERE { <urn:1:a> y:b ?o } ;
        WITH x:g INSERT { x:a x:b x:c } USING <g> WHERE { }
    """)
    assert short(change.added) == ["1:a 1:b 1:c", "1:a 2:b 1:c", "3:a 3:b 3:c 3:g", "<http://example.org/s 3:p 2:o"]


def test_an_update_sees_what_is_pending_and_reports_what_it_changes_on_top(site: Site) -> None:
    pending = PendingQuads()
    pending.include(site.change("DELETE DATA { <urn:a> <urn:p> 1 } ; INSERT DATA { <urn:a> <urn:p> 6 . _:x <urn:p> 7 }"))
    text = "DELETE { ?s <urn:p> ?o } INSERT { ?s <urn:q> ?o } WHERE { ?s <urn:p> ?o FILTER(?o > 2) }"
    operation = on_quads("update", text)
    change = site.repository.change_of([(0, operation)], "tx", TIMESTAMP_US, pending)
    assert [line.split(" ", 1)[1] for line in short(change.removed)] == ["p 7", "p 6"]
    pending.include(change)
    everything = pending.change()
    assert short(everything.removed) == ["a p 1"]
    assert sorted(line.split(" ", 1)[1] for line in short(everything.added)) == ["q 6", "q 7"]
    # What is pending and comes back to what the engine holds leaves nothing.
    back = on_quads("update", "INSERT DATA { <urn:a> <urn:p> 1 }")
    pending.include(site.repository.change_of([(0, back)], "tx", 0, pending))
    assert pending.change().removed == ()


def test_operations_together_and_one_by_one_have_the_same_effect(site: Site) -> None:
    operations = [
        ("update", "main", "DELETE { ?s ?p ?o } INSERT { ?s ?p [ <urn:was> ?o ] } WHERE { ?s ?p ?o }"),
        ("update", "main", "INSERT { ?b <urn:seen> ?u } WHERE { ?s ?p ?b FILTER isBlank(?b) BIND(NOW() AS ?u) }"),
        ("add", "main", "_:k <urn:p> <urn:o> <urn:g> .\n"),
        ("update", "main", "DELETE WHERE { GRAPH <urn:g> { ?s <urn:p> ?o } } ; INSERT DATA { <urn:a> <urn:p> 1 }"),
        ("remove", "main", "<urn:c> <urn:q> <urn:a> <urn:g> .\n"),
    ]
    together = site.change(*operations)
    pending = PendingQuads()
    for number, operation in enumerate(operations):
        pending.include(site.repository.change_of([(number, on_quads(*operation[::2]))], "tx", TIMESTAMP_US, pending))
    assert pending.change() == together
    assert together.removed
    assert together.added


def test_only_what_reads_more_than_single_quads_needs_the_engine(site: Site) -> None:
    needs = site.repository.needs_engine
    assert not needs(on_quads("update", "PREFIX x: <urn:> INSERT DATA { x:a x:b [] }"))
    assert not needs(on_quads("add", "<urn:a> <urn:b> <urn:c> ."))
    assert needs(on_quads("update", "INSERT DATA { <urn:a> <urn:b> 1 } ; DELETE WHERE { ?s ?p ?o }"))
    assert needs(on_quads("update", "clear all"))
