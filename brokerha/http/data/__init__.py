"""Keys, queues and transactions over HTTP.

    keys.py                key-value tables
    key_forms.py           keys, values and ranges as JSON and msgpack
    snapshots.py           snapshots of tables by name
    queues.py              publish, take, look
    transactions.py        transactions in one request, batches of them, outcomes
    open_transactions.py   transactions step by step
    stepping.py            one step on its way to the front; messages of queues as JSON or msgpack
    operation_forms.py     operations in JSON
    moment.py              several reads of one moment: ``POST /together``, over all stores at one LSN
    control.py             the control suite
"""
