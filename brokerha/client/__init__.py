"""The client API that programs import: one `Client` for every wire.

    client.py       Client: update, load, put, delete, status, tpc_begin to tpc_recover (PEP 249); Session: sees its own writes
    reads.py        query, get, range, size, queue: for a client, and inside a transaction; query results as Python values
    transactions.py Transaction: several stores at once, step by step, at one master
    calls.py        the common path of every call: its timeout, transaction id and wire; writes, transactions, queues
    arguments.py    check of argument types, by the annotations of public methods
    pipeline.py     many writes at once, bounded, in order
    large.py        LargeTransaction: far more than fits into one message, in parts
    exporting.py    all keys of a range at one moment
    loading.py      RDF of any length as transactions of bounded size; lines of N-Triples and N-Quads
    outcomes.py     meaning of a reply: written, or which error
    http_wire.py    Wire over HTTP: reads and questions
    http_lane.py    writes over HTTP: ordered batches, sent again until they are answered or time out
    http_connections.py pool of HTTP connections, and credentials from the environment
    http_nodes.py   choice of a node to ask, questions to all nodes, and the meaning of their answers
    http_requests.py the HTTP request of each read, transaction step, operator command and question
    http_shapes.py      shapes of the answers of a node

    Client ---> Wire.submit(list of (transaction id, body)) ---> future of Reply for each
           ---> Wire.read(kind, name, arguments)            ---> future of the result
           ---> Wire.ask(what, arguments)                   ---> plain data

Every call has a deadline. A write keeps its transaction id when it is sent again, so it is applied at most once. When the deadline
passes first, the caller gets OutcomeUnknown with that id. It can ask for the outcome or send the write again.
"""

from brokerha.client.client import Client, Session

__all__ = ["Client", "Session"]
