"""Questions and commands of operators, probes and metrics.

    cluster.py     status, log, fingerprints, waiting, digests
    commands.py    commands about workers, masters, processes, splits, pins, backups, settings: one table
    probes.py      livez, readyz, writable, metrics
    families.py    every metric: type, labels, meaning; for Prometheus and for the page of metrics
"""
