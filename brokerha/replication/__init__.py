"""CORE: the agreed log reaches the workers.

    PROTOCOL.md    messages, steps, invariants
    feed.py        master side: who executes, who applies, what was confirmed, what to send again
    worker.py      WorkerCore: takes transactions and effects in LSN order, one decision at a time
"""
