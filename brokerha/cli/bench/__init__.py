"""``brokerha bench``: what a cluster does, beside what the broker does alone.

    command.py          ``brokerha bench``: what a cluster does with a broker, beside what the broker does alone
    run.py              what ``brokerha bench`` does: a cluster of real processes
    cost.py             what a write costs the nodes of a bench
    nodes.py            nodes that a bench runs: each a process of its own
    group.py            one master with backups to measure with
    site.py             one site to measure with: a master and its workers, each a process with a door of its own
    core.py             does the cost of a write grow with the log
    tx.py               what a transaction over transaction queues costs
    sync.py             how fast a primary is whose writes backups must hold before anybody hears of them
    fail_over.py        how long writes wait when a primary is lost
    healing.py          how fast a worker is healed while its site goes on writing: by a copy, and by replaying the log
    pipeline.py         how fast the pipeline reads, archives, audits and rebuilds
    pipeline_log.py     a synthetic log of any length, for measuring and for tests
    pipeline_plain.py   the pipeline's work as one simple loop in one process: what the jobs on Spark are measured beside
    pipeline_steps.py   one measured step of ``brokerha bench pipeline``, in a process of its own
"""
