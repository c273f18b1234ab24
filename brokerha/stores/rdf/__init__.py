"""RDF repositories on pyoxigraph: commits with their position, net changes of quads, reads, formats.

    repositories.py   the RDF repositories of one worker, their pending changes, and how far each is durable
    drafts.py         copies of repositories that receive a large transaction while it is staged
    repository.py     one RDF repository on pyoxigraph: commit with its position, change of an operation, lines
    change.py         net changes of quads: QuadChange, PendingQuads, N-Quads text in and out
    view.py           the quads as a transaction sees them: engine, pending changes, its own changes
    query.py          reads of a repository: queries, statements, limits; hides the system graph
    question.py       a read of a repository in the form that an update can evaluate
    stream.py         long results, passed on from the one thread that can read them
    formats.py        the result format for a reader; refuses RDF/XML and results in XML that no reader could parse
    terms.py          short names for terms
    errors.py         the meaning of the engine's errors: damage, a full disk, or a bad request
"""
