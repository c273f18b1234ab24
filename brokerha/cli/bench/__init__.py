"""``brokerha bench``: what a cluster does, beside what the broker does alone.

    command.py          which measurement is made, and what it needs
    options.py          what the command line says
    site.py             a cluster of real processes, each with a door of its own
    load.py             so many writes under way all the time, and when each of them ended
    writes.py           writes per second, latency, and what a write costs the nodes
    core.py             does the cost of a write grow with the log
    healing.py          how fast a worker is healed while its site goes on writing: by a copy, and by replaying the log
    backups.py          what backups and transactions cost, and how long writes wait when a primary is lost
    pipeline.py         how fast the pipeline reads, archives, audits and rebuilds
    pipeline_log.py     a synthetic log of any length, for measuring and for tests
    pipeline_plain.py   the pipeline's work as one simple loop in one process: what the jobs on Spark are measured beside
    pipeline_steps.py   one measured step of ``brokerha bench pipeline``, in a process of its own
"""
