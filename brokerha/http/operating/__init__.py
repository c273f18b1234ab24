"""Questions and commands of operators, probes and metrics.

    cluster.py     status, log, fingerprints, waiting, digests
    commands.py    commands about workers, masters, processes, splits, pins, backups, settings: one table
    probes.py      livez, readyz, writable, metrics
    families.py    every metric: type, labels, meaning; what Prometheus and the page of metrics take from it
"""
