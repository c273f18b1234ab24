"""A worker's copy and its directory: given away as a snapshot, replaced by one, kept over a split.

    worker_copy.py       a worker's directory: its present copy, snapshots for others, and the copy that replaces it
    directory.py         which copy is the present one, what a start does with damage
    lives.py             whether the last processes that had a copy open closed it cleanly
    frozen.py            the content of a store at one LSN, and how it becomes files of their own while the store goes on
    held.py              the whole content of a store at one LSN, held while somebody looks at all of it
    kept.py              the copy that a worker keeps over a split
    load.py              a snapshot of another worker while it comes in, chunk by chunk, beside the present copy
    snapshots.py         snapshots that a worker gives to others: made, read chunk by chunk, dropped
    snapshot_chunks.py   the chunks of a snapshot: which number lies where, and whether a list of files may be believed
"""
