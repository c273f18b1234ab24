"""What programs import to use a cluster: one `Client`, whatever wire leads to it.

    client.py       Client: update, load, put, delete, status, tpc_begin to tpc_recover (PEP 249); Session: reads its own writes
    reads.py        query, get, range, size, queue: of a client, and inside of a transaction
    transactions.py Transaction: several stores at once, step by step, at one master
    calls.py        what every call goes through: its time, its transaction id, its wire; writes, transactions, queues
    arguments.py    which argument is of a wrong type, by the annotations of public methods
    pipeline.py     many writes at once, bounded, in order
    large.py        LargeTransaction: far more than one message holds, in parts
    exporting.py    all keys of a range at one moment
    loading.py      long RDF input as transactions of bounded size; lines of N-Triples and N-Quads: blank node labels, a graph for triples
    results.py      results of queries as Python values
    outcomes.py     what a reply means: written, or which error
    http_wire.py    Wire over HTTP: reads and questions
    http_lane.py    its writes: ordered batches, sent again until they are answered or their time is over
    http_connections.py connections kept for the next request, and as who they speak, from the environment
    http_nodes.py   which of several nodes is asked, or all of them, and what their answers mean
    http_requests.py    which request over HTTP is which read, step of a transaction, command of an operator, question

    Client ---> Wire.submit(list of (transaction id, body)) ---> future of Reply for each
           ---> Wire.read(kind, name, arguments)            ---> future of the result
           ---> Wire.ask(what, arguments)                   ---> plain data

Every call has a deadline. A write keeps its transaction id however often it is sent, so it is applied at most once; when the
deadline passes first the caller gets OutcomeUnknown with that id, and may ask for it or send the same again.
"""

from brokerha.client.client import Client, Session

__all__ = ["Client", "Session"]
