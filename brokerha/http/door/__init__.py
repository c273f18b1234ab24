"""The shared parts of all requests: connections, limits, one request, one answer.

    server.py     HttpServer: uvicorn in its own thread
    accepting.py  accepts connections, up to a limit
    endpoint.py   from ASGI to `Call` and back; catches the errors of all handlers; before it raw paths, a prefix, pages of other sites
    door.py       state shared by all requests: the front, limits of the door, a bounded pool of threads, counters
    call.py       one request: headers, wanted formats, parameters, body; with all checks of client input
    answer.py     one answer, and the only table from errors to status codes
    passing.py    reads and writes on their way to the front, large transactions in parts
"""
