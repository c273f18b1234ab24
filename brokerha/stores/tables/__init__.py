"""Key-value tables and queues on LMDB.

    key_value.py      key-value tables in one LMDB table, in key order
    key_range.py      keys as row keys, and ranges of them, for every kind of store
    snapshots.py      snapshots of tables by name: the rules that must be identical in every store
    queues.py         queues in three LMDB tables: messages in the order of their publication, their places by id
    queue_change.py   what one transaction does to queues, operation by operation
"""
