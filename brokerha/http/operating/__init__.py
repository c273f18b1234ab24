"""Questions and commands of operators, probes and metrics.

    cluster.py     status, log, fingerprints, waiting, digests; livez, readyz, writable, metrics
    commands.py    commands about workers, masters, processes, splits, pins, backups, settings: one table
    families.py    every metric: type, labels, meaning; for Prometheus and for the page of metrics
"""
