"""Reads of a store: which kinds there are, several at one moment, inside of an open transaction.

    reading.py     answering reads: which kinds there are, which arguments they take, what comes back
    kinds.py       kinds of reads: their arguments, what readers see of a store, and the answers that need nothing else
    tables.py      reads of keys and queues within an LMDB transaction, with what is pending laid over
    queues.py      which messages of a queue a read of kind ``queue`` asks for
    together.py    the read of kind ``together``: several reads of one moment, over all stores
    on_files.py    reads of a store in files at one moment, and reads on top of the operations of an open transaction
    pending.py     operations of an open transaction, laid over what a store holds
    observing.py   reads of an isolated transaction
"""
