"""What differs from call to call is the same on every site: functions, and new blank nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerha.stores.rdf.change import PendingQuads, QuadChange
from tests.unit.stores.rdf_site import TIMESTAMP_US, Site, on_quads, short

PEOPLE = [f"INSERT DATA {{ <urn:s{n}> <urn:p> {n % 3} }}" for n in range(20)]

FUNCTIONS = {
    "NOW": "INSERT { ?s <urn:v> ?v } WHERE { ?s <urn:p> ?o BIND(NOW() AS ?v) }",
    "RAND": "INSERT { ?s <urn:v> ?v } WHERE { ?s <urn:p> ?o BIND(RAND( ) AS ?v) }",
    "UUID": "INSERT { ?s <urn:v> ?v } WHERE { ?s <urn:p> ?o BIND(uuid() AS ?v) }",
    "STRUUID": "INSERT { ?s <urn:v> ?v } WHERE { ?s <urn:p> ?o BIND(CONCAT('n', STRUUID()) AS ?v) }",
    "BNODE": "INSERT { ?s <urn:v> ?v . ?v <urn:of> ?s } WHERE { ?s <urn:p> ?o BIND(BNODE() AS ?v) }",
    "BNODE of": "INSERT { ?s <urn:v> ?v ; <urn:w> ?w } WHERE { ?s <urn:p> ?o BIND(BNODE('x') AS ?v) BIND(BNODE('x') AS ?w) }",
    "template": "INSERT { ?s <urn:v> [ <urn:w> _:x ] . _:x <urn:of> ?s } WHERE { ?s <urn:p> ?o }",
    "data": "INSERT DATA { [] <urn:p> _:b , ( 1 2 ) . GRAPH <urn:g> { _:b <urn:p> [ <urn:q> _:b ] } }",
}

# Which solutions these take is the engine's choice, and on disk it is the same choice everywhere.
CHOICES = {
    "LIMIT": "DELETE { ?s ?p ?o } WHERE { SELECT * { ?s ?p ?o } LIMIT 7 }",
    "SAMPLE": "INSERT { <urn:some> <urn:one> ?one } WHERE { SELECT ?o (SAMPLE(?s) AS ?one) { ?s <urn:p> ?o } GROUP BY ?o }",
    "GROUP_CONCAT": "INSERT { <urn:some> <urn:all> ?all } WHERE { SELECT ?o (GROUP_CONCAT(STR(?s)) AS ?all) { ?s <urn:p> ?o } GROUP BY ?o }",
}


@pytest.fixture(scope="module")
def two_sites(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, Site]:
    """Equal content, come about in opposite orders, and with detours in one. Only to be evaluated on, not to be changed."""
    first, second = Site(tmp_path_factory.mktemp("first")), Site(tmp_path_factory.mktemp("second"))
    for text in PEOPLE:
        first.run(text)
    second.run("INSERT DATA { <urn:x> <urn:y> <urn:z> , 1 , 2 , 3 }")
    for text in reversed(PEOPLE):
        second.run(text)
    second.run("DELETE WHERE { <urn:x> ?p ?o }")
    assert first.lines() == second.lines()
    return first, second


@pytest.mark.parametrize("name", [*FUNCTIONS, *CHOICES])
def test_two_sites_compute_one_effect(two_sites: tuple[Site, Site], name: str) -> None:
    text = (FUNCTIONS | CHOICES)[name]
    first, second = (site.change(text, txid="tx-1") for site in two_sites)
    assert first == second
    assert first.added or first.removed


def test_a_site_where_more_is_pending_computes_the_same_effects(tmp_path: Path) -> None:
    # Given three sites that cut the same log into other batches
    effects: list[dict[str, QuadChange]] = []
    for committed in (0, 7, len(PEOPLE)):
        site, pending = Site(tmp_path / str(committed)), PendingQuads()
        site.run("INSERT DATA { <urn:old> <urn:p> 7 , 8 }", *PEOPLE[:committed])
        for text in ("DELETE WHERE { <urn:old> ?p ?o }", *PEOPLE[committed:]):
            pending.include(site.repository.change_of([(0, on_quads("update", text))], "tx", TIMESTAMP_US, pending))
        # When each evaluates the same updates on top of what is pending there
        effects.append(
            {
                name: site.repository.change_of([(0, on_quads("update", text))], "tx-1", TIMESTAMP_US, pending)
                for name, text in (FUNCTIONS | CHOICES).items()
            }
        )
    # Then the effects are the same
    assert effects[0] == effects[1] == effects[2]
    assert all(effect.added or effect.removed for effect in effects[0].values())


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "NOW"])
def test_another_transaction_or_operation_gets_other_values(two_sites: tuple[Site, Site], name: str) -> None:
    site, _ = two_sites
    operation = on_quads("update", FUNCTIONS[name])
    effects = {
        site.repository.change_of([(number, operation)], txid, TIMESTAMP_US, PendingQuads()).added
        for txid in ("tx-1", "tx-2")
        for number in (0, 1)
    }
    assert len(effects) == 4


def test_each_part_of_a_request_gets_values_of_its_own() -> None:
    site = Site()
    text = "INSERT DATA { [] <urn:p> 1 }"
    assert len(site.run(f"{text} ; {text} ; {text}").added) == 3


def test_now_is_the_timestamp_for_the_whole_transaction() -> None:
    site = Site()
    text = "INSERT { ?g <urn:at> ?t } WHERE { BIND(IRI(CONCAT('urn:', STR(?n))) AS ?g) VALUES ?n { 1 2 } BIND(NOW() AS ?t) }"
    change = site.run(text, "INSERT { <urn:b> <urn:at> ?t } WHERE { BIND(now() AS ?t) }")
    assert {line.split(" ")[2].partition("^^")[0] for line in change.added} == {'"2023-11-14T22:13:20.123456Z"'}


def test_each_call_draws_another_value_in_its_range() -> None:
    site = Site()
    site.run(*PEOPLE)
    change = site.run("INSERT { ?s <urn:r> ?r ; <urn:u> ?u } WHERE { ?s <urn:p> ?o BIND(RAND() AS ?r) BIND(UUID() AS ?u) }")
    drawn = [line.split(" ")[2] for line in change.added]
    assert len(set(drawn)) == len(drawn) == 40
    assert sum(value.startswith("<urn:uuid:") and value[24] == "4" for value in drawn) == 20
    assert all(0 <= float(value.split('"')[1]) < 1 for value in drawn if value.startswith('"'))


def test_labels_do_not_depend_on_the_order_of_solutions() -> None:
    # In memory the engine evaluates in the order in which quads came.
    first, second = Site(), Site()
    first.run(*PEOPLE)
    second.run(*reversed(PEOPLE))
    for name in ("BNODE", "BNODE of", "template", "data"):
        assert first.change(FUNCTIONS[name]) == second.change(FUNCTIONS[name]), name


def test_equal_solutions_make_different_blank_nodes() -> None:
    site = Site()
    site.run(*PEOPLE)
    assert len(site.run("INSERT { [] <urn:p> ?o } WHERE { ?s <urn:p> ?o }").added) == 20
    assert len(site.run("INSERT { ?b <urn:p> ?o } WHERE { ?s <urn:p> ?o BIND(BNODE() AS ?b) }", txid="tx-2").added) == 40


def test_one_call_shared_by_many_solutions_is_one_blank_node() -> None:
    site = Site()
    site.run(*PEOPLE)
    change = site.run("INSERT { ?b <urn:has> ?s } WHERE { ?s <urn:p> ?o { SELECT (BNODE() AS ?b) { } } }")
    assert len({line.split(" ")[0] for line in change.added}) == 1
    assert len(change.added) == 20


def test_equal_keys_are_one_blank_node_within_a_solution_and_others_in_the_next() -> None:
    site = Site()
    site.run(*PEOPLE)
    change = site.run(FUNCTIONS["BNODE of"])
    nodes = {line.split(" ")[0]: set[str]() for line in change.added}
    for line in change.added:
        nodes[line.split(" ")[0]].add(line.split(" ")[2])
    assert all(len(values) == 1 for values in nodes.values())
    assert len(set.union(*nodes.values())) == 20


def test_a_later_part_meets_the_blank_nodes_of_an_earlier_one() -> None:
    site = Site()
    change = site.run("""
        INSERT { <urn:a> <urn:has> ?b . ?b <urn:part> [ <urn:n> ?n ] } WHERE { VALUES ?n { 1 2 } BIND(BNODE() AS ?b) } ;
        INSERT { ?x <urn:seen> ?n } WHERE { <urn:a> <urn:has> ?b . ?b <urn:part> ?x . ?x <urn:n> ?n }
    """)
    seen = [line for line in change.added if "<urn:seen>" in line]
    assert len(seen) == 2
    for line in seen:
        assert line.replace("<urn:seen>", "<urn:n>") in change.added


def test_a_label_in_a_data_block_is_one_blank_node_of_that_block() -> None:
    site = Site()
    change = site.run("INSERT DATA { _:b <urn:p> _:b . GRAPH <urn:g> { _:b <urn:q> 1 } } ; INSERT DATA { _:c <urn:p> _:c }")
    labels = [line.split(" ")[0] for line in short(change.added)]
    assert len(labels) == 3
    assert len(set(labels)) == 2


def test_names_in_strings_comments_and_variables_are_no_calls() -> None:
    site = Site()
    change = site.run("INSERT { <urn:a> <urn:p> ?NOW } WHERE { BIND('RAND() UUID()' AS ?NOW) # BNODE()\n }")
    assert short(change.added) == ["a p RAND() UUID()"]
