"""CORE: the agreed log reaches the workers of each master, and its backups.

    site/         master side: what each worker of a site is, what it is sent, and the orders that follow
    worker/       worker side: transactions and effects in LSN order, one decision at a time
    role/         which process of a master is primary, and what a primary holds back until its backups have it
    journal/      backups follow the journal of their primary: the same records under the same numbers

    PROTOCOL.md   words, messages, steps, rules, invariants
"""
