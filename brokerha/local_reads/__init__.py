"""Reads of a master's door that go directly to the workers of the same machine, without the broker or a node's loop.

frames.py    the frames of the socket, and its place
asking.py    the door's side: one connection to each near worker, in the door's event loop; for reads over AMQP in its own thread
answering.py the worker's side: a thread that takes reads and sends answers

    door --- asking ===== unix socket in the worker's folder ===== answering --- worker's front
      |                                                                              a key: answered at once
      `--- front.read, over the broker: other workers, and reads that no near        the rest: threads of its pool
           worker answers

Only processes with the right to read the files beside the socket can open it (mode 0600), so it needs no authentication.
"""
