"""The key-value tables that brokerha keeps for itself: their names, keys, values and limits.

Their rows are content like any other: the log, fingerprints, copies and backups hold them. Clients write some of them key by key (about.py),
and never see the others.

    about.py              what a cluster keeps about a repository beside its quads
    branches.py           branches: the three transactions that one of a transaction manager consists of in the order, and what is prepared
    claims.py             claims: which messages of a queue each master may give to its consumers
    pieces.py             messages that are longer than a transaction
    settings.py           settings at run time: their limits, and which are live
    staging.py            large transactions: their parts, before one place in the order commits them all
    table_snapshots.py    snapshots of key-value tables by name, and their limits
"""
