"""Worker side: transactions and effects in LSN order, one decision at a time.

    core.py        WorkerCore: takes transactions and effects in LSN order, one decision at a time
    config.py      settings of a worker, and what it finds when it starts
    kept_here.py   what is kept of the own content, by order
"""
