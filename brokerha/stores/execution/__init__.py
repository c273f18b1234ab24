"""How a transaction changes a store: one applied LSN over all repositories, tables and queues.

    worker_store.py   the Store of a worker: one LSN over all repositories, tables and queues; the order of its two commits
    batch.py          transactions on their way to the next commit
    evaluation.py     the repository side of one transaction, before any change is made
    prepared.py       prepared branches and what they block: the rules that must be identical in every store
    staged.py         staged large transactions: the rules that must be identical in every store
    effects_log.py    the last lines of the log, kept by the store itself; they bring repositories up to date when the store opens
    state.py          the state row, written by each commit
    last_changes.py   the LSN of the last change of each repository, table and queue; demands of a transaction on the state before it
"""
