"""Reads: on their way through the workers of a master, and in the threads of one worker.

    reading.py        reads of a master: futures on one side, messages on the other
    routing.py        the way of each read through the workers of a master, and the patience with each worker
    worker_order.py   the workers of a master, in the order in which they get reads
    pool.py           answers the reads of one store in its own threads, without blocking callers, and sends answers in pieces
    book.py           the book of a worker's reads: waiting, running and overdue ones
"""
