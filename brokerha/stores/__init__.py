"""What a worker keeps: RDF repositories and key-value tables, and the one store that makes both move together.

    worker_store.py    the Store of a worker: one LSN over all repositories and tables, effects log, durability
    rdf.py             one RDF repository on pyoxigraph: commit with its position, change of an operation, lines
    rdf_query.py       reading a repository: queries, statements, formats, limits; hides the system graph
    rdf_change.py      net changes of quads: QuadChange, PendingQuads, N-Quads text in and out
    sparql_text.py     SPARQL as text: tokens, prologue, operations, what is refused
    sparql_update.py   SPARQL updates as exact, deterministic effects
    key_value.py       key-value tables on LMDB
    memory.py          a store without files, for tests and the simulator
    fingerprint.py     order-independent digest of the content, versioned

                 SPARQL text + tx id + timestamp                      effect
    change_of  ----------------------------------->  QuadChange  ------------->  commit(removed, added, lsn)
                 on the state before it, read only                    one atomic write, position included
"""
