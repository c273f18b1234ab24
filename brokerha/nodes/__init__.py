"""SHELLS: the runner and what one process holds.

    runner.py        turn(): receive, step, log, send, apply, answer; used by production and by the simulator
    master_node.py   a master: core, journal, transport, front
    worker_node.py   a worker: core, store, transport, reads
    reading.py       reads through a bounded pool of threads
    amqp_front.py    writes, reads and questions that apps publish
    config.py        the cluster file
    clock.py         the only real clock
"""
