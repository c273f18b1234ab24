"""SPARQL as text: what is let in, and updates as exact, deterministic effects.

    text.py        admission: may this update or query go on?
    tokens.py      SPARQL cut into tokens; limits of nesting; names in full
    refusals.py    LOAD, SERVICE, reserved names
    unknown.py     functions that a text calls by their IRI and that the engine does not know
    request.py     the operations of an update request, the kind of a query
    template.py    quads with variables and blank nodes in them; the short way for plain data
    functions.py   NOW, RAND, UUID, BNODE, the same on every site
    modify.py      one DELETE/INSERT WHERE: solutions become quads
    update.py      update requests as exact, deterministic effects
    scratch.py     the operations of an open transaction on one repository as one text for the engine
    union.py       updates where the default graph is the union of all graphs
    protocol.py    what protocols say beside a text, written into it: bindings, slices, datasets of updates
"""
