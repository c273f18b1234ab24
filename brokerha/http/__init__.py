"""The front door of a master and of a worker: HTTP to the outside, one `Front` to the inside.

    door/         what all requests share: connections, limits, one request, one answer
    guard/        who stands at the door, and what each may do
    rdf/          RDF over HTTP: SPARQL 1.1 Protocol, Graph Store Protocol, RDF4J
    data/         keys, queues and transactions over HTTP
    operating/    questions and commands of operators, probes and metrics

    app.py        create_app: which path is answered by what
    opening.py    the door of a node as the cluster file wants it: address, TLS, users
    replaced.py   what is made from files, made anew when they were replaced: users, and the certificate
    page.py       the status page; its files are in page_files
    page_files/   what the status page is made of, as it is sent

    socket --> uvicorn --> Endpoint --> handler(Call) --> Front --> node
                              |             |
                              +--- Answer <-+     an error of model/errors.py becomes its status here, and nowhere else

The event loop never waits for a node and never parses what is big: futures wake it up, and the pool does the rest.
"""

from brokerha.http.app import create_app
from brokerha.http.door.door import HttpLimits
from brokerha.http.door.server import HttpServer

__all__ = ["HttpLimits", "HttpServer", "create_app"]
