"""Questions and commands of operators, probes and metrics.

    cluster.py     status, log, fingerprints, waiting
    digests.py     what one copy holds, bucket by bucket, so that two copies are compared without sending them whole
    peers.py       the masters of the cluster, as the master sees them that is asked; adding one and taking one out
    workers.py     commands about workers, and the list of tasks
    processes.py   who is primary
    splits.py      splits: what becomes of them from now on, and what became of those that are over
    settings.py    settings of the cluster at run time
    pins.py        pins of the log of the master that is asked
    tasks.py       backups, and how far a task is
    probes.py      livez, readyz, writable, metrics
    families.py    every metric: type, labels, meaning; what Prometheus and the page of metrics take from it
"""
