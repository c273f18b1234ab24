"""Reads of a master's door that go straight to the workers of the same machine: no broker, no loop of a node between.

frames.py    what goes over the socket, and where the socket is
asking.py    the door's side: one connection to each worker that is near, in the door's event loop
asking_thread.py   the same for reads that come over AMQP, in a thread of its own
answering.py the worker's side: a thread that takes questions and sends answers

    door --- asking ===== unix socket in the worker's folder ===== answering --- worker's front
      |                                                                              a key: answered at once
      `--- front.read, over the broker: workers elsewhere, and whatever a near        the rest: threads of its pool
           worker does not answer

A process that may open the socket may read the files beside it (mode 0600), so none has to prove who it is.
"""
