"""RDF over HTTP: SPARQL 1.1 Protocol, Graph Store Protocol, RDF4J.

    sparql.py                  SPARQL 1.1 Protocol, and the service description of an endpoint; long N-Triples and N-Quads in parts
    repositories.py            RDF4J repositories: list, query, create, remove, configure, size, contexts, namespaces
    statements.py              RDF4J statements: read, add, replace, delete, update; its wild card; whole graphs: W3C's Graph Store Protocol, RDF4J's rdf-graphs
    rdf4j_transactions.py      RDF4J transactions, on the same machinery
    transaction_documents.py   RDF4J's documents of changes in XML
"""
