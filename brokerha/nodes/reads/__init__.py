"""Reads: on their way through the workers of a master, and in the threads of one worker.

    reading.py        reads of a master: futures on one side, messages on the other
    routing.py        the way of each read through the workers of a master
    worker_order.py   the workers of a master in the order in which they get reads
    patience.py       how long one waits for a worker before another is asked the same, and how often one may do so
    pool.py           answers the reads of one store in threads of its own, and lets none of them hold up its caller
    book.py           the book of a worker's reads: which wait, which run, which have outstayed their time
    answers.py        answers to reads on their way from the threads of a worker's pool to the loop that sends them
"""
