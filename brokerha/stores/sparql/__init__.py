"""SPARQL as text: admission, and updates as exact, deterministic effects.

    tokens.py      SPARQL cut into tokens; limits of nesting; names in full
    unknown.py     functions that a text calls by their IRI and that the engine does not have
    refusals.py    refused parts: LOAD, SERVICE, reserved names
    request.py     the operations of an update request, the kind of a query
    template.py    quads with variables and blank nodes; the short way for plain data
    functions.py   NOW, RAND, UUID, BNODE with the same values on every site
    scratch.py     an open transaction's operations on one repository as one text for the engine
    modify.py      one DELETE/INSERT WHERE: from solutions to quads
    update.py      update requests as exact, deterministic effects
    union.py       updates where the default graph is the union of all graphs
    protocol.py    admission of updates and queries; parameters of protocols, written into the text: base, bindings, slices, datasets of updates
    targets.py     graphs that an operation or a query names, for rights by graph
"""
