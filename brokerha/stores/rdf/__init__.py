"""RDF repositories on pyoxigraph: commits with their position, net changes of quads, reads, formats.

    repositories.py   all RDF repositories: what waits for each, how far each is durable
    drafts.py         copies of repositories in which large transactions are made while they are staged
    repository.py     one RDF repository on pyoxigraph: commit with its position, change of an operation, lines
    change.py         net changes of quads: QuadChange, PendingQuads, N-Quads text in and out
    view.py           the quads as a transaction sees them: engine, pending, its own changes
    query.py          reading a repository: queries, statements, limits; hides the system graph
    question.py       a read of a repository in the form that an update can evaluate
    stream.py         long results, handed over from the one thread that may read them
    formats.py        which result format a reader gets
    in_xml.py         what RDF/XML and results in XML cannot say
    terms.py          short names for terms
    errors.py         which errors of the engine are damage of its files
"""
