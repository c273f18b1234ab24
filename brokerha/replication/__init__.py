"""CORE: the agreed log reaches the workers of each master, and its backups.

    site/         master side: the state of each worker, the messages to it, and its orders
    worker/       worker side: transactions and effects in LSN order, one decision at a time
    role/         which process of a master is primary, and what a primary holds back for its backups
    journal/      backups follow the journal of their primary: the same records under the same numbers

    PROTOCOL.md   words, messages, steps, rules, invariants
"""
