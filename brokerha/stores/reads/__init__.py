"""Reads of a store: their kinds, several reads of one moment, reads inside an open transaction.

    reading.py     answers reads: their kinds, arguments and content types
    kinds.py       kinds of reads and their arguments, the view of the store; ``together``: several reads of one moment
    tables.py      reads of keys and queues in an LMDB transaction, with pending operations on top
    on_files.py    reads of one moment on a store in files, and reads on top of an open transaction
    pending.py     the operations of an open transaction on top of a store's content
    observing.py   reads of an isolated transaction
"""
