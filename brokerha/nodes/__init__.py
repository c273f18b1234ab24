"""SHELLS: the runner and what one process holds.

    building.py      a node from the cluster file: opens data, connects, composes
    serving.py       one node in the foreground, until a signal
    loop.py          the thread of a node, and calls that others hand in
    tickets.py       who gets the reply of which write
    checking.py      what is checked of a write or a read before it is taken in
    master_view.py   what a master shows of itself
    status.py        the status of the whole cluster
    runner.py        turn(): receive, step, log, send, apply, answer; used by production and by the simulator
    master_node.py   a master: core, journal, transport, front
    worker_node.py   a worker: core, store, transport, reads
    reading.py       reads of a master: futures on one side, messages on the other
      reads_routing.py   where each read goes, goes next, goes too (reads_queue.py: in which order; reads_patience.py: when)
    read_pool.py     reads of a worker, in threads that may be given up (read_book.py: what waits, runs, is stuck)
    read_answers.py  ... and on their way back
    amqp_front.py    writes, reads and questions that apps publish
    change_log.py    what is told to followers outside, made from the journal
    config.py        the cluster file
    timetable.py     when what is due
    clock.py         the only real clock
"""
