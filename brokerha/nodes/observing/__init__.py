"""What a node tells of itself: status, log lines, numbers; it reads, and changes nothing.

    master_view.py     what a master shows of itself
    worker_view.py     what one worker shows of itself: its status row, probes and metrics
    status.py          the status of the whole cluster
    watching.py        what a master tells unasked: after a while, not after each turn
    rates.py           how busy a master was within the last hour, for the charts of the status page
    staleness.py       since when what a master's site holds is not known to be up to date
    cpu_times.py       processor time by what threads are for
    site_log.py        what happens at a site, as lines in the log of its master
    epoch_log.py       what happens to the epochs of a master, as lines in its log, and numbers of it for /metrics
    split_log.py       what going back came to at a master since its start
    split_reports.py   the split book of a master for whoever asks, read beside its loop
    load_watch.py      how long each part of a load took
    wire_metrics.py    what the connection of a node to its broker tells /metrics
    check_lines.py     lines of a probe: one for each check, ``[+]journal ok`` or ``[-]broker waiting: connection refused``
"""
