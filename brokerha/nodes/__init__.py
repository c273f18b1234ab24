"""SHELLS: the runner and what one process holds.

    building.py      a node from the cluster file: opens data, connects, composes
    serving.py       one node in the foreground, until a signal
    loop.py          the thread of a node, and calls that others hand in
    tickets.py       who gets the reply of which write
    checking.py      what is checked of a write before it is taken in
    master_view.py   what a master shows of itself
    status.py        the status of the whole cluster
    runner.py        turn(): receive, step, log, send, apply, answer; used by production and by the simulator
    master_node.py   a master: core, journal, transport, front
    worker_node.py   a worker: core, store, transport, reads
    reading.py       reads through a bounded pool of threads
    amqp_front.py    writes, reads and questions that apps publish
    change_log.py    what is told to followers outside, made from the journal
    config.py        the cluster file
    clock.py         the only real clock
"""
