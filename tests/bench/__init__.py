"""``python -m tests.bench``: performance of a cluster, compared with the broker alone.

    __main__.py         choice of the measurement, and its requirements
    options.py          options of the command line
    site.py             a cluster of real processes, each with its own door; a constant number of concurrent writes
    yardstick.py        the broker alone, measured in the same run
    writes.py           writes per second, latency, and the cost of a write for the nodes, also as the log grows
    healing.py          speed of healing a worker while its site goes on writing: by a copy, and by replaying the log
    backups.py          cost of backups and transactions, and pauses of writes when a process is lost
    pipeline.py         speed of the pipeline's read, archive, audit and rebuild
    pipeline_log.py     a synthetic log of any length, for measuring and for tests
    pipeline_plain.py   the pipeline's work as a simple loop in one process, to compare the Spark jobs with
    pipeline_steps.py   one measured step of ``python -m tests.bench pipeline``, in its own process
"""
