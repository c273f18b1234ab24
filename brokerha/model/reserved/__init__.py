"""The key-value tables that brokerha keeps for itself: their names, keys, values and limits.

Their rows are content like any other: the log, fingerprints, copies and backups include them. Clients write some of them key by
key (about.py), and never see the others.

    about.py              namespaces and settings of repositories
    branches.py           branches: the three steps of one transaction of a transaction manager, and its prepared value
    claims.py             claims: the messages of a queue that each master can give to its consumers
    pieces.py             messages that are longer than a transaction
    settings.py           settings at run time: their limits, and which are live
    staging.py            large transactions: their parts, before one commit
    table_snapshots.py    snapshots of key-value tables by name, and their limits
"""
