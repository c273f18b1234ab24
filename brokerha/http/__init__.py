"""The front door of a master and of a worker: HTTP to the outside, one `Front` to the inside.

    server.py        HttpServer: uvicorn in a thread of its own
    heads.py         limits of request lines, headers and trailers on each connection
    app.py           create_app: which path is answered by what
    opening.py       the door of a node as the cluster file wants it: address, TLS, users
    guard.py         who stands at the door; users.py, users_file.py: whom it knows
    roles.py         what a path is about; rights.py: what each operation of a transaction needs
    door.py          what all requests share: the front, limits, a bounded pool of threads, counters
    call.py          one request: headers, parameters, body; everything that a client can get wrong is found here
    answer.py        one answer, and the one table from errors to status codes
    outside.py       before routing: raw paths, a prefix, pages of other sites
    endpoint.py      from ASGI to `Call` and back; the net under every handler
    accept.py        which of several formats a caller wants
    passing.py       reads and writes on their way to the front
    repositories.py  RDF4J repositories: list, query, create, remove, configure, size, contexts
    configurations.py      what such a configuration says, and how it is written
    namespaces.py    RDF4J namespaces
    graphs.py        whole graphs: W3C's Graph Store Protocol, RDF4J's rdf-graphs
    statements.py    RDF4J statements: read, add, replace, delete, update
    sparql.py        SPARQL 1.1 Protocol
    service_description.py what an endpoint tells of itself
    tables.py        small SPARQL result tables (repositories, contexts)
    keys.py          key-value tables
    key_forms.py     keys, values and ranges as JSON and msgpack
    transactions.py  transactions in one request, batches of them, outcomes
    open_transactions.py   transactions step by step
    stepping.py      one step on its way to the front; messages of queues as JSON or msgpack
    operation_forms.py     operations in JSON
    queues.py        publish, take, look
    rdf4j_transactions.py  RDF4J transactions, on the same machinery
    rdf_transactions.py    RDF4J's documents of changes in XML
    cluster.py       status, log, fingerprints, waiting
    control.py       the control suite
    workers.py       commands about workers, and the list of tasks
    processes.py     who is primary
    tasks.py         backups, and how far a task is
    fields.py        the JSON object that a command is given
    families.py      every metric: type, labels, meaning; what Prometheus and the page of metrics take from it
    probes.py        livez, readyz, writable, metrics
    page.py          the status page; its files are in page_files

    socket --> uvicorn --> Endpoint --> handler(Call) --> Front --> node
                              |             |
                              +--- Answer <-+     an error of model/errors.py becomes its status here, and nowhere else

The event loop never waits for a node and never parses what is big: futures wake it up, and the pool does the rest.
"""

from brokerha.http.app import create_app
from brokerha.http.limits import HttpLimits
from brokerha.http.server import HttpServer

__all__ = ["HttpLimits", "HttpServer", "create_app"]
