"""The ingress: what comes from outside is judged here, before a parser of C or Rust, a recursion or the loop's thread sees it.

    limits.py          how deep, how long, how much: every limit of the ingress with its reason
    content_codings.py bodies that are sent compressed: decoded piece by piece, within the limit of what they become
    nesting.py         how deep brackets are nested, by an iterative look at the bytes
    insert_data.py     a long INSERT DATA, cut into documents of whole statements while it comes
    rdf_bodies.py      RDF in any syntax -> N-Quads; terms and graphs as they stand in URLs
    parsers.py         Parsers: a few warm processes that may die of a body, without harm to the node
    parser_process.py  what such a process does
    suspects.py        messages that were in hand when the node ended: the second time they are put aside

    body --> plain? ------------------------------> parsed where it is           small and flat: nothing more to pay
               | no
               +--> a thread --> a parser process --> nesting, entities, then the real parser
                                        |
                                        +-- dies or takes too long --> InvalidRequest, and another process

Heads of requests have their limits on the connection (http/door/server.py), JSON in model/outside/foreign_json.py, msgpack in model/outside/unpacking.py, arguments of reads and
questions in model/outside/shapes.py: they lie where those who read them may import them.

What was admitted is read again by the nodes that execute it, copy it, restore it: the same scanners run there, because what a
node was given by a peer, a backup or an archive was not admitted by this node.
"""
