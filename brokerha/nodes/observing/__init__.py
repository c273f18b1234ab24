"""What a node reports about itself: status, log lines, metrics; it reads and changes nothing.

    master_view.py     status rows, log lines, outcomes, probes and metrics of one master; each going back since its start
    worker_view.py     status row, probes, metrics and load times of one worker
    status.py          the status of the whole cluster
    watching.py        periodic reports of a master: about its site, its epochs and the masters, at intervals, not after each turn
    hearing.py         whether the connections of a node reach the others, and when it leaves a broker node
    staleness.py       age of the data at a master's site
    probes.py          probes and numbers that all kinds of nodes share: checks, processor time, the connection to the broker
"""
