"""How a transaction changes a store: one applied LSN over all repositories, tables and queues.

    worker_store.py   the Store of a worker: one LSN over all repositories, tables and queues; the order of its two commits
    batch.py          transactions on their way to the next commit
    evaluation.py     the repository side of one transaction while nothing is changed yet
    prepared.py       what is prepared, and what it keeps others from: the rules that every store must share to the word
    staged.py         what is staged of large transactions: the rules that every store must share to the word
    presence.py       which repositories exist, as a transaction sees it
    expectations.py   what a transaction demands of the state before it
    effects_log.py    results of the last transactions, kept by the store itself
    state.py          the row that says where the store stands
    last_changes.py   when each repository, table and queue was changed last
    recovery.py       bringing repositories up from the effects log when the store opens
"""
