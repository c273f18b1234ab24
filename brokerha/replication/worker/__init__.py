"""Worker side: transactions and effects in LSN order, one decision at a time.

    core.py        WorkerCore: takes transactions and effects in LSN order, one decision at a time
    config.py      settings of a worker towards its master, and its state at the start
    kept_here.py   the copy that a worker keeps by order of its master
"""
