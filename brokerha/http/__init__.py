"""The front door of a master and of a worker: HTTP to the outside, one `Front` to the inside.

    door/         the shared parts of all requests: connections, limits, one request, one answer
    rdf/          RDF over HTTP: SPARQL 1.1 Protocol, Graph Store Protocol, RDF4J
    data/         keys, queues and transactions over HTTP
    operating/    questions and commands of operators, probes and metrics

    app.py        create_app: the handler of each path; the door of a node from the cluster file: address, TLS, users
    guard.py      finds the user of a request, and refuses strangers and users without the role; rights in the stores that it names
    users.py      users of an HTTP door, and the file that lists them
    replaced.py   objects made from files, and made again when the files were replaced: users, and the certificate
    page.py       the status page; its files are in page_files
    page_files/   the files of the status page, as they are sent

    socket --> uvicorn --> Endpoint --> handler(Call) --> Front --> node
                              |             |
                              +--- Answer <-+     an error of model/errors.py becomes its status here, and nowhere else

The event loop never waits for a node and never parses large input: futures wake it, and the pool does the rest.
"""

from brokerha.http.app import create_app
from brokerha.http.door.door import HttpLimits
from brokerha.http.door.server import HttpServer

__all__ = ["HttpLimits", "HttpServer", "create_app"]
