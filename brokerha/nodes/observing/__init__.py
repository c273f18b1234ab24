"""What a node reports about itself: status, log lines, metrics; it reads and changes nothing.

    master_view.py     status rows, log lines, outcomes, probes and metrics of one master
    worker_view.py     status row, probes, metrics and load times of one worker
    status.py          the status of the whole cluster
    watching.py        periodic reports of a master: about its site, its epochs and the masters, at intervals, not after each turn
    staleness.py       age of the data at a master's site: the time since it was known to be up to date
    hearing.py         whether the connections of a node reach the others, and when it leaves a broker node
    cpu_times.py       processor time by the purpose of threads
    split_log.py       each going back of a master since its start
    wire_metrics.py    metrics of a node's connection to its broker
    check_lines.py     lines of a probe: one for each check, ``[+]journal ok`` or ``[-]broker waiting: connection refused``
"""
