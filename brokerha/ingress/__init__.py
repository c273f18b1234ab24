"""The ingress: checks of foreign input, before a parser of C or Rust, a recursion or the loop's thread sees it.

    limits.py          every limit of the ingress, with its reason: depth, length, amount; the nesting depth of brackets, by an iterative scan
    content_codings.py compressed bodies: decoded piece by piece, within the limit of their decoded size
    insert_data.py     a long INSERT DATA, cut into documents of whole statements while it comes
    rdf_bodies.py      RDF in any syntax -> N-Quads; terms and graphs of URLs
    parsers.py         Parsers: a few warm processes that can die of a body, without harm to the node
    parser_process.py  the program of such a process
    suspects.py        messages that were in hand when the node ended: the second time they are put aside

    body --> plain? ------------------------------> parsed at once               small and flat: no extra cost
               | no
               +--> a thread --> a parser process --> nesting, entities, then the real parser
                                        |
                                        +-- dies or takes too long --> InvalidRequest, and another process

The limits of other input are where its readers can import them: heads of requests on the connection (http/door/server.py), JSON in
model/outside/foreign_json.py, msgpack in model/outside/unpacking.py, arguments of reads and questions in model/outside/shapes.py.

Nodes that execute, copy or restore admitted input read it again. The same scanners run there, because input from a peer, a backup
or an archive was not admitted by this node.
"""
