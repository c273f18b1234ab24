"""Keys, queues and transactions over HTTP.

    keys.py                key-value tables, their snapshots, the control suite; keys, ranges and operations as JSON and msgpack
    queues.py              publishing, taking and looking at messages
    transactions.py        transactions in one request, batches of them, outcomes; several reads at one LSN; step by step
"""
