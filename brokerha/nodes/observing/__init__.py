"""What a node reports about itself: status, log lines, metrics; it reads and changes nothing.

    master_view.py     status rows, log lines, outcomes, probes and metrics of one master
    worker_view.py     status row, probes, metrics and load times of one worker
    status.py          the status of the whole cluster
    watching.py        periodic reports of a master: about its site, its epochs and the masters, at intervals, not after each turn
    hearing.py         whether the connections of a node reach the others, and when it leaves a broker node; age of the data at a master's site
    process_metrics.py   processor time by the purpose of threads; metrics of the connection to the broker
    split_log.py       each going back of a master since its start
    check_lines.py     lines of a probe: one for each check, ``[+]journal ok`` or ``[-]broker waiting: connection refused``
"""
