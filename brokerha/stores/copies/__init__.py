"""A worker's copy and its directory: given away as a snapshot, replaced by one, kept over a split.

    worker_copy.py       a worker's directory: its present copy, snapshots for others, and the copy that replaces it
    directory.py         the directory of a worker: which copy is the present one, and the handling of damage at a start
    lives.py             a count of the processes that had a copy open and did not close it cleanly
    frozen.py            the content of a store at one LSN, written to separate files while the store goes on
    held.py              the whole content of a store at one LSN, held for a fingerprint or a walk
    kept.py              the copy that a worker keeps over a split
    load.py              a snapshot of another worker, received chunk by chunk beside the present copy
    snapshots.py         snapshots that a worker gives to others: made, read chunk by chunk, dropped
    snapshot_chunks.py   the chunks of a snapshot: the place of each, and the check of a list of files
"""
