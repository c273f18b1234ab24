"""What all requests share: connections, limits, one request, one answer.

    server.py     HttpServer: uvicorn in a thread of its own
    outside.py    before routing: raw paths, a prefix, pages of other sites
    endpoint.py   from ASGI to `Call` and back; the net under every handler
    door.py       what all requests share: the front, how much the door takes in at once, a bounded pool of threads, counters
    call.py       one request: headers, wanted formats, parameters, body; everything that a client can get wrong is found here
    answer.py     one answer, and the one table from errors to status codes
    passing.py    reads and writes on their way to the front, large transactions in parts
"""
