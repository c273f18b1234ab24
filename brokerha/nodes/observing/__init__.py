"""What a node tells of itself: status, log lines, numbers; it reads, and changes nothing.

    master_view.py     what a master shows of itself
    worker_view.py     what one worker shows of itself: its status row, probes and metrics, how long its loads took
    status.py          the status of the whole cluster
    watching.py        what a master tells unasked, after a while and not after each turn: of its site, of its epochs, of who the masters are
    staleness.py       since when what a master's site holds is not known to be up to date
    hearing.py         whether the ways of a node to the others lead anywhere, and when it leaves a broker node
    cpu_times.py       processor time by what threads are for
    split_log.py       what going back came to at a master since its start
    wire_metrics.py    what the connection of a node to its broker tells /metrics
    check_lines.py     lines of a probe: one for each check, ``[+]journal ok`` or ``[-]broker waiting: connection refused``
"""
